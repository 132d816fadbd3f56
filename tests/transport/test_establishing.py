"""Starting sessions, and ending them before they are OPEN."""

from typing import Any

import pytest

from openmsmq.packet.headers import NO_GUID, SessionHeader
from openmsmq.packet.internal import ConnectionParameters, EstablishConnection, SessionAck
from openmsmq.transport import CloseReason, Established, MqqbSession, PeerIdentified, SessionSettings, SessionState
from openmsmq.transport.settings import WINDOW_SIZE
from openmsmq.transport.states import TABLE, SessionEvent
from transport.peers import ALICE, BOB, CAROL, ending, exchange, message, opened, packets

REQUEST = EstablishConnection(ALICE, BOB, 12345, without_ping=False, server_class=False)
PARAMETERS = ConnectionParameters(700, 30_000, 32)


def acceptor(now: float = 0) -> MqqbSession[int]:
    return MqqbSession.acceptor(SessionSettings(BOB), now)


def initiator(peer: bytes = BOB, now: float = 0) -> MqqbSession[int]:
    session: MqqbSession[int] = MqqbSession.initiator(SessionSettings(ALICE), now, peer)
    session.data_to_send()
    return session


def test_two_queue_managers_open_a_session() -> None:
    alice: MqqbSession[int] = MqqbSession.initiator(SessionSettings(ALICE), 5, BOB)
    bob = acceptor(5)
    events = exchange(alice, bob, 7)
    assert events.count(Established(WINDOW_SIZE)) == 2
    assert PeerIdentified(ALICE, direct=False) in events and PeerIdentified(BOB, direct=False) in events
    assert (alice.state, bob.state, alice.peer, bob.peer) == (SessionState.OPEN, SessionState.OPEN, BOB, ALICE)


@pytest.mark.parametrize("server", [BOB, NO_GUID])
def test_an_acceptor_answers_a_request_for_itself_or_for_a_direct_name(server: bytes) -> None:
    """T1, first half."""
    bob = acceptor()
    request = EstablishConnection(ALICE, server, 12345, without_ping=False, server_class=False)
    assert bob.receive(request.pack(), 1) == [PeerIdentified(ALICE, server == NO_GUID)]
    data = bob.data_to_send()
    assert packets(data) == [EstablishConnection(ALICE, BOB, 12345, without_ping=False, server_class=True)]
    assert len(data) == 572 and data[56] == 0x10 and data[60:] == b"\x5a" * 512
    assert bob.state is SessionState.WAITING_CP_MSG


def test_an_acceptor_refuses_a_request_for_another_queue_manager_and_closes() -> None:
    """T1, second half: the response has CS and must still be written."""
    bob = acceptor()
    assert ending(bob.receive(EstablishConnection(ALICE, CAROL).pack(), 1)) is CloseReason.REFUSED
    (answer,) = packets(bob.data_to_send())
    assert isinstance(answer, EstablishConnection) and answer.connection_refused and answer.server_guid == BOB


def test_a_peer_that_is_not_admitted_gets_no_answer() -> None:
    asked: list[EstablishConnection] = []

    def admit(request: EstablishConnection) -> bool:
        asked.append(request)
        return False

    bob: MqqbSession[int] = MqqbSession.acceptor(SessionSettings(BOB), 0, admit)
    assert ending(bob.receive(REQUEST.pack(), 1)) is CloseReason.REFUSED
    assert bob.data_to_send() == b"" and asked == [REQUEST]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(EstablishConnection(CAROL, BOB), id="another ClientGuid"),
        pytest.param(EstablishConnection(ALICE, CAROL), id="another ServerGuid"),
        pytest.param(EstablishConnection(ALICE, NO_GUID), id="no ServerGuid"),
        pytest.param(EstablishConnection(ALICE, BOB, connection_refused=True), id="CS"),
    ],
)
def test_an_initiator_gives_up_after_a_wrong_answer(answer: EstablishConnection) -> None:
    """T2: no ConnectionParameters are sent."""
    alice = initiator()
    assert ending(alice.receive(answer.pack(), 1)) is CloseReason.REFUSED
    assert alice.data_to_send() == b"" and alice.next_deadline is None


def test_with_a_direct_name_any_answering_host_is_the_peer() -> None:
    alice = initiator(NO_GUID)
    assert alice.receive(EstablishConnection(ALICE, CAROL).pack(), 1) == [PeerIdentified(CAROL, direct=True)]
    assert alice.peer == CAROL
    refused = initiator(NO_GUID)
    assert ending(refused.receive(EstablishConnection(ALICE, NO_GUID).pack(), 1)) is CloseReason.REFUSED


@pytest.mark.parametrize(
    ("round_trip", "timeout"), [(0, 500), (62, 500), (100, 800), (15_000, 120_000), (50_000, 120_000)]
)
def test_an_initiator_proposes_eight_round_trips_within_bounds(round_trip: int, timeout: int) -> None:
    alice = initiator(now=2**32 - 50)
    alice.receive(EstablishConnection(ALICE, BOB, 99).pack(), 2**32 - 50 + round_trip)
    assert packets(alice.data_to_send()) == [ConnectionParameters(timeout, 20_000, WINDOW_SIZE)]


def test_an_acceptor_echoes_timeouts_and_names_its_own_window() -> None:
    """T3, without the messages."""
    bob = acceptor()
    assert bob.receive(REQUEST.pack() + PARAMETERS.pack(), 1)[1:] == [Established(32)]
    assert packets(bob.data_to_send())[1:] == [ConnectionParameters(700, 30_000, WINDOW_SIZE)]
    assert bob.room == 32


