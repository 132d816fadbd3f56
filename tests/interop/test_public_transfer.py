"""Two queue managers that share a directory: messages for each other's public queues are delivered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openmsmq
from command_line import machines_in
from daemon import Daemon, eventually, free_port
from openmsmq.com import Dispatch
from openmsmq.model.constants import MessageClass

HOSTS = ("127.0.75.1", "127.0.75.2")


@contextmanager
def two_machines(directory: Path) -> Iterator[tuple[Daemon, Daemon, Any, Any]]:
    """Yield the queue managers ALPHA and BETA, and a client of each, once both are in the directory."""
    port = str(free_port(*HOSTS))
    shared = ("--directory-path", str(directory / "directory"))
    common = ("--message-port", port, "--peer-message-port", port, *shared)
    peers = ("--peers", f"ALPHA={HOSTS[0]},BETA={HOSTS[1]}")
    alpha = Daemon(directory / "alpha", "--listen", HOSTS[0], "--computer-name", "ALPHA", *common, *peers)
    beta = Daemon(directory / "beta", "--listen", HOSTS[1], "--computer-name", "BETA", *common, *peers)
    with alpha, beta, openmsmq.connect(HOSTS[0], alpha.port) as near, openmsmq.connect(HOSTS[1], beta.port) as far:
        eventually(lambda: all(name in machines_in(*shared) for name in ("ALPHA", "BETA")))
        yield alpha, beta, near, far


def created(path_name: str, host: str, port: int, is_transactional: bool = False) -> str:
    """Create a public queue through the automation objects of a machine. Returns its format name."""
    info = Dispatch("MSMQ.MSMQQueueInfo", host=host, port=port)
    info.PathName = path_name
    info.Create(is_transactional)
    return str(info.FormatName)


def test_a_public_queue_of_another_machine_gets_its_messages_and_their_acknowledgments(tmp_path: Path) -> None:
    with two_machines(tmp_path) as (_, beta, near, far):
        name = created("BETA\\orders", HOSTS[1], beta.mapper_port)
        assert name.startswith("PUBLIC=")
        near.create_queue(".\\private$\\admin")
        with near.open(name, "send") as queue:
            queue.send(
                "hello", recoverable=True, acknowledgements_requested=3,
                administration_queue_format_name=f"DIRECT=TCP:{HOSTS[0]}\\private$\\admin",
            )  # fmt: skip
        with far.open(name, "receive") as queue:
            message = queue.receive(timeout=20)
            assert message.decode() == "hello" and message.destination_queue_format_name.lower() == name.lower()

        def acknowledged() -> bool:
            return int(near.management(".\\private$\\admin")["message_count"]) == 2

        eventually(acknowledged, 30)


def test_messages_for_a_queue_that_was_just_created_on_another_machine_arrive(tmp_path: Path) -> None:
    with two_machines(tmp_path) as (alpha, _, near, far):
        for name, is_transactional in (("express", False), ("transactional", True)):
            format_name = created(f"BETA\\{name}", HOSTS[0], alpha.mapper_port, is_transactional)
            for address in (format_name, f"DIRECT=OS:BETA\\{name}"):
                with near.open(address, "send") as queue:
                    if is_transactional:
                        with near.transaction() as transaction:
                            queue.send_many(["a", "b"], transaction=transaction)
                    else:
                        queue.send_many(["a", "b"])
            with far.open(f"DIRECT=OS:.\\{name}", "receive") as queue:
                received = [queue.receive(timeout=20).decode() for _ in range(4)]
            assert sorted(received) == ["a", "a", "b", "b"]


def test_acknowledgments_arrive_in_public_queues_that_the_other_machine_has_never_opened(tmp_path: Path) -> None:
    with two_machines(tmp_path) as (alpha, beta, near, far):
        far.create_queue(".\\private$\\in")
        here, there = (created(f"{name}\\acks", HOSTS[0], alpha.mapper_port) for name in ("ALPHA", "BETA"))
        with near.open("DIRECT=OS:BETA\\private$\\in", "send") as queue:
            for name in (here, there):
                queue.send("hello", recoverable=True, acknowledgements_requested=3,
                           administration_queue_format_name=name)  # fmt: skip
        with near.open(here) as queue:
            assert queue.receive(timeout=20).message_class == MessageClass.ACK_REACH_QUEUE
        with far.open(there) as queue:
            assert queue.receive(timeout=20).message_class == MessageClass.ACK_REACH_QUEUE
        beta.kill()
        beta.start()
        with openmsmq.connect(HOSTS[1], beta.port) as far, far.open(".\\private$\\in") as queue:
            assert [queue.receive(timeout=5).decode() for _ in range(2)] == ["hello", "hello"]
        with near.open(here) as queue:
            assert queue.receive(timeout=20).message_class == MessageClass.ACK_RECEIVE
