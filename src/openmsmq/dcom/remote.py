"""Objects of other processes ([MS-DCOM] 3.2): finding their exporters, calling them, holding and releasing references.

An exporter is asked for at the object resolver that a reference names, at port 135 or at the port that the address has:
a program that may not listen at port 135 publishes its own (deviation D-84).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from openmsmq.dcom.activation import VERSION
from openmsmq.dcom.bindings import TCP, Bindings
from openmsmq.dcom.hresults import ComError, ComResult
from openmsmq.dcom.objref import NOPING, StandardReference
from openmsmq.interfaces import ms_dcom as d
from openmsmq.ndr import Interface, Operation
from openmsmq.rpc.aio import AsyncConnection, connect
from openmsmq.rpc.errors import RpcConnectionError, RpcFault
from openmsmq.rpc.pdu import SyntaxId

logger = logging.getLogger(__name__)

RESOLVER_PORT: Final = 135
TIME_LIMIT: Final = 10.0  # for what an object of a client does for a call of its own, seconds
PING_PERIOD: Final = 120.0  # seconds, 3.2.2
_ADDRESS: Final = re.compile(r"(?P<host>.*?)(\[(?P<port>\d+)\])?")
Spawn = Callable[[Coroutine[Any, Any, Any]], Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where something listens."""

    host: str
    port: int


def places(bindings: Bindings, default_port: int | None, host: str = "") -> list[Place]:
    """The places of a DUALSTRINGARRAY that TCP reaches; `host` comes first, it is where they were reached before."""
    found = []
    for tower, address in bindings.addresses:
        match = _ADDRESS.fullmatch(address)
        assert match is not None
        port = int(match["port"]) if match["port"] else default_port
        if tower == TCP and port is not None and 0 < port < 65536:
            found.append(Place(match["host"], port))
    if host and found and host not in [place.host for place in found]:
        found.insert(0, Place(host, found[0].port))
    return sorted(found, key=lambda place: place.host != host)


class RemoteExporter:
    """Another process whose objects are called. `host` is where it was reached."""

    def __init__(self, oxid: int, connection: AsyncConnection, rem_unknown: bytes, resolver: Place) -> None:
        self.oxid, self.rem_unknown, self.resolver = oxid, rem_unknown, resolver
        self._connection = connection

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    @property
    def local_host(self) -> str:
        """The address of this machine from which the process is reached."""
        return self._connection.local_host

    async def call(
        self, interface: Interface, ipid: bytes, operation: Operation, request: Any, causality: bytes | None = None
    ) -> Any:
        """Call an object; returns the response, whatever its HRESULT. Raises ComError for a fault,
        RpcConnectionError."""
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
        return operation.decode_response(answer.stub, answer.byte_order)

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
        """RemRelease of public references. Raises ComError."""
        listed = [d.REMINTERFACEREF(ipid, count, 0) for ipid, count in references]
        await self._unknown(
            "RemRelease", d.IRemUnknown_RemRelease_Request(cInterfaceRefs=len(listed), InterfaceRefs=listed)
        )

    async def add_references(self, ipid: bytes, count: int) -> None:
        """RemAddRef of public references. Raises ComError."""
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


