"""A session reports events for any bytes that a peer sends, and never raises an exception."""

from hypothesis import given
from hypothesis import strategies as st

from openmsmq.packet.headers import (
    MessagePropertiesHeader,
    MultiQueueFormatHeader,
    SecurityHeader,
    SessionHeader,
    SoapHeader,
    TransactionHeader,
)
from openmsmq.packet.internal import ConnectionParameters, EstablishConnection, SessionAck
from openmsmq.transport import Closed, MqqbSession, SessionSettings, SessionState
from transport.peers import ALICE, BOB, QUEUE, message, opened

FULL = message(b"body" * 10, recoverable=True)
FULL.properties = MessagePropertiesHeader(label="label", extension=b"123", body=b"body" * 10)
FULL.transaction = TransactionHeader()
FULL.security = SecurityHeader(sender=b"\1" * 28, provider_type=1, provider_name="provider")
FULL.multi_queue = MultiQueueFormatHeader([QUEUE], [QUEUE], [])
FULL.soap = SoapHeader("header", "body")
FULL.session = SessionHeader(0, 0, 0, 1, 1, 64)

PACKETS = [
    EstablishConnection(ALICE, BOB).pack(),
    ConnectionParameters(500, 20_000, 64).pack(),
    SessionAck(SessionHeader()).pack(),
    message(b"x").pack(),
    FULL.pack(),
]
changes = st.lists(
    st.tuples(st.integers(0, 2000), st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xD8, 0xFE, 0xFF])), max_size=5
)


def check(session: MqqbSession[int], data: bytes) -> None:
    events = session.receive(data, 1)
    closed = [event for event in events if isinstance(event, Closed)]
    assert len(closed) == (session.state is SessionState.CLOSED) and (not closed or events[-1] is closed[0])
    assert (session.next_deadline is None) == bool(closed)
    session.tick(1e9)
    session.data_to_send()


@given(st.lists(st.sampled_from(PACKETS), min_size=1, max_size=4), changes)
def test_changed_packets_are_read_or_close_the_session(packets: list[bytes], places: list[tuple[int, int]]) -> None:
    data = bytearray(b"".join(packets))
    for place, value in places:
        data[place % len(data)] = value
    for session in (
        *opened(),
        MqqbSession.acceptor(SessionSettings(BOB), 0),
        MqqbSession.initiator(SessionSettings(ALICE), 0, BOB),
    ):
        check(session, bytes(data))


@given(st.binary(max_size=200))
def test_random_bytes_close_the_session_or_wait_for_more(data: bytes) -> None:
    check(opened()[1], data)
    check(opened()[1], b"\x10\0\3\0LIOR" + data)


def test_a_full_message_is_read() -> None:
    _, bob = opened()
    assert [type(event).__name__ for event in bob.receive(FULL.pack(), 1)] == ["MessageReceived"]
