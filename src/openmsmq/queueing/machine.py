"""Identity of a queue manager, and limits of the tables that callers can fill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from openmsmq.model import names
from openmsmq.model.constants import INFINITE, QueueAccessMask
from openmsmq.model.security import SecurityDescriptor
from openmsmq.queueing.outgoing_queues import ForeignSite


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Maximum numbers of application queues, in total and per owner, and of outgoing queues. Each is a setting of the
    same name.

    A queue costs 4 KB of memory, two definitions in the log and 1/3 ms at each start. Open queues, cursors and
    transactions are limited per association: `rpc.association.MAX_HANDLES`.
    """

    max_queues: int = 100_000
    max_queues_per_owner: int = 10_000
    max_outgoing_queues: int = 16_384


_LOCALHOST: Final = ("127.0.0.1", "::1")  # the same host in two protocols


def _everything(owner: str) -> int:
    return int(QueueAccessMask.GENERIC_ALL)


@dataclass(frozen=True, slots=True)
class Machine:
    """Identity of this queue manager. `addresses` are the addresses by which DIRECT=TCP reaches it, formatted by
    `str(ipaddress.ip_address(...))`. All loopback addresses are local, unless `own_loopback` is set because other queue
    managers share the loopback interface; then only those in `addresses` are. `aliases` are further computer names in
    lower case: former ones and configured ones. `former` are the identifiers that it had before it moved into a domain.
    `everyones_access` returns the access mask of Everyone for a new queue, given the SID of its owner.

    Quotas are in kilobytes.
    """

    computer_name: str
    identifier: bytes
    qualified_name: str = ""
    addresses: frozenset[str] = frozenset()
    own_loopback: bool = False
    aliases: frozenset[str] = frozenset()
    quota: int = INFINITE
    journal_quota: int = INFINITE
    security: SecurityDescriptor | None = None
    default_time_to_reach_queue: int = 345600  # seconds, 4 days ([MS-MQDMPR] 3.1.1.12)
    foreign_sites: tuple[ForeignSite, ...] = ()
    limits: MachineLimits = MachineLimits()
    former: frozenset[bytes] = frozenset()
    everyones_access: Callable[[str], int] = _everything

    def has_identifier(self, identifier: bytes) -> bool:
        """Whether an identifier is the current or a former one of this queue manager."""
        return identifier == self.identifier or identifier in self.former

    def is_local(self, host: str) -> bool:
        """Whether a computer name or address, in any spelling, denotes this machine."""
        host = host.lower()
        host = host if host == "." else host.removesuffix(".")  # trailing dot of an absolute name
        own = (".", "localhost", self.computer_name.lower(), self.qualified_name.lower())
        if host in own or host in self.aliases:
            return True
        address = names.parse_address(host)
        if address is None:
            return False
        if str(address) in self.addresses or address.is_unspecified:
            return True
        if not address.is_loopback:
            return False
        return not self.own_loopback or (str(address) in _LOCALHOST and not self.addresses.isdisjoint(_LOCALHOST))