class RemoteProcesses:
    """The exporters that this process knows, and the objects that it pings. `security` is how it authenticates."""

    def __init__(self, security: dict[str, Any], ping_period: float = PING_PERIOD) -> None:
        self._security, self._ping_period = security, ping_period
        self._exporters: dict[int, asyncio.Future[RemoteExporter]] = {}
        self._held: dict[Place, dict[int, int]] = {}  # resolver -> OID -> references to the object here
        self._pinging: dict[Place, asyncio.Task[None]] = {}

    async def exporter_of(self, reference: StandardReference) -> RemoteExporter:
        """The exporter of a reference, asked for at its resolver if it is not known. Raises RpcConnectionError,
        ComError."""
        known = self._exporters.get(reference.oxid)
        if known is not None and (not known.done() or (known.exception() is None and known.result().is_open)):
            return await asyncio.shield(known)
        made = asyncio.ensure_future(self._resolve(reference))
        self._exporters[reference.oxid] = made
        return await asyncio.shield(made)

    @asynccontextmanager
    async def reached(self, given: StandardReference) -> AsyncIterator[RemoteExporter]:
        """The exporter of an object that came as a parameter, for a limited time; at the end the references that came
        with it are given back. Raises ComError RPC_E_DISCONNECTED for a process that can't be reached or is slow."""
        try:
            async with asyncio.timeout(TIME_LIMIT):
                exporter = await self.exporter_of(given)
                try:
                    yield exporter
                finally:
                    if given.public_refs and exporter.is_open:
                        await exporter.release([(given.ipid.bytes_le, given.public_refs)])
        except TimeoutError:
            raise ComError(ComResult.RPC_E_DISCONNECTED, f"a process did not answer within {TIME_LIMIT:g} s") from None
        except (RpcConnectionError, OSError) as error:
            raise ComError(ComResult.RPC_E_DISCONNECTED, f"a process can't be reached: {error}") from error

    async def adopt(self, oxid: int, bindings: Bindings, rem_unknown: bytes, resolver: Place) -> RemoteExporter:
        """The exporter that an activation has named. Raises RpcConnectionError."""
        known = self._exporters.get(oxid)
        if known is not None and known.done() and known.exception() is None and known.result().is_open:
            return known.result()
        connection = await self._connect(places(bindings, None, resolver.host))
        found: asyncio.Future[RemoteExporter] = asyncio.get_running_loop().create_future()
        found.set_result(RemoteExporter(oxid, connection, rem_unknown, resolver))
        self._exporters[oxid] = found
        return found.result()

    async def resolver(self, place: Place) -> AsyncConnection:
        """A connection to an object resolver. Raises RpcConnectionError."""
        return await connect(place.host, place.port, **self._security)

    async def _resolve(self, reference: StandardReference) -> RemoteExporter:
        """ResolveOxid2, 3.2.4.1.2.2."""
        failure: Exception = RpcConnectionError("the reference names no object resolver that TCP reaches")
        for place in places(reference.resolver, RESOLVER_PORT):
            try:
                connection = await self.resolver(place)
            except RpcConnectionError as error:
                failure = error
                continue
            try:
                await connection.bind(*_version(d.IObjectExporter))
                operation = d.IObjectExporter.operation("ResolveOxid2")
                request = d.ResolveOxid2_Request(reference.oxid, 1, [TCP])
                answer = operation.decode_response(
                    await connection.call(operation.opnum, operation.encode_request(request))
                )
            finally:
                connection.close()
            if answer.result:
                raise ComError(answer.result, f"the resolver at {place.host}:{place.port} does not know the exporter")
            bindings = Bindings.from_wire(answer.ppdsaOxidBindings)
            exporter = await self._connect(places(bindings, None, place.host))
            return RemoteExporter(reference.oxid, exporter, answer.pipidRemUnknown, place)
        raise failure

    async def _connect(self, found: list[Place]) -> AsyncConnection:
        failure: Exception = RpcConnectionError("the exporter has no address that TCP reaches")
        for place in found:
            try:
                return await connect(place.host, place.port, **self._security)
            except RpcConnectionError as error:
                failure = error
        raise failure

    # -- pings -------------------------------------------------------------------------------------------------

    def hold(self, exporter: RemoteExporter, oid: int, flags: int = 0) -> None:
        """An object is held: it is pinged until it is dropped (3.2.6.1)."""
        if flags & NOPING:
            return
        held = self._held.setdefault(exporter.resolver, {})
        held[oid] = held.get(oid, 0) + 1
        if exporter.resolver not in self._pinging:
            self._pinging[exporter.resolver] = asyncio.ensure_future(self._ping(exporter.resolver))

    def drop(self, exporter: RemoteExporter, oid: int) -> None:
        """An object is not held any more."""
        held = self._held.get(exporter.resolver, {})
        if held.get(oid, 0) > 1:
            held[oid] -= 1
        else:
            held.pop(oid, None)

    async def _ping(self, place: Place) -> None:
        """Say every period that we live, and what we hold."""
        setid, known, sequence = 0, set[int](), 0
        connection: AsyncConnection | None = None
        while True:
            await asyncio.sleep(self._ping_period if setid or not self._held[place] else 0)
            try:
                if connection is None or not connection.is_open:
                    connection = await self.resolver(place)
                    await connection.bind(*_version(d.IObjectExporter))
                held = set(self._held[place])
                added, dropped = held - known, known - held
                if added or dropped or not setid:
                    sequence += 1
                    setid = await _complex_ping(connection, setid, sequence, sorted(added), sorted(dropped))
                    known = held if setid else set()
                elif not await _simple_ping(connection, setid):
                    setid, known = 0, set()
            except (RpcConnectionError, RpcFault, OSError) as error:
                logger.warning("the object resolver at %s:%d could not be pinged: %s", place.host, place.port, error)
                connection = None
                await asyncio.sleep(min(self._ping_period, 5.0))

    def close(self) -> None:
        """Close all connections; what is held is not pinged any more."""
        for task in self._pinging.values():
            task.cancel()
        for known in self._exporters.values():
            if known.done() and not known.cancelled() and known.exception() is None:
                known.result().close()
            else:
                known.cancel()


async def _complex_ping(
    connection: AsyncConnection, setid: int, sequence: int, add: list[int], remove: list[int]
) -> int:
    """The identifier of the set; 0 if the resolver does not know it."""
    operation = d.IObjectExporter.operation("ComplexPing")
    request = d.ComplexPing_Request(setid, sequence & 0xFFFF, len(add), len(remove), add or None, remove or None)
    answer = operation.decode_response(await connection.call(operation.opnum, operation.encode_request(request)))
    found: int = answer.pSetId
    return found if answer.result in (0, 1911) else 0


async def _simple_ping(connection: AsyncConnection, setid: int) -> bool:
    operation = d.IObjectExporter.operation("SimplePing")
    stub = operation.encode_request(d.SimplePing_Request(setid))
    return not operation.decode_response(await connection.call(operation.opnum, stub)).result


def _version(interface: Interface) -> tuple[UUID, tuple[int, int]]:
    return interface.uuid, interface.version
