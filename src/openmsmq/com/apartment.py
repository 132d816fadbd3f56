"""DCOM client in a separate thread: connections, references, pings, and exported objects, which are event sinks and
message bodies."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar
from uuid import UUID

from msrpc.dcom import activation, persistence
from msrpc.dcom.exporter import Exporter
from msrpc.dcom.objref import CustomReference, StandardReference, unpack
from msrpc.dcom.orpc import interfaces_of
from msrpc.dcom.remote import PING_PERIOD, RESOLVER_PORT, HostPort, RemoteExporter, RemoteProcesses
from msrpc.dcom.resolver import resolver_services
from msrpc.dcom.server import ComServer
from msrpc.hresults import ComResult
from msrpc.interfaces import com
from msrpc.interfaces import ms_dcom as d
from msrpc.interfaces import ms_oaut as o
from msrpc.rpc.call import InterfaceTable
from msrpc.rpc.faults import RpcFault
from msrpc.rpc.responses import decoded
from msrpc.rpc.server import RpcServer
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import ComError, HResult, MsmqError, RpcConnectionError

logger = logging.getLogger(__name__)

T = TypeVar("T")
_EXPORTED_INTERFACES: Final = (d.IUnknown, o.IDispatch, m._DMSMQEventEvents, *persistence.INTERFACES)


class RemoteObject:
    """A reference to an interface of an object; released by the garbage collector."""

    __slots__ = ("__weakref__", "_apartment", "_references", "exporter", "iid", "ipid", "oid", "reference")

    def __init__(self, apartment: Apartment, exporter: RemoteExporter, reference: StandardReference) -> None:
        self._apartment, self.exporter, self.reference = apartment, exporter, reference
        self.ipid, self.oid, self.iid = reference.ipid, reference.oid, reference.iid
        self._references = reference.public_refs
        apartment.remote.hold(exporter, self.oid, reference.flags)

    def to_objref(self) -> bytes:
        """Return an OBJREF for another process. It transfers no reference count, because this reference outlives the
        call."""
        reference = self.reference
        return StandardReference(
            self.iid, 0, reference.oxid, self.oid, reference.ipid, reference.resolver, reference.flags
        ).pack()

    def __del__(self) -> None:
        self._apartment.release(self.exporter, self.ipid, self.oid, self._references)


class Apartment:
    """An event loop in a thread, for all objects of one host. `security` are the arguments for authentication."""

    def __init__(
        self,
        host: str,
        port: int = RESOLVER_PORT,
        security: dict[str, Any] | None = None,
        ping_seconds: float = PING_PERIOD,
    ) -> None:
        self.place = HostPort(host, port)
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self.remote = RemoteProcesses(security or {}, ping_seconds, frozenset([host]), retry_after=0)
        self.dispids: dict[tuple[int, str, str], int] = {}  # by OXID, interface name and member name
        self._exported: ComServer | None = None
        self._listener: RpcServer | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name=f"dcom {host}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread and wait for its result. Event handlers may call this, so they run in separate
        threads."""
        if self._closed:
            work.close()
            raise MsmqError(None, "this client was closed, or belongs to the process that forked this one")
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C, or what the handler of another signal raises
            future.cancel()
            raise

    def forked(self) -> None:
        """End in a forked child: calls raise MsmqError, and nothing is sent."""
        self._closed = True

    def close(self) -> None:
        """Release all objects and end the thread."""
        if self._closed:
            return
        self.run(self._close())
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    async def _close(self) -> None:
        for task in list(self._tasks):
            await asyncio.wait([task], timeout=1)
        if self._exported is not None:
            self._exported.exporter.end_all()
        if self._listener is not None:
            await self._listener.shut_down(0)
        self.remote.close()
        await asyncio.sleep(0)

    # -- objects -----------------------------------------------------------------------------------------------

    def create(self, clsid: UUID, iid: UUID) -> RemoteObject:
        """Create an object; return a reference to one interface. Raises ComError, RpcConnectionError."""
        return self.run(self._create(clsid, iid))

    async def _create(self, clsid: UUID, iid: UUID) -> RemoteObject:
        connection = await self.remote.resolver(self.place)
        try:
            description = d.IRemoteSCMActivator
            await connection.bind(description.uuid, description.version)
            operation = description.operation("RemoteCreateInstance")
            request = d.RemoteCreateInstance_Request(
                orpcthis=d.ORPCTHIS(version=activation.VERSION, flags=1, cid=os.urandom(16)),
                pActProperties=activation.interface_pointer(activation.make_request(clsid, (iid,))),
            )
            try:
                stub = await connection.call(operation.opnum, operation.encode_request(request))
            except RpcFault as fault:
                raise ComError(fault.status, f"activation at {self.place.host}") from fault
        finally:
            connection.close()
        response = decoded(operation, stub)
        if response.result & 0x80000000 or response.ppActProperties is None:
            raise ComError(response.result or ComResult.E_FAIL, f"activation at {self.place.host}")
        exported, ((_, hresult, reference),) = activation.parse_answer(response.ppActProperties.abData)
        if reference is None:
            raise ComError(hresult, f"activation at {self.place.host}")
        exporter = await self.remote.adopt(exported.oxid, exported.bindings, exported.rem_unknown, self.place)
        return RemoteObject(self, exporter, reference)

    async def adopt(self, exporter: RemoteExporter, pointer: d.MInterfacePointer | None) -> RemoteObject | None:
        """Return a reference to an object in a result. Raises ComError."""
        if pointer is None:
            return None
        reference = unpack(pointer.abData)
        if isinstance(reference, CustomReference):
            raise ComError(ComResult.REGDB_E_CLASSNOTREG, f"cannot unmarshal an object of the class {reference.clsid}")
        if reference.oxid != exporter.oxid:
            exporter = await self.remote.exporter_of(reference, self.place.host)
        return RemoteObject(self, exporter, reference)

    async def query(self, target: RemoteObject, iid: UUID) -> RemoteObject:
        """Return a reference to another interface of an object. Raises ComError."""
        std = await target.exporter.query(target.ipid, iid)
        reference = StandardReference(
            iid, std.cPublicRefs, std.oxid, std.oid, std.ipid, target.reference.resolver, std.flags
        )
        return RemoteObject(self, target.exporter, reference)

    def release(self, exporter: RemoteExporter, ipid: bytes, oid: int, references: int) -> None:
        """Release references asynchronously; called by the garbage collector."""
        if not self._closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._release, exporter, ipid, oid, references)

    def _release(self, exporter: RemoteExporter, ipid: bytes, oid: int, references: int) -> None:
        self.remote.drop(exporter, oid)
        if exporter.is_open and references:
            self.spawn(_released(exporter, ipid, references))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a coroutine in the thread without waiting for it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- exported objects --------------------------------------------------------------------------------------

    async def export(self, target: Any, exporter: RemoteExporter, iid: UUID = d.IUnknown.uuid) -> bytes:
        """Return an OBJREF of an exported object, with the local address that is used to reach the server."""
        server = await self._exporting(exporter)
        bindings = server.reference_bindings(exporter.local_host)
        return server.exporter.marshal(target, iid, bindings).pack()

    async def state_of(self, target: RemoteObject, limit: int) -> persistence.ObjectState:
        """Return the saved state of a server object, at most `limit` bytes. Raises ComError, RpcConnectionError."""
        server = await self._exporting(target.exporter)
        bindings = server.reference_bindings(target.exporter.local_host)

        def publish(stream: persistence.MemoryStream) -> d.MInterfacePointer:
            reference = server.exporter.marshal(stream, com.IStream.uuid, bindings)
            return activation.interface_pointer(reference.pack())

        return await persistence.state_of(target.exporter, target.ipid, publish, limit)

    async def _exporting(self, exporter: RemoteExporter) -> ComServer:
        if self._exported is None:
            self._exported = await self._listen(exporter.local_host)
        return self._exported

    async def _listen(self, host: str) -> ComServer:
        interfaces = {i.uuid: i for i in _EXPORTED_INTERFACES}
        server = ComServer(Exporter(time.monotonic, os.urandom), _Host(self), {}, interfaces, remote=self.remote)
        server.cancelled = HResult.MQ_ERROR_OPERATION_CANCELLED
        table = InterfaceTable([*resolver_services(server), *interfaces_of(server)])
        self._listener = RpcServer()
        _, server.port = await self._listener.listen(host, 0, table)
        server.resolver_port = server.port
        return server


class _Host:
    """Host of the exported objects; nothing needs to be durable."""

    position = 0

    def __init__(self, apartment: Apartment) -> None:
        self._apartment = apartment

    def when_durable(self, action: Callable[[], object]) -> None:
        action()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._apartment.spawn(work)


async def _released(exporter: RemoteExporter, ipid: bytes, references: int) -> None:
    try:
        await exporter.release([(ipid, references)])
    except (MsmqError, RpcConnectionError) as error:
        logger.debug("a reference could not be released: %s", error)
