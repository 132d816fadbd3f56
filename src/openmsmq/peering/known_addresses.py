"""Addresses of queue managers that neither a route nor the directory contains, from their first contact on.

A session proves no identity: its peer can claim any identifier. So messages for an identifier are sent only to the
address of its first contact, where its messages were accepted or to which messages were delivered (deviation D-107).
"""

from __future__ import annotations

import logging
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from openmsmq.model.errors import MsmqError
from openmsmq.store import Drop, Operation, Put

logger = logging.getLogger(__name__)

PREFIX = b"peer-address/"  # prefix of definitions; the identifier follows
MOST_KNOWN = 10_000  # queue managers
MOST_OF_ADDRESS = 256  # maximum of these with the same address
DAY = 86_400  # seconds
LIFETIME = 30 * DAY  # without contact; messages wait for four days

_SECONDS = struct.Struct("<Q")


@dataclass(slots=True)
class _Known:
    """`seen`: seconds since 1970 UTC, at most a day before the last contact."""

    address: str
    seen: int


class KnownAddresses:
    """Addresses by identifier, in the store and in memory. Every operation takes constant time."""

    def __init__(
        self,
        definitions: Mapping[bytes, bytes],
        note: Callable[[Sequence[Operation]], None],
        seconds: Callable[[], int],
        *,
        follow: bool = False,
    ) -> None:
        """`note` writes operations to the store and raises MsmqError; `seconds` is the time since 1970 UTC. With
        `follow` a later address replaces an earlier one."""
        self._note, self._seconds, self._follow = note, seconds, follow
        self._known: OrderedDict[bytes, _Known] = OrderedDict()  # oldest contact first
        self._at: dict[str, OrderedDict[bytes, None]] = {}  # identifiers by address, in the same order
        self._is_full = False
        found = []
        for name, value in definitions.items():
            if name.startswith(PREFIX):
                (seen,) = _SECONDS.unpack_from(value)
                found.append((seen, bytes.fromhex(name.removeprefix(PREFIX).decode()), value[_SECONDS.size :].decode()))
        for seen, identifier, address in sorted(found):
            self._keep(identifier, _Known(address, seen))

    def __len__(self) -> int:
        return len(self._known)

    def of(self, identifier: bytes) -> str | None:
        """Return the address of a queue manager; None if it is unknown."""
        known = self._latest(identifier)
        if known is None or known.seen < self._seconds() - LIFETIME:
            return None
        return known.address

    def met(self, identifier: bytes, address: str) -> None:
        """Note that a queue manager at this address has sent accepted messages, or gets messages. The first address is
        kept. If the store is full, nothing is stored, and the next contact tries again."""
        now = self._seconds()
        known = self._latest(identifier)
        if known is not None and known.seen >= now - LIFETIME:
            if known.address != address and not self._follow:
                return
            if known.address == address and now - known.seen < DAY:
                return
        gone = self._to_forget(identifier, address, now)
        if gone is None:
            return
        operations: list[Operation] = [Drop(_name(each)) for each in gone]
        operations.append(Put(_name(identifier), _SECONDS.pack(now) + address.encode()))
        try:
            self._note(operations)
        except MsmqError as error:
            logger.warning(
                "could not store that queue manager %s is at %s; the next message of it tries again: %s",
                identifier.hex(), address, error,
            )  # fmt: skip
            return
        for each in (*gone, identifier):
            self._forget(each)
        self._keep(identifier, _Known(address, now))

    def _latest(self, identifier: bytes) -> _Known | None:
        known = self._known.get(identifier)
        if known is not None:
            known.seen = min(known.seen, self._seconds())  # the clock may have been set back
        return known

    def _to_forget(self, identifier: bytes, address: str, now: int) -> list[bytes] | None:
        """Return the entries to remove for a new one; None if there is no room."""
        at_address: Mapping[bytes, None] = self._at.get(address, {})
        if identifier not in at_address and len(at_address) >= MOST_OF_ADDRESS:
            self._is_full = False
            return [next(iter(at_address))]
        if identifier in self._known or len(self._known) < MOST_KNOWN:
            self._is_full = False
            return []
        oldest = next(iter(self._known))
        if self._known[oldest].seen <= now - 2 * DAY:
            return [oldest]
        if not self._is_full:
            logger.warning(
                "%d queue managers without a route have connected within two days, which is the limit of stored "
                "addresses; messages for others go to any peer claiming their identifier. Name them in routing_file",
                MOST_KNOWN,
            )  # fmt: skip
        self._is_full = True
        return None

    def _keep(self, identifier: bytes, known: _Known) -> None:
        self._known[identifier] = known
        self._at.setdefault(known.address, OrderedDict())[identifier] = None

    def _forget(self, identifier: bytes) -> None:
        known = self._known.pop(identifier, None)
        if known is not None:
            at_address = self._at[known.address]
            del at_address[identifier]
            if not at_address:
                del self._at[known.address]


def _name(identifier: bytes) -> bytes:
    return PREFIX + identifier.hex().encode()
