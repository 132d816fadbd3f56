"""From the name of a destination to the next hops ([MS-MQQB] 3.1.7.4, 3.1.7.5; deviation D-107)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from openmsmq.model import names
from openmsmq.packet.headers import NO_GUID
from openmsmq.transport.reaching import NextHop


@dataclass(frozen=True, slots=True)
class Target:
    """Who a destination is: a queue manager by its identifier, or whoever is at a host (direct format names)."""

    host: str = ""
    identifier: bytes = NO_GUID
    by_address: bool = False

    def __str__(self) -> str:
        return self.host or f"queue manager {UUID(bytes_le=self.identifier)}"


class Unresolved(Exception):
    """There is no way to a destination. The text says why, and what to do about it."""


def target_of(name: names.SingleFormatName) -> Target | None:
    """The target of a format name; None for one that this protocol does not serve."""
    match name:
        case names.DirectFormatName() if not name.is_http:
            return Target(name.host.lower(), by_address=name.protocol.upper() == "TCP")
        case names.PrivateFormatName(guid=guid):
            return Target(identifier=guid.bytes_le)
    return None


class Resolver:
    """Asks the system's resolver for names. Machines behind identifiers are those that have been met before."""

    def __init__(self, hosts: Mapping[str, tuple[str, int]]) -> None:
        """`hosts` are configured addresses by lower-case computer name; ports are those of other protocols."""
        self._hosts = hosts
        self._met: dict[bytes, str] = {}

    def met(self, identifier: bytes, address: str) -> None:
        """A queue manager with this identifier was at this address."""
        if len(self._met) > 10_000:
            self._met.clear()
        self._met[identifier] = address

    async def hops(self, target: Target) -> list[NextHop]:
        """The next hops, in the order in which they are to be tried. Raises Unresolved."""
        if target.identifier != NO_GUID:
            address = self._met.get(target.identifier)
            if address is None:
                raise Unresolved(
                    f"nothing says where {target} is: there is no directory, and it has not been met since the start. "
                    "Use a direct format name"
                )
            return [NextHop(address, identifier=target.identifier)]
        if target.by_address:
            parsed = names.parse_address(target.host)
            if parsed is None:
                raise Unresolved(f"{target.host} in a format name DIRECT=TCP: is no IP address")
            return [NextHop(str(parsed))]
        host, _ = self._hosts.get(target.host, (target.host, 0))
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        except OSError as error:
            raise Unresolved(f"the name {host} does not resolve: {error.strerror or error}") from error
        addresses = list(dict.fromkeys(entry[4][0] for entry in found))
        return [NextHop(str(address), target.host) for address in addresses]
