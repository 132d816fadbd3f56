"""All bytes that two queue managers exchange on loopback are packets that conform to the specifications."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import openmsmq
from command_line import add_user, checked
from daemon import Daemon, eventually, free_port
from interop.watching_proxy import WatchingProxy
from openmsmq.com import Dispatch, close_all
from openmsmq.queueing.registry import FIRST_QUEUE_NUMBER
from packets.checker import Kind
from packets.conversation import Watch

HOSTS = ["127.0.88.1", "127.0.88.2"]
ALPHA = f"DIRECT=TCP:{HOSTS[0]}\\private$\\"
BETA = f"DIRECT=TCP:{HOSTS[1]}\\private$\\"
LARGEST = (4 << 20) - (64 << 10)  # bytes of a body
FULL_RECEIVE = 14  # MQMSG_ACKNOWLEDGMENT_FULL_RECEIVE


class WatchedPair:
    """ALPHA sends to BETA through a proxy, through which acknowledgments return."""

    def __init__(self, directory: Path, watch: Watch) -> None:
        self.watch = watch
        port, proxied = free_port(*HOSTS), free_port(*HOSTS)
        common = (
            "--message-port", str(port), "--peer-message-port", str(proxied),
            "--directory-path", str(directory / "directory"),
        )  # fmt: skip
        peers = ("--peers", f"ALPHA={HOSTS[0]},BETA={HOSTS[1]}")
        add_user(directory / "alpha", "alice", "secret")
        self.alpha, self.beta = (
            Daemon(directory / name.lower(), "--listen", host, "--computer-name", name, *common, *peers, *more)
            for name, host, more in (
                ("ALPHA", HOSTS[0], ("--report-queue", f"PUBLIC={uuid.UUID(int=5)}")),
                ("BETA", HOSTS[1], ()),
            )
        )
        self.sealed: list[str] = []  # format names of a queue manager whose key is known
        self.proxy = WatchingProxy(HOSTS, proxied, port, watch)

    def connect(self, index: int) -> openmsmq.QueueManager:
        return openmsmq.connect(HOSTS[index], (self.alpha, self.beta)[index].port)

    def new(self, name: str) -> Any:
        """Create an automation object of ALPHA."""
        return Dispatch(f"MSMQ.MSMQ{name}", HOSTS[0], self.alpha.mapper_port, user="alice", password="secret")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedPair]:
    made = WatchedPair(tmp_path_factory.mktemp("watched"), Watch())
    with made.proxy, made.alpha, made.beta:
        with made.connect(0) as alpha, made.connect(1) as beta:
            alpha.create_queue(".\\private$\\admin")
            made.sealed.append(f"PRIVATE={beta.machine_id}\\{FIRST_QUEUE_NUMBER:08x}")
            for name in ("sealed", "plain", "other"):
                beta.create_queue(f".\\private$\\{name}")
            info = Dispatch("MSMQ.MSMQQueueInfo", host=HOSTS[1], port=made.beta.mapper_port)
            info.PathName = "BETA\\public"
            info.Create()
            made.sealed.append(info.FormatName)
            beta.create_queue(".\\private$\\tx", transactional=True)
            beta.create_queue(".\\private$\\signed", authenticate=True)
            keys = str(made.beta.directory.with_name("keys"))
            checked("keys", "--data-dir", str(made.beta.directory), "export", keys)
            checked("keys", "--data-dir", str(made.alpha.directory), "register", str(beta.machine_id), keys)
        yield made


@pytest.fixture
def kinds(watched: WatchedPair) -> Iterator[dict[Kind, int]]:
    """Return the number of packets of each kind in a test; none broke a rule."""
    watched.watch.seen.clear()
    yield watched.watch.seen
    watched.watch.hold()


def take(qm: openmsmq.QueueManager, name: str, count: int) -> list[openmsmq.Message]:
    with qm.open(f".\\private$\\{name}", "receive") as queue:
        return [queue.receive(timeout=20) for _ in range(count)]


def test_express_and_recoverable_messages_of_all_sizes_and_properties(
    watched: WatchedPair, kinds: dict[Kind, int]
) -> None:
    sizes = [0, 1, 2, 3, 4, 1000, 70_001, LARGEST]
    with watched.connect(0) as alpha, watched.connect(1) as beta, alpha.open(BETA + "plain", "send") as queue:
        for number, size in enumerate(sizes):
            queue.send(
                bytes(size), label="x" * number * 35, recoverable=bool(number % 2), extension=bytes(number),
                priority=number % 8, correlation_identifier=bytes([number]) * 20, application_tag=number,
                response_queue_format_name=["", ALPHA + "admin", BETA + "other"][number % 3],
                time_to_be_received=[0xFFFFFFFF, 500][number % 2],
            )  # fmt: skip
        bodies = sorted(len(message.body) for message in take(beta, "plain", len(sizes)))
    assert bodies == sizes and kinds[Kind.USER_MESSAGE] >= len(sizes)
    eventually(lambda: kinds[Kind.SESSION_ACK])


def test_transactions_with_acknowledgments_and_journals(watched: WatchedPair, kinds: dict[Kind, int]) -> None:
    values: dict[str, Any] = {
        "acknowledgements_requested": FULL_RECEIVE, "administration_queue_format_name": ALPHA + "admin",
    }  # fmt: skip
    with watched.connect(0) as alpha, watched.connect(1) as beta:
        with alpha.open(BETA + "tx", "send") as queue:
            for journaling in range(4):
                with alpha.transaction() as transaction:
                    for number in range(3):
                        message = openmsmq.Message(
                            b"body", label=str(number), journaling_requested=journaling, **values
                        )
                        queue.send(message, transaction=transaction)
        with alpha.open(BETA + "plain", "send") as queue:
            queue.send(openmsmq.Message(b"body", time_to_be_received=1, **values))
        for name in ("missing", "plain"):  # a missing queue, and one that is not transactional
            with alpha.open(BETA + name, "send") as queue, alpha.transaction() as transaction:
                queue.send(openmsmq.Message(b"body", journaling_requested=3, **values), transaction=transaction)
        take(beta, "tx", 12)
        take(alpha, "admin", 12)
    eventually(lambda: kinds[Kind.ORDER_ACK] and kinds[Kind.FINAL_ACK])


def test_signed_encrypted_and_traced_messages_and_several_destinations(
    watched: WatchedPair, kinds: dict[Kind, int]
) -> None:
    try:
        watched.new("Application").RegisterCertificate()
        for name, values in (
            (BETA + "signed", {"AuthLevel": 8, "Body": "signed"}),
            (BETA + "signed", {"AuthLevel": 8, "Body": "", "Delivery": 1}),
            (f"{BETA}plain,{BETA}other,{ALPHA}admin", {"Body": "to several"}),
        ):
            destination, message = watched.new("Destination"), watched.new("Message")
            destination.FormatName = name
            for key, value in values.items():
                setattr(message, key, value)
            message.Send(destination)
    finally:
        close_all()
    with watched.connect(0) as alpha:
        with alpha.open(BETA + "plain", "send") as queue:
            queue.send("traced", tracing_requested=1)
        for name in watched.sealed:
            with alpha.open(name, "send") as queue:
                for recoverable in (False, True):
                    queue.send("sealed", privacy_level=5, encryption_algorithm=0x6610, recoverable=recoverable)
    with watched.connect(1) as beta:
        assert {one.authentication_level > 0 for one in take(beta, "signed", 2)} == {True}
        for name in watched.sealed:
            with beta.open(name, "receive") as queue:
                found = [queue.receive(timeout=20) for _ in range(2)]
            assert [(one.privacy_level, one.decode()) for one in found] == [(5, "sealed")] * 2
        take(beta, "plain", 2)
        take(beta, "other", 1)
    assert kinds[Kind.USER_MESSAGE] >= 7
    assert {"SecurityHeader", "MultiQueueFormatHeader", "DebugHeader"} <= watched.watch.headers
