"""A DCOM server with the automation objects, without a network: real stubs, real calls, and a clock set by the test."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

from msrpc.dcom.activation import VERSION
from msrpc.dcom.bindings import Bindings
from msrpc.dcom.exporter import Exporter, ObjectOwner
from msrpc.dcom.objref import StandardReference, unpack
from msrpc.dcom.orpc import OrpcInterface, interfaces_of
from msrpc.dcom.resolver import resolver_services
from msrpc.dcom.server import CallContext, owner_of
from msrpc.interfaces import ms_dcom
from msrpc.interfaces.ms_dcom import ORPCTHIS
from msrpc.ndr import Interface
from msrpc.rpc.association import Association, ContextHandles
from msrpc.rpc.call import UNAUTHENTICATED, Call, RpcCaller
from msrpc.rpc.pdu import AuthLevel
from openmsmq.protocols.mqac.classes import CLASSES, com_server
from protocols.clients import Connection, Server

RESOLVER = Bindings(())
PEER = "192.0.2.1"
ANONYMOUS = ObjectOwner(PEER, None, AuthLevel.NONE)


class Host:
    """A host process in which writes are durable immediately and tasks run in the running loop."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def position(self) -> int:
        return self._server.world.store.end

    def when_durable(self, action: Callable[[], object]) -> None:
        self._server.sync()
        action()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.get_running_loop().create_task(work)


class Link(Connection):
    local_host = "192.0.2.2"


class ComWorld:
    """A DCOM server and its queue manager. `now` is the exporter's clock in seconds."""

    def __init__(self, level: AuthLevel = AuthLevel.NONE, **limits: int) -> None:
        self.now = 0.0
        self.protocols = Server()
        numbers = itertools.count(1)
        self.exporter = Exporter(
            lambda: self.now, lambda count: next(numbers).to_bytes(count, "big"), ping_period=120.0, **limits
        )
        environment = self.protocols.environment
        self.server = com_server(environment, self.exporter, Host(self.protocols), level, "host")
        self.interfaces = {interface.uuid: interface for interface in interfaces_of(self.server)}
        self.services = {service.name: service for service in resolver_services(self.server)}
        handles = ContextHandles(lambda count: next(numbers).to_bytes(count, "big"))
        self.association = Association(1, PEER, handles)

    def context(self, interface: Interface = ms_dcom.IUnknown, caller: RpcCaller = UNAUTHENTICATED) -> CallContext:
        call = Call(Link(self.association), self.interfaces[interface.uuid], caller, None, 1, 0, 3, b"")  # type: ignore[arg-type]
        return CallContext(self.server, call, interface, bytes(16), owner_of(call))

    def new(self, name: str) -> Any:
        """Create an object of a class, named without the prefix MSMQ."""
        (kind,) = [kind for kind in CLASSES if kind.__name__ == f"MSMQ{name}"]
        return kind(self.protocols.environment)

    def export(self, target: Any, interface: Interface, owner: ObjectOwner = ANONYMOUS) -> StandardReference:
        return self.exporter.marshal(target, interface.uuid, RESOLVER, owner)

    async def call(
        self, ipid: bytes, interface: Interface, name: str, by: RpcCaller = UNAUTHENTICATED, **arguments: Any
    ) -> Any:
        """Call an operation with an encoded request and return the decoded response. Raises Fault."""
        operation = interface.operation(name)
        assert operation.request is not None
        request = operation.request(**arguments)
        request.orpcthis = ORPCTHIS(version=VERSION, cid=bytes(16))
        stub = await self.call_stub(ipid, interface, operation.opnum, operation.encode_request(request), by)
        return operation.decode_response(stub)

    async def call_stub(
        self, ipid: bytes, interface: Interface, opnum: int, stub: bytes, by: RpcCaller = UNAUTHENTICATED
    ) -> bytes:
        """Like `call`, with the bytes of the request and of the response."""
        link = Link(self.association)
        served: OrpcInterface = self.interfaces[interface.uuid]
        call = Call(link, served, by, None, 1, 0, opnum, stub, object_uuid=ipid)  # type: ignore[arg-type]
        served.call(call)
        for _ in range(1000):
            if call.over:
                return bytes(link.answer)
            self.protocols.world.turn()
            await asyncio.sleep(0)
        raise TimeoutError(f"{interface.name}, operation {opnum}, was not answered")

    def unpack(self, pointer: Any) -> StandardReference:
        found = unpack(pointer.abData)
        assert isinstance(found, StandardReference)
        return found
