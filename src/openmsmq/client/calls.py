"""Client operations: a generator that yields calls and is sent their responses.

An exception that ends a call is thrown into the generator, which may make further calls to clean up before the
exception propagates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from msrpc.ndr import Interface, Operation
from msrpc.rpc.faults import (
    NCA_S_FAULT_CONTEXT_MISMATCH,
    NCA_S_FAULT_REMOTE_NO_MEMORY,
    NCA_S_OP_RNG_ERROR,
    NCA_S_UNK_IF,
    RPC_S_ACCESS_DENIED,
    RpcFault,
)
from msrpc.rpc.pdu import NDR, NDR64, SyntaxId
from openmsmq.client.denied import denied_hint
from openmsmq.interfaces import ms_mqmr
from openmsmq.model.constants import INFINITE, MAXIMUM_MESSAGE_SIZE
from openmsmq.model.errors import (
    AccessDenied,
    AuthenticationError,
    ClientError,
    HResult,
    InsufficientResources,
    InvalidHandle,
    MsmqError,
    ProtocolError,
    RpcConnectionError,
    error_for,
    name_of,
)
from openmsmq.model.names import MAXIMUM_QUEUE_NAME

T = TypeVar("T")
ANSWER_MARGIN = 30.0  # seconds that a server may take in addition to the requested wait


class RetryRule(NamedTuple):
    """Rule for a call whose reply was lost. `repeatable`: it may be repeated even if it was executed.
    `unknown`: the possible outcomes as text; empty if the call has no lasting effect."""

    repeatable: bool
    unknown: str


REPEATABLE = RetryRule(True, "")  # reads, and idempotent writes
HARMLESS = RetryRule(False, "")  # not idempotent, but undone by the server when the connection ends
UNKNOWN = RetryRule(False, "the server may have carried it out")


@dataclass(slots=True)
class ClientAssociation:
    """The connections that share context handles ([MS-RPCE] 3.3.1.2.3). The server runs the handles down when the last
    of these connections ends; then `alive` is false, and `reason` says why."""

    group: int = 0
    alive: bool = True
    reason: str = ""

    def end(self, reason: str) -> None:
        if self.alive:
            self.alive, self.reason = False, reason


@dataclass(slots=True, eq=False)
class ServerResource:
    """An object that the server keeps for this client: an open queue, a transaction."""

    what: str
    name: str
    association: ClientAssociation | None = None  # None before it was opened

    @property
    def lost(self) -> bool:
        return self.association is not None and not self.association.alive


class ClientCall(NamedTuple):
    """A call to make. `wait` is how long the server may wait in milliseconds: INFINITE for no limit, 0 for no wait.

    `held` is the server resource that the call requires; `opens` is the one that it creates. `removes`: its answer has
    a message that the server has removed, so it is awaited even if the task is canceled.
    """

    interface: Interface
    operation: Operation
    request: Any
    wait: int = 0
    fate: RetryRule = UNKNOWN
    held: tuple[ServerResource, ...] = ()
    opens: ServerResource | None = None
    removes: bool = False

    @property
    def timeout(self) -> float | None:
        """Seconds after which the call fails; None if it may wait forever."""
        return None if self.wait == INFINITE else self.wait / 1000 + ANSWER_MARGIN

    @property
    def lost(self) -> ServerResource | None:
        """A required server resource that no longer exists; None if all exist."""
        return next((held for held in self.held if held.lost), None)


Steps = Generator[ClientCall, Any, T]
# Failures of a call: an error from the server, an unreachable server, or a lost connection.
CALL_FAILURES = (MsmqError, ConnectionError, ProtocolError)
# The failures after which the outcome of the call is unknown.
UNANSWERED = (ClientError, AuthenticationError)


def answered(error: BaseException) -> bool:
    """Whether a call ended with a reply of the server."""
    return isinstance(error, MsmqError) and not isinstance(error, UNANSWERED)


class HandleLost(RpcConnectionError):
    """The server no longer has the resource that the call requires: the connection was lost, or the server has
    restarted.

    `what` is "queue", "cursor", "transaction" or "receive" (a message that was locked and not yet removed or put
    back), `which` its name. `outcome_unknown` says whether the call may have been carried out.
    """

    def __init__(self, what: str, which: str, detail: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(f"{what} {which}: {detail}", outcome_unknown=outcome_unknown)
        self.what = what
        self.which = which


# What happens to server resources when the connection ends, and what the program can do.
_LEFT_BEHIND = {
    "queue": "the server has closed it; open it again, or use reconnect=True",
    "cursor": "it ended with its queue; create a new cursor, which starts at the first message",
    "transaction": "the server aborts it unless it was committed; begin a new one",
    "receive": "the server puts the message back unless it was removed already",
}


def handle_lost(call: ClientCall, held: ServerResource, sent: bool) -> HandleLost:
    """Return the error of a call that requires the lost resource `held`; `sent` says whether the call had been sent."""
    association = held.association
    assert association is not None
    unknown = call.fate.unknown if sent else ""
    became = unknown or ("it has changed nothing" if sent else "it was not sent")
    detail = (
        f"lost with its connection ({association.reason}): {_LEFT_BEHIND[held.what]}. {call.operation.name}: {became}"
    )
    return HandleLost(held.what, held.name, detail, outcome_unknown=bool(unknown))


class ClientClosed(ClientError):
    """The client was closed before the call, or while it waited for the answer. `outcome_unknown` says whether the call
    may have been carried out."""

    hresult = HResult.MQ_ERROR_SERVICE_NOT_AVAILABLE

    def __init__(self, sent: ClientCall | None = None) -> None:
        """`sent` is the call that waited."""
        unknown = "" if sent is None else sent.fate.unknown
        detail = "this client was closed"
        super().__init__(f"{detail} during {sent.operation.name}: {unknown}" if sent and unknown else detail)
        self.outcome_unknown = bool(unknown)


class CallerRefused(AccessDenied):
    """The server refuses this caller for a whole interface, for example because the calls are not protected enough."""


class ProtocolUnavailable(MsmqError):
    """The server does not offer the interface or the operation."""

    hresult = HResult.MQ_ERROR_OPERATION_NOT_SUPPORTED_BY_REMOTE_COMPUTER


def call(
    interface: Interface, name: str, what: str = "", *, wait: int = 0, fate: RetryRule = UNKNOWN, **arguments: Any
) -> Steps[Any]:
    """Make a call; `what` is the object that it concerns. Raises the MsmqError of a failure HRESULT, with `what` in its
    text."""
    operation = interface.operation(name)
    assert operation.request is not None
    try:
        response = yield ClientCall(interface, operation, operation.request(**arguments), wait, fate)
    except MsmqError as error:
        if what and answered(error):  # a fault
            hint = denied_hint(name, what, _access(arguments)) if type(error) is AccessDenied else ""
            raise type(error)(error.hresult, f"{what}: {error.detail}{hint}") from error.__cause__
        raise
    check(getattr(response, "result", 0), name, what, _access(arguments))
    return response


def _access(arguments: dict[str, Any]) -> int:
    """Return the access mode of a call that opens a queue; 0 for other calls."""
    return int(arguments.get("dwDesiredAccess", arguments.get("dwAccess", 0)))


def check(hresult: int, operation: str, what: str, access: int = 0) -> None:
    """Check the result of a call. Raises the MsmqError of a failure HRESULT, with a hint at its usual cause. `access`
    is the requested access mode if the call opens a queue."""
    if hresult & 0x80000000:
        detail = f"{what} ({operation})" if what else operation
        hint = _HINTS.get((operation, hresult & 0xFFFFFFFF))
        if hresult & 0xFFFFFFFF == HResult.MQ_ERROR_ACCESS_DENIED and hint is None:
            detail += denied_hint(operation, what, access)
        raise error_for(hresult, f"{detail}: {hint}" if hint else detail)


_TOO_LARGE = (
    f"the message exceeds {MAXIMUM_MESSAGE_SIZE} bytes with its headers, the quota of the queue or of the machine is "
    "reached, or the disk of the server is full"
)
_HINTS: dict[tuple[str, int], str] = {
    ("rpc_ACSendMessageEx", HResult.MQ_ERROR_TRANSACTION_USAGE): (
        "a transactional queue accepts messages only in a transaction (send(..., transaction=tx), or --transaction), "
        "any other queue only without one"
    ),
    ("rpc_ACSendMessageEx", HResult.MQ_ERROR_INSUFFICIENT_RESOURCES): _TOO_LARGE,
    ("rpc_ACSendMessageEx", HResult.MQ_ERROR_ILLEGAL_OPERATION): (
        "the queue accepts only encrypted bodies, or only plain ones (property priv_level)"
    ),
    ("rpc_ACSendMessageEx", HResult.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED): (
        "the queue accepts only messages that are signed with a certificate registered for their sender"
    ),
    ("rpc_ACSendMessageEx", HResult.MQ_ERROR_FAIL_VERIFY_SIGNATURE_EX): (
        "the signature does not match the message, or the server does not accept its version"
    ),
    ("rpc_ACSendMessageEx", HResult.MQ_ERROR_NO_INTERNAL_USER_CERT): (
        "the certificate is not registered for the sender (openmsmq certificates register)"
    ),
    ("rpc_ACSendMessageEx", HResult.MQ_ERROR_PUBLIC_KEY_NOT_FOUND): (
        "the server has no public key of the destination to encrypt the body (openmsmq keys register)"
    ),
    ("rpc_ACSendMessageEx", HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION): (
        "a body can be encrypted only for a queue that is opened by a PUBLIC= or PRIVATE= name"
    ),
    ("rpc_ACReceiveMessageEx", HResult.MQ_ERROR_TRANSACTION_USAGE): (
        "only a transactional queue can be read in a transaction"
    ),
    ("rpc_ACReceiveMessageEx", HResult.MQ_ERROR_ACCESS_DENIED): (
        "the queue's security descriptor, or the access with which it was opened, does not allow this read"
    ),
    ("R_QMCreateObjectInternal", HResult.MQ_ERROR_INSUFFICIENT_RESOURCES): (
        "the server has as many queues as it allows, in all or for this owner (settings max_queues and "
        "max_queues_per_owner of openmsmq), or its disk is full; its log says which"
    ),
    ("R_QMCreateObjectInternal", HResult.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME): (
        'a private queue has the path name .\\private$\\NAME; not allowed in NAME: \\ ; + , " and control characters, '
        f"more than {MAXIMUM_QUEUE_NAME} characters; a public queue (.\\NAME) needs a server with a directory (setting "
        "directory_provider)"
    ),
    ("rpc_QMOpenQueueInternal", HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION): (
        "a name of this kind cannot be opened with this access, or the public queue is not in the server's directory "
        "(setting directory_provider)"
    ),
}


def transfer_syntaxes(interface: Interface) -> tuple[SyntaxId, ...]:
    """Return the transfer syntaxes offered to a server for an interface: [MS-MQMR] 2.2 requires NDR only, [MS-MQRR] 2.2
    both; [MS-MQMP] says nothing."""
    return (NDR,) if interface is ms_mqmr.qmmgmt else (NDR, NDR64)


def spoken(operation: Operation, syntax: SyntaxId) -> Operation:
    """Return the operation with the codecs for the transfer syntax that the server has chosen."""
    return operation.ndr64 if syntax == NDR64 else operation


def resumed(
    steps: Steps[T], call: ClientCall, change: Callable[[ClientCall], ClientCall] = lambda call: call
) -> Steps[T]:
    """Continue `steps`, which have already yielded `call`. Every call is replaced by the result of `change`."""
    try:
        while True:
            try:
                answer = yield change(call)
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as stop:
        value: T = stop.value
        return value


def amended(steps: Steps[T], change: Callable[[ClientCall], ClientCall]) -> Steps[T]:
    """Run `steps` with every call replaced by the result of `change`."""
    try:
        call = next(steps)
    except StopIteration as stop:
        value: T = stop.value
        return value
    return (yield from resumed(steps, call, change))


def holding(steps: Steps[T], *held: ServerResource) -> Steps[T]:
    """Run `steps`; all their calls require the server resources `held`."""
    return amended(steps, lambda call: call._replace(held=(*held, *call.held)))


def opening(steps: Steps[T], held: ServerResource) -> Steps[T]:
    """Run `steps`, which create the server resource `held`."""
    return amended(steps, lambda call: call._replace(opens=held))


def quietly(steps: Steps[Any]) -> Steps[None]:
    """Run `steps` for cleanup; failures of calls are ignored."""
    with suppress(*CALL_FAILURES):
        yield from steps


def on_failure(steps: Steps[T], clean_up: Callable[[], Steps[Any]]) -> Steps[T]:
    """Run `steps`. If they raise, run `clean_up`, ignoring its failures, before the exception propagates."""
    try:
        return (yield from steps)
    except GeneratorExit:
        raise  # the generator was closed, so no further calls can be made
    except BaseException:
        yield from quietly(clean_up())
        raise


def fault_error(fault: RpcFault, operation: str, anonymous: bool = False) -> MsmqError:
    """Return the error for a fault: its status may be an HRESULT ([MS-MQMP] 3.1.4.17, [MS-MQRR] 3.1.4.2), or a refusal
    of the caller, who has not logged in if `anonymous`."""
    if fault.status == RPC_S_ACCESS_DENIED:
        need = "log in with a user and a password" if anonymous else "it may require a higher authentication level"
        return CallerRefused(detail=f"{operation}: the server refuses this caller; {need}")
    if fault.status in (NCA_S_OP_RNG_ERROR, NCA_S_UNK_IF):
        return ProtocolUnavailable(detail=f"the server does not offer {operation}")
    if fault.status == NCA_S_FAULT_REMOTE_NO_MEMORY:
        return InsufficientResources(detail=f"{operation}: the request is too large for the server; {_TOO_LARGE}")
    if fault.status == NCA_S_FAULT_CONTEXT_MISMATCH:
        detail = f"{operation}: the handle is not valid; it was closed, or the queue was deleted"
        return InvalidHandle(detail=detail)
    if fault.status & 0xFFFF0000 == 0xC00E0000 or (fault.status >> 31 and not name_of(fault.status).startswith("0x")):
        return error_for(fault.status, operation)
    return MsmqError(HResult.MQ_ERROR, f"{operation}: {fault}")


def milliseconds(timeout: float | None) -> int:
    """Convert a timeout in seconds (None: forever) for the protocols. Raises ValueError below 0."""
    if timeout is None or timeout == math.inf:
        return INFINITE
    if not timeout >= 0:
        raise ValueError(f"timeout is {timeout} seconds; allowed: 0 or more, or None to wait forever")
    return min(int(timeout * 1000), INFINITE - 1)
