"""Queues move from one queue manager to another, and back: nothing is lost, nothing is there twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon import Daemon, eventually
from interop.moving import Move, connect, moving
from openmsmq.model.message import Message

PLAIN, ORDERED = r".\private$\plain", r".\private$\ordered"


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Move]:
    with moving(tmp_path_factory.mktemp("moving"), 91) as move:
        yield move


def create(move: Move, name: str, **properties: Any) -> None:
    for daemon in (move.old, move.new):
        with connect(daemon) as manager:
            manager.create_queue(name, **properties)


def send(daemon: Daemon, queue: str, *bodies: str, **properties: Any) -> None:
    with connect(daemon) as manager, manager.open(queue, "send") as opened:
        for body in bodies:
            if properties.get("transactional"):
                with manager.transaction() as transaction:
                    opened.send(body, label=body, transaction=transaction)
            else:
                opened.send(body, label=body, **properties)


def messages(daemon: Daemon, queue: str) -> list[Message]:
    with connect(daemon) as manager, manager.open(queue, "peek") as opened:
        return list(opened)


def bodies(daemon: Daemon, queue: str) -> list[Any]:
    return [message.decode() for message in messages(daemon, queue)]


def test_messages_come_with_identity_and_order_and_go_on_coming(machines: Move) -> None:
    move, queue = machines, r".\private$\identity"
    create(move, queue)
    send(move.old, queue, "a", "b", recoverable=True, priority=2, correlation_identifier=b"c" * 20)
    send(move.old, queue, "first", priority=6, extension=b"more", application_tag=7)
    before = messages(move.old, queue)
    move.done("adopt", "shadow", "identity", "--from", "old")
    move.when("identity", moved=3, empty_since=True)
    after = messages(move.new, queue)
    for there, here in zip(before, after, strict=True):
        for name in (
            "id", "body", "label", "priority", "sent_time", "arrival_time", "correlation_identifier", "extension",
            "application_tag", "delivery_guarantee", "abort_count", "source_machine_identifier",
        ):
            assert getattr(here, name) == getattr(there, name), name
    assert messages(move.old, queue) == []
    send(move.old, queue, "late", recoverable=True, priority=1)
    eventually(lambda: bodies(move.new, queue) == ["first", "a", "b", "late"])
    assert move.status("identity")["state"] == "shadow"


def test_a_queue_moves_and_moves_back(machines: Move) -> None:
    move, queue = machines, r".\private$\there"
    create(move, queue, transactional=True)
    numbers = [str(number) for number in range(100)]
    send(move.old, queue, *numbers, transactional=True)
    move.done("adopt", "shadow", "there", "--from", "old")
    assert move.run("adopt", "done", "there").code == 1
    move.when("there", moved=100, empty_since=True)
    assert bodies(move.new, queue) == numbers
    move.done("adopt", "switch", "there")
    send(move.new, queue, "at the new one", transactional=True)
    move.when("there", state="switched", empty_since=True)
    move.done("adopt", "done", "there")
    assert move.status("there")["state"] == "done"
    move.done("adopt", "back", "there")
    move.when("there", state="returning", empty_since=True)
    assert (bodies(move.new, queue), bodies(move.old, queue)) == ([], [*numbers, "at the new one"])
    move.done("adopt", "done", "there")
    move.done("adopt", "forget", "there")
    assert move.run("adopt", "status", "there").code == 3
