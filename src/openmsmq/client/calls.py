"""What a client operation is made of: a generator that yields calls and is sent their responses.

An exception that ends a call is thrown into the generator, which may make further calls to clean up before it lets the
exception go on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import AccessDenied, HResult, MsmqError, error_for, name_of
from openmsmq.ndr import Interface, Operation
from openmsmq.rpc.errors import ProtocolError, RpcFault
from openmsmq.rpc.faults import NCA_S_OP_RNG_ERROR, NCA_S_UNK_IF, RPC_S_ACCESS_DENIED

T = TypeVar("T")


class Call(NamedTuple):
    """A call to make. `wait` is how long the server may take in milliseconds, INFINITE for ever, 0 for at once."""

    interface: Interface
    operation: Operation
    request: Any
    wait: int = 0


Steps = Generator[Call, Any, T]
# How a call can fail: the server says so, or can't be reached, or the connection has ended.
CALL_FAILURES = (MsmqError, ConnectionError, ProtocolError)


class CallerRefused(AccessDenied):
    """The server refuses this caller for a whole interface, for example because the calls are not protected enough."""


class ProtocolUnavailable(MsmqError):
    """The server does not offer the interface or the operation."""

    hresult = HResult.MQ_ERROR_OPERATION_NOT_SUPPORTED_BY_REMOTE_COMPUTER


def call(interface: Interface, name: str, what: str = "", *, wait: int = 0, **arguments: Any) -> Steps[Any]:
    """One call about `what`; raises the MsmqError of a failure HRESULT, naming it."""
    operation = interface.operation(name)
    assert operation.request is not None
    response = yield Call(interface, operation, operation.request(**arguments), wait)
    hresult = getattr(response, "result", 0)
    if hresult & 0x80000000:
        raise error_for(hresult, f"{what} ({name})" if what else name)
    return response


def quietly(steps: Steps[Any]) -> Steps[None]:
    """Calls that may fail: to clean up."""
    with suppress(*CALL_FAILURES):
        yield from steps


def on_failure(steps: Steps[T], clean_up: Callable[[], Steps[Any]]) -> Steps[T]:
    """`steps`, and if an exception ends them, of any kind, `clean_up` quietly before it goes on."""
    try:
        return (yield from steps)
    except GeneratorExit:
        raise  # there is nobody left to make calls
    except BaseException:
        yield from quietly(clean_up())
        raise


def fault_error(fault: RpcFault, operation: str) -> MsmqError:
    """Servers may raise an HRESULT as an exception ([MS-MQMP] 3.1.4.17, [MS-MQRR] 3.1.4.2), or refuse the caller."""
    if fault.status == RPC_S_ACCESS_DENIED:
        return CallerRefused(detail=f"{operation}: the server refuses this caller")
    if fault.status in (NCA_S_OP_RNG_ERROR, NCA_S_UNK_IF):
        return ProtocolUnavailable(detail=f"{operation}: the server does not offer it")
    if fault.status & 0xFFFF0000 == 0xC00E0000 or (fault.status >> 31 and not name_of(fault.status).startswith("0x")):
        return error_for(fault.status, operation)
    return MsmqError(HResult.MQ_ERROR, f"{operation}: {fault}")


def milliseconds(timeout: float | None) -> int:
    """A timeout in seconds, None for ever, as the protocols have it. Raises ValueError below 0."""
    if timeout is None:
        return INFINITE
    if timeout < 0:
        raise ValueError(f"timeout is {timeout} seconds, allowed are 0 and more, or None to wait for ever")
    return min(int(timeout * 1000), INFINITE - 1)
