"""MSMQTransaction, the dispensers, and the object behind ITransaction ([MC-MQAC] 3.4 to 3.7)."""

from __future__ import annotations

import os
from collections.abc import Awaitable
from typing import Any, ClassVar, Final
from uuid import UUID

from msrpc.dcom.server import CallContext
from msrpc.dcom.variant import EMPTY, VT, Variant
from msrpc.hresults import ComResult
from msrpc.interfaces.ms_dcom import IUnknown
from msrpc.ndr import Operation
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import ComError, HResult, MsmqError, TransactionSequence
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.mqac.objects import NOBODY, MqacObject, boolean, integer
from openmsmq.queueing.unit_of_work import Transaction

XACTTC_SYNC: Final = 2  # [MC-MQAC] 2.2.2.19


class TransactionImpl:
    """A unit of work (3.4), which MSMQTransaction wraps and which implements its ITransaction.

    It begins at the transaction manager of this queue manager, whichever dispenser created it. Others may pull it by
    its identifier and the whereabouts (3.7.4.1.1).
    """

    def __init__(self, environment: Environment, *, is_internal: bool) -> None:
        self._environment = environment
        self.is_internal = is_internal
        self.transaction: Transaction = environment.manager.transactions.create(os.urandom(16))
        self.transaction.owner = NOBODY
        self._wrappers = 0  # MSMQTransaction objects
        self._is_exported = False

    # -- for the exporter --------------------------------------------------------------------------------------

    def query(self, iid: UUID) -> bool:
        """Whether this is an interface of the object; the exporter asks before it creates a reference."""
        found = iid in (IUnknown.uuid, m.ITransaction.uuid)
        self._is_exported = self._is_exported or found
        return found

    def released(self) -> None:
        """The client has released ITransaction."""
        self._is_exported = False
        self._run_down_if_unused()

    def wrap(self) -> None:
        """Note that an MSMQTransaction has this transaction."""
        self._wrappers += 1

    def unwrap(self) -> None:
        """Note that an MSMQTransaction was released. Without any, and without ITransaction, nobody can end the
        transaction."""
        self._wrappers -= 1
        self._run_down_if_unused()

    def _run_down_if_unused(self) -> None:
        if not self._wrappers and not self._is_exported:
            self.run_down()

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any:
        return getattr(self, operation.name)(context, request)

    # -- ITransaction ------------------------------------------------------------------------------------------

    def Commit(self, context: CallContext, q: Any) -> Any:
        """3.4.4.1."""
        ended = self.commit(bool(q.fRetaining), q.grfTC, q.grfRM)
        if ended is None:
            return m.ITransaction_Commit_Response()

        async def later() -> Any:
            await ended
            return m.ITransaction_Commit_Response()

        return later()

    def Abort(self, context: CallContext, q: Any) -> Any:
        """3.4.4.2."""
        self.abort(bool(q.fRetaining), bool(q.fAsync))
        return m.ITransaction_Abort_Response()

    def GetTransactionInfo(self, context: CallContext, q: Any) -> Any:
        """3.4.4.3."""
        info = m.XACTTRANSINFO(uow=m.BOID(rgb=self.transaction.identifier))
        return m.ITransaction_GetTransactionInfo_Response(pinfo=info)

    # -- the unit of work --------------------------------------------------------------------------------------

    def commit(self, retaining: bool, control: int, resources: int) -> Awaitable[None] | None:
        """Commit. Returns an awaitable if other participants must agree. Raises ComError XACT_E_NOTSUPPORTED for
        arguments that an internal transaction does not allow, MsmqError."""
        if self.is_internal and (retaining or control != XACTTC_SYNC or resources):
            raise ComError(ComResult.XACT_E_NOTSUPPORTED, "a commit requires fRetaining=False, grfTC=2 and grfRM=0")
        self._demand_open()
        coordinator = self._environment.coordinator
        if coordinator.is_distributed(self.transaction):
            return self._environment.spawn(coordinator.commit(self.transaction))
        self._environment.manager.transactions.commit(self.transaction)
        return None

    def abort(self, retaining: bool, asynchronous: bool) -> None:
        """Abort. Raises ComError XACT_E_NOTSUPPORTED for arguments that an internal transaction does not allow,
        MsmqError."""
        if self.is_internal and (retaining or asynchronous):
            raise ComError(ComResult.XACT_E_NOTSUPPORTED, "only an abort with fRetaining=False and fAsync=False")
        self._demand_open()
        self.run_down()

    def run_down(self) -> None:
        """Abort the transaction, unless it has ended."""
        transaction, environment = self.transaction, self._environment
        if transaction.is_open:
            environment.coordinator.abort_everywhere(transaction)

    def _demand_open(self) -> None:
        if not self.transaction.is_open:
            raise TransactionSequence(detail="the transaction has ended")


