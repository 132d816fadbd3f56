"""A session: the pair of RPC connections through which two transaction managers exchange boxcars ([MS-CMPO]).

Both call each other. The primary partner, which has the greater contact identifier, begins with BuildContextW; before
the secondary answers, it calls BuildContextW back. Each then holds a context handle of the other. No method blocks:
calls go to a `CallSender`, and their answers to `Session.answered`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, IntEnum, auto
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from openmsmq.oletx.boxcar import BadBoxcar, Packet, PacketTag, decode_boxcar
from openmsmq.oletx.connections import Acceptor, ConnectionBudget, Connections
from openmsmq.oletx.states import PRIMARY, SECONDARY, PartnerSessionEvent, PartnerSessionState
from openmsmq.oletx.structures import Partner

logger = logging.getLogger(__name__)

NIL: Final = UUID(int=0)
SETUP: Final = 6.0  # seconds, [MS-CMPO] note 8
NESTED: Final = SETUP / 2  # for the nested call, 3.3.4.2
TEARDOWN_TIME: Final = 10.0  # 3.2.2.2
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0  # seconds before a setup call is repeated
PING: Final = 30.0  # seconds between pings while connections are open
MOST_RESENDS: Final = 12  # of a boxcar while the partner is not ready
IDLE: Final = 120.0  # seconds until a session without connections is torn down


class Status(IntEnum):
    """Results of the methods of IXnRemote ([MS-CMPO] 3.3.4). Misprints in the document are corrected (D-213)."""

    OK = 0
    SERVER_TOO_BUSY = 0x0000_06BB
    TEARING_DOWN = 0x8000_0119
    SESSION_DOWN = 0x8000_0120
    SERVER_NOT_READY = 0x8000_0123
    TIMED_OUT = 0x8000_0124
    OUT_OF_RESOURCES = 0x8000_0127
    VERSION_SET_NOT_SUPPORTED = 0x8000_0172
    PROTOCOL_NOT_SUPPORTED = 0x8000_0173
    FAIL = 0x8000_4005
    INVALID_ARGUMENT = 0x8007_0057


_ESTABLISHED: Final = (PartnerSessionState.CONFIRMING, PartnerSessionState.ACTIVE)
_ENDING: Final = (PartnerSessionState.REQUESTING_TEARDOWN, PartnerSessionState.TEARDOWN)
_FINAL: Final = (Status.VERSION_SET_NOT_SUPPORTED, Status.PROTOCOL_NOT_SUPPORTED, Status.TIMED_OUT)


class Rank(IntEnum):
    """SESSION_RANK ([MS-CMPO] 2.2.8)."""

    PRIMARY = 1
    SECONDARY = 2


class Versions(NamedTuple):
    """Versions of the three layers: [MS-CMPO], [MS-CMP], [MS-DTCO]."""

    one: int
    two: int
    three: int


LOWEST, HIGHEST = Versions(1, 1, 1), Versions(2, 1, 6)


def common_versions(lowest: Versions, highest: Versions) -> Versions | None:
    """Return the highest versions that both partners support ([MS-CMPO] 3.3.4.2.1); None if a layer has no common
    version."""
    chosen = Versions(*(min(mine, theirs) for mine, theirs in zip(HIGHEST, highest, strict=True)))
    least = (max(mine, theirs) for mine, theirs in zip(LOWEST, lowest, strict=True))
    return chosen if all(a >= b for a, b in zip(chosen, least, strict=True)) else None


class CallKind(Enum):
    """A method of IXnRemote."""

    POKE = auto()
    BUILD = auto()
    NEGOTIATE = auto()
    SEND = auto()
    TEAR_DOWN = auto()
    BEGIN_TEAR_DOWN = auto()


class PartnerCall(NamedTuple):
    """A call to be made for a session. `number` is the number of messages in the boxcar, or of connections."""

    kind: CallKind
    rank: Rank
    guid: UUID = NIL
    number: int = 0
    boxcar: bytes = b""
    is_problem: bool = False


class CallAnswer(NamedTuple):
    """Result of a call. `status` is the HRESULT, None if there was no answer; `detail` then has the reason."""

    status: int | None
    guid: UUID = NIL
    accepted: int = 0
    detail: str = ""

    def __str__(self) -> str:
        return self.detail or f"{self.status:#010x}"


class BuildAnswer(NamedTuple):
    """Result of BuildContext and BuildContextW. `session` is None if they failed."""

    status: int
    session: Session | None = None
    guid: UUID = NIL
    versions: Versions = Versions(0, 0, 0)


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class CallSender(Protocol):
    """Interface for calls to partners, and for timers."""

    def call(self, session: Session, call: PartnerCall) -> None:
        """Make a call; its answer is passed to `session.answered`, after this method has returned."""

    def hang_up(self, session: Session) -> None:
        """Close the binding of a session that is down, and the context handle of the partner."""

    def later(self, seconds: float, action: Callable[[], None]) -> Cancellable:
        """Run an action after `seconds`."""

    def new_guid(self) -> UUID:
        """Return a random GUID."""


class Session:
    """A session with one partner; `is_primary`: this end is the primary partner."""

    def __init__(
        self, local: Partner, partner: Partner, sender: CallSender, acceptor: Acceptor, budget: ConnectionBudget,
        ended: Callable[[Session], None],
    ) -> None:  # fmt: skip
        """`ended` is called once, when the session is down."""
        self.local, self.partner = local, partner
        self.is_primary = local.cid.int > partner.cid.int  # deviation D-218: as big-endian integers
        self.state = PartnerSessionState.NEW
        self.source = ""  # address of the partner that began it; empty if it began here
        self.guid = NIL
        self.versions = Versions(0, 0, 0)
        self.connections = Connections(self, acceptor, partner, budget)
        self._table: Final = PRIMARY if self.is_primary else SECONDARY
        self._sender, self._ended = sender, ended
        self._reason = ""
        self._pause = FIRST_PAUSE
        self._setup_call: CallKind | None = None
        self._waiting: Callable[[BuildAnswer], None] | None = None  # gets the secondary's answer to BuildContextW
        self._sending: PartnerCall | None = None
        self._wanted_connections = 0
        self._resends = 0
        self._timers: dict[str, Cancellable] = {}

    @property
    def rank(self) -> Rank:
        return Rank.PRIMARY if self.is_primary else Rank.SECONDARY

    @property
    def is_down(self) -> bool:
        return self.state is PartnerSessionState.DOWN

    # -- requests of this end ----------------------------------------------------------------------------------

    def want(self) -> None:
        """Establish the session, because a connection needs it."""
        self._advance(PartnerSessionEvent.WANTED)

    def stop(self) -> None:
        """Tear the session down."""
        self._reason = self._reason or "this queue manager stops"
        self._advance(PartnerSessionEvent.STOP)

    def lost(self, reason: str) -> None:
        """End the session, because the partner's connection or context handle is lost."""
        self._reason = self._reason or reason
        self._advance(PartnerSessionEvent.LOST)

    def wake(self) -> None:
        """See `connections.Carrier`."""
        if self.state is PartnerSessionState.ACTIVE and self._sending is None:
            boxcar = self.connections.next_boxcar()
            if boxcar is not None:
                self._call(CallKind.SEND, number=boxcar[0], boxcar=boxcar[1])
                self._after("idle", IDLE, self._idle)

    def negotiate(self, requested: int) -> None:
        """See `connections.Carrier`."""
        if self.state is PartnerSessionState.ACTIVE:
            self._call(CallKind.NEGOTIATE, number=requested)
        else:
            self._wanted_connections = requested

    # -- calls of the partner ----------------------------------------------------------------------------------

    def poked(self) -> int:
        """Handle Poke or PokeW of the secondary, which asks for a session."""
        if not self.is_primary:
            return Status.INVALID_ARGUMENT
        done = self._advance(PartnerSessionEvent.POKED)
        return Status.OK if done and self.state is PartnerSessionState.CONNECTING else Status.SERVER_NOT_READY

    def build_context(
        self, guid: UUID, lowest: Versions, highest: Versions, answer: Callable[[BuildAnswer], None]
    ) -> None:
        """Handle BuildContext or BuildContextW of the partner. `answer` is called once, now or later."""
        allowed = PartnerSessionEvent.BUILD_CONTEXT in self._table[self.state]
        if not allowed or (self.is_primary and guid != self.guid) or (not self.is_primary and guid == NIL):
            answer(BuildAnswer(Status.SERVER_NOT_READY))
            return
        if self.state is PartnerSessionState.ACTIVE:
            answer(BuildAnswer(Status.SERVER_NOT_READY))
        else:
            chosen = common_versions(lowest, highest)
            if chosen is None:
                answer(BuildAnswer(Status.VERSION_SET_NOT_SUPPORTED))
                self._reason = f"its versions {lowest} to {highest} have none in common with {LOWEST} to {HIGHEST}"
                self._advance(PartnerSessionEvent.REFUSED)
                return
            self.guid, self.versions, self._waiting = guid, chosen, answer
        self._advance(PartnerSessionEvent.BUILD_CONTEXT)

    def send_receive(self, count: int, boxcar: bytes) -> int:
        """Handle SendReceive of the partner. The secondary may send before the primary's call has returned (D-215)."""
        if self.state not in _ESTABLISHED:
            return Status.TEARING_DOWN if self.state in _ENDING else Status.SESSION_DOWN
        try:
            packets = decode_boxcar(boxcar, count)
        except BadBoxcar as error:
            logger.warning("%s sent malformed messages (a boxcar): %s; the session ends", self.partner, error)
            self._reason = f"it sent malformed messages: {error}"
            self._sender.later(0, self._problem)
            return Status.INVALID_ARGUMENT
        if self.state is PartnerSessionState.ACTIVE:
            self._after("idle", IDLE, self._idle)
        self.connections.receive(packets)
        return Status.OK

    def grant(self, requested: int) -> tuple[int, int]:
        """Handle NegotiateResources of the partner; return a status and the number of connections. The connections of a
        session that ends have been given back already."""
        if not 1 <= requested <= 999:
            return Status.INVALID_ARGUMENT, 0
        if self.state not in _ESTABLISHED:
            return Status.SERVER_NOT_READY, 0
        accepted = self.connections.grant(requested)
        return (Status.OK if accepted else Status.OUT_OF_RESOURCES), accepted

    def torn_down(self, rank: int, *, is_problem: bool) -> int:
        """Handle TearDownContext of the partner, after which its context handle is invalid."""
        if rank != (Rank.SECONDARY if self.is_primary else Rank.PRIMARY):
            return Status.INVALID_ARGUMENT
        self._reason = self._reason or ("the partner met a problem" if is_problem else "the partner ended the session")
        self._advance(PartnerSessionEvent.LOST if is_problem else PartnerSessionEvent.TEARDOWN)
        return Status.OK

    def begin_tear_down(self) -> int:
        """Handle BeginTearDown of the secondary."""
        self._reason = self._reason or "the partner ended the session"
        return (
            Status.OK
            if self.is_primary and self._advance(PartnerSessionEvent.BEGIN_TEARDOWN)
            else Status.INVALID_ARGUMENT
        )

    # -- answers to our calls ----------------------------------------------------------------------------------

    def answered(self, call: PartnerCall, answer: CallAnswer) -> None:
        """Handle the answer to a call of this session."""
        if self.is_down:
            return
        match call.kind:
            case CallKind.POKE | CallKind.BUILD:
                if call.kind is self._setup_call:
                    self._set_up(call, answer)
            case CallKind.NEGOTIATE if answer.status is None:
                self.lost(f"it did not answer NegotiateResources: {answer}")
            case CallKind.NEGOTIATE:
                self.connections.granted(answer.accepted if answer.status == Status.OK else 0, str(answer))
            case CallKind.SEND:
                self._sent(call, answer)
            case CallKind.TEAR_DOWN | CallKind.BEGIN_TEAR_DOWN:
                self._advance(PartnerSessionEvent.TORN_DOWN)

    def _set_up(self, call: PartnerCall, answer: CallAnswer) -> None:
        self._setup_call = None
        if answer.status == Status.OK:
            if call.kind is CallKind.POKE:
                return  # BuildContextW will follow
            # Deviation D-213: S_OK with another GUID means refused.
            if answer.guid == self.guid == call.guid and self._advance(PartnerSessionEvent.BUILT):
                return
        self._reason = f"{call.kind.name.lower()}: {answer}"
        self._advance(PartnerSessionEvent.REFUSED if answer.status in _FINAL else PartnerSessionEvent.NOT_BUILT)

    def _sent(self, call: PartnerCall, answer: CallAnswer) -> None:
        if answer.status == Status.SERVER_NOT_READY and self._resends < MOST_RESENDS:
            self._resends += 1
            self._after("resend", FIRST_PAUSE, lambda: self._sender.call(self, call))  # not processed (D-215)
            return
        self._sending, self._resends = None, 0
        if answer.status == Status.OK:
            self.wake()
        elif (
            self.state is not PartnerSessionState.TEARDOWN
        ):  # deviation D-216: never sent again, because it may have arrived
            self.lost(f"it did not take messages: {answer}")

    # -- actions of the tables -----------------------------------------------------------------------------------

    def _advance(self, event: PartnerSessionEvent) -> bool:
        """Handle an event according to the table; return False if it is not allowed in the current state."""
        row = self._table[self.state].get(event)
        if row is None:
            return False
        self.state = row.next
        getattr(self, f"_{row.action}")()
        return True

    def _nothing(self) -> None:
        """Do nothing: the event only changes the state."""

    def _begin(self) -> None:
        self._after("setup", SETUP, self._setup_over)
        self._set_out()

    def _set_out(self) -> None:
        self._stop("pause")
        if self.is_primary:
            self.guid = self._sender.new_guid()
            self._setup(CallKind.BUILD)
        else:
            self._setup(CallKind.POKE if self.state is PartnerSessionState.CONNECTING else CallKind.BUILD)

    def _setup(self, kind: CallKind) -> None:
        self._setup_call = kind
        self._call(kind)

    def _repeat(self) -> None:
        self._after("pause", self._pause, self._set_out)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _setup_over(self) -> None:
        self._reason = f"no session within {SETUP:.0f} s: {self._reason or 'no answer'}"
        self._advance(PartnerSessionEvent.REFUSED)

    def _confirm(self) -> None:
        """Primary: answer the nested call."""
        self._answer_build(BuildAnswer(Status.OK, self, self.guid, self.versions))

    def _call_back(self) -> None:
        """Secondary: make the nested call; the outer one is answered after it."""
        self._stop("pause")
        self._after("setup", NESTED, self._setup_over)
        self._pause = FIRST_PAUSE
        self._setup(CallKind.BUILD)

    def _establish(self) -> None:
        self._stop("setup")
        self._stop("pause")
        self._reason = ""
        self._answer_build(BuildAnswer(Status.OK, self, self.guid, self.versions))
        if self.is_down:  # the caller that waited for the answer has gone, and its context handle with it
            return
        self._after("ping", PING, self._ping)
        self._after("idle", IDLE, self._idle)
        if self._wanted_connections:
            wanted, self._wanted_connections = self._wanted_connections, 0
            self.negotiate(wanted)
        self.wake()

    def _answer_build(self, answer: BuildAnswer) -> None:
        if (waiting := self._waiting) is not None:
            self._waiting = None
            waiting(answer)

    def _probe(self) -> None:
        """Check the session, because the partner requests a new one: a ping fails if the session is dead, and then ends
        it."""
        self._send_ping()

    def _tear_down(self) -> None:
        self._teardown_begins()
        self._call(CallKind.TEAR_DOWN)

    def _request_teardown(self) -> None:
        self._teardown_begins()
        self._call(CallKind.BEGIN_TEAR_DOWN)

    def _answer_teardown(self) -> None:
        """Tear down after the primary's TearDownContext is answered, not within it (D-221)."""
        self._teardown_begins()
        self._after("teardown call", 0, lambda: self._call(CallKind.TEAR_DOWN))

    def _teardown_begins(self) -> None:
        for name in ("ping", "idle"):
            self._stop(name)
        self._after("teardown", TEARDOWN_TIME, self._teardown_over)
        self.connections.down(self._reason or "the session ends")

    def _teardown_over(self) -> None:
        self._advance(PartnerSessionEvent.REFUSED)

    def _problem(self) -> None:
        if not self.is_down:
            self._call(CallKind.TEAR_DOWN, is_problem=True)
            self._advance(PartnerSessionEvent.LOST)

    def _give_up(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._answer_build(BuildAnswer(Status.TIMED_OUT))
        reason = self._reason or "the session has ended"
        logger.info("the session with %s is down: %s", self.partner, reason)
        self._sender.hang_up(self)
        self._ended(self)
        self.connections.down(f"{self.partner}: {reason}")

    # -- timers and calls ----------------------------------------------------------------------------------------

    def _idle(self) -> None:
        if not len(self.connections):
            self._reason = f"no connection for {IDLE:.0f} s"
            self._advance(PartnerSessionEvent.STOP)
        else:
            self._after("idle", IDLE, self._idle)

    def _ping(self) -> None:
        self._after("ping", PING, self._ping)
        if len(self.connections):
            self._send_ping()

    def _send_ping(self) -> None:
        if self._sending is None:  # otherwise the call in progress serves as a ping
            self.connections.queue(Packet(PacketTag.PING, True, 0))

    def _after(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` once, after `seconds`, unless its timer is stopped or set again."""
        self._stop(name)

        def run() -> None:
            self._timers.pop(name, None)
            action()

        self._timers[name] = self._sender.later(seconds, run)

    def _stop(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def _call(self, kind: CallKind, *, number: int = 0, boxcar: bytes = b"", is_problem: bool = False) -> None:
        call = PartnerCall(kind, self.rank, self.guid, number, boxcar, is_problem)
        if kind is CallKind.SEND:
            self._sending = call
        self._sender.call(self, call)
