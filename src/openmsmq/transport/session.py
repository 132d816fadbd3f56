"""A session between two queue managers over one connection ([MS-MQQB] 3.1), without I/O, for both roles.

The owner passes received bytes to `receive` and writes the result of `data_to_send`, calls `tick` at `next_deadline`,
and handles the events that both return. Every method with an argument `now` takes milliseconds of a monotonic clock;
their lower 32 bits become TimeStamp.

    session = MqqbSession.initiator(SessionSettings(identifier), now, peer=guid_of_the_next_hop)
    while session.room:
        session.send(message, token, now)

Invariant I7 (docs/architecture.md): a recoverable packet is acknowledged only after the owner has called `durable` for
it; a sent packet is reported as acknowledged at most once, and only if the peer's acknowledgment covers it.

After `Closed`, calls have no effect; late ones, such as after a sync, are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic

from openmsmq.packet import BadPacket, UserMessage
from openmsmq.packet.headers import NO_GUID, SessionHeader
from openmsmq.packet.internal import (
    RECOVERABLE_ACK_TIMEOUT,
    ConnectionParameters,
    EstablishConnection,
    InternalPacket,
    SessionAck,
    parse_internal,
)
from openmsmq.packet.reader import Reader
from openmsmq.packet.stream import (
    LARGEST_INTERNAL_PACKET,
    READ_SIZE,
    SESSION_HEADER_SIZE,
    Framer,
    has_session,
    is_internal,
    with_session,
)
from openmsmq.packet.user_message import MAXIMUM_PACKET
from openmsmq.transport.events import (
    Acknowledged,
    Closed,
    CloseReason,
    Established,
    Event,
    LocalSessionError,
    MessageReceived,
    PeerIdentified,
    RemoteSessionError,
    Token,
)
from openmsmq.transport.settings import SessionSettings
from openmsmq.transport.states import (
    EXPIRIES,
    INITIAL_ACCEPTOR,
    INITIAL_INITIATOR,
    TABLE,
    Expiry,
    SessionAction,
    SessionEvent,
    SessionState,
    Timer,
)
from openmsmq.transport.window import FLAG_BITS, MAXIMUM_UNSAVED, Receiving, SendWindow, Window

try:
    from openmsmq.packet import plain_packets
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        plain_packets = None

RECOVERABLE_DELIVERY = 1  # UserHeader.Flags.DM; 0 is express
ROUND_TRIPS = 8  # RecoverableAckSendTimeout, in round trips (3.1.5.3.2)
PIGGYBACK_FROM = 0.75  # fraction of the Session Ack Send Timer (3.1.7.11)

Admit = Callable[[EstablishConnection], bool]


class MqqbSession(Generic[Token]):
    """See the module. Create it with `initiator` or `acceptor` when the connection is open."""

    def __init__(self, settings: SessionSettings, state: SessionState, now: float, peer: bytes, admit: Admit) -> None:
        self.state = state
        self.peer = peer
        self.direct = peer == NO_GUID
        self.window = Window(settings.window_size)
        self.ack_wait_timeout = settings.ack_wait_timeout
        self.recoverable_ack_send_timeout = RECOVERABLE_ACK_TIMEOUT.start
        self._settings = settings
        self._admit = admit
        self._began = now
        self._framer = Framer(LARGEST_INTERNAL_PACKET)
        self._output = bytearray()
        self._sending: SendWindow[Token] = SendWindow()
        self._receiving = Receiving()
        self._received_ack = False
        self._active = False
        self._ack_began = now
        # Deviation D-95: one timer per session.
        self._deadlines: dict[Timer, float] = {Timer.INITIALIZATION: now + settings.initialization_timeout}
        self._events: list[Event[Token]] = []
        self._actions: dict[SessionAction, Callable[[InternalPacket, float], None]] = {
            SessionAction.SEND_PARAMETERS: self._send_parameters,
            SessionAction.ANSWER_ESTABLISH: self._answer_establish,
            SessionAction.REFUSE_ESTABLISH: self._refuse_establish,
            SessionAction.ANSWER_PARAMETERS: self._answer_parameters,
            SessionAction.ACCEPT_PARAMETERS: self._accept_parameters,
            SessionAction.GIVE_UP: self._give_up,
            SessionAction.READ_ACKNOWLEDGMENT: self._read_session_ack,
        }

    @classmethod
    def initiator(
        cls, settings: SessionSettings, now: float, peer: bytes = NO_GUID, without_ping: bool = True
    ) -> MqqbSession[Token]:
        """Create a session opened here (3.1.5.2.3). `peer` is the queue manager to reach, NO_GUID for a direct format
        name."""
        session = cls(settings, INITIAL_INITIATOR, now, peer, _everybody)
        request = EstablishConnection(
            settings.identifier, peer, int(now) & 0xFFFFFFFF, without_ping, settings.server_class
        )
        session._output += request.pack()
        return session

    @classmethod
    def acceptor(cls, settings: SessionSettings, now: float, admit: Admit | None = None) -> MqqbSession[Token]:
        """Create a session opened by a peer (3.1.5.10). `admit` is called with its EstablishConnection; False refuses
        it."""
        return cls(settings, INITIAL_ACCEPTOR, now, NO_GUID, admit or _everybody)

    # -- state for the owner ------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float | None:
        """Time of the next call of `tick`, in milliseconds; None if no timer is running."""
        return min(self._deadlines.values(), default=None)

    @property
    def room(self) -> int:
        """Number of UserMessages that may be sent now; 0 unless OPEN."""
        if self.state is not SessionState.OPEN:
            return 0
        sending = self._sending
        return max(0, min(self.window.size - sending.in_flight, MAXIMUM_UNSAVED - sending.unsaved))

    @property
    def buffered(self) -> int:
        """Number of buffered bytes of an incomplete packet."""
        return self._framer.buffered

    @property
    def unsent(self) -> int:
        """Number of bytes that `data_to_send` would return."""
        return len(self._output)

    def data_to_send(self) -> bytes:
        """Return the bytes to write to the connection, once."""
        data = bytes(self._output)
        self._output.clear()
        return data

    # -- actions of the owner -----------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Event[Token]]:
        """Process received bytes. After an error the rest is ignored."""
        try:
            # Complete packets are removed from the framer between pieces, so that its buffer is bounded for any `data`.
            for at in range(0, len(data), READ_SIZE):
                if self.state is SessionState.CLOSED:
                    break
                self._framer.feed(data[at : at + READ_SIZE])
                self._read_packets(now)
        except (BadPacket, RemoteSessionError) as error:
            self._close(CloseReason.PROTOCOL_ERROR, str(error))
        return self._take_events()

    def send(self, message: UserMessage, token: Token, now: float) -> None:
        """Send a UserMessage, OrderAck or FinalAck. Its SessionHeader is set or removed; OrderAcks and FinalAcks have
        none, because all bits of their BaseHeader.Flags are 0 ([MS-MQQB] 2.2.4, 2.2.5).

        A later `Acknowledged` or `Closed` contains the token. Raises LocalSessionError without `room`, or if the packet
        has more than 4 MiB.
        """
        message.session = None
        destination, recoverable = message.user.destination, message.user.delivery == RECOVERABLE_DELIVERY
        may_piggyback = destination is None or not destination.is_order_queue
        self.send_packet(message.pack(), token, recoverable, now, may_piggyback=may_piggyback)

    def send_packet(
        self, packet: bytes, token: Token, recoverable: bool, now: float, *, may_piggyback: bool = True
    ) -> None:
        """`send` for the packet of a UserMessage without SessionHeader."""
        if not self.room:
            raise LocalSessionError(
                f"the window of {self.window.size} packets is full, or the state {self.state.name} is not OPEN"
            )
        if len(packet) > MAXIMUM_PACKET:
            raise LocalSessionError(f"a packet of {len(packet)} bytes, at most {MAXIMUM_PACKET}")
        self._sending.sent(token, recoverable)
        if may_piggyback and self._piggybacks(now):
            packet = with_session(packet, self._acknowledgment())
        self._output += packet
        self._active = True
        self._deadlines.setdefault(Timer.ACK_WAIT, now + self._ack_wait)

    def durable(self, receipts: Iterable[int], now: float) -> None:
        """Note that the outcomes of recoverable packets are synced, so that they will be acknowledged. May add to
        `data_to_send`.

        Raises ValueError for an unknown receipt.
        """
        if self.state is SessionState.CLOSED:
            return
        for receipt in receipts:
            self._receiving.durable(receipt)
        self._acknowledge_in_time(now, recoverable=True)

    def set_window(self, size: int) -> None:
        """Change and announce our window size; 1 while a queue is paused (3.1.7.13) or memory is short."""
        peer = self.window.peer
        self.window = Window(size)
        self.window.peer = peer
        if self.state is SessionState.OPEN:
            self._send_acknowledgment()

    def tick(self, now: float) -> list[Event[Token]]:
        """Handle all expired timers."""
        for timer in [timer for timer, deadline in self._deadlines.items() if deadline <= now]:
            if timer in self._deadlines:  # an earlier one may have closed the session
                del self._deadlines[timer]
                self._expire(timer, now)
        return self._take_events()

    def disconnected(self) -> list[Event[Token]]:
        """Close the session, because the connection was lost or closed by the peer (3.1.7.3)."""
        self._close(CloseReason.DISCONNECTED)
        return self._take_events()

    def close(self) -> list[Event[Token]]:
        """Close the session locally (3.1.5.9)."""
        self._close(CloseReason.LOCAL)
        return self._take_events()

    # -- packets ------------------------------------------------------------------------------------------------------

    def _read_packets(self, now: float) -> None:
        while self.state is not SessionState.CLOSED:
            packet = self._framer.next()
            if packet is None:
                break
            self._deadlines.pop(Timer.PACKET, None)
            self._received_ack = True
            self._read_packet(packet, now)
        if self.state is not SessionState.CLOSED and self._framer.has_partial:
            self._deadlines.setdefault(Timer.PACKET, now + self._settings.packet_timeout)

    def _read_packet(self, packet: bytes, now: float) -> None:
        if not is_internal(packet):
            if self.state is not SessionState.OPEN:  # the only state in which the table allows it
                self._look_up(SessionEvent.USER_MESSAGE)
            self._receive_message(packet, now)
            return
        internal = parse_internal(packet)
        action, state = self._look_up(self._stimulus(internal))
        self._actions[action](internal, now)
        if self.state is not SessionState.CLOSED:
            self.state = state

    def _look_up(self, stimulus: SessionEvent) -> tuple[SessionAction, SessionState]:
        row = TABLE[self.state].get(stimulus)
        if row is None:
            raise RemoteSessionError(f"{stimulus.name} in state {self.state.name}")
        return row

    def _stimulus(self, packet: InternalPacket) -> SessionEvent:
        if isinstance(packet, SessionAck):
            return SessionEvent.SESSION_ACK
        if isinstance(packet, ConnectionParameters):
            return SessionEvent.PARAMETERS_REFUSED if packet.connection_refused else SessionEvent.PARAMETERS
        valid = (
            self._accepts_request(packet) if self.state is SessionState.WAITING_EC_MSG else self._accepts_answer(packet)
        )
        return SessionEvent.ESTABLISH_VALID if valid else SessionEvent.ESTABLISH_INVALID

    def _accepts_request(self, packet: EstablishConnection) -> bool:
        """3.1.5.3.1; NO_GUID is sent for a direct format name (deviation D-94)."""
        return packet.server_guid in (NO_GUID, self._settings.identifier)

    def _accepts_answer(self, packet: EstablishConnection) -> bool:
        """3.1.5.3.2. For a direct format name any queue manager may answer (deviation D-94)."""
        if packet.connection_refused or packet.client_guid != self._settings.identifier:
            return False
        return packet.server_guid != NO_GUID if self.direct else packet.server_guid == self.peer

    # -- establishing -------------------------------------------------------------------------------------------------

    def _send_parameters(self, packet: InternalPacket, now: float) -> None:
        assert isinstance(packet, EstablishConnection)
        self.peer = packet.server_guid
        # Measured with the local clock: the echoed timestamp may be wrong, and wraps every 50 days (D-96).
        self.recoverable_ack_send_timeout = _clamped(int((now - self._began) * ROUND_TRIPS))
        self._events.append(PeerIdentified(self.peer, self.direct))
        self._send_own_parameters()

    def _answer_establish(self, packet: InternalPacket, now: float) -> None:
        assert isinstance(packet, EstablishConnection)
        if packet.connection_refused or packet.client_guid == NO_GUID or not self._admit(packet):
            self._close(CloseReason.REFUSED, "the peer is not admitted")
            return
        self.peer, self.direct = packet.client_guid, packet.server_guid == NO_GUID
        self._events.append(PeerIdentified(self.peer, self.direct))
        self._output += self._answer(packet, refused=False)

    def _refuse_establish(self, packet: InternalPacket, now: float) -> None:
        assert isinstance(packet, EstablishConnection)
        self._output += self._answer(packet, refused=True)
        self._close(CloseReason.REFUSED, "the peer asked for another queue manager")

    def _answer(self, request: EstablishConnection, refused: bool) -> bytes:
        return EstablishConnection(
            request.client_guid, self._settings.identifier, request.timestamp, request.without_ping,
            self._settings.server_class, connection_refused=refused,
        ).pack()  # fmt: skip

    def _answer_parameters(self, packet: InternalPacket, now: float) -> None:
        assert isinstance(packet, ConnectionParameters)
        self.ack_wait_timeout = packet.ack_timeout
        self.recoverable_ack_send_timeout = packet.recoverable_ack_timeout
        self._send_own_parameters()
        self._open(packet, now)

    def _accept_parameters(self, packet: InternalPacket, now: float) -> None:
        assert isinstance(packet, ConnectionParameters)
        self._open(packet, now)

    def _give_up(self, packet: InternalPacket, now: float) -> None:
        self._close(CloseReason.REFUSED, "refused by the peer, or answered by another queue manager")

    def _send_own_parameters(self) -> None:
        parameters = ConnectionParameters(self.recoverable_ack_send_timeout, self.ack_wait_timeout, self.window.own)
        self._output += parameters.pack()

    def _open(self, packet: ConnectionParameters, now: float) -> None:
        self.window.peer = packet.window_size
        self._framer.maximum = MAXIMUM_PACKET
        del self._deadlines[Timer.INITIALIZATION]
        self._deadlines[Timer.CLEANUP] = now + self._settings.cleanup_timeout
        self._events.append(Established(self.window.size))

    # -- messages and acknowledgments ---------------------------------------------------------------------------------

    def _receive_message(self, packet: bytes, now: float) -> None:
        """Process a UserMessage: count it, process its SessionHeader, and leave its outcome to the owner (deviation
        D-89)."""
        message: UserMessage | None = None
        delivery = plain_packets.delivery(packet) if plain_packets is not None else -1
        if delivery < 0:
            message = _unpacked(packet)
            delivery = message.user.delivery
        recoverable = delivery == RECOVERABLE_DELIVERY
        receipt = self._receiving.count(recoverable)
        self._active = True
        session = SessionHeader.unpack(Reader(packet[-SESSION_HEADER_SIZE:])) if has_session(packet) else None
        if session is not None:
            self._read_acknowledgment(session, now)
        self._events.append(MessageReceived(message, packet, receipt))
        if session is not None and self._receiving.differs_from(session):
            self._close_for_counts(session)
            return
        self._acknowledge_in_time(now, recoverable)

    def _read_session_ack(self, packet: InternalPacket, now: float) -> None:
        assert isinstance(packet, SessionAck)
        self._read_acknowledgment(packet.session, now)
        if self._receiving.differs_from(packet.session):
            self._close_for_counts(packet.session)

    def _read_acknowledgment(self, header: SessionHeader, now: float) -> None:
        tokens = self._sending.acknowledged(header)
        self.window.peer = header.window_size
        if tokens:
            self._events.append(Acknowledged(tokens))
        if self._awaiting:
            self._deadlines[Timer.ACK_WAIT] = now + self._ack_wait
        else:
            self._deadlines.pop(Timer.ACK_WAIT, None)

    def _acknowledge_in_time(self, now: float, recoverable: bool) -> None:
        """Acknowledge immediately if half of the window or all flags are used, else start the timer (deviation
        D-92)."""
        receiving = self._receiving
        while receiving.ackable >= FLAG_BITS:
            self._send_acknowledgment()
        if receiving.unacknowledged >= self.window.half:
            self._send_acknowledgment()
        if receiving.nothing_to_say:
            return
        duration = self.recoverable_ack_send_timeout if recoverable else self.ack_wait_timeout / 2
        deadline = now + duration
        if deadline < self._deadlines.get(Timer.ACK_SEND, deadline + 1):
            self._deadlines[Timer.ACK_SEND] = deadline
            self._ack_began = now

    def _send_acknowledgment(self) -> None:
        self._output += SessionAck(self._acknowledgment()).pack()

    def _acknowledgment(self) -> SessionHeader:
        """Return a SessionHeader to send now. This stops the timer, unless more bits are pending than fit into it."""
        received, first, flags = self._receiving.acknowledge()
        if self._receiving.nothing_to_say:
            self._deadlines.pop(Timer.ACK_SEND, None)
        return SessionHeader(received, first, flags, *self._sending.counts, self.window.own)

    def _piggybacks(self, now: float) -> bool:
        """Whether the Session Ack Send Timer has advanced far enough to piggyback its acknowledgment on a
        UserMessage."""
        deadline = self._deadlines.get(Timer.ACK_SEND)
        return deadline is not None and now - self._ack_began > PIGGYBACK_FROM * (deadline - self._ack_began)

    @property
    def _awaiting(self) -> bool:
        return bool(self._sending.in_flight or self._sending.unsaved)

    @property
    def _ack_wait(self) -> float:
        """Duration of the Session Ack Wait Timer (3.1.2.4, note 46)."""
        return self.ack_wait_timeout * (2 if self.direct else 1)

    # -- timers and closing -------------------------------------------------------------------------------------------

    def _expire(self, timer: Timer, now: float) -> None:
        match EXPIRIES[timer]:
            case Expiry.CLOSE:
                initializing = timer is Timer.INITIALIZATION
                self._close(CloseReason.INITIALIZATION_TIMEOUT if initializing else CloseReason.PACKET_TIMEOUT)
            case Expiry.CLOSE_IF_IDLE:
                if not self._active and not self._framer.has_partial:
                    self._close(CloseReason.IDLE)
                    return
                self._active = False
                self._deadlines[Timer.CLEANUP] = now + self._settings.cleanup_timeout
            case Expiry.CLOSE_IF_SILENT:
                if self._awaiting and not self._received_ack:
                    self._close(CloseReason.ACK_TIMEOUT)
                    return
                self._received_ack = False
                if self._awaiting:
                    self._deadlines[Timer.ACK_WAIT] = now + self._ack_wait
            case Expiry.SEND_ACKNOWLEDGMENT:
                if not self._receiving.nothing_to_say:
                    self._send_acknowledgment()

    def _close_for_counts(self, header: SessionHeader) -> None:
        self._close(
            CloseReason.COUNTS_DIFFER,
            f"the peer has sent {header.user_sequence_number} packets, {header.recoverable_sequence_number} of them"
            " recoverable, modulo 65,536",
        )

    def _close(self, reason: CloseReason, detail: str = "") -> None:
        """Close the session, unless it is closed. The event lists the unacknowledged messages, to be put back."""
        if self.state is not SessionState.CLOSED:
            self.state = SessionState.CLOSED
            self._deadlines.clear()
            self._framer = Framer(LARGEST_INTERNAL_PACKET)  # free the buffer
            self._events.append(Closed(reason, detail, self._sending.rest()))

    def _take_events(self) -> list[Event[Token]]:
        events, self._events = self._events, []
        return events


def _unpacked(packet: bytes) -> UserMessage:
    """Parse a UserMessage. Raises BadPacket."""
    message = UserMessage.unpack(Reader(packet, "UserMessage"))  # which has exactly the size in its BaseHeader
    if message.user.delivery > RECOVERABLE_DELIVERY:
        raise BadPacket(f"UserHeader: delivery mode {message.user.delivery}, allowed: 0 and 1")
    return message


def _everybody(_: EstablishConnection) -> bool:
    return True


def _clamped(timeout: int) -> int:
    return max(RECOVERABLE_ACK_TIMEOUT.start, min(timeout, RECOVERABLE_ACK_TIMEOUT.stop - 1))
