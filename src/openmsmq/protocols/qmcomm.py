"""The interface qmcomm ([MS-MQMP] 3.1.4): queues, handles, transactions."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import ClassVar
from uuid import UUID

from msrpc.ndr import NULL
from msrpc.rpc.association import NULL_HANDLE, Holder
from msrpc.rpc.call import Call
from msrpc.rpc.faults import Fault
from msrpc.waiting import outcome_of
from openmsmq.conversion.propvariants import pack_properties, unpack_properties
from openmsmq.conversion.queue_format import UNKNOWN, from_queue_format, to_queue_format
from openmsmq.conversion.send_buffer import NULL_UOW
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.model import names
from openmsmq.model.admission import utf16_units
from openmsmq.model.constants import Access, Share
from openmsmq.model.errors import (
    HResult,
    InvalidHandle,
    MsmqError,
    QueueNotFound,
    SharingViolation,
    TransactionSequence,
)
from openmsmq.protocols import public_objects
from openmsmq.protocols.dispatch import NdrInterface, check, present
from openmsmq.protocols.environment import MSMQ_VERSION
from openmsmq.protocols.proxies import HandedOver, RemoteQueueProxyHandle
from openmsmq.queueing.descriptors import OpenQueueDescriptor, RemoteReadState
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.unit_of_work import Transaction, TransactionState

# Kinds of context handles.
RPC_QUEUE_HANDLE = "RPC_QUEUE_HANDLE"
RPC_INT_XACT_HANDLE = "RPC_INT_XACT_HANDLE"
PCTX_OPENREMOTE_HANDLE_TYPE = "PCTX_OPENREMOTE_HANDLE_TYPE"

MQDS_QUEUE = 1
OBJECT_QUEUE = 1
RESERVED_CURSOR = 0x0000000B
# 3.1.4.17; MOVE belongs to R_OpenQueueForMove.
_ACCESS_MODES = (Access.RECEIVE, Access.SEND, Access.PEEK, Access.RECEIVE_ADMIN, Access.PEEK_ADMIN)
QUERY_SERVERS, QUERY_TIME_TO_REACH_QUEUE, QUERY_ENTERPRISE, QUERY_VERSION, QUERY_MACHINE = range(5)


class QmComm(NdrInterface):
    description = m.qmcomm
    states: ClassVar[dict[str, str]] = {
        "R_QMGetRemoteQueueName": "obsolete: MQ_ERROR_ILLEGAL_OPERATION, as specified",
        "rpc_ACSetCursorProperties": "obsolete: MQ_ERROR_ILLEGAL_OPERATION, as specified",
    }
    _abort_transaction = m.qmcomm.operation("R_QMAbortTransaction")
    # [MS-MQMP] 5.1: answered before any authentication.
    open_opnums = frozenset([m.qmcomm.operation("R_QMGetRTQMServerPort").opnum])

    # -- remote reading ([MS-MQQP] and this interface's opnums 1 to 4) -----------------------------------------

    def R_QMGetRemoteQueueName(self, call: Call, q: m.R_QMGetRemoteQueueName_Request) -> None:
        """3.1.4.1: obsolete; raises the exception MQ_ERROR_ILLEGAL_OPERATION."""
        raise Fault(HResult.MQ_ERROR_ILLEGAL_OPERATION)

    def R_QMOpenRemoteQueue(
        self, call: Call, q: m.R_QMOpenRemoteQueue_Request
    ) -> m.R_QMOpenRemoteQueue_Response | None:
        """3.1.4.2: opens a queue of this machine for a remote reader."""
        queue_format = present(q.pQueueFormat, "pQueueFormat")
        check(q.dwDesiredAccess in (Access.RECEIVE, Access.PEEK), f"dwDesiredAccess is {q.dwDesiredAccess:#x}")
        share = _share(q.dwShareMode)
        name = from_queue_format(queue_format)
        unreadable = isinstance(name, names.DistributionListFormatName | names.MulticastFormatName)
        check(
            not unreadable and not (isinstance(name, names.DirectFormatName) and name.is_http),
            f"{name} can't be read",
            HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
        )
        if self.environment.public_queues.needs(name):
            self.answer_later(call, q, self._resolve_and_open_for_remote(call, name, Access(q.dwDesiredAccess), share))
            return None
        return self._open_for_remote(call, name, Access(q.dwDesiredAccess), share)

    async def _resolve_and_open_for_remote(
        self, call: Call, name: names.FormatName, access: Access, share: Share
    ) -> m.R_QMOpenRemoteQueue_Response:
        """Open a public queue of this machine that another machine has just created."""
        await self.environment.public_queues.resolve(name, access)
        return self._open_for_remote(call, name, access, share)

    def _open_for_remote(
        self, call: Call, name: names.FormatName, access: Access, share: Share
    ) -> m.R_QMOpenRemoteQueue_Response:
        try:
            descriptor = self._open(call, name, access, share)
        except SharingViolation as error:
            raise MsmqError(HResult.STATUS_SHARING_VIOLATION, error.detail) from None
        self.manager.handles.hand_out(descriptor)
        handle = call.handles.create(PCTX_OPENREMOTE_HANDLE_TYPE, descriptor, self._close_context)
        value = descriptor.handle
        return m.R_QMOpenRemoteQueue_Response(pphContext=handle, pdwContext=value, dwpQueue=value, phQueue=value)

    def R_QMCloseRemoteQueueContext(
        self, call: Call, q: m.R_QMCloseRemoteQueueContext_Request
    ) -> m.R_QMCloseRemoteQueueContext_Response:
        """3.1.4.3."""
        self._close_context(call.handles.close(q.pphContext, PCTX_OPENREMOTE_HANDLE_TYPE))
        return m.R_QMCloseRemoteQueueContext_Response(pphContext=NULL_HANDLE)

    def _close_context(self, descriptor: OpenQueueDescriptor) -> None:
        """Close a queue, unless another queue manager has taken it over, which then closes it (RemoteQMCloseQueue)."""
        if descriptor.remote_read_state is RemoteReadState.OPENED:
            self.manager.handles.close_queue(descriptor)

    def R_QMCreateRemoteCursor(
        self, call: Call, q: m.R_QMCreateRemoteCursor_Request
    ) -> m.R_QMCreateRemoteCursor_Response:
        """3.1.4.4: ptb1 is ignored. The caller may be the client or the queue manager that reads for it, so any caller
        is accepted that knows the handle of a queue opened for remote reading."""
        manager = self.manager
        descriptor = manager.handles.descriptor(q.hQueue)
        if descriptor.remote_read_state is RemoteReadState.NONE:
            descriptor = owned_descriptor(self, call, q.hQueue)
        cursor = manager.handles.open_cursor(descriptor, call.association.handles.charge)
        return m.R_QMCreateRemoteCursor_Response(phCursor=cursor.handle)

    # -- queue objects ---------------------------------------------------------------------------------------

    def R_QMCreateObjectInternal(
        self, call: Call, q: m.R_QMCreateObjectInternal_Request
    ) -> m.R_QMCreateObjectInternal_Response | None:
        """3.1.4.5."""
        check(q.dwObjectType == MQDS_QUEUE, f"dwObjectType is {q.dwObjectType}, only 1 (a queue) can be created")
        check((q.pSecurityDescriptor is None) == (q.SDSize == 0), "SDSize and pSecurityDescriptor disagree")
        values, caller = unpack_properties(q.aProp, q.apVar), self.environment.caller(call)
        if public_objects.is_public_path(self.environment, q.lpwcsPathName):
            self.answer_later(call, q, public_objects.create(self.environment, q, values, caller))
            return None
        self.manager.administration.create_queue(q.lpwcsPathName, values, q.pSecurityDescriptor, caller)
        return m.R_QMCreateObjectInternal_Response()

    def R_QMSetObjectSecurityInternal(
        self, call: Call, q: m.R_QMSetObjectSecurityInternal_Request
    ) -> m.R_QMSetObjectSecurityInternal_Response | None:
        """3.1.4.6."""
        descriptor, caller = present(q.pSecurityDescriptor, "pSecurityDescriptor"), self.environment.caller(call)
        if (guid := self._public(q.pObjectFormat)) is not None:
            work = public_objects.set_security(self.environment, guid, q, descriptor, caller)
            self.answer_later(call, q, work)
            return None
        queue = self._queue(q.pObjectFormat)
        self.manager.administration.set_security(queue, q.SecurityInformation, descriptor, caller)
        return m.R_QMSetObjectSecurityInternal_Response()

    def R_QMGetObjectSecurityInternal(
        self, call: Call, q: m.R_QMGetObjectSecurityInternal_Request
    ) -> m.R_QMGetObjectSecurityInternal_Response | None:
        """3.1.4.7."""
        try:
            caller = self.environment.caller(call)
            if (guid := self._public(q.pObjectFormat)) is not None:
                self.answer_later(call, q, public_objects.get_security(self.environment, guid, q, caller))
                return None
            descriptor = self.manager.administration.get_security(
                self._queue(q.pObjectFormat), q.RequestedInformation, caller
            )
        except MsmqError as error:
            return public_objects.no_security(error, q.nLength)
        return public_objects.security_answer(descriptor, q.nLength)

    def R_QMDeleteObject(self, call: Call, q: m.R_QMDeleteObject_Request) -> m.R_QMDeleteObject_Response | None:
        """3.1.4.8."""
        caller = self.environment.caller(call)
        if (guid := self._public(q.pObjectFormat)) is not None:
            self.answer_later(call, q, public_objects.delete(self.environment, guid, caller))
            return None
        self.manager.administration.delete_queue(self._queue(q.pObjectFormat), caller)
        return m.R_QMDeleteObject_Response()

    def R_QMGetObjectProperties(
        self, call: Call, q: m.R_QMGetObjectProperties_Request
    ) -> m.R_QMGetObjectProperties_Response | None:
        """3.1.4.9."""
        caller = self.environment.caller(call)
        if (guid := self._public(q.pObjectFormat)) is not None:
            self.answer_later(call, q, public_objects.get_properties(self.environment, guid, q, caller))
            return None
        values = self.manager.administration.get_properties(self._queue(q.pObjectFormat), q.aProp, caller)
        return m.R_QMGetObjectProperties_Response(apVar=pack_properties(q.aProp, values, q.apVar))

    def R_QMSetObjectProperties(
        self, call: Call, q: m.R_QMSetObjectProperties_Request
    ) -> m.R_QMSetObjectProperties_Response | None:
        """3.1.4.10."""
        values = unpack_properties(present(q.aProp, "aProp"), present(q.apVar, "apVar"))
        caller = self.environment.caller(call)
        if (guid := self._public(q.pObjectFormat)) is not None:
            self.answer_later(call, q, public_objects.set_properties(self.environment, guid, values, caller))
            return None
        self.manager.administration.set_properties(self._queue(q.pObjectFormat), values, caller)
        return m.R_QMSetObjectProperties_Response()

    def R_QMObjectPathToObjectFormat(
        self, call: Call, q: m.R_QMObjectPathToObjectFormat_Request
    ) -> m.R_QMObjectPathToObjectFormat_Response | None:
        """3.1.4.11: returns the private format name; for a public queue the public one."""
        queue_format = present(q.pObjectFormat.pQueueFormat, "pObjectFormat.pQueueFormat")
        check(queue_format.m_qft == UNKNOWN, f"m_qft is {queue_format.m_qft}, not 0")
        if public_objects.is_public_path(self.environment, q.lpwcsPathName):
            self.answer_later(call, q, public_objects.resolve(self.environment, q.lpwcsPathName))
            return None
        path = names.parse_path_name(q.lpwcsPathName)
        registry = self.manager.registry
        queue = registry.queue_for_path_name(path)
        if queue is None or path.kind != "private":
            raise QueueNotFound(detail=str(path))
        formatted = m.OBJECT_FORMAT(OBJECT_QUEUE, to_queue_format(registry.format_name(queue)))
        return m.R_QMObjectPathToObjectFormat_Response(pObjectFormat=formatted)

    def _queue(self, object_format: m.OBJECT_FORMAT) -> Queue:
        return self.manager.registry.queue_for(_name_in(object_format))

    def _public(self, object_format: m.OBJECT_FORMAT) -> UUID | None:
        """Return the identifier of a public queue, which needs the directory; None for any other queue."""
        return public_objects.identifier_of(self.environment, _name_in(object_format))

    # -- transactions ----------------------------------------------------------------------------------------

    def R_QMGetTmWhereabouts(self, call: Call, q: m.R_QMGetTmWhereabouts_Request) -> m.R_QMGetTmWhereabouts_Response:
        """3.1.4.12."""
        response = m.R_QMGetTmWhereabouts_Response(pbWhereabouts=bytes(q.cbBufSize))
        try:
            whereabouts = self.environment.coordinator.whereabouts()
        except MsmqError as error:
            response.result = error.hresult
            return response
        response.pcbWhereabouts = len(whereabouts)
        if len(whereabouts) > q.cbBufSize:
            response.result = HResult.MQ_ERROR_USER_BUFFER_TOO_SMALL
        else:
            response.pbWhereabouts = whereabouts.ljust(q.cbBufSize, b"\0")
        return response

    def R_QMEnlistTransaction(self, call: Call, q: m.R_QMEnlistTransaction_Request) -> m.R_QMEnlistTransaction_Response:
        """3.1.4.13: the client's transaction manager must have pushed the transaction before."""
        self.environment.coordinator.check_enlisted(q.pUow.rgb, q.pbCookie)
        return m.R_QMEnlistTransaction_Response()

    def R_QMEnlistInternalTransaction(
        self, call: Call, q: m.R_QMEnlistInternalTransaction_Request
    ) -> m.R_QMEnlistInternalTransaction_Response:
        """3.1.4.14: the transaction is aborted if the client disconnects before ending it (3.1.7.3)."""
        check(q.pUow.rgb != NULL_UOW, "pUow is null, which stands for no transaction")
        self.environment.coordinator.check_new(q.pUow.rgb)
        manager = self.manager
        transaction = manager.transactions.create(q.pUow.rgb)
        transaction.owner = call.holder
        handle = call.handles.create(RPC_INT_XACT_HANDLE, transaction, self._abort)
        return m.R_QMEnlistInternalTransaction_Response(phIntXact=handle)

    def _abort(self, transaction: Transaction) -> None:
        """Abort a transaction and notify the participants, unless its commit is in progress."""
        if transaction.is_open:
            self.environment.coordinator.abort_everywhere(transaction)

    def R_QMCommitTransaction(
        self, call: Call, q: m.R_QMCommitTransaction_Request
    ) -> m.R_QMCommitTransaction_Response | None:
        """3.1.4.15: if the commit fails for lack of disk space, the transaction and its handle stay valid (D-224). If
        other queue managers take part, a failure aborts the transaction."""
        transaction = call.handles.get(q.phIntXact, RPC_INT_XACT_HANDLE)
        if self.environment.coordinator.is_distributed(transaction):
            self._close_transaction(call, q)
            # The commit continues if the client disconnects, whether it has been decided or not.
            self.answer_later(call, q, outcome_of(self.environment.spawn(self._commit(transaction))))
            return None
        try:
            self.manager.transactions.commit(transaction)
        except TransactionSequence:
            self._close_transaction(call, q)
            raise
        self._close_transaction(call, q)
        return m.R_QMCommitTransaction_Response(phIntXact=NULL_HANDLE)

    async def _commit(self, transaction: Transaction) -> m.R_QMCommitTransaction_Response:
        await self.environment.coordinator.commit(transaction)
        return m.R_QMCommitTransaction_Response(phIntXact=NULL_HANDLE)

    def R_QMAbortTransaction(self, call: Call, q: m.R_QMAbortTransaction_Request) -> None:
        """3.1.4.16. The answer need not wait for a sync, because a restart aborts uncommitted transactions anyway."""
        transaction = self._close_transaction(call, q)
        if not transaction.is_open and transaction.state is not TransactionState.ABORTED:
            raise TransactionSequence(detail="the transaction has been committed")
        self._abort(transaction)
        response = m.R_QMAbortTransaction_Response(phIntXact=NULL_HANDLE)
        self.finish(call, self._abort_transaction, response, durable=False)

    @staticmethod
    def _close_transaction(
        call: Call, q: m.R_QMCommitTransaction_Request | m.R_QMAbortTransaction_Request
    ) -> Transaction:
        """Close the handle of a transaction; a failure returns NULL for it, too."""
        transaction: Transaction = call.handles.close(q.phIntXact, RPC_INT_XACT_HANDLE)
        q.phIntXact = NULL_HANDLE
        return transaction

    # -- open queues -----------------------------------------------------------------------------------------

    def rpc_QMOpenQueueInternal(
        self, call: Call, q: m.rpc_QMOpenQueueInternal_Request
    ) -> m.rpc_QMOpenQueueInternal_Response | None:
        """3.1.4.17. To open a queue of another machine for reading, the client first gets its path name only, opens the
        queue there and calls again with hRemoteQueue."""
        try:
            access = Access(q.dwDesiredAccess)
        except ValueError:
            raise _unsupported_access(q.dwDesiredAccess) from None
        if access not in _ACCESS_MODES:
            raise _unsupported_access(access)
        share = _share(q.dwShareMode)
        name = from_queue_format(q.pQueueFormat)
        if q.hRemoteQueue:
            check(
                access in (Access.RECEIVE, Access.PEEK),
                f"dwDesiredAccess is {access:#x}, allowed with hRemoteQueue: 0x1 and 0x20",
            )
        else:
            check(q.dwpRemoteContext == 0, "dwpRemoteContext without hRemoteQueue")
            check(q.dwpQueue == 0, "dwpQueue without hRemoteQueue")
        if self.environment.public_queues.needs(name):
            self.answer_later(call, q, self._resolve_and_open(call, q, name, access, share))
            return None
        if q.hRemoteQueue:
            path = self._demand_remote_path(name, access)
            self.answer_later(call, q, self._open_remote(call, q, name, path, access))
            return None
        return self._open_queue(call, q, name, access, share)

    async def _resolve_and_open(
        self, call: Call, q: m.rpc_QMOpenQueueInternal_Request, name: names.FormatName, access: Access, share: Share
    ) -> m.rpc_QMOpenQueueInternal_Response:
        """Open a queue that must be looked up in the directory."""
        resolved = await self.environment.public_queues.resolve(name, access)
        if q.hRemoteQueue:
            return await self._open_remote(call, q, resolved, self._demand_remote_path(resolved, access), access)
        return self._open_queue(call, q, resolved, access, share)

    def _open_queue(
        self, call: Call, q: m.rpc_QMOpenQueueInternal_Request, name: names.FormatName, access: Access, share: Share
    ) -> m.rpc_QMOpenQueueInternal_Response:
        try:
            descriptor = self._open(call, name, access, share)
        except QueueNotFound:  # deviation D-29: the path name is for queues of other machines only
            remote = self._remote_path(name, access)
            if remote is None:
                raise
            return m.rpc_QMOpenQueueInternal_Response(lplpRemoteQueueName=str(remote), phQueue=NULL_HANDLE)
        handle = call.handles.create(RPC_QUEUE_HANDLE, descriptor, self._close)
        unset = NULL if q.lplpRemoteQueueName is not None else None
        return m.rpc_QMOpenQueueInternal_Response(
            lplpRemoteQueueName=unset, pdwQMContext=descriptor.handle, phQueue=handle
        )

    def _open(self, call: Call, name: names.FormatName, access: Access, share: Share) -> OpenQueueDescriptor:
        caller = self.environment.caller(call)
        return self.manager.handles.open_queue(name, access, share, caller, owner=call.holder)

    async def _open_remote(
        self,
        call: Call,
        q: m.rpc_QMOpenQueueInternal_Request,
        name: names.FormatName,
        path: names.PathName,
        access: Access,
    ) -> m.rpc_QMOpenQueueInternal_Response:
        """Open a session at the other queue manager on the queue that the client opened there."""
        environment = self.environment
        opened = HandedOver(q.hRemoteQueue, q.dwpQueue, q.dwpRemoteContext)
        session = await environment.remote.open(path.computer, str(name), access, opened)
        context = environment.manager.handles.unused_handle(
            {*environment.proxies, *environment.manager.handles.descriptors}
        )
        proxy = RemoteQueueProxyHandle(context, name, access, session, call.holder)
        environment.proxies[context] = proxy
        handle = call.handles.create(RPC_QUEUE_HANDLE, proxy, self._close)
        return m.rpc_QMOpenQueueInternal_Response(
            lplpRemoteQueueName=NULL if q.lplpRemoteQueueName is not None else None,
            pdwQMContext=context,
            phQueue=handle,
        )

    def _close(self, opened: OpenQueueDescriptor | RemoteQueueProxyHandle) -> None:
        """Close a queue; a session at another queue manager is closed in the background, so that the client need not
        wait."""
        if isinstance(opened, OpenQueueDescriptor):
            self.manager.handles.close_queue(opened)
        else:
            self.environment.proxies.pop(opened.context, None)
            self.environment.spawn(opened.session.close())

    def _remote_path(self, name: names.FormatName, access: Access) -> names.PathName | None:
        """Get Queue Path ([MS-MQDMPR] 3.1.7.1.26) for a queue that may be on another machine: for a public format name
        from the directory, for a direct one from the name itself. None otherwise."""
        if access not in (Access.RECEIVE, Access.PEEK):
            return None
        if not isinstance(name, names.DirectFormatName):
            return self.environment.public_queues.path_elsewhere(name)
        return None if self.manager.registry.is_local(name) else name.path_name()

    def _demand_remote_path(self, name: names.FormatName, access: Access) -> names.PathName:
        path = self._remote_path(name, access)
        if path is None:
            raise QueueNotFound(detail=f"{name} names no queue of another machine")
        return path

    def rpc_ACCloseHandle(self, call: Call, q: m.rpc_ACCloseHandle_Request) -> m.rpc_ACCloseHandle_Response:
        """3.1.4.18."""
        self._close(call.handles.close(q.phQueue, RPC_QUEUE_HANDLE))
        return m.rpc_ACCloseHandle_Response(phQueue=NULL_HANDLE)

    def rpc_ACCloseCursor(self, call: Call, q: m.rpc_ACCloseCursor_Request) -> m.rpc_ACCloseCursor_Response | None:
        """3.1.4.19."""
        opened = call.handles.get(q.hQueue, RPC_QUEUE_HANDLE)
        if q.hCursor == RESERVED_CURSOR:
            return m.rpc_ACCloseCursor_Response()
        if q.hCursor not in opened.cursors:
            raise InvalidHandle(detail=f"no cursor {q.hCursor:#x} on this queue")
        if isinstance(opened, RemoteQueueProxyHandle):
            closing = opened.session.close_cursor(opened.cursors.pop(q.hCursor))
            self.answer_later(call, q, outcome_of(self.environment.spawn(_closed_cursor(closing))))
            return None
        self.manager.handles.close_cursor(opened.cursors[q.hCursor])
        return m.rpc_ACCloseCursor_Response()

    def rpc_ACSetCursorProperties(self, call: Call, q: m.rpc_ACSetCursorProperties_Request) -> None:
        """3.1.4.20: obsolete."""
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_OPERATION)

    def rpc_ACHandleToFormatName(
        self, call: Call, q: m.rpc_ACHandleToFormatName_Request
    ) -> m.rpc_ACHandleToFormatName_Response:
        """3.1.4.21: the returned buffer has the size of the given one, and is terminated even if it is too small."""
        opened = call.handles.get(q.hQueue, RPC_QUEUE_HANDLE)
        size = q.dwFormatNameRPCBufferLen
        check(q.pdwLength == size, f"pdwLength is {q.pdwLength}, dwFormatNameRPCBufferLen {size}")
        check(q.lpwcsFormatName is not None or size == 0, "lpwcsFormatName is NULL")
        text = str(opened.format_name) + "\0"
        length = utf16_units(text)
        response = m.rpc_ACHandleToFormatName_Response(lpwcsFormatName=q.lpwcsFormatName, pdwLength=length)
        if length > size:
            response.result = HResult.MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL
        if size and q.lpwcsFormatName is not None:
            data = text.encode("utf-16-le", "surrogatepass")[: 2 * (size - 1)] + b"\0\0"
            response.lpwcsFormatName = data.ljust(2 * size, b"\0").decode("utf-16-le", "surrogatepass")
        return response

    def rpc_ACPurgeQueue(self, call: Call, q: m.rpc_ACPurgeQueue_Request) -> m.rpc_ACPurgeQueue_Response | None:
        """3.1.4.22."""
        opened = call.handles.get(q.hQueue, RPC_QUEUE_HANDLE)
        if isinstance(opened, RemoteQueueProxyHandle):
            self.answer_later(call, q, self._purge_remote(opened))
            return None
        self.manager.reading.purge(opened)
        return m.rpc_ACPurgeQueue_Response()

    @staticmethod
    async def _purge_remote(proxy: RemoteQueueProxyHandle) -> m.rpc_ACPurgeQueue_Response:
        await proxy.session.purge()
        return m.rpc_ACPurgeQueue_Response()

    # -- information -----------------------------------------------------------------------------------------

    def R_QMQueryQMRegistryInternal(
        self, call: Call, q: m.R_QMQueryQMRegistryInternal_Request
    ) -> m.R_QMQueryQMRegistryInternal_Response:
        """3.1.4.23. Without a directory there are no MQIS servers, and no forest has a GUID."""
        check(q.dwQueryType in range(5), f"dwQueryType is {q.dwQueryType}, allowed: 0 to 4")
        if q.dwQueryType == QUERY_ENTERPRISE:
            raise MsmqError(HResult.MQ_ERROR_NO_DS, "this queue manager has no MQIS directory")
        text = {
            QUERY_SERVERS: "",
            QUERY_TIME_TO_REACH_QUEUE: str(self.manager.machine.default_time_to_reach_queue),
            QUERY_VERSION: MSMQ_VERSION,
            QUERY_MACHINE: str(UUID(bytes_le=self.manager.machine.identifier)),
        }[q.dwQueryType]
        return m.R_QMQueryQMRegistryInternal_Response(lplpMQISServer=text)

    def R_QMGetRTQMServerPort(self, call: Call, q: m.R_QMGetRTQMServerPort_Request) -> m.R_QMGetRTQMServerPort_Response:
        """3.1.4.24: returns the port, or 0 for an unsupported protocol."""
        return m.R_QMGetRTQMServerPort_Response(result=self.environment.ports.get(q.fIP, 0))


