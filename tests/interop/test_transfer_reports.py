"""Traced messages, as received by a peer written from the documents alone."""

from __future__ import annotations

import re
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import openmsmq
from daemon import Daemon, free_port
from interop.mqqb_peer import Message, Peer
from openmsmq.com import Dispatch

HOST, ELSEWHERE = "127.0.76.1", "127.0.76.9"
PORT = str(free_port(HOST, ELSEWHERE))
GUID = bytes(range(16))
REPORT = 1  # MessageClass


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


def serve(directory: Path, *options: str) -> Daemon:
    return Daemon(
        directory / "data", "--listen", HOST, "--computer-name", "HERE", "--message-port", PORT,
        "--peer-message-port", PORT, "--report-messages", *options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def queue(directory: Path) -> uuid.UUID:
    """Create the report queue, which must exist before sent messages can name it."""
    with serve(directory) as daemon:
        info = Dispatch("MSMQ.MSMQQueueInfo", host=HOST, port=daemon.mapper_port)
        info.PathName = "HERE\\reports"
        info.Create()
        return uuid.UUID(info.FormatName.partition("=")[2])


@pytest.fixture(scope="module")
def qm(directory: Path, queue: uuid.UUID) -> Iterator[openmsmq.QueueManager]:
    with serve(directory, "--report-queue", f"PUBLIC={queue}") as daemon, openmsmq.connect(HOST, daemon.port) as qm:
        qm.create_queue(".\\private$\\plain")
        yield qm


def reports(qm: openmsmq.QueueManager, queue: uuid.UUID, count: int) -> list[openmsmq.Message]:
    with qm.open(f"PUBLIC={queue}", "receive") as opened:
        found = [opened.receive(timeout=20) for _ in range(count)]
        with pytest.raises(openmsmq.ReceiveTimeout):
            opened.receive(timeout=0.5)
    assert {message.message_class for message in found} == {REPORT}
    return found


def check_label(text: str, source: bytes, number: int, hops: int) -> None:
    """Check the grammar of 3.1.5.8.9; the time is that of the test."""
    guid = str(uuid.UUID(bytes_le=source)).upper()
    head, _, moment = text.partition(" at ")
    assert head == f"{guid[:4]}:{number:08X}:{hops:02X} received by {guid}"
    assert re.fullmatch(r"\d\d:\d\d:\d\d (AM|PM) [A-Z][a-z]{2},[A-Z][a-z]{2} \d\d \d\d", moment)
    at = time.strptime(moment, "%I:%M:%S %p %a,%b %d %y")
    assert abs(time.time() - (time.mktime(at) - time.timezone)) < 900


def test_a_traced_message_that_arrives_is_reported(qm: openmsmq.QueueManager, queue: uuid.UUID) -> None:
    with Peer(HOST, int(PORT), guid=GUID) as peer:
        peer.open()
        values = {"recoverable": True, "hops": 2, "report_queue": queue.bytes_le}
        name = f"TCP:{HOST}\\private$\\plain"
        for number, more in ((0xBEEF, {}), (0xBEF0, {"message_class": REPORT}), (0xBEF1, {"report_queue": b""})):
            peer.send(Message(GUID, number, name, **{**values, **more}))  # type: ignore[arg-type]
        peer.until(lambda: len(peer.saved) == 3)
    (report,) = reports(qm, queue, 1)
    check_label(report.label, GUID, 0xBEEF, 2)
    text = f"<MESSAGE ID>0000BEEF</MESSAGE ID>\r\n<TARGET QUEUE>DIRECT={name}</TARGET QUEUE>\r\n"
    assert report.body == text.encode("utf-16-le")


def test_a_traced_message_that_leaves_names_the_report_queue_and_is_reported(
    qm: openmsmq.QueueManager, queue: uuid.UUID
) -> None:
    name = f"DIRECT=TCP:{ELSEWHERE}\\private$\\there"
    with socket.create_server((ELSEWHERE, int(PORT))) as listener:
        with qm.open(name, "send") as opened:
            opened.send("traced", recoverable=True, tracing_requested=1)
            opened.send("not traced", recoverable=True)
        listener.settimeout(20)
        accepted, _ = listener.accept()
        with Peer("", 0, guid=GUID, sock=accepted) as peer:
            peer.accept()
            peer.until(lambda: len(peer.received) == 2)
            traced, plain = peer.received
            assert (traced.traced, traced.report_queue) == (True, queue.bytes_le)
            assert not plain.traced and "report_queue" not in plain.values
            (report,) = reports(qm, queue, 1)
            check_label(report.label, traced.source, traced.message_id, 0)
            assert report.body.decode("utf-16-le") == (
                f"<MESSAGE ID>{traced.message_id:08X}</MESSAGE ID>\r\n<TARGET QUEUE>{name}</TARGET QUEUE>\r\n"
                f"<NEXT HOP>{ELSEWHERE}</NEXT HOP>\r\n<HOP COUNT>00 </HOP COUNT>\r\n"
            )
            peer.acknowledge()


def test_the_directory_locates_a_report_queue_of_another_machine(tmp_path: Path) -> None:
    """Both machines report to a queue on one of them, to which the other one has never sent a message."""
    hosts = ("127.0.76.11", "127.0.76.12")
    port = str(free_port(*hosts))
    common = (
        "--message-port", port, "--peer-message-port", port, "--directory-path", str(tmp_path / "directory"),
        "--peers", f"ALPHA={hosts[0]},BETA={hosts[1]}", "--report-messages",
    )  # fmt: skip
    beta = Daemon(tmp_path / "beta", "--listen", hosts[1], "--computer-name", "BETA", *common)
    with beta, openmsmq.connect(hosts[1], beta.port) as far:
        info = Dispatch("MSMQ.MSMQQueueInfo", host=hosts[1], port=beta.mapper_port)
        info.PathName = "BETA\\reports"
        info.Create()
        named = ("--report-queue", info.FormatName)
        far.create_queue(".\\private$\\plain")
        alpha = Daemon(tmp_path / "alpha", "--listen", hosts[0], "--computer-name", "ALPHA", *common, *named)
        with alpha, openmsmq.connect(hosts[0], alpha.port) as near:
            with near.open(f"DIRECT=TCP:{hosts[1]}\\private$\\plain", "send") as queue:
                queue.send("traced", recoverable=True, tracing_requested=1)
            found = reports(far, uuid.UUID(info.FormatName.partition("=")[2]), 2)
            assert len({report.label.partition(" at ")[0] for report in found}) == 1
            assert sorted("<NEXT HOP>" in report.body.decode("utf-16-le") for report in found) == [False, True]
            assert len({report.source_machine_identifier for report in found}) == 2
