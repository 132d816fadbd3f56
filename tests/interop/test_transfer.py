"""Port 1801, tested by a peer written from the documents alone: the checks of MS-MQQB by their numbers."""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import openmsmq
from daemon import Daemon, free_port
from interop.mqqb_peer import (
    ESTABLISH,
    NOBODY,
    ORDER_ACK,
    Message,
    Peer,
    Transaction,
    base,
    establish,
    parameters,
    security_with_sid,
    session_ack,
)

HOST, PEER, STRANGER = "127.0.71.1", "127.0.71.9", "127.0.71.10"
PEER_PORT = free_port(PEER, STRANGER)
GUID = b"\x77" * 16


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("transfer") / "data"
    with Daemon(directory, "--listen", HOST, "--peer-message-port", str(PEER_PORT)) as running:
        with openmsmq.connect(HOST, running.port) as qm:
            qm.create_queue(".\\private$\\plain")
            qm.create_queue(".\\private$\\other")
            qm.create_queue(".\\private$\\tx", transactional=True)
        yield running


@pytest.fixture
def port(daemon: Daemon) -> int:
    return int(daemon.ready["endpoints"]["messages"]["port"])


@pytest.fixture
def qm(daemon: Daemon) -> Iterator[openmsmq.QueueManager]:
    with openmsmq.connect(HOST, daemon.port) as connected:
        for name in ("plain", "other", "tx"):
            with connected.open(f".\\private$\\{name}", "receive") as queue:
                queue.purge()
        yield connected


def taken(qm: openmsmq.QueueManager, name: str, count: int) -> list[bytes]:
    with qm.open(f".\\private$\\{name}", "receive") as queue:
        bodies = [queue.receive(timeout=10).body for _ in range(count)]
        with pytest.raises(openmsmq.ReceiveTimeout):
            queue.receive(timeout=0.3)
    return bodies


_ids = iter(range(1000, 100_000))


def plain(body: bytes = b"body", queue: str = "plain", **values: object) -> Message:
    return Message(GUID, next(_ids), f"TCP:{HOST}\\private$\\{queue}", body, **values)  # type: ignore[arg-type]


def test_t1_the_reply_identifies_the_server_and_whether_it_is_the_intended_one(port: int) -> None:
    with Peer(HOST, port) as peer:
        peer.open()
        own = peer.server
    assert own != NOBODY
    with Peer(HOST, port) as peer:
        peer.open(own)
        assert peer.server == own
    with Peer(HOST, port) as peer:
        peer.write(establish(GUID, b"\x99" * 16, 99))
        answer = peer.read()
        assert answer is not None and answer.kind == ESTABLISH
        assert answer.refused and answer.client == GUID and answer.stamp == 99
        assert peer.is_closed()


def test_t3_timeouts_are_echoed_and_the_window_is_the_acceptors(port: int) -> None:
    with Peer(HOST, port) as peer:
        peer.write(establish(GUID, NOBODY))
        peer.read()
        peer.write(parameters(700, 30_000, 32))
        answer = peer.read()
        assert answer is not None and (answer.recoverable, answer.timeout, answer.window) == (700, 30_000, 512)


