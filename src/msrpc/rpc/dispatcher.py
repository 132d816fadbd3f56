"""Dispatching of calls: admission, batching, and faults for calls that fail. No I/O: connections pass calls in,
interfaces answer them, and the server sends the replies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from msrpc.ndr import BadStubData
from msrpc.rpc.call import Call, RpcCaller, RpcInterface
from msrpc.rpc.faults import (
    NCA_S_FAULT_CONTEXT_MISMATCH,
    NCA_S_FAULT_REMOTE_NO_MEMORY,
    NCA_S_FAULT_UNSPEC,
    NCA_S_OP_RNG_ERROR,
    RPC_S_ACCESS_DENIED,
    RPC_X_BAD_STUB_DATA,
    Fault,
)
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.server_binding import BoundContext
from msrpc.rpc.throttle import Attempt, PeerFailures
from msrpc.rpc.timing import Timings

if TYPE_CHECKING:
    from msrpc.rpc.requests import Poller, Source

log = logging.getLogger(__name__)

# The largest batch of calls: smaller than the number that may be pending on one connection.
MOST_GATHERED: Final = 256
# The faults of calls with a foreign handle.
_GUESSES: Final = frozenset([RPC_S_ACCESS_DENIED, NCA_S_FAULT_CONTEXT_MISMATCH])


@dataclass(frozen=True, slots=True)
class SecurityPolicy:
    """Requirements for all callers.

    allow_anonymous: whether callers without an identity are served; an interface's `open_opnums` always are.
    minimum_level: the level that every caller must have negotiated, in addition to the one of its interface.
    """

    allow_anonymous: bool = True
    minimum_level: AuthLevel = AuthLevel.NONE

    def admits(self, caller: RpcCaller, level: AuthLevel) -> bool:
        """Whether a caller may call an interface that requires `level`."""
        has = caller.level
        return has >= level and has >= self.minimum_level and (self.allow_anonymous or caller.authenticated)


@dataclass(slots=True)
class Statistics:
    """Statistics of the management interface ([MS-RPCE] 2.2.1.3.3); packets are portions read and written."""

    calls_in: int = 0
    packets_in: int = 0
    packets_out: int = 0
    faults: int = 0
    connections: int = 0


class BatchHandler(Protocol):
    """Serves the calls of one event-loop iteration as a batch."""

    def operations(self, interface: RpcInterface) -> Collection[int]:
        """Return the numbers of the operations of an interface whose calls in NDR 2.0 are batched."""

    def by_operation(self, calls: list[Any]) -> list[list[Any]]:
        """Group calls by operation. Each is a `Call`, or a `requests.Request`, which also has `stub`, `handles` and
        `caller`. All of them are in progress at the same time, so they have no order."""

    def serve(self, calls: list[Any]) -> int:
        """Serve as many calls of one operation as possible, from the first one on. Returns their number. If it is 0,
        the interface serves some of them, and then this method is called again with the rest."""


class BatchListener(Protocol):
    """Notified before and after the batches of one event-loop iteration."""

    def hold(self) -> None: ...

    def release(self) -> None: ...


class Replies(Protocol):
    """Collects the replies of a batch."""

    def hold(self) -> None:
        """Collect replies until `flush`."""

    def flush(self) -> None:
        """Send the collected replies."""


def memory_shortage(error: BaseException | None) -> tuple[int, str] | None:
    """Return the status and text if an error, or its cause, is a lack of memory; see `Dispatcher.shortage`."""
    while error is not None:
        if isinstance(error, MemoryError):
            return NCA_S_FAULT_REMOTE_NO_MEMORY, "out of memory"
        error = error.__cause__
    return None


class Dispatcher:
    """Passes calls to their interfaces: one by one, or as a batch per event-loop iteration.

    Attributes:
        policy: requirements for all callers.
        statistics: what the management interface reports.
        together: serves some operations in batches.
        turn: is notified before and after the batches.
        shortage: returns the resource that a failed call lacked, as the status of its fault and a text for the log;
            None if it failed for another reason.
        loop: event loop of the calls; None for the running one, whose lookup takes a system call.
    """

    def __init__(
        self, policy: SecurityPolicy, failures: PeerFailures, replies: Replies, cut_off: Callable[[Call], None]
    ) -> None:
        """
        Args:
            policy: see above.
            failures: limits repeated failures of a host.
            replies: held while a batch is served.
            cut_off: closes the connection of a call.
        """
        self.policy = policy
        self.statistics = Statistics()
        self.together: BatchHandler | None = None
        self.turn: BatchListener | None = None
        self.shortage: Callable[[BaseException], tuple[int, str] | None] = memory_shortage
        self._failures = failures
        self._replies = replies
        self._cut_off = cut_off
        self._gathered: list[Any] = []
        self._timings: Timings | None = None
        self._next_timed = 0  # the number of the next call that is timed
        self.loop: asyncio.AbstractEventLoop | None = None

    def dispatch(self, call: Call) -> None:
        """Pass the call to its interface, if its caller may call it.

        An exception of the interface becomes a fault: `Fault` with its status, `BadStubData` (from the generated
        codecs) as RPC_X_BAD_STUB_DATA, any other exception, which is a bug, as nca_s_fault_unspec with a traceback in
        the log."""
        self.statistics.calls_in += 1
        if self.statistics.calls_in == self._next_timed:
            self._time(call)
        together, interface = self.together, call.interface
        if (
            together is not None
            and call.opnum in together.operations(interface)
            and call.byte_order == "<"
            and not call.is_ndr64
            and self._admits(call.caller, interface, call.opnum)
        ):
            self._gathered.append(call)
            self._has_gathered()
            return
        if self._gathered:
            self.serve_gathered()
        self._serve(call)

    def read(self, poller: Poller) -> list[tuple[Source, bytes | None]]:
        """Gather the requests from all sources of a poller. Returns the data that it does not handle; call `serve_turn`
        afterwards."""
        before = len(self._gathered)
        left = poller.read(self._gathered, MOST_GATHERED)
        self.statistics.packets_in += poller.portions
        self._count(len(self._gathered) - before)
        return left

    def _count(self, came: int) -> None:
        """Count gathered requests. One of them may be timed, as a `Call`."""
        statistics = self.statistics
        statistics.calls_in += came
        late = statistics.calls_in - self._next_timed
        if 0 <= late < came:
            request = self._gathered[-1 - late]
            call = self._gathered[-1 - late] = request.owner.call_of(request)
            self._time(call)

    def _has_gathered(self) -> None:
        if len(self._gathered) == 1:
            loop = self.loop or asyncio.get_running_loop()
            loop.call_soon(self.serve_turn)
        if len(self._gathered) >= MOST_GATHERED:
            self.serve_gathered()

    def contexts_of(
        self, contexts: Mapping[int, BoundContext], caller: RpcCaller
    ) -> dict[int, tuple[RpcInterface, list[int]]]:
        """Return, for each presentation context, the interface and the operations that a source may gather for a
        caller. There are none in NDR64, because batches are read and written in NDR 2.0."""
        together = self.together
        assert together is not None
        return {
            number: (
                context.interface,
                [
                    opnum
                    for opnum in together.operations(context.interface)
                    if not context.is_ndr64 and self._admits(caller, context.interface, opnum)
                ],
            )
            for number, context in contexts.items()
        }

    def calls_in(self) -> int:
        """Return the number of calls so far."""
        return self.statistics.calls_in

    def time_calls(self, timings: Timings) -> None:
        """Start timing a sample of the calls."""
        self._timings = timings
        self._next_timed = timings.next_after(self.statistics.calls_in)

    def _time(self, call: Call) -> None:
        timings = self._timings
        if timings is not None:
            call.timings, call.started = timings, timings.clock()
            self._next_timed = timings.next_after(self.statistics.calls_in)

    def serve_turn(self) -> None:
        """Serve the calls of this event-loop iteration."""
        turn = self.turn
        if turn is None:
            self.serve_gathered()
            return
        turn.hold()
        try:
            self.serve_gathered()
        finally:
            turn.release()

    def serve_gathered(self) -> None:
        """Serve the gathered calls: before any other call, and before the next event-loop iteration."""
        together, calls = self.together, self._gathered
        if together is None or not calls:
            return
        self._gathered = []
        self._replies.hold()
        for some in together.by_operation(calls):
            self._serve_together(together, some)
        self._replies.flush()

    def _serve_together(self, together: BatchHandler, calls: list[Any]) -> None:
        """Serve calls of one operation in batches, and those that can't be batched one by one. Each attempt examines
        all remaining calls. So after an attempt that served none, one call is served alone, then two, four and so on: a
        batch without any plain call costs few attempts."""
        alone = 1
        while calls:
            try:
                served = together.serve(calls)
            except Exception:  # a bug: it is unknown which of them were served, so none is served again
                log.exception("batch of calls failed; each call gets a fault, and some may have been executed")
                for call in calls:
                    self._refuse(_call_of(call), NCA_S_FAULT_UNSPEC)
                return
            if served:
                calls, alone = calls[served:], 1
                continue
            for call in calls[:alone]:
                self._serve(_call_of(call))
            calls, alone = calls[alone:], 2 * alone

    def _admits(self, caller: RpcCaller, interface: RpcInterface, opnum: int) -> bool:
        """Whether a caller may call an operation."""
        return self.policy.admits(caller, interface.minimum_level) or opnum in interface.open_opnums

    def _serve(self, call: Call) -> None:
        interface, opnum = call.interface, call.opnum
        try:
            if not interface.accepts(opnum):
                raise Fault(NCA_S_OP_RNG_ERROR)
            if not self._admits(call.caller, interface, opnum):
                raise Fault(RPC_S_ACCESS_DENIED)
            interface.call(call)
        except Fault as fault:
            if fault.status in _GUESSES:
                self._count_guess(call)
            self._refuse(call, fault.status)
        except BadStubData as error:
            log.info("%s opnum %d from %s: %s", interface.name, opnum, call.peer, error)
            self._refuse(call, RPC_X_BAD_STUB_DATA)
        except Exception as error:
            shortage = self.shortage(error)
            if shortage is None:
                log.exception("%s opnum %d failed", interface.name, opnum)
                self._refuse(call, NCA_S_FAULT_UNSPEC)
                return
            status, text = shortage
            log.error("%s opnum %d from %s failed; nothing has changed: %s", interface.name, opnum, call.peer, text)
            self._refuse(call, status)

    def _count_guess(self, call: Call) -> None:
        """Count a handle that does not exist; a client that guesses handles fast is disconnected each time."""
        if self._failures.refuses(call.peer, Attempt.CALL):
            self._cut_off(call)
        self._failures.count(call.peer, Attempt.CALL)

    def _refuse(self, call: Call, status: int) -> None:
        self.statistics.faults += 1
        if not call.over:
            call.fault(status)


def _call_of(call: Any) -> Call:
    return call if isinstance(call, Call) else call.owner.call_of(call)