class MSMQTransaction(MqacObject):
    """3.5. A client may create an empty object and set its transaction with InitNew."""

    coclass = m.MSMQTransaction
    not_implemented: ClassVar[frozenset[str]] = frozenset(["get_Transaction", "get_Properties"])

    def __init__(self, environment: Environment, inner: TransactionImpl | None = None) -> None:
        super().__init__(environment)
        self.inner: TransactionImpl | None = None
        if inner is not None:
            self._wrap(inner)

    def _wrap(self, inner: TransactionImpl) -> None:
        self.inner = inner
        inner.wrap()

    def released(self) -> None:
        """Abort the transaction, unless it has ended or a client has another reference to it."""
        inner, self.inner = self.inner, None
        if inner is not None:
            inner.unwrap()

    def Commit(
        self, context: CallContext, fRetaining: Variant | None, grfTC: Variant | None, grfRM: Variant | None
    ) -> Any:
        """3.5.4.1.2."""
        inner = self._inner()
        return inner.commit(boolean(fRetaining, False), integer(grfTC, XACTTC_SYNC), integer(grfRM, 0))

    def Abort(self, context: CallContext, fRetaining: Variant | None, fAsync: Variant | None) -> None:
        """3.5.4.1.3."""
        self._inner().abort(boolean(fRetaining, False), boolean(fAsync, False))

    def InitNew(self, context: CallContext, varTransaction: Variant) -> None:
        """3.5.4.1.4; an MSMQTransaction is accepted, too (D-234)."""
        if self.inner is not None:
            raise MsmqError(HResult.MQ_ERROR_TRANSACTION_USAGE, "the object has a transaction already")
        found = varTransaction.resolved
        target = found.value if found.vt in (VT.UNKNOWN, VT.DISPATCH) else None
        if isinstance(target, MSMQTransaction):
            target = target.inner
        if not isinstance(target, TransactionImpl):
            raise ComError(ComResult.E_INVALIDARG, "varTransaction is not a transaction of this queue manager")
        self._wrap(target)

    def get_ITransaction(self, context: CallContext) -> Variant:
        """3.5.4.1.6."""
        return EMPTY if self.inner is None else Variant(VT.UNKNOWN, self.inner)

    def _inner(self) -> TransactionImpl:
        if self.inner is None:
            raise ComError(ComResult.E_INVALIDARG, "the object has no transaction; see InitNew")
        return self.inner


class MSMQTransactionDispenser(MqacObject):
    """3.6."""

    coclass = m.MSMQTransactionDispenser
    not_implemented: ClassVar[frozenset[str]] = frozenset(["get_Properties"])
    is_internal: ClassVar[bool] = True

    def BeginTransaction(self, context: CallContext) -> MSMQTransaction:
        """3.6.4.1.1."""
        return MSMQTransaction(self.environment, TransactionImpl(self.environment, is_internal=self.is_internal))


class MSMQCoordinatedTransactionDispenser(MSMQTransactionDispenser):
    """3.7."""

    coclass = m.MSMQCoordinatedTransactionDispenser
    is_internal = False


def transaction_of(value: Variant | None) -> tuple[Transaction | None, bool]:
    """Return the transaction of a parameter `Transaction`, and whether it is MQ_SINGLE_MESSAGE.

    Deviation D-77: MQ_MTS_TRANSACTION and MQ_XA_TRANSACTION denote the transaction of the caller's context. DCOM calls
    have none, so they mean no transaction; literally, they would create one that cannot be ended.
    """
    if value is None:  # omitted, which means MQ_MTS_TRANSACTION
        return None, False
    found = value.resolved
    if found.vt in (VT.DISPATCH, VT.UNKNOWN):
        target = found.value
        if isinstance(target, MSMQTransaction) and target.inner is not None:
            target = target.inner
        if not isinstance(target, TransactionImpl):
            raise MsmqError(HResult.MQ_ERROR_TRANSACTION_USAGE, "Transaction belongs to another queue manager")
        if not target.transaction.is_open:
            raise TransactionSequence(detail="the transaction has ended")
        return target.transaction, False
    kind = integer(None if found.is_missing else found, m.MQ_MTS_TRANSACTION)
    if kind not in (m.MQ_NO_TRANSACTION, m.MQ_MTS_TRANSACTION, m.MQ_XA_TRANSACTION, m.MQ_SINGLE_MESSAGE):
        raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"Transaction is {kind}, allowed: 0 to 3 or an object")
    return None, kind == m.MQ_SINGLE_MESSAGE