def _name_in(object_format: m.OBJECT_FORMAT) -> names.FormatName:
    return from_queue_format(present(object_format.pQueueFormat, "pObjectFormat.pQueueFormat"))


async def _closed_cursor(closing: Awaitable[None]) -> m.rpc_ACCloseCursor_Response:
    await closing
    return m.rpc_ACCloseCursor_Response()


def owned_descriptor(interface: NdrInterface, call: Call, handle: int) -> OpenQueueDescriptor:
    """Return the open queue with a DWORD handle, if the caller owns it (deviation D-14). Raises InvalidHandle."""
    descriptor = interface.manager.handles.descriptor(handle)
    if find_owned_descriptor(interface.manager, call.holder, handle) is None:
        raise InvalidHandle(detail=f"the open queue {handle:#x} belongs to another client")
    return descriptor


def find_owned_descriptor(manager: QueueManager, holder: Holder, handle: int) -> OpenQueueDescriptor | None:
    """Return the result of `owned_descriptor`, or None if that raises."""
    descriptor = manager.handles.descriptors.get(handle)
    return descriptor if descriptor is not None and descriptor.owner.admits(holder) else None


def _unsupported_access(access: int) -> MsmqError:
    allowed = ", ".join(f"{mode:#x}" for mode in _ACCESS_MODES)
    return MsmqError(HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, f"dwDesiredAccess is {access:#x}, allowed: {allowed}")


def _share(value: int) -> Share:
    check(value in (0, 1), f"dwShareMode is {value}, allowed: 0 and 1", HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE)
    return Share(value)
