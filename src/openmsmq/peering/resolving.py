"""Resolves the name of a destination to the next hops ([MS-MQQB] 3.1.7.4, 3.1.7.5; deviation D-107)."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from openmsmq.directory.connection import DirectoryConnection
from openmsmq.model import names
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.text import reason_of
from openmsmq.packet.headers import NO_GUID
from openmsmq.queueing.outgoing_queues import meant_machine
from openmsmq.transport.connecting import NextHop
from openmsmq.transport.routing import Routing, RoutingFailed

#: Errors of names and connections; the second one is of a name with an empty part, or one of over 63 characters.
NOT_REACHED: Final = (OSError, UnicodeError)


@dataclass(frozen=True, slots=True)
class ResolvedTarget:
    """A destination: a queue manager by its identifier, or the host of a direct format name.

    `claimed`: a peer claims the identifier on an open session, which is used only to acknowledge its messages. With
    both host and identifier, it is the queue manager last seen at this host.
    """

    host: str = ""
    identifier: bytes = NO_GUID
    claimed: bool = False
    by_address: bool = False

    def __str__(self) -> str:
        return self.host or f"queue manager {UUID(bytes_le=self.identifier)}"


MOST_MET = 10_000  # maximum remembered queue managers
MOST_MET_AT_ADDRESS = 256  # maximum of these claimed by sessions from one address


class Unresolved(Exception):
    """A destination cannot be resolved. The text has the reason and the remedy."""


class Unknown(Unresolved):
    """Neither the routing table nor the directory contains the queue manager: its address is known only once it has
    connected."""


def target_of(name: names.SingleFormatName) -> ResolvedTarget | None:
    """Return the target of a format name; None if this protocol does not support the name."""
    match name:
        case names.DirectFormatName() if meant := meant_machine(name):
            return ResolvedTarget(name.host.lower(), meant, by_address=True)
        case names.DirectFormatName() if not name.is_http:
            return ResolvedTarget(name.host.lower(), by_address=name.protocol.upper() == "TCP")
        case names.PrivateFormatName(guid=guid):
            return ResolvedTarget(identifier=guid.bytes_le)
    return None


class Resolver:
    """Finds the next hop in the routing table, and its address through the resolver of the system. Identifiers that the
    table does not contain are looked up in the directory and among earlier contacts."""

    def __init__(
        self,
        hosts: Mapping[str, tuple[str, int]],
        routing: Routing,
        directory: DirectoryConnection | None,
        knows_keys: Callable[[bytes], bool] = lambda identifier: True,
    ) -> None:
        """`hosts` are configured addresses by lower-case computer name; ports are those of other protocols. For
        `knows_keys`, see `options.TransferOptions`."""
        self._hosts, self._routing, self._directory = hosts, routing, directory or DirectoryConnection(None)
        self._knows_keys = knows_keys
        self._met: OrderedDict[bytes, str] = OrderedDict()  # latest last
        self._at: dict[str, OrderedDict[bytes, None]] = {}  # the same entries, by address

    def met(self, identifier: bytes, address: str) -> None:
        """Record the address of a queue manager that has, or claims, this identifier."""
        self._forget(identifier)
        self._met[identifier] = address
        at_address = self._at.setdefault(address, OrderedDict())
        at_address[identifier] = None
        if len(at_address) > MOST_MET_AT_ADDRESS:
            self._forget(next(iter(at_address)))
        if len(self._met) > MOST_MET:
            self._forget(next(iter(self._met)))

    def _forget(self, identifier: bytes) -> None:
        address = self._met.pop(identifier, None)
        if address is not None:
            at_address = self._at[address]
            del at_address[identifier]
            if not at_address:
                del self._at[address]

    def last_met(self, target: ResolvedTarget) -> list[NextHop]:
        """Return the last address of this identifier. It is only a claim, used if no other source has an address."""
        address = self._met.get(target.identifier)
        return [NextHop(address, identifier=target.identifier)] if address is not None else []

    async def hops(self, target: ResolvedTarget) -> list[NextHop]:
        """Return the next hops in the order of attempts. Raises Unresolved."""
        if target.identifier != NO_GUID and target.host:
            return self.last_met(target) or [NextHop(target.host, identifier=target.identifier)]
        if target.identifier != NO_GUID:
            return await self._to_manager(target)
        if target.by_address:
            parsed = names.parse_address(target.host)
            if parsed is None:
                raise Unresolved(f"{target.host} in a format name DIRECT=TCP: is not an IP address")
            return [NextHop(str(parsed))]
        return [NextHop(address, target.host) for address in await self._addresses(target.host)]

    async def _to_manager(self, target: ResolvedTarget) -> list[NextHop]:
        """Return the hops to a queue manager, given its identifier."""
        try:
            following = self._routing.next_hops(target.identifier)
        except RoutingFailed as error:
            return await self._without_routing(target, error)
        hops: list[NextHop] = []
        failures: list[str] = []
        for identifier in following:
            try:
                host = self._routing.host(identifier)
                if host is None:
                    raise Unresolved(f"the routing table has no queue manager {UUID(bytes_le=identifier)}")
                hops += [NextHop(address, host, identifier) for address in await self._addresses(host)]
            except Unresolved as error:  # another hop may be available
                failures.append(str(error))
        if not hops:
            raise Unresolved("; ".join(failures))
        await self._read_keys(target)
        return hops

    async def _read_keys(self, target: ResolvedTarget) -> None:
        """Read the record of a queue manager in the directory, which has the keys to encrypt bodies for it ([MS-MQQB]
        3.1.7.1.5). `DirectoryConnection.on_machine` receives it. A failure only prevents encryption."""
        if self._directory.exists and not self._knows_keys(target.identifier):
            with suppress(MsmqError):
                await self._directory.ask(lambda d: d.machine(UUID(bytes_le=target.identifier)))

    async def _without_routing(self, target: ResolvedTarget, failure: RoutingFailed) -> list[NextHop]:
        """Return the hops from the directory's record of the queue manager."""
        identifier, said = target.identifier, str(failure)
        try:
            record = await self._directory.ask(lambda d: d.machine(UUID(bytes_le=identifier)))
        except MsmqError as error:
            if self._directory.exists and error.hresult != HResult.MQ_ERROR_QUEUE_NOT_FOUND:
                raise Unresolved(f"no address is known for {target} ({error})") from error
            raise Unknown(
                f"no address is known for {target} ({said}; {error}), and it has not connected since the start. Use a "
                "direct format name, or the setting routing_file"
            ) from error
        # An address in the settings precedes DNS names, which queue managers of one host have in common.
        for name in sorted((*record.dns_names, record.computer_name), key=lambda name: name.lower() not in self._hosts):
            try:
                return [NextHop(address, name, identifier) for address in await self._addresses(name)]
            except Unresolved as error:
                reason = str(error)
        raise Unresolved(f"none of the names of {target} in the directory can be resolved: {reason}")

    async def _addresses(self, name: str) -> list[str]:
        """Return the addresses of a host. Raises Unresolved."""
        parsed = names.parse_address(name)
        if parsed is not None:
            return [str(parsed)]
        host, _ = self._hosts.get(name.lower(), (name, 0))
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        except NOT_REACHED as error:
            raise Unresolved(f"cannot resolve the name {host}: {reason_of(error)}") from error
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))
