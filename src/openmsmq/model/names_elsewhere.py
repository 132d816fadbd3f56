"""Format names of queues of this machine, as other machines understand them (deviation D-108)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from openmsmq.model import names
from openmsmq.model.errors import MsmqError

_NAMES_KEPT: Final = 512  # cached names: most messages use the same few


@lru_cache(_NAMES_KEPT)
def name_for_others(format_name: str, computer: str) -> str:
    """Return the format name that identifies a queue of this machine on other machines, with the computer name instead
    of `.` or `localhost`. A name that needs no change, or cannot be parsed, is returned as it is."""
    if not format_name:
        return ""
    try:
        name = names.parse_format_name(format_name)
    except MsmqError:
        return format_name
    elements = name.elements if isinstance(name, names.MultipleElementFormatName) else (name,)
    given = [_named_with(element, computer) for element in elements]
    return ",".join(map(str, given)) if given != list(elements) else format_name


def _named_with(name: names.SingleFormatName, computer: str) -> names.SingleFormatName:
    if isinstance(name, names.DirectFormatName) and name.host.lower() in (".", "localhost"):
        return replace(name, protocol="OS", address=computer)
    return name