def test_an_initiator_takes_the_window_of_the_answer() -> None:
    alice = initiator()
    alice.receive(EstablishConnection(ALICE, BOB).pack(), 1)
    assert alice.receive(ConnectionParameters(500, 20_000, 0).pack(), 2) == [Established(1)]
    assert alice.room == 1


PACKETS = {
    SessionEvent.ESTABLISH_VALID: REQUEST.pack(),
    SessionEvent.PARAMETERS: PARAMETERS.pack(),
    SessionEvent.PARAMETERS_REFUSED: ConnectionParameters(700, 30_000, 32, connection_refused=True).pack(),
    SessionEvent.SESSION_ACK: SessionAck(SessionHeader()).pack(),
    SessionEvent.USER_MESSAGE: message().pack(),
}


def in_state(state: SessionState) -> MqqbSession[int]:
    """Return a session in its proper role, with no data left to send."""
    session = acceptor()
    match state:
        case SessionState.WAITING_ECR_MSG:
            session = initiator()
        case SessionState.WAITING_CPR_MSG:
            session = initiator()
            session.receive(EstablishConnection(ALICE, BOB).pack(), 1)
        case SessionState.WAITING_CP_MSG:
            session.receive(REQUEST.pack(), 1)
        case SessionState.OPEN:
            session.receive(REQUEST.pack() + PARAMETERS.pack(), 1)
    session.data_to_send()
    assert session.state is state
    return session


@pytest.mark.parametrize("stimulus", PACKETS, ids=lambda stimulus: stimulus.name)
@pytest.mark.parametrize(
    "state", [state for state in SessionState if state is not SessionState.CLOSED], ids=lambda state: state.name
)
def test_a_packet_without_a_row_in_the_table_closes_without_a_byte(state: SessionState, stimulus: SessionEvent) -> None:
    """T4: a UserMessage before OPEN, EstablishConnection when OPEN, and all others."""
    session = in_state(state)
    reason = ending(session.receive(PACKETS[stimulus], 2))
    if stimulus not in TABLE[state]:
        assert reason is CloseReason.PROTOCOL_ERROR and session.data_to_send() == b""
        assert session.state is SessionState.CLOSED and session.next_deadline is None
    elif stimulus is SessionEvent.PARAMETERS_REFUSED:
        assert reason is CloseReason.REFUSED


@pytest.mark.parametrize(
    "state", [state for state in SessionState if state is not SessionState.CLOSED], ids=lambda state: state.name
)
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(PARAMETERS.pack()[:18] + b"\7" + PARAMETERS.pack()[19:], id="PT 7"),
        pytest.param(b"\x11" + PARAMETERS.pack()[1:], id="version 0x11"),
        pytest.param(PARAMETERS.pack()[:4] + b"LIAR" + PARAMETERS.pack()[8:], id="signature"),
        pytest.param(PARAMETERS.pack()[:8] + b"\xff" * 4 + PARAMETERS.pack()[12:], id="PacketSize"),
        pytest.param(ConnectionParameters(499, 20_000, WINDOW_SIZE).pack(), id="RecoverableAckTimeout 499"),
    ],
)
def test_bad_packets_close_without_a_byte_in_every_state(state: SessionState, data: bytes) -> None:
    """T4: packets that are invalid in every state."""
    session = in_state(state)
    assert ending(session.receive(data, 2)) is CloseReason.PROTOCOL_ERROR
    assert session.data_to_send() == b"" and session.receive(REQUEST.pack(), 3) == []


def test_a_large_packet_before_open_is_refused_by_its_header() -> None:
    header = message(bytes(1000)).pack()[:16]
    assert ending(acceptor().receive(header, 1)) is CloseReason.PROTOCOL_ERROR


@pytest.mark.parametrize("before", [b"", REQUEST.pack(), REQUEST.pack()[:100]])
def test_a_silent_connection_is_closed_60_seconds_after_it_came(before: bytes) -> None:
    """T5: each connection has its own timer, which is never restarted."""
    bob = acceptor(now=1000)
    bob.receive(before, 30_000)
    assert bob.next_deadline == 61_000
    assert bob.tick(60_999) == []
    assert ending(bob.tick(61_000)) is CloseReason.INITIALIZATION_TIMEOUT


def test_an_initiator_waits_60_seconds_for_answers() -> None:
    alice = initiator(now=1000)
    alice.receive(EstablishConnection(ALICE, BOB).pack(), 50_000)
    assert ending(alice.tick(61_000)) is CloseReason.INITIALIZATION_TIMEOUT


def test_a_packet_that_does_not_end_closes_an_open_session() -> None:
    _, bob = opened()
    data = message(bytes(100)).pack()
    for minute in range(4):
        assert bob.receive(data[minute : minute + 1], 60_000 * minute + 1) == []
    assert ending(bob.tick(300_001)) is CloseReason.PACKET_TIMEOUT


def test_each_packet_has_its_own_time() -> None:
    _, bob = opened()
    data = message(bytes(100)).pack()
    bob.receive(data + data[:50], 200_000)
    bob.receive(data[50:] + data[:50], 400_000)
    assert bob.tick(600_000) == []
    assert ending(bob.tick(700_000)) is CloseReason.PACKET_TIMEOUT


@pytest.mark.parametrize(
    "wrong",
    [
        {"identifier": bytes(16)},
        {"identifier": ALICE[:15]},
        {"window_size": 0},
        {"window_size": 0x10000},
        {"ack_wait_timeout": 19_999},
        {"ack_wait_timeout": 120_001},
    ],
)
def test_settings_that_packets_cannot_carry_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        SessionSettings(**{"identifier": ALICE, **wrong})
