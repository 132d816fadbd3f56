"""Connector queues: where messages for foreign systems wait for a connector application ([MS-MQMQ] 1.1, 2.1.6).

Each foreign site has two of them, one for messages of transactions. A directory would say which sites there are and
which machines belong to them; without one the operator does, as `ForeignSite`s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from openmsmq.model import names
from openmsmq.queueing.transit import TransitQueue

CONNECTOR_PREFIX = b"connector/"
_PROTOCOLS = frozenset(["TCP", "OS"])  # what reaches a computer; a URL leads to a web server


@dataclass(frozen=True, slots=True)
class ForeignSite:
    """A site whose machines run no Message Queuing. `machines` are the names and addresses that senders use."""

    identifier: UUID
    name: str
    machines: tuple[str, ...]

    def format_name(self, *, exactly_once: bool) -> names.ConnectorFormatName:
        suffix = names.Suffix.XACTONLY if exactly_once else names.Suffix.NONE
        return names.ConnectorFormatName(self.identifier, suffix)


@dataclass(slots=True, eq=False)
class ConnectorQueue(TransitQueue):
    """Its path name is its format name: there is no other ([MS-MQMQ] 2.1.1)."""

    format_name: names.ConnectorFormatName = field(kw_only=True)


def connector_definition(number: int) -> bytes:
    """The name under which the store keeps a connector queue: its properties."""
    return CONNECTOR_PREFIX + str(number).encode()


def foreign_host(name: names.FormatName) -> str:
    """The machine that a message for a queue goes to, as foreign sites list it; empty where the name has none."""
    if isinstance(name, names.DirectFormatName) and name.protocol.upper() in _PROTOCOLS:
        return name.host.lower()
    return ""
