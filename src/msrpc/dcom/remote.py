"""Objects of other processes ([MS-DCOM] 3.2): locate their exporters, call them, hold and release references.

An exporter is located through the object resolver in a reference, at port 135 or at the port in the address: a program
that may not listen on port 135 publishes its own port (deviation D-84). Only the ports of the addresses are used; the
host is the one that sent the reference, or a configured one (deviation D-193).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from msrpc.dcom.activation import VERSION
from msrpc.dcom.bindings import TCP, Bindings
from msrpc.dcom.budget import ObjectBudget
from msrpc.dcom.objref import NOPING, StandardReference
from msrpc.errors import ComError, LimitReached, LoginRefused, RpcConnectionError
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_dcom as d
from msrpc.ndr import Interface, Operation
from msrpc.rpc.aio import AsyncConnection, connect
from msrpc.rpc.faults import RPC_S_ACCESS_DENIED, RpcFault
from msrpc.rpc.pdu import SyntaxId
from msrpc.rpc.responses import decoded
from msrpc.waiting import answered_within, outcome_of

logger = logging.getLogger(__name__)

RESOLVER_PORT: Final = 135
TIME_LIMIT: Final = 10.0  # maximum seconds for a call to an object of a client
PING_PERIOD: Final = 120.0  # seconds, 3.2.2
PERIODS: Final = 3  # periods without a ping reply after which a process is gone (3.1.2.2)
IDLE: Final = 10.0  # seconds that a connection stays open without held objects
RETRY_AFTER: Final = 5.0  # seconds before another attempt after a failed connection
MOST_EXPORTERS: Final = 256  # maximum connected client processes; each takes one connection, plus one for pings
MOST_EXPORTERS_OF_HOST: Final = 64
_MOST_PLACES: Final = 4  # maximum addresses tried for an exporter
_MOST_FAILURES: Final = 1024  # maximum failed addresses kept for RETRY_AFTER
_SHORTEST_PAUSE: Final = 5.0  # minimum seconds between pings after a failure
_ADDRESS: Final = re.compile(r"(?P<host>.*?)(\[(?P<port>\d+)\])?")
Spawn = Callable[[Coroutine[Any, Any, Any]], Any]


@dataclass(frozen=True, slots=True)
class HostPort:
    """Address of a listening process."""

    host: str
    port: int


def places(
    bindings: Bindings, default_port: int | None, host: str, named: frozenset[str] = frozenset()
) -> list[HostPort]:
    """Return the addresses to try for a DUALSTRINGARRAY sent by `host`: first its TCP ports on that host, then its
    addresses whose host is in `named` (lower case)."""
    own: dict[HostPort, None] = {}
    others: dict[HostPort, None] = {}
    for tower, address in bindings.addresses:
        match = _ADDRESS.fullmatch(address)
        assert match is not None
        port = int(match["port"]) if match["port"] else default_port
        if tower == TCP and port is not None and 0 < port < 65536:
            own[HostPort(host, port)] = None
            if match["host"].lower() in named:
                others[HostPort(match["host"], port)] = None
    return list(own | others)[:_MOST_PLACES]


class RemoteExporter:
    """Another process whose objects are called. `users` is the number of held objects and calls in progress; the
    connection is closed after it has been 0 for `IDLE` seconds."""

    def __init__(self, oxid: int, connection: AsyncConnection, rem_unknown: bytes, resolver: HostPort) -> None:
        self.oxid, self.rem_unknown, self.resolver = oxid, rem_unknown, resolver
        self._connection = connection
        self.users = 0
        self.closing: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    @property
    def local_host(self) -> str:
        """The local address of the connection."""
        return self._connection.local_host

    async def call(
        self, interface: Interface, ipid: bytes, operation: Operation, request: Any, causality: bytes | None = None
    ) -> Any:
        """Call an object and return the response, with any HRESULT. Raises ComError for a fault, RpcConnectionError."""
        request.orpcthis = d.ORPCTHIS(version=VERSION, cid=causality or os.urandom(16))
        syntax = SyntaxId(interface.uuid, interface.version)
        try:
            if syntax not in self._connection.core.contexts:
                await self._connection.bind(*_version(interface))
            answer = await self._connection.exchange(
                operation.opnum, operation.encode_request(request), UUID(bytes_le=ipid), interface=syntax
            )
        except RpcFault as fault:
            raise ComError(fault.status, f"{interface.name}::{operation.name}") from fault
        except LoginRefused as error:  # the resolver has accepted this login, so the object refuses the caller
            raise ComError(RPC_S_ACCESS_DENIED, f"{interface.name}::{operation.name}") from error
        return decoded(operation, answer.stub, answer.byte_order)

    async def query(self, ipid: bytes, iid: UUID) -> d.STDOBJREF:
        """RemQueryInterface for one interface. Raises ComError."""
        request = d.IRemUnknown_RemQueryInterface_Request(ripid=ipid, cRefs=1, cIids=1, iids=[iid.bytes_le])
        response = await self._unknown("RemQueryInterface", request)
        (result,) = response.ppQIResults or [d.REMQIRESULT(response.result)]
        if result.hResult & 0x80000000:
            raise ComError(result.hResult, f"no interface {iid}")
        found: d.STDOBJREF = result.std
        return found

    async def release(self, references: Sequence[tuple[bytes, int]]) -> None:
        """Release public references (RemRelease). Raises ComError."""
        listed = [d.REMINTERFACEREF(ipid, count, 0) for ipid, count in references]
        await self._unknown(
            "RemRelease", d.IRemUnknown_RemRelease_Request(cInterfaceRefs=len(listed), InterfaceRefs=listed)
        )

    async def add_references(self, ipid: bytes, count: int) -> None:
        """Add public references (RemAddRef). Raises ComError."""
        reference = d.REMINTERFACEREF(ipid, count, 0)
        request = d.IRemUnknown_RemAddRef_Request(cInterfaceRefs=1, InterfaceRefs=[reference])
        await self._unknown("RemAddRef", request)

    async def _unknown(self, name: str, request: Any) -> Any:
        operation = d.IRemUnknown.operation(name)
        response = await self.call(d.IRemUnknown, self.rem_unknown, operation, request)
        if response.result & 0x80000000:
            raise ComError(response.result, f"IRemUnknown::{name}")
        return response

    def close(self) -> None:
        self._connection.close()


_Key = tuple[str, int]  # sending host and OXID: a host cannot name an exporter of another host


class RemoteProcesses:
    """The known exporters, and the objects to ping.

    `security` is used to authenticate to the hosts in `named`, to which references may also refer; calls to other hosts
    are anonymous. `budget` counts exporters by the host that sent references to them. After a failed connection, there
    is no other attempt for `retry_after` seconds.
    """

    def __init__(
        self,
        security: dict[str, Any],
        ping_period: float = PING_PERIOD,
        named: frozenset[str] = frozenset(),
        budget: ObjectBudget | None = None,
        idle: float = IDLE,
        retry_after: float = RETRY_AFTER,
    ) -> None:
        self._security, self._ping_period = security, ping_period
        self._named: Final = frozenset(host.lower() for host in named)
        self._budget = budget or ObjectBudget(
            "connections to processes of clients", MOST_EXPORTERS, MOST_EXPORTERS_OF_HOST
        )
        self._idle, self._retry_after = idle, retry_after
        self._exporters: dict[_Key, asyncio.Future[RemoteExporter]] = {}
        self._held: dict[HostPort, dict[int, int]] = {}  # resolver -> OID -> references to the object here
        self._pinging: dict[HostPort, asyncio.Task[None]] = {}
        self._failed: dict[HostPort, float] = {}  # time before which there is no other attempt

    @property
    def exporters(self) -> int:
        """Number of known processes."""
        return len(self._exporters)

    async def exporter_of(self, reference: StandardReference, host: str) -> RemoteExporter:
        """Return the exporter of a reference sent by `host`; an unknown one is looked up at its resolver. Raises
        RpcConnectionError, ComError, LimitReached."""
        return await self._known((host, reference.oxid), lambda: self._resolve(reference, host))

    @asynccontextmanager
    async def reached(self, given: StandardReference, host: str) -> AsyncIterator[RemoteExporter]:
        """Yield the exporter of an object that `host` passed as a parameter, for a limited time; the passed references
        are released at the end. Raises ComError RPC_E_DISCONNECTED if the process cannot be reached or is slow,
        LimitReached."""
        try:
            async with answered_within(TIME_LIMIT):
                exporter = await self.exporter_of(given, host)
                self._use(exporter)
                try:
                    yield exporter
                finally:
                    try:
                        if given.public_refs and exporter.is_open:
                            await exporter.release([(given.ipid, given.public_refs)])
                    finally:
                        self._leave(exporter)
        except (RpcConnectionError, OSError) as error:
            raise ComError(ComResult.RPC_E_DISCONNECTED, f"a process can't be reached: {error}") from error

    async def adopt(self, oxid: int, bindings: Bindings, rem_unknown: bytes, resolver: HostPort) -> RemoteExporter:
        """Return the exporter named by an activation. Raises RpcConnectionError, LimitReached."""

        async def made() -> RemoteExporter:
            connection = await self._connect(places(bindings, None, resolver.host, self._named))
            return RemoteExporter(oxid, connection, rem_unknown, resolver)

        return await self._known((resolver.host, oxid), made)

    async def resolver(self, place: HostPort) -> AsyncConnection:
        """Return a connection to an object resolver. Raises RpcConnectionError."""
        return await self._connect([place])

    async def _known(self, key: _Key, make: Callable[[], Awaitable[RemoteExporter]]) -> RemoteExporter:
        known = self._exporters.get(key)
        if known is not None and known.done() and not known.result().is_open:
            self._end(key)
            known = None
        if known is None:
            self._take(key[0])
            known = self._exporters[key] = asyncio.ensure_future(self._made(key, make))
        return await outcome_of(known)

    async def _made(self, key: _Key, make: Callable[[], Awaitable[RemoteExporter]]) -> RemoteExporter:
        """Create an exporter; forget it if it cannot be reached. Raises as `exporter_of`."""
        try:
            async with answered_within(TIME_LIMIT):
                exporter = await make()
        except BaseException as error:
            self._budget.give_back(key[0])
            del self._exporters[key]
            if isinstance(error, TimeoutError):
                raise RpcConnectionError(str(error)) from None
            raise
        self._use(exporter)
        asyncio.get_running_loop().call_soon(self._leave, exporter)  # closes it if no caller waits for it
        return exporter

    def _take(self, host: str) -> None:
        """Reserve capacity for another exporter. Raises LimitReached."""
        try:
            self._budget.take(host)
        except LimitReached:
            for key, known in list(self._exporters.items()):
                if known.done() and not known.result().users:
                    self._end(key)
            self._budget.take(host)

    async def _resolve(self, reference: StandardReference, host: str) -> RemoteExporter:
        """Look up an exporter by ResolveOxid2 (3.2.4.1.2.2)."""
        failure: Exception = RpcConnectionError("the reference names no object resolver that TCP reaches")
        for place in places(reference.resolver, RESOLVER_PORT, host, self._named):
            try:
                connection = await self.resolver(place)
            except RpcConnectionError as error:
                failure = error
                continue
            try:
                await connection.bind(*_version(d.IObjectExporter))
                operation = d.IObjectExporter.operation("ResolveOxid2")
                request = d.ResolveOxid2_Request(reference.oxid, 1, [TCP])
                answer = decoded(operation, await connection.call(operation.opnum, operation.encode_request(request)))
            finally:
                connection.close()
            if answer.result:
                raise ComError(answer.result, f"the resolver at {place.host}:{place.port} does not know the exporter")
            bindings = Bindings.from_wire(answer.ppdsaOxidBindings)
            exporter = await self._connect(places(bindings, None, place.host, self._named))
            return RemoteExporter(reference.oxid, exporter, answer.pipidRemUnknown, place)
        raise failure

    async def _connect(self, found: list[HostPort]) -> AsyncConnection:
        failure: Exception = RpcConnectionError("the exporter has no address that TCP reaches")
        now = asyncio.get_running_loop().time()
        for place in found:
            if self._failed.get(place, now) > now:
                failure = RpcConnectionError(f"{place.host}:{place.port} could not be reached a moment ago")
                continue
            security = self._security if place.host.lower() in self._named else {}
            try:
                return await connect(place.host, place.port, **security)
            except RpcConnectionError as error:
                failure = error
                self._remember_failure(place)
        raise failure

    def _remember_failure(self, place: HostPort) -> None:
        now = asyncio.get_running_loop().time()
        self._failed = {place: until for place, until in self._failed.items() if until > now}
        if len(self._failed) < _MOST_FAILURES:
            self._failed[place] = now + self._retry_after

    # -- the end of connections --------------------------------------------------------------------------------

    def _use(self, exporter: RemoteExporter) -> None:
        exporter.users += 1
        if exporter.closing is not None:
            exporter.closing.cancel()
            exporter.closing = None

    def _leave(self, exporter: RemoteExporter) -> None:
        exporter.users -= 1
        if not exporter.users:
            exporter.closing = asyncio.get_running_loop().call_later(self._idle, self._end_exporter, exporter)

    def _end_exporter(self, exporter: RemoteExporter) -> None:
        """Close an exporter that has been idle."""
        for key, known in self._exporters.items():
            if known.done() and known.result() is exporter:
                self._end(key)
                return
        exporter.close()  # it was already closed and has been replaced

    def _end(self, key: _Key) -> None:
        exporter = self._exporters.pop(key).result()
        self._budget.give_back(key[0])
        exporter.close()
        if not self._held.get(exporter.resolver):
            self._stop_pinging(exporter.resolver)

    # -- pings -------------------------------------------------------------------------------------------------

    def hold(self, exporter: RemoteExporter, oid: int, flags: int = 0) -> None:
        """Hold an object: ping it until it is dropped (3.2.6.1)."""
        self._use(exporter)
        if flags & NOPING:
            return
        place = exporter.resolver
        held = self._held.setdefault(place, {})
        held[oid] = held.get(oid, 0) + 1
        if place not in self._pinging:
            self._pinging[place] = asyncio.ensure_future(self._ping(place))

    def drop(self, exporter: RemoteExporter, oid: int) -> None:
        """Stop holding an object."""
        held = self._held.get(exporter.resolver, {})
        if held.get(oid, 0) > 1:
            held[oid] -= 1
        else:
            held.pop(oid, None)
        self._leave(exporter)

    def _stop_pinging(self, place: HostPort) -> None:
        self._held.pop(place, None)
        task = self._pinging.pop(place, None)
        if task is not None:
            task.cancel()

    async def _ping(self, place: HostPort) -> None:
        """Ping a resolver every period, with changes of the held objects. A resolver that does not answer for three
        periods counts as lost, together with its objects."""
        setid, known, sequence = 0, set[int](), 0
        loop = asyncio.get_running_loop()
        answered, pause = loop.time(), 0.0
        while True:
            held = set(self._held[place])
            try:
                async with answered_within(TIME_LIMIT), await self.resolver(place) as connection:
                    await connection.bind(*_version(d.IObjectExporter))
                    added, dropped = held - known, known - held
                    if added or dropped or not setid:
                        sequence += 1
                        setid = await _complex_ping(connection, setid, sequence, sorted(added), sorted(dropped))
                        known = held if setid else set()
                    elif not await _simple_ping(connection, setid):
                        setid, known = 0, set()
                answered, pause = loop.time(), 0.0
            except (RpcConnectionError, RpcFault, OSError) as error:  # including a timeout
                if loop.time() - answered >= PERIODS * self._ping_period:
                    logger.warning(
                        "the object resolver at %s:%d has not answered for %d periods; giving up its objects: %s",
                        place.host, place.port, PERIODS, error,
                    )  # fmt: skip
                    self._held.pop(place, None)
                    self._pinging.pop(place, None)
                    return
                if not pause:
                    logger.info("the object resolver at %s:%d could not be pinged: %s", place.host, place.port, error)
                pause = min(self._ping_period, 2 * pause or _SHORTEST_PAUSE)
            shortest = min(self._ping_period, _SHORTEST_PAUSE)  # a set that the resolver does not know is created again
            await asyncio.sleep(pause or (self._ping_period if setid or not held else shortest))

    def close(self) -> None:
        """Close all connections and stop pinging."""
        for place in list(self._pinging):
            self._stop_pinging(place)
        for known in self._exporters.values():
            if known.done() and not known.cancelled() and known.exception() is None:
                known.result().close()
            else:
                known.cancel()


async def _complex_ping(
    connection: AsyncConnection, setid: int, sequence: int, add: list[int], remove: list[int]
) -> int:
    """Send ComplexPing and return the identifier of the set; 0 if the resolver does not know it."""
    operation = d.IObjectExporter.operation("ComplexPing")
    request = d.ComplexPing_Request(setid, sequence & 0xFFFF, len(add), len(remove), add or None, remove or None)
    answer = decoded(operation, await connection.call(operation.opnum, operation.encode_request(request)))
    found: int = answer.pSetId
    return found if answer.result in (0, 1911) else 0


async def _simple_ping(connection: AsyncConnection, setid: int) -> bool:
    operation = d.IObjectExporter.operation("SimplePing")
    stub = operation.encode_request(d.SimplePing_Request(setid))
    return not decoded(operation, await connection.call(operation.opnum, stub)).result


def _version(interface: Interface) -> tuple[UUID, tuple[int, int]]:
    return interface.uuid, interface.version
