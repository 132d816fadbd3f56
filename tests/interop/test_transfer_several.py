"""Multiple-element format names and distribution lists (T22), as received by a peer written from the documents
alone."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import openmsmq
from command_line import checked, machines_in
from daemon import Daemon, eventually, free_port
from interop.mqqb_peer import Message, Packet, Peer
from openmsmq.com import Dispatch

HOST, THERE = "127.0.80.1", "127.0.80.2"
PORT = free_port(HOST, THERE)
GUID = b"\x77" * 16
HERE = f"DIRECT=TCP:{HOST}\\private$\\plain"
ONE, TWO = (f"DIRECT=TCP:{THERE}\\private$\\{name}" for name in ("one", "two"))
ADMIN = f"DIRECT=TCP:{HOST}\\private$\\admin"
RECEIVED = 0x4000  # MessageClass
ALL = 14  # MQMSG_ACKNOWLEDGMENT_FULL_RECEIVE


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("several")


@pytest.fixture(scope="module")
def daemon(directory: Path) -> Iterator[Daemon]:
    with Daemon(
        directory / "data", "--listen", HOST, "--computer-name", "HERE", "--message-port", str(PORT),
        "--peer-message-port", str(PORT),
    ) as running:  # fmt: skip
        with openmsmq.connect(HOST, running.port) as qm:
            for name in ("plain", "admin", "tx"):
                qm.create_queue(f".\\private$\\{name}", transactional=name == "tx")
        yield running


@pytest.fixture
def qm(daemon: Daemon) -> Iterator[openmsmq.QueueManager]:
    with openmsmq.connect(HOST, daemon.port) as connected:
        for name in ("plain", "admin", "tx"):
            with connected.open(f".\\private$\\{name}", "receive") as queue:
                queue.purge()
        yield connected


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((THERE, PORT)) as listening:
        listening.settimeout(20)
        yield listening


def identifier_of(packet: Packet) -> bytes:
    return bytes(packet.source + struct.pack("<I", packet.message_id))


def distribution_list(directory: Path) -> str:
    given = ("--data-dir", str(directory / "data"))
    eventually(lambda: machines_in(*given))
    return checked("directory", *given, "lists", "create", "three", ONE, TWO, HERE).strip()


class Applications:
    """A sender to several queues: it uses automation objects, since MS-MQMP has no such names."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def new(self, name: str) -> Any:
        return Dispatch(f"MSMQ.MSMQ{name}", host=HOST, port=self._daemon.mapper_port)

    def send(self, name: str, bodies: list[str], *, transactional: bool = False) -> None:
        """Send to a format name and request an acknowledgment of each receipt."""
        destination, admin = self.new("Destination"), self.new("QueueInfo")
        destination.FormatName, admin.FormatName = name, ADMIN
        unit = self.new("TransactionDispenser").BeginTransaction() if transactional else None
        for body in bodies:
            message = self.new("Message")
            message.Body, message.Delivery, message.Ack, message.AdminQueueInfo = body, 1, ALL, admin
            message.Send(destination, unit) if unit is not None else message.Send(destination)
        if unit is not None:
            unit.Commit()


@pytest.fixture
def applications(daemon: Daemon) -> Applications:
    return Applications(daemon)


