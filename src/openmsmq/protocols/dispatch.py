"""Dispatch RPC calls to handlers: decoding, errors, and replies that wait for a sync.

A handler is a method named after its operation: it gets the call and the decoded request and returns the response, or
None if it will answer later through `finish`. A raised MsmqError becomes the operation's HRESULT; in/out parameters are
then returned unchanged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from msrpc.ndr import BadStubData, Interface, NdrError, Operation
from msrpc.rpc.association import Holder
from msrpc.rpc.call import Call
from msrpc.rpc.faults import RPC_X_BAD_STUB_DATA, Fault
from msrpc.rpc.pdu import NDR, NDR64, AuthLevel, SyntaxId
from openmsmq.interfaces.ms_mqmq import XACTUOW
from openmsmq.model.errors import (
    HResult,
    InsufficientResources,
    MessageStorageFailed,
    MsmqError,
    OperationCancelled,
    TransactionSequence,
)
from openmsmq.model.exhaustion import exhausted
from openmsmq.protocols.environment import Environment
from openmsmq.queueing.unit_of_work import Transaction

logger = logging.getLogger(__name__)

T = TypeVar("T")
Handler = Callable[[Call, Any], Any]


class NdrInterface:
    """An interface with compiled IDL; subclasses provide the handlers. `states` maps operations that are not fully
    implemented to their behavior; `openmsmq protocols` shows it."""

    description: ClassVar[Interface]
    states: ClassVar[Mapping[str, str]] = {}
    open_opnums: ClassVar[frozenset[int]] = frozenset()
    #: [MS-MQQP] 2.2 and [MS-MQRR] 2.2 require both; [MS-MQMP] does not specify this. The fast path is for NDR 2.0.
    transfer_syntaxes: ClassVar[tuple[SyntaxId, ...]] = (NDR, NDR64)

    def __init__(self, environment: Environment, minimum_level: AuthLevel = AuthLevel.NONE) -> None:
        self.environment = environment
        self.manager = environment.manager
        self.minimum_level = minimum_level
        self._handlers: list[tuple[Operation, Handler] | None] = [
            (operation, getattr(self, operation.name)) if operation.used_on_wire else None
            for operation in self.description.operations
        ]

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def uuid(self) -> UUID:
        return self.description.uuid

    @property
    def version(self) -> tuple[int, int]:
        return self.description.version

    def accepts(self, opnum: int) -> bool:
        """Whether the operation exists; those `not used on the wire` do not."""
        return opnum < len(self._handlers) and self._handlers[opnum] is not None

    def call(self, call: Call) -> None:
        """Serve one call; see `rpc.call.RpcInterface`."""
        entry = self._handlers[call.opnum]
        assert entry is not None
        operation, handler = call.in_syntax(entry[0]), entry[1]
        try:
            request = operation.decode_request(call.stub, call.byte_order)
        except BadStubData as error:
            logger.info(
                "%s from %s: malformed request, answered with RPC_X_BAD_STUB_DATA: %s", operation.name, call.peer, error
            )
            raise Fault(RPC_X_BAD_STUB_DATA) from None
        store = self.environment.store
        before = store.end
        try:
            response = handler(call, request)
        except MsmqError as error:
            self._log(operation, call, error)
            response = self.failure(operation, request, error.hresult)
        except OSError as error:
            shortage = exhausted(error)
            if shortage is None:
                raise
            self._log(operation, call, shortage)
            response = self.failure(operation, request, shortage.hresult)
        if response is not None:
            self.finish(call, operation, response, store.end != before)

    def finish(self, call: Call, operation: Operation, response: Any, durable: bool) -> None:
        """Send a response; with `durable`, only once everything written so far is on disk."""
        try:
            stub = call.in_syntax(operation).encode_response(response)
        except NdrError:
            logger.exception("%s: cannot encode the response; replying with RPC_X_BAD_STUB_DATA", operation.name)
            call.fault(RPC_X_BAD_STUB_DATA)
            return
        self.send(call, stub, durable)

    def send(self, call: Call, stub: bytes, durable: bool, undo: Callable[[], None] | None = None) -> None:
        """Send an encoded response; `durable` as for `finish`. `undo` is called if the client no longer awaits it after
        the sync."""
        if not durable:
            call.reply(stub)
        elif undo is None:
            self.environment.when_durable(lambda: None if call.over else call.reply(stub))
        else:
            self.environment.when_durable(partial(_reply_or_undo, call, stub, undo))

    def answer_later(self, call: Call, request: Any, work: Awaitable[Any]) -> None:
        """Answer a call with the response that `work` returns, or with the MsmqError or Fault that it raises. If `work`
        returns None, it has already replied. It is canceled if the client cancels the call or disconnects."""
        operation = self.description.operations[call.opnum]
        task = asyncio.ensure_future(work)
        call.waits()
        call.on_cancel = task.cancel  # type: ignore[assignment]
        task.add_done_callback(partial(self._answer_late, call, operation, request))

    def _answer_late(self, call: Call, operation: Operation, request: Any, task: asyncio.Future[Any]) -> None:
        error = OperationCancelled(detail="its client canceled it") if task.cancelled() else task.exception()
        if error is None:
            response = task.result()
        elif isinstance(error, Fault):
            call.fault(error.status)
            return
        else:
            error = exhausted(error) or error
            if isinstance(error, MsmqError):
                self._log(operation, call, error)
                hresult = error.hresult
            else:
                logger.error("%s failed", operation.name, exc_info=error)
                hresult = HResult.MQ_ERROR
            try:
                response = self.failure(operation, request, hresult)
            except Fault as fault:  # the operation has no result
                call.fault(fault.status)
                return
        if response is not None:
            store = self.environment.store
            self.finish(call, operation, response, store.end != store.durable_end)

    def _log(self, operation: Operation, call: Call, error: MsmqError) -> None:
        """Log a call that failed. The caller gets only an HRESULT, so the log must name a limit that refused it."""
        if not isinstance(error, InsufficientResources | MessageStorageFailed):
            logger.debug("%s failed: %s", operation.name, error)
        elif self.environment.refusals.is_due(f"{operation.name} {error}"):
            if isinstance(error, InsufficientResources):
                logger.warning("%s of %s is refused: %s", operation.name, call.peer, error)
            else:
                logger.error("%s of %s failed: %s", operation.name, call.peer, error)

    @staticmethod
    def failure(operation: Operation, request: Any, hresult: int) -> Any:
        """Return a response with a failure; raises Fault for an operation without a result."""
        assert operation.response is not None
        response = operation.response()
        if not hasattr(response, "result"):
            raise Fault(hresult)
        for name in _shared_fields(operation):
            setattr(response, name, getattr(request, name))
        response.result = hresult
        return response


def _reply_or_undo(call: Call, stub: bytes, undo: Callable[[], None]) -> None:
    if call.over:
        return
    is_awaited = call.connection.awaits(call)
    call.reply(stub)
    if not is_awaited:
        undo()


def _shared_fields(operation: Operation) -> Iterator[str]:
    requested = getattr(operation.request, "__slots__", ())
    for name in getattr(operation.response, "__slots__", ()):
        if name in requested:
            yield name


def present(value: T | None, name: str) -> T:
    """Return `value` unless it is NULL. Raises MsmqError MQ_ERROR_INVALID_PARAMETER with `name`."""
    if value is None:
        raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"{name} is NULL")
    return value


def owned_transaction(interface: NdrInterface, call: Call, identifier: XACTUOW) -> Transaction:
    """Return an enlisted transaction: a distributed one, or an internal one of the same client (D-70). Raises
    TransactionSequence."""
    transaction = interface.manager.transactions.find(identifier.rgb)
    owner: Holder | None = transaction.owner
    if owner is not None and not owner.admits_user(call.holder):
        raise TransactionSequence(detail="the unit of work belongs to another client")
    return transaction


def check(condition: bool, detail: str, hresult: int = HResult.MQ_ERROR_INVALID_PARAMETER) -> None:
    """Raises MsmqError unless the condition is true."""
    if not condition:
        raise MsmqError(hresult, detail)