@pytest.mark.parametrize(
    "packets",
    [
        [plain().pack()],
        [session_ack(0, 0, 0, 0, 0)],
        [parameters(500, 20_000, 64)],
        [establish(GUID, NOBODY), establish(GUID, NOBODY)],
        [base(0x000B, 20) + struct.pack("<HH", 0, 7)],
        [base(0x000B, 572, version=0x11) + bytes(556)],
        [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
        [base(0x0003, 0xFFFFFFFF)],
        [establish(GUID, NOBODY), parameters(499, 20_000, 64)],
        [establish(NOBODY, NOBODY)],
    ],
    ids=["message", "ack", "parameters", "twice", "type 7", "version", "http", "size", "timeout", "nobody"],
)
def test_t4_unexpected_packets_end_the_connection_without_a_reply(port: int, packets: list[bytes]) -> None:
    with Peer(HOST, port) as peer:
        for index, packet in enumerate(packets):
            peer.write(packet)
            if index < len(packets) - 1:
                assert peer.read() is not None
        assert peer.is_closed()


def test_t9_t10_each_recoverable_packet_gets_exactly_one_bit(port: int, qm: openmsmq.QueueManager) -> None:
    with Peer(HOST, port) as peer:
        peer.open()
        for number in range(40):
            peer.send(plain(b"%d" % number, recoverable=True))
        peer.until(lambda: len(peer.saved) == 40)
        assert sorted(peer.saved) == list(range(1, 41)) and peer.acknowledged == 40
    assert taken(qm, "plain", 40) == [b"%d" % number for number in range(40)]


def test_packets_that_arrive_together_are_read_like_single_ones(port: int, qm: openmsmq.QueueManager) -> None:
    """One write with packets that differ in few fields, in many, and not at all."""
    packets = [plain(b"%d" % number, recoverable=True, label="l" * (number % 5)) for number in range(20)]
    packets += [plain(b"20", recoverable=True, to_be_received=60), plain(b"21", recoverable=True, acknowledge=1)]
    packets += [plain(b"%d" % number, recoverable=True) for number in range(22, 30)]
    packets += [plain(b"other", "missing", recoverable=True), packets[3], packets[20]]
    packets += [plain(b"%d" % number, recoverable=True, correlation=b"c" * 20) for number in range(30, 40)]
    with Peer(HOST, port) as peer:
        peer.open()
        peer.send_all(packets)
        peer.until(lambda: len(peer.saved) == len(packets))
        assert sorted(peer.saved) == list(range(1, len(packets) + 1)) and peer.acknowledged == len(packets)
    with qm.open(".\\private$\\plain", "receive") as queue:
        found = [queue.receive(timeout=10) for _ in range(40)]
        with pytest.raises(openmsmq.ReceiveTimeout):
            queue.receive(timeout=0.3)
    assert [message.body for message in found] == [b"%d" % number for number in range(40)]
    assert [message.label for message in found[:20]] == ["l" * (number % 5) for number in range(20)]
    assert [message.correlation_identifier for message in found[30:]] == [b"c" * 20] * 10
    assert {message.source_machine_identifier for message in found} == {GUID}
    assert [message.id.rpartition("\\")[2] for message in found[:3]] == [f"{each.message_id}" for each in packets[:3]]


def test_express_packets_are_counted(port: int, qm: openmsmq.QueueManager) -> None:
    with Peer(HOST, port) as peer:
        peer.open()
        for _ in range(32):
            peer.send(plain())
        peer.until(lambda: peer.acknowledged == 32)
        assert not peer.saved
    assert len(taken(qm, "plain", 32)) == 32


def test_t12_a_resent_recoverable_packet_is_stored_once_and_acknowledged_twice(
    daemon: Daemon, port: int, qm: openmsmq.QueueManager
) -> None:
    again = plain(b"once", recoverable=True)
    with Peer(HOST, port) as peer:
        peer.open()
        peer.send(again)
        peer.send(again)
        peer.until(lambda: len(peer.saved) == 2)
    daemon.kill()
    daemon.start()
    with Peer(HOST, int(daemon.ready["endpoints"]["messages"]["port"])) as peer:
        peer.open()
        peer.send(again)
        peer.until(lambda: len(peer.saved) == 1)
    with openmsmq.connect(HOST, daemon.port) as again_connected:
        assert taken(again_connected, "plain", 1) == [b"once"]


def test_t13_the_same_number_of_another_source_is_another_message(port: int, qm: openmsmq.QueueManager) -> None:
    one = plain(b"one", recoverable=True)
    other = plain(b"other", recoverable=True)
    other.message_id, other.source = one.message_id, b"\x78" * 16
    with Peer(HOST, port) as peer:
        peer.open()
        peer.send(one)
        peer.send(other)
        peer.until(lambda: len(peer.saved) == 2)
    assert taken(qm, "plain", 2) == [b"one", b"other"]


def test_t14_a_missing_queue_affects_neither_the_session_nor_the_next_message(
    port: int, qm: openmsmq.QueueManager
) -> None:
    with Peer(HOST, port) as peer:
        peer.open()
        peer.send(plain(b"lost", "missing", recoverable=True, acknowledge=0xF, admin=f"TCP:{HOST}\\private$\\other"))
        peer.send(plain(b"good", recoverable=True))
        peer.until(lambda: len(peer.saved) == 2)
    assert taken(qm, "plain", 1) == [b"good"]
    assert taken(qm, "other", 0) == [], "strangers do not learn which queues there are"


def test_t15_transactional_messages_are_taken_once_and_in_order(port: int, qm: openmsmq.QueueManager) -> None:
    stamp = int(time.time())
    with Peer(HOST, port) as peer:
        peer.open()
        for number, previous in ((1, 0), (2, 1), (2, 1), (4, 3), (3, 2), (4, 3)):
            transaction = Transaction(1, stamp, number, previous)
            peer.send(plain(b"%d" % number, "tx", recoverable=True, transaction=transaction))
        peer.until(lambda: len(peer.saved) == 6)
        peer.until(lambda: any(packet.values["class"] == ORDER_ACK for packet in peer.received))
        peer.acknowledge()
        ack = peer.received[-1]
        assert struct.unpack_from("<IIII", ack.body) == (1, stamp, 4, 3) and ack.body[16:] == bytes(20)
        assert ack.label == "QM Ordering Ack" and ack.recoverable == 0 and ack.address == NOBODY
        assert ack.destination.upper().startswith("TCP:127.0.") and ack.destination.lower().endswith(
            "\\private$\\order_queue$"
        )
    assert taken(qm, "tx", 4) == [b"1", b"2", b"3", b"4"]


def test_an_order_acknowledgment_for_a_private_queue_goes_to_the_order_queue_by_its_number(
    port: int, qm: openmsmq.QueueManager
) -> None:
    with Peer(HOST, port, guid=b"\x79" * 16) as peer:
        peer.open()
        (number,) = (int(name.rpartition("\\")[2], 16) for name in [qm.format_name(".\\private$\\tx")])
        message = Message(
            b"\x79" * 16, next(_ids), number, b"m", recoverable=True, address=peer.server,
            transaction=Transaction(1, int(time.time()), 1, 0),
        )  # fmt: skip
        peer.send(message)
        peer.until(lambda: any(packet.values["class"] == ORDER_ACK for packet in peer.received))
        peer.acknowledge()
        assert peer.received[-1].destination == 4 and peer.received[-1].address == b"\x79" * 16
    assert taken(qm, "tx", 1) == [b"m"]


def test_a_final_acknowledgment_reports_the_fate_of_a_message(port: int, qm: openmsmq.QueueManager) -> None:
    stamp = int(time.time())
    with Peer(HOST, port, guid=b"\x7a" * 16) as peer:
        peer.open()
        wanted = Message(
            b"\x7a" * 16, next(_ids), f"TCP:{HOST}\\private$\\tx", b"m", recoverable=True, journal=1,
            transaction=Transaction(1, stamp, 1, 0, final_ack=True),
        )  # fmt: skip
        refused = Message(
            b"\x7a" * 16, next(_ids), f"TCP:{HOST}\\private$\\plain", b"m", recoverable=True,
            transaction=Transaction(1, stamp, 1, 0),
        )  # fmt: skip
        peer.send(wanted)
        peer.send(refused)
        peer.until(lambda: 0x8009 in [packet.values["class"] for packet in peer.received])
        assert taken(qm, "tx", 1) == [b"m"]
        peer.until(lambda: 0x4000 in [packet.values["class"] for packet in peer.received])
        peer.acknowledge()
        final = next(packet for packet in peer.received if packet.values["class"] == 0x4000)
        assert struct.unpack("<IIII16sI", final.body) == (1, stamp, 1, 0, b"\x7a" * 16, wanted.message_id)
        assert final.recoverable == 1


def test_a_peer_that_claims_a_known_identifier_gets_none_of_its_messages(tmp_path: Path) -> None:
    known, other = b"\x21" * 16, "127.0.71.21"
    port = free_port(other, HOST)
    (tmp_path / "routes").write_text(
        f'[[queue_manager]]\nname = "known"\nhost = "{other}"\nidentifier = "{uuid.UUID(bytes_le=known)}"\n'
    )
    options = ("--listen", HOST, "--peer-message-port", str(port), "--routing-file", str(tmp_path / "routes"))
    with Daemon(tmp_path / "data", *options) as daemon, socket.create_server((other, port)) as listener:
        own = int(daemon.ready["endpoints"]["messages"]["port"])
        with Peer(HOST, own, guid=known) as liar, openmsmq.connect(HOST, daemon.port) as manager:
            liar.open()
            with manager.open(f"PRIVATE={uuid.UUID(bytes_le=known)}\\00000010", "send") as queue:
                queue.send("secret")
            listener.settimeout(20)
            accepted, _ = listener.accept()
            with Peer("", 0, guid=known, sock=accepted) as true:
                true.accept(known)
                true.until(lambda: len(true.received) == 1)
            with pytest.raises(TimeoutError):
                liar.read(0.5)


def test_t21_a_message_too_long_in_transit_is_refused_and_one_from_the_future_is_not(
    port: int, qm: openmsmq.QueueManager
) -> None:
    now = int(time.time())
    with Peer(HOST, port) as peer:
        peer.open()
        admin = f"TCP:{HOST}\\private$\\other"
        peer.send(plain(b"late", sent=now - 100, life=50, recoverable=True, acknowledge=4, admin=admin))
        peer.send(plain(b"early", sent=now + 3600, life=50, recoverable=True))
        peer.until(lambda: len(peer.saved) == 2)
    assert taken(qm, "plain", 1) == [b"early"]
    with qm.open(".\\private$\\other", "receive") as queue:
        nack = queue.receive(timeout=10)
        assert nack.message_class == 0x8002 and nack.body == b"late"


def test_t23_an_unproved_sid_grants_no_access_and_an_encrypted_body_is_not_accepted_as_plain(
    port: int, qm: openmsmq.QueueManager
) -> None:
    administrator = bytes.fromhex("01020000000000052000000020020000")
    with Peer(HOST, port) as peer:
        peer.open()
        peer.send(plain(b"claimed", recoverable=True, security=security_with_sid(administrator)))
        sealed = plain(
            b"sealed", recoverable=True, security=security_with_sid(administrator, encrypted=True), privacy=5
        )
        peer.send(sealed)
        peer.until(lambda: len(peer.saved) == 2)
    with qm.open(".\\private$\\plain", "receive") as queue:
        message = queue.receive(timeout=10)
        assert message.body == b"claimed" and message.authentication_level == 0
        with pytest.raises(openmsmq.ReceiveTimeout):
            queue.receive(timeout=0.3)


def test_t25_bytes_may_arrive_one_by_one_or_all_at_once(port: int, qm: openmsmq.QueueManager) -> None:
    with Peer(HOST, port) as peer:
        peer.open()
        first, second = plain(b"1", recoverable=True), plain(b"2", recoverable=True)
        for byte in first.pack():
            peer.write(bytes([byte]))
        peer.sent, peer.sent_recoverable = 3, 3
        peer.write(second.pack() + plain(b"3", recoverable=True).pack())
        peer.until(lambda: len(peer.saved) == 3)
    assert taken(qm, "plain", 3) == [b"1", b"2", b"3"]


def test_wrong_counts_end_the_session_after_the_message(port: int, qm: openmsmq.QueueManager) -> None:
    with Peer(HOST, port) as peer:
        peer.open()
        wrong = struct.pack("<HHIHHHH", 0, 0, 0, 9, 9, 64, 0)
        peer.write(plain(b"kept", recoverable=True).pack(wrong))
        assert peer.is_closed()
    assert taken(qm, "plain", 1) == [b"kept"]


def test_frame_7_of_section_4_is_read_up_to_its_truncation(port: int, qm: openmsmq.QueueManager) -> None:
    """The headers are as printed in section 4.1.7; the body has the stated length, and the message has not expired."""
    qm.create_queue(".\\private$\\frame7")
    sid = bytes.fromhex("010500000000000515000000") + bytes(16)
    frame = Message(
        bytes.fromhex("11ea26c6b6e649979595915055735 8d1".replace(" ", "")), 2286, "OS:a04bm02\\private$\\frame7",
        b"b" * 2000, security=security_with_sid(sid), acknowledge=0xF,
    )  # fmt: skip
    with Peer(HOST, port) as peer:
        peer.open()
        peer.send(frame)
        peer.send(plain(recoverable=True))
        peer.until(lambda: len(peer.saved) == 1)
    with qm.open(".\\private$\\frame7", "receive") as queue:
        message = queue.receive(timeout=10)
        assert message.body == b"b" * 2000 and message.id.endswith("\\2286")


def test_the_daemons_packets_conform_to_the_specification(qm: openmsmq.QueueManager) -> None:
    """The daemon is the acceptor; messages have every possible header, and the checker reads each packet."""
    with socket.create_server((PEER, PEER_PORT)) as listener:
        with qm.open("DIRECT=TCP:127.0.71.9\\private$\\there", "send") as queue:
            queue.send("express", label="l", priority=5, application_tag=9)
            queue.send("recoverable", recoverable=True, label="x" * 249)
            with qm.transaction() as transaction:
                queue.send("1", transaction=transaction)
                queue.send("2", transaction=transaction)
        listener.settimeout(20)
        accepted, _ = listener.accept()
        with Peer("", 0, sock=accepted) as peer:
            peer.accept()
            peer.until(lambda: len(peer.received) >= 4)
            assert [packet.recoverable for packet in peer.received] == [0, 1, 1, 1]
            assert {packet.destination for packet in peer.received} == {"TCP:127.0.71.9\\private$\\there"}
            numbers = [packet.transaction.number for packet in peer.received[2:]]
            assert numbers == [1, 2] and [p.transaction.previous for p in peer.received[2:]] == [0, 1]
            peer.acknowledge()
            sequence = peer.received[2].transaction
            body = struct.pack("<IIII20x", sequence.ordinal, sequence.stamp, 2, 1)
            ack = Message(GUID, 1, 4, body, "QM Ordering Ack", address=peer.received[2].source, message_class=ORDER_ACK)
            peer.send(ack)
            eventually_empty(qm)


def test_messages_that_leave_together_conform_to_the_specification(qm: openmsmq.QueueManager) -> None:
    labels = ["", "label", "größe", "日本語", "😀", "x" * 249]
    with socket.create_server((PEER, PEER_PORT)) as listener:
        with qm.open("DIRECT=TCP:127.0.71.9\\private$\\many", "send") as queue:
            for number in range(30):
                queue.send(b"b" * number, label=labels[number % 6], recoverable=True, application_tag=number)
        listener.settimeout(20)
        accepted, _ = listener.accept()
        with Peer("", 0, sock=accepted) as peer:
            peer.accept()
            peer.until(lambda: len(peer.received) >= 30)
            assert [packet.body for packet in peer.received] == [b"b" * number for number in range(30)]
            assert [packet.label for packet in peer.received] == [labels[number % 6] for number in range(30)]
            assert {packet.destination for packet in peer.received} == {"TCP:127.0.71.9\\private$\\many"}
            identifiers = [packet.message_id for packet in peer.received]
            assert identifiers == sorted(set(identifiers)) and all(packet.recoverable for packet in peer.received)
            peer.acknowledge()
            eventually_empty(qm)


def test_messages_expire_while_their_queue_manager_is_away(qm: openmsmq.QueueManager) -> None:
    with qm.open("DIRECT=TCP:127.0.71.99\\private$\\away", "send") as queue:
        for recoverable in (True, False, True):
            queue.send("late", recoverable=recoverable, time_to_reach_queue=1)
        queue.send("kept", recoverable=True)
    end = time.monotonic() + 10
    while (counts := [row["message_count"] for row in qm.outgoing() if "71.99" in str(row["format_name"])]) != [1]:
        assert time.monotonic() < end, counts
        time.sleep(0.05)


def eventually_empty(qm: openmsmq.QueueManager, host: str = "71.9") -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if not any(row["message_count"] for row in qm.outgoing() if host in str(row["format_name"])):
            return
        time.sleep(0.05)
    raise AssertionError(list(qm.outgoing()))


def test_t2_a_wrong_or_refusing_peer_is_disconnected_and_retried_after_five_seconds(
    qm: openmsmq.QueueManager,
) -> None:
    answers = [
        lambda request: establish(b"\x11" * 16, GUID, request.stamp),
        lambda request: establish(request.client, GUID, request.stamp, refused=True),
    ]
    with socket.create_server((STRANGER, PEER_PORT)) as listener:
        listener.settimeout(20)
        with qm.open("DIRECT=TCP:127.0.71.10\\private$\\there", "send") as queue:
            queue.send("m", recoverable=True)
        for answer in answers:
            accepted, _ = listener.accept()
            with Peer("", 0, sock=accepted) as peer:
                request = peer.read()
                assert request is not None and request.kind == ESTABLISH
                peer.write(answer(request))
                assert peer.is_closed(), "no ConnectionParameters"
            began = time.monotonic()
        accepted, _ = listener.accept()
        assert 4.5 < time.monotonic() - began < 8
        with Peer("", 0, sock=accepted) as peer:
            peer.accept()
            peer.until(lambda: len(peer.received) == 1)
            peer.acknowledge()
            eventually_empty(qm, "71.10")
