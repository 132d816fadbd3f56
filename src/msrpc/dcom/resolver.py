"""The object resolver at the port of the endpoint mapper ([MS-DCOM] 3.1.2): locating exporters, pings, activation."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from msrpc.dcom import activation
from msrpc.dcom.activation import VERSION, Exported, interface_pointer
from msrpc.dcom.bindings import Bindings
from msrpc.dcom.objref import StandardReference
from msrpc.dcom.orpc import check_version
from msrpc.dcom.server import CallContext, ComServer, ServedInterface, ServedObject, check_count, owner_of
from msrpc.errors import ComError
from msrpc.hresults import ComResult, ResolverError
from msrpc.interfaces import com as c
from msrpc.interfaces import ms_dcom as d
from msrpc.ndr import BadStubData, Interface, NdrError, Operation
from msrpc.rpc.call import Call
from msrpc.rpc.faults import RPC_X_BAD_STUB_DATA, Fault

logger = logging.getLogger(__name__)

_CLASS_FACTORY_MODE = 0xFFFFFFFF
_NO_CONTEXT = d.IUnknown
Result = tuple[UUID, int, StandardReference | None]


class _Service(ServedInterface):
    """An RPC interface whose handlers are methods named after its operations."""

    description: Interface

    def __init__(self, server: ComServer) -> None:
        super().__init__(server, self.description)

    def call(self, call: Call) -> None:
        operation: Operation = self.description.operations[call.opnum]
        try:
            request = operation.decode_request(call.stub, call.byte_order)
            response = getattr(self, operation.name)(call, request)
        except BadStubData as error:
            logger.info("%s from %s: malformed request: %s", operation.name, call.peer, error)
            raise Fault(RPC_X_BAD_STUB_DATA) from None
        try:
            call.reply(operation.encode_response(response))
        except NdrError:
            logger.exception("%s: the response can't be encoded", operation.name)
            call.fault(RPC_X_BAD_STUB_DATA)


class ObjectExporter(_Service):
    """IObjectExporter (3.1.2.5.1). Clients may call ServerAlive without authentication."""

    description = d.IObjectExporter
    open_opnums = frozenset([3, 5])

    def ResolveOxid(self, call: Call, q: Any) -> Any:
        """3.1.2.5.1.1."""
        response = d.ResolveOxid_Response(ppdsaOxidBindings=Bindings(()).to_wire())
        response.result = self._resolve(call, q, response)
        return response

    def ResolveOxid2(self, call: Call, q: Any) -> Any:
        """3.1.2.5.1.5."""
        response = d.ResolveOxid2_Response(ppdsaOxidBindings=Bindings(()).to_wire(), pComVersion=VERSION)
        response.result = self._resolve(call, q, response)
        return response

    def _resolve(self, call: Call, q: Any, response: Any) -> int:
        exporter = self.server.exporter
        if q.pOxid != exporter.oxid:
            return ResolverError.OR_INVALID_OXID
        response.ppdsaOxidBindings = self.server.exporter_bindings(call.connection.local_host).to_wire()
        response.pipidRemUnknown = exporter.rem_unknown
        response.pAuthnHint = self.server.authentication_hint(call)
        return 0

    def SimplePing(self, call: Call, q: Any) -> Any:
        """3.1.2.5.1.2."""
        return d.SimplePing_Response(self.server.exporter.ping(q.pSetId))

    def ComplexPing(self, call: Call, q: Any) -> Any:
        """3.1.2.5.1.3."""
        identifier, status = self.server.exporter.change_pings(
            q.pSetId, q.SequenceNum, q.AddToSet or [], q.DelFromSet or [], call.peer
        )
        return d.ComplexPing_Response(identifier, 0, status)

    def ServerAlive(self, call: Call, q: Any) -> Any:
        """3.1.2.5.1.4."""
        return d.ServerAlive_Response()

    def ServerAlive2(self, call: Call, q: Any) -> Any:
        """3.1.2.5.1.6: returns bindings without endpoints."""
        bindings = self.server.resolver_bindings(call.connection.local_host)
        return d.ServerAlive2_Response(VERSION, bindings.to_wire())


def _activate(context: CallContext, clsid: UUID, iids: Sequence[UUID], factory: bool) -> list[Result]:
    """Create an object, or find its class factory, and query it for interfaces (3.1.2.5.2.3.3). Raises ComError."""
    server = context.server
    check_count(len(iids))
    if clsid not in server.classes:
        raise ComError(ComResult.REGDB_E_CLASSNOTREG, f"there is no class {clsid}")
    target: ServedObject = ClassFactory(clsid) if factory else server.classes[clsid](context)
    return references(context, target, iids)


def references(context: CallContext, target: ServedObject, iids: Sequence[UUID]) -> list[Result]:
    """Return a reference or an error for each interface. Raises ComError E_NOINTERFACE if there is no reference."""
    results: list[Result] = []
    for iid in iids:
        try:
            if iid not in context.server.interfaces:
                raise ComError(ComResult.E_NOINTERFACE, f"no interface {iid}")
            results.append((iid, ComResult.S_OK, context.reference(target, iid)))
        except ComError as error:
            results.append((iid, error.hresult, None))
    if all(reference is None for _, _, reference in results):
        target.released()
        raise ComError(results[0][1] if results else ComResult.E_INVALIDARG, "none of the interfaces is there")
    return results


class Activation(_Service):
    """IActivation (3.1.2.5.2.1), which every resolver must provide."""

    description = d.IActivation

    def RemoteActivation(self, call: Call, q: Any) -> Any:
        """3.1.2.5.2.3.1."""
        check_version(q.ORPCthis)
        server = self.server
        response = d.RemoteActivation_Response(
            ppdsaOxidBindings=Bindings(()).to_wire(), pServerVersion=VERSION,
            ppInterfaceData=[None] * q.Interfaces, pResults=[0] * q.Interfaces,
        )  # fmt: skip
        context = CallContext(server, call, _NO_CONTEXT, q.ORPCthis.cid, owner_of(call))
        iids = [UUID(bytes_le=raw) for raw in q.pIIDs or []]
        try:
            results = _activate(context, UUID(bytes_le=q.Clsid), iids, q.Mode == _CLASS_FACTORY_MODE)
        except ComError as error:
            logger.info("activation for %s failed: %s", call.peer, error)
            response.phr = error.hresult
            return response
        response.pOxid = server.exporter.oxid
        response.ppdsaOxidBindings = server.exporter_bindings(call.connection.local_host).to_wire()
        response.pipidRemUnknown = server.exporter.rem_unknown
        response.pAuthnHint = server.authentication_hint(call)
        response.ppInterfaceData = [None if r is None else interface_pointer(r.pack()) for _, _, r in results]
        response.pResults = [int(hresult) for _, hresult, _ in results]
        return response


class RemoteScmActivator(_Service):
    """IRemoteSCMActivator (3.1.2.5.2.2)."""

    description = d.IRemoteSCMActivator

    def RemoteGetClassObject(self, call: Call, q: Any) -> Any:
        """3.1.2.5.2.3.2."""
        return self._answer(call, q, d.RemoteGetClassObject_Response, factory=True)

    def RemoteCreateInstance(self, call: Call, q: Any) -> Any:
        """3.1.2.5.2.3.3."""
        return self._answer(call, q, d.RemoteCreateInstance_Response, factory=False)

    def _answer(self, call: Call, q: Any, kind: type, factory: bool) -> Any:
        check_version(q.orpcthis)
        server = self.server
        if q.pActProperties is None:
            return kind(result=ComResult.E_INVALIDARG)
        wanted = activation.parse_request(q.pActProperties.abData)
        context = CallContext(server, call, _NO_CONTEXT, q.orpcthis.cid, owner_of(call))
        try:
            results = _activate(context, wanted.clsid, wanted.iids, factory)
        except ComError as error:
            logger.info("activation for %s failed: %s", call.peer, error)
            return kind(result=error.hresult)
        exporter = server.exporter
        bindings = server.exporter_bindings(call.connection.local_host)
        exported = Exported(exporter.oxid, bindings, exporter.rem_unknown, server.authentication_hint(call))
        return kind(ppActProperties=interface_pointer(activation.make_answer(exported, results)))


class ClassFactory:
    """IClassFactory of a class ([MS-COM]; the only remote method is CreateInstance)."""

    def __init__(self, clsid: UUID) -> None:
        self._clsid = clsid

    def query(self, iid: UUID) -> bool:
        return iid in (c.IClassFactory.uuid, d.IUnknown.uuid)

    def released(self) -> None:
        """Do nothing: a class factory holds no resources."""

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any:
        return getattr(self, operation.name)(context, request)

    def CreateInstance(self, context: CallContext, q: Any) -> Any:
        """Create an object and return one interface."""
        ((_, _, reference),) = _activate(context, self._clsid, [UUID(bytes_le=q.riid)], factory=False)
        assert reference is not None
        return c.IClassFactory_CreateInstance_Response(ppvObject=interface_pointer(reference.pack()))

    def LockServer(self, context: CallContext, q: Any) -> Any:
        """Do nothing: the server keeps running anyway."""
        return c.IClassFactory_LockServer_Response()


def resolver_services(server: ComServer) -> list[_Service]:
    """Return the services at the port of the endpoint mapper."""
    return [ObjectExporter(server), Activation(server), RemoteScmActivator(server)]
