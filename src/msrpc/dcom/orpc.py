"""Calls to objects ([MS-DCOM] 3.1.1.5.4): an RPC interface for each interface of objects, and IRemUnknown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Any, Final
from uuid import UUID

from msrpc.dcom.activation import VERSION, interface_pointer
from msrpc.dcom.exporter import ExportedInterface, ObjectOwner
from msrpc.dcom.server import CallContext, ComServer, ServedInterface, check_count, is_awaitable, owner_of
from msrpc.errors import ComError, HResultError
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_dcom as d
from msrpc.ndr import BadStubData, Interface, NdrError, Operation
from msrpc.rpc.call import Call
from msrpc.rpc.faults import NCA_S_UNK_IF, RPC_S_ACCESS_DENIED, RPC_X_BAD_STUB_DATA, Fault

logger = logging.getLogger(__name__)

FIRST_OPNUM: Final = 3  # operations of IUnknown are not called remotely


def check_version(this: d.ORPCTHIS) -> None:
    """Check ORPCTHIS of an activation, whose flags must be ignored (2.2.13.3). Raises `Fault`."""
    version = this.version
    if version.MajorVersion != VERSION.MajorVersion or version.MinorVersion > VERSION.MinorVersion:
        raise Fault(ComResult.RPC_E_VERSION_MISMATCH)


def check_header(this: d.ORPCTHIS) -> None:
    """Check ORPCTHIS of a call to an object (2.2.13.3; D-248). Raises `Fault`."""
    check_version(this)
    if this.flags:
        raise Fault(ComResult.RPC_E_INVALID_HEADER)


def failure(operation: Operation, hresult: int) -> Any:
    """Return a response with only an HRESULT."""
    assert operation.response is not None
    response = operation.response()
    response.result = hresult & 0xFFFFFFFF
    return response


def refused(call: Call, error: ComError) -> None:
    """Record a call to an object of another owner, which counts as a guess. Raises `Fault` once the client has made too
    many guesses.
    """
    logger.warning("%s::%d from %s: %s", call.interface.name, call.opnum, call.peer, error.detail)
    call.failed_guess()


class OrpcInterface(ServedInterface):
    """An interface of objects for the RPC runtime; see `rpc.call.RpcInterface`."""

    first_opnum = FIRST_OPNUM  # lower opnums are those of IUnknown, which are not called remotely

    def call(self, call: Call) -> None:
        """Dispatch a call to its object."""
        operation = self.description.operations[call.opnum]
        owner = owner_of(call)
        target, described = self._target(call, owner)
        try:
            request = operation.decode_request(call.stub, call.byte_order)
        except BadStubData as error:
            logger.info("%s::%s from %s: malformed request: %s", self.name, operation.name, call.peer, error)
            raise Fault(RPC_X_BAD_STUB_DATA) from None
        check_header(request.orpcthis)
        context = CallContext(self.server, call, described, request.orpcthis.cid, owner)
        before = self.server.host.position
        try:
            response = target.call(context, operation, request)
        except HResultError as error:
            logger.debug("%s::%s failed: %s", self.name, operation.name, error)
            response = failure(operation, error.hresult)
        except BaseException:
            context.end()
            raise
        if is_awaitable(response):
            self._answer_later(context, operation, response, before)
        else:
            self._finish(context, operation, response, before)

    def _target(self, call: Call, owner: ObjectOwner) -> tuple[Any, Interface]:
        """Return the object of a call by `owner`, and its interface. Raises `Fault`."""
        ipid = call.object_uuid or bytes(16)
        server = self.server
        if ipid == server.exporter.rem_unknown:
            target, described = server.rem_unknown, self.description
            if self.uuid not in REMOTE_UNKNOWN:
                raise Fault(NCA_S_UNK_IF)
            return target, described
        try:
            found: ExportedInterface | None = server.exporter.find(ipid, owner)
        except ComError as error:
            refused(call, error)
            raise Fault(RPC_S_ACCESS_DENIED) from None  # ERROR_ACCESS_DENIED, note 42 of [MS-DCOM] 3.1.1.5.4
        if found is None:
            call.failed_guess()
            raise Fault(ComResult.RPC_E_DISCONNECTED)
        described = server.interfaces[found.iid]
        if not _continues(described, self.description):
            raise Fault(NCA_S_UNK_IF)
        return found.object.target, described

    def _answer_later(self, context: CallContext, operation: Operation, work: Awaitable[Any], before: int) -> None:
        async def run() -> Any:
            return await work

        task = self.server.host.spawn(run())
        context.call.waits()
        context.call.on_cancel = context.on_cancel or task.cancel
        task.add_done_callback(lambda done: self._answer_late(context, operation, done, before))

    def _answer_late(self, context: CallContext, operation: Operation, task: asyncio.Task[Any], before: int) -> None:
        if task.cancelled():
            response = failure(operation, self.server.cancelled)
        elif (error := task.exception()) is None:
            response = task.result()
        elif isinstance(error, HResultError):
            response = failure(operation, error.hresult)
        else:
            logger.error("%s::%s failed", self.name, operation.name, exc_info=error)
            response = failure(operation, ComResult.E_UNEXPECTED)
        self._finish(context, operation, response, before)

    def _finish(self, context: CallContext, operation: Operation, response: Any, before: int) -> None:
        """Send a response once everything written for it is on the disk."""
        context.end()
        call = context.call
        if call.over:
            return
        try:
            stub = operation.encode_response(response)
        except NdrError:
            logger.exception("%s::%s: cannot encode the response", self.name, operation.name)
            call.fault(RPC_X_BAD_STUB_DATA)
            return
        if context.must_wait or self.server.host.position != before:
            self.server.host.when_durable(lambda: None if call.over else call.reply(stub))
        else:
            call.reply(stub)


def _continues(interface: Interface | None, other: Interface) -> bool:
    """Whether an interface is `other` or derived from it."""
    while interface is not None:
        if interface is other or interface.uuid == other.uuid:
            return True
        interface = interface.base
    return False


REMOTE_UNKNOWN: Final = {d.IRemUnknown.uuid, d.IRemUnknown2.uuid}


class RemUnknown:
    """The Remote Unknown of the exporter (3.1.1.5.6, 3.1.1.5.7): clients use it to query further interfaces of an
    object, and to add and release references."""

    def __init__(self, server: ComServer) -> None:
        self._server = server

    def query(self, iid: UUID) -> bool:
        return iid in REMOTE_UNKNOWN

    def released(self) -> None:
        """Do nothing: this object lives as long as the process."""

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any:
        """Run an operation. Raises ComError E_ACCESSDENIED, without any change, if one of the objects belongs to
        another owner (note 42 of 3.1.1.5.4).
        """
        ipids = [request.ripid] if hasattr(request, "ripid") else [r.ipid for r in request.InterfaceRefs]
        try:
            self._server.exporter.permit(ipids, context.owner)
        except ComError as error:
            refused(context.call, error)
            raise
        return getattr(self, operation.name)(context, request)

    def RemQueryInterface(self, context: CallContext, q: Any) -> Any:
        """3.1.1.5.6.1.1."""
        self._known(context, q.ripid, q.iids)
        results = []
        for raw in q.iids:
            try:
                reference = self._query(context, q.ripid, raw, q.cRefs)
                results.append(d.REMQIRESULT(0, reference.to_wire()))
            except ComError as error:
                results.append(d.REMQIRESULT(error.hresult))
        return d.IRemUnknown_RemQueryInterface_Response(ppQIResults=results)

    def RemAddRef(self, context: CallContext, q: Any) -> Any:
        """3.1.1.5.6.1.2."""
        exporter, caller = self._server.exporter, context.owner
        results = [int(exporter.add_references(r.ipid, caller, r.cPublicRefs, r.cPrivateRefs)) for r in q.InterfaceRefs]
        return d.IRemUnknown_RemAddRef_Response(pResults=results)

    def RemRelease(self, context: CallContext, q: Any) -> Any:
        """3.1.1.5.6.1.3."""
        caller = context.owner
        for r in q.InterfaceRefs:
            self._server.exporter.release(r.ipid, caller, r.cPublicRefs, r.cPrivateRefs)
        return d.IRemUnknown_RemRelease_Response()

    def RemQueryInterface2(self, context: CallContext, q: Any) -> Any:
        """3.1.1.5.7.1.1."""
        self._known(context, q.ripid, q.iids)
        statuses: list[int] = []
        pointers: list[d.MInterfacePointer | None] = []
        for raw in q.iids:
            try:
                reference = self._query(context, q.ripid, raw, 1)
                statuses.append(0)
                pointers.append(interface_pointer(reference.pack()))
            except ComError as error:
                statuses.append(error.hresult)
                pointers.append(None)
        return d.IRemUnknown2_RemQueryInterface2_Response(phr=statuses, ppMIF=pointers)

    def _known(self, context: CallContext, ipid: bytes, iids: Sequence[bytes]) -> None:
        """Check a query. Raises ComError for an unknown object, and for too many interfaces."""
        check_count(len(iids))
        if self._server.exporter.find(ipid, context.owner) is None:
            raise ComError(ComResult.RPC_E_INVALID_OBJECT, f"no interface {UUID(bytes_le=ipid)}")

    def _query(self, context: CallContext, ipid: bytes, iid: bytes, references: int) -> Any:
        wanted = UUID(bytes_le=iid)
        if wanted not in self._server.interfaces:
            raise ComError(ComResult.E_NOINTERFACE, f"no interface {wanted}")
        resolver = self._server.reference_bindings(context.local_host)
        return self._server.exporter.query(ipid, wanted, references, resolver, context.owner)


def interfaces_of(server: ComServer) -> list[OrpcInterface]:
    """Return the RPC interfaces for calls to the objects of a server."""
    server.rem_unknown = RemUnknown(server)
    described = {i.uuid: i for i in (*server.interfaces.values(), d.IRemUnknown, d.IRemUnknown2)}
    return [OrpcInterface(server, interface) for interface in described.values()]
