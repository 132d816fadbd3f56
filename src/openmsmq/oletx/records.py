"""Records of a transaction manager in the store: JSON, by unit of work.

| record | contents | written | dropped | |---|---|---|---|
| note | the superior, and the prepared subordinates | before the vote OK | by the commit or the abort |
| decision | the subordinates that have voted OK | with the local commit | when all have committed |
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from openmsmq.oletx.structures import Partner


class BadRecord(ValueError):
    """A record that this version cannot read."""


class Note(NamedTuple):
    superior: Partner
    subordinates: tuple[Partner, ...] = ()


def encode_note(note: Note) -> bytes:
    return json.dumps({"superior": _listed(note.superior), "subordinates": _all(note.subordinates)}).encode()


def decode_note(data: bytes) -> Note:
    """Parse a note. Raises BadRecord."""
    try:
        values = json.loads(data)
        return Note(_partner(values["superior"]), tuple(map(_partner, values["subordinates"])))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadRecord(f"the note of a prepared transaction can't be read: {error}") from error


def encode_decision(subordinates: Iterable[Partner]) -> bytes:
    return json.dumps({"subordinates": _all(subordinates)}).encode()


def decode_decision(data: bytes) -> tuple[Partner, ...]:
    """Return the subordinates in a decision. Raises BadRecord."""
    try:
        return tuple(map(_partner, json.loads(data)["subordinates"]))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadRecord(f"the decision on a transaction can't be read: {error}") from error


def _listed(partner: Partner) -> list[str | int]:
    return [str(partner.cid), partner.host, partner.protocols]


def _all(partners: Iterable[Partner]) -> list[list[str | int]]:
    return [_listed(partner) for partner in partners]


def _partner(values: list[str | int]) -> Partner:
    cid, host, protocols = values
    return Partner(UUID(str(cid)), str(host), int(protocols))