@pytest.mark.parametrize("by_list", [False, True], ids=["elements", "distribution list"])
def test_t22_three_elements_are_three_messages_with_three_sets_of_acknowledgments(
    qm: openmsmq.QueueManager, applications: Applications, directory: Path, listener: socket.socket, by_list: bool
) -> None:
    name = distribution_list(directory) if by_list else ",".join((ONE, HERE, TWO))
    applications.send(name, ["to all"])
    with qm.open(".\\private$\\plain", "receive") as queue:
        local = queue.receive(timeout=10)
    assert local.destination_queue_format_name == HERE
    accepted, _ = listener.accept()
    with Peer("", 0, guid=GUID, sock=accepted) as peer:
        peer.accept()
        peer.until(lambda: len(peer.received) == 2)
        away = sorted(peer.received, key=lambda packet: str(packet.destination))
        everything = sorted(text.removeprefix("DIRECT=") for text in (ONE, TWO, HERE))
        assert [f"DIRECT={packet.destination}" for packet in away] == [ONE, TWO]
        assert [sorted(packet.destinations) for packet in away] == [everything] * 2
        assert not by_list or all(packet.destinations == everything for packet in away), "as the list was expanded"
        assert by_list or [f"DIRECT={text}" for text in away[0].destinations] == name.split(",")
        assert {packet.body.decode("utf-16-le") for packet in away} == {"to all"}
        identifiers = {*map(identifier_of, away), local.identifier}
        assert len(identifiers) == 3
        for packet in away:
            assert packet.admin == ADMIN.removeprefix("DIRECT=") and packet.acknowledge == ALL
            ack = Message(
                GUID, packet.message_id, packet.admin, b"", message_class=RECEIVED, correlation=identifier_of(packet)
            )
            peer.send(ack)
        peer.acknowledge()
        eventually(lambda: qm.management(".\\private$\\admin")["message_count"] == 3, 20)
    with qm.open(".\\private$\\admin", "receive") as queue:
        told = [queue.receive(timeout=1) for _ in range(3)]
    assert {ack.message_class for ack in told} == {RECEIVED}
    assert {ack.correlation_identifier for ack in told} == identifiers
    (own,) = [ack for ack in told if ack.correlation_identifier == local.identifier]
    assert own.response_queue_format_name == HERE


def test_a_transaction_to_several_queues_has_a_sequence_for_each(
    qm: openmsmq.QueueManager, applications: Applications, listener: socket.socket
) -> None:
    name = f"{ONE},DIRECT=OS:.\\private$\\tx,{TWO}"
    applications.send(name, ["1", "2"], transactional=True)
    accepted, _ = listener.accept()
    with Peer("", 0, guid=GUID, sock=accepted) as peer:
        peer.accept()
        peer.until(lambda: len(peer.received) == 4)
        peer.acknowledge()
        for destination in (ONE, TWO):
            mine = [packet for packet in peer.received if f"DIRECT={packet.destination}" == destination]
            assert [packet.body.decode("utf-16-le") for packet in mine] == ["1", "2"]
            assert [packet.transaction.number for packet in mine] == [1, 2]
            listed = [ONE, "DIRECT=OS:HERE\\private$\\tx", TWO]
            assert [f"DIRECT={text}" for text in mine[0].destinations] == listed, "`.` would be another machine there"
        assert len({(p.transaction.stamp, p.transaction.ordinal) for p in peer.received}) == 2
    with qm.open(".\\private$\\tx", "receive") as queue:
        assert [queue.receive(timeout=10).decode() for _ in range(2)] == ["1", "2"]


def test_a_packet_is_for_its_own_destination_at_any_position_in_the_list(qm: openmsmq.QueueManager) -> None:
    names = (f"TCP:{THERE}\\private$\\one", f"TCP:{HOST}\\private$\\admin", f"TCP:{HOST}\\private$\\plain")
    with Peer(HOST, PORT, guid=b"\x79" * 16) as peer:
        peer.open()
        for number, name in enumerate(names[1:], 1):
            peer.send(Message(peer.guid, number, name, b"%d" % number, recoverable=True, several=names))
        peer.until(lambda: len(peer.saved) == 2)
    for number, name in ((1, "admin"), (2, "plain")):
        with qm.open(f".\\private$\\{name}", "receive") as queue:
            message = queue.receive(timeout=10)
            assert message.body == b"%d" % number
            assert message.destination_queue_format_name == f"DIRECT=TCP:{HOST}\\private$\\{name}"
            with pytest.raises(openmsmq.ReceiveTimeout):
                queue.receive(timeout=0.2)
