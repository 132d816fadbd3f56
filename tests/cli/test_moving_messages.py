"""Commands that move messages: one at a time on a file, and not to where they may vanish."""

from __future__ import annotations

import fcntl
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from command_line import at, invoke
from daemon import Daemon, eventually
from openmsmq.admin.message_json import from_json, to_json
from openmsmq.cli import selecting
from openmsmq.client.dead_letters import Forwarding
from openmsmq.client.sync import MessageQueue
from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import RpcConnectionError
from openmsmq.model.message import Message

Run = Callable[..., str]
ELSEWHERE = "DIRECT=OS:elsewhere\\private$\\q"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("moving") / "data") as running:
        yield running


@pytest.fixture
def run(service: Daemon, tmp_path: Path) -> Run:
    def call(*arguments: str, code: int = 0) -> str:
        ended = invoke(*arguments, directory=tmp_path, **at(service))
        assert ended.code == code, (arguments, *ended)
        return ended.stdout if code == 0 else ended.stderr

    return call


@pytest.mark.parametrize("options", [(), ("--transactional",)])
def test_messages_are_not_moved_to_another_machine_that_may_refuse_them(run: Run, options: tuple[str, ...]) -> None:
    name = f"far{len(options)}"
    run("queue", "create", name, *options)
    run("send", name, "kept", *["--transaction" for _ in options])
    for attempt in (("copy", "--move", name, ELSEWHERE), ("msg", "move", name, "--to-queue", ELSEWHERE, "--all")):
        said = run(*attempt, code=1)
        assert "is on another machine, which may refuse messages" in said and "openmsmq forward to" in said
    assert len(run("peek", name, "--json").splitlines()) == 1
    assert "moved 1 message" in run("copy", "--move", name, ELSEWHERE, "--transaction")
    assert run("peek", name, "--json") == ""


def test_messages_are_moved_between_queues_of_this_machine_by_any_name(run: Run) -> None:
    run("queue", "create", "near")
    run("queue", "create", "nearer")
    run("send", "near", "x")
    assert "moved 1 message" in run("copy", "--move", "near", "DIRECT=OS:localhost\\private$\\nearer")
    run("msg", "move", "nearer", "--to-queue", "near", "--all")
    assert len(run("peek", "near", "--json").splitlines()) == 1


MOVES = [("copy", "--move", "from", "into"), ("msg", "move", "from", "--all", "--to-queue", "into")]


@pytest.fixture
def three(run: Run, service: Daemon) -> Iterator[Callable[[], tuple[int, int]]]:
    """A queue of three messages and an empty one; returns how many messages each has."""
    for name in ("from", "into"):
        run("queue", "create", name)
    for _ in range(3):
        run("send", "from", "x")
    with service.connect() as manager:
        yield lambda: tuple(manager.counts(f".\\private$\\{name}")["message_count"] for name in ("from", "into"))
        for name in ("from", "into"):
            manager.delete_queue(f".\\private$\\{name}")


@contextmanager
def heeded(number: int) -> Iterator[None]:
    """Do not ignore a signal, as processes in the background or under nohup do."""
    former = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, former)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("command", MOVES, ids=" ".join)
def test_a_signal_after_a_message_was_sent_waits_until_it_is_removed(
    run: Run, three: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], number: int, code: int
) -> None:
    send = MessageQueue.send

    def interrupted(queue: MessageQueue, message: Message) -> str:
        identifier = send(queue, message)
        signal.raise_signal(number)
        return identifier

    monkeypatch.setattr(MessageQueue, "send", interrupted)
    with heeded(number):
        assert "interrupted" in run(*command, code=code)
    assert three() == (2, 1)


def test_transactional_messages_of_a_subqueue_are_moved_in_one_transaction(run: Run) -> None:
    """If the command is killed, each is in exactly one queue."""
    for name in ("whole", "whole-to"):
        run("queue", "create", name, "--transactional")
    run("send", "whole", "x", "--transaction")
    run("msg", "move", "whole", "--all", "--to", "retry")
    assert json.loads(run("queue", "show", "whole;retry", "--json"))["management"]["message_count"] == 1
    assert "in one transaction" in run("msg", "move", "whole;retry", "--all", "--to-queue", "whole-to")
    assert len(run("peek", "whole-to", "--json").splitlines()) == 1


@pytest.mark.parametrize(
    "command", [("copy", "--move", "{}", "{}-to"), ("msg", "move", "{}", "--all", "--to-queue", "{}-to")]
)
def test_messages_of_a_transactional_queue_are_moved_with_the_limits_they_were_sent_with(
    run: Run, service: Daemon, command: tuple[str, ...]
) -> None:
    """MS-MQMP, through which they are received in the transaction, tells what is left of the limits."""
    name = f"limited-{command[0]}"
    for queue in (name, f"{name}-to"):
        run("queue", "create", queue, "--transactional")
    run("send", name, "unlimited", "--transaction")
    for number in range(3):
        run("send", name, str(number), "--transaction", "--ttl", "1000", "--reach-ttl", f"{60 + number}")
    with service.connect() as manager, manager.open(f".\\private$\\{name}", "peek", protocol="qmcomm") as opened:
        eventually(lambda: min(message.time_to_be_received for message in opened) < 1000)
    moved = run(*(word.format(name) for word in command))
    assert "moved" in moved and "4" in moved
    found = [json.loads(line) for line in run("peek", f"{name}-to", "-n", "9", "--json").splitlines()]
    limits = [(message["time_to_reach_queue"], message["time_to_be_received"]) for message in found]
    assert limits == [(INFINITE, INFINITE), (60, 1000), (61, 1000), (62, 1000)]


def test_a_queue_that_refuses_plain_messages_says_why(run: Run) -> None:
    run("queue", "create", "sealed")
    run("queue", "set", "sealed", "priv_level=2")
    assert "priv_level" in run("send", "sealed", "x", code=1)


def test_an_interrupted_import_sends_nothing_twice(run: Run, three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run("export", "from", "three.jsonl")
    with monkeypatch.context() as patched:
        send = MessageQueue.send_many

        def interrupted(queue: MessageQueue, messages: Any) -> list[str]:
            identifiers = send(queue, islice(messages, 2))
            signal.raise_signal(signal.SIGINT)
            return identifiers

        patched.setattr(MessageQueue, "send_many", interrupted)
        with heeded(signal.SIGINT):
            run("import", "into", "three.jsonl", code=130)
    assert three() == (3, 2)
    run("import", "into", "three.jsonl")
    assert three() == (3, 3)


@pytest.mark.parametrize("command", MOVES, ids=" ".join)
def test_a_message_that_another_reader_takes_does_not_end_a_move(
    run: Run, service: Daemon, three: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    forward = Forwarding.forward
    with service.connect() as other, other.open(".\\private$\\from") as queue:
        take = iter([lambda: queue.receive(0)])

        def late(*given: Any, **more: Any) -> str:
            next(take, lambda: None)()
            return forward(*given, **more)

        monkeypatch.setattr(Forwarding, "forward", late)
        run(*command)
    assert three() == (0, 2)


def test_a_closed_output_ends_a_move_with_an_error(run: Run, three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selecting, "print_json", Mock(side_effect=[None, BrokenPipeError]))
    assert "the output was closed, so only 2 of 3 messages were processed" in run(*MOVES[1], "--json", code=1)
    assert three() == (1, 2)


@pytest.mark.parametrize("command", MOVES, ids=" ".join)
def test_a_lost_connection_ends_a_move_as_one_and_says_how_many_were_moved(
    run: Run, three: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    send = MessageQueue.send
    lost = iter([False])

    def cut(queue: MessageQueue, message: Message) -> str:
        if next(lost, True):
            raise RpcConnectionError("the server closed the connection")
        return send(queue, message)

    monkeypatch.setattr(MessageQueue, "send", cut)
    said = run(*command, code=6)
    assert "the server closed the connection" in said
    assert "moved 1 of 3 messages" in said or command[0] == "msg"
    assert three() == (2, 1)


@pytest.mark.parametrize(
    ("command", "left"),
    [
        (("msg", "resend", "private", "--all"), ["private"]),
        (("msg", "copy", "private", "--all", "--to-queue", "other"), ["private", "other"]),
        (("msg", "move", "private", "--all", "--to-queue", "other"), ["other"]),
        (("copy", "private", "other"), ["private", "other"]),
        (("copy", "--move", "private", "other"), ["other"]),
        (("import", "other", "messages.jsonl"), ["private", "other"]),
    ],
    ids=" ".join,
)
def test_a_message_whose_sender_wants_it_encrypted_is_sent_to_queues_of_this_machine(
    run: Run, service: Daemon, command: tuple[str, ...], left: list[str]
) -> None:
    """A direct format name takes no privacy level."""
    with service.connect() as manager:
        for name in ("private", "other"):
            manager.create_queue(f".\\private$\\{name}")
        with manager.open(manager.format_name(".\\private$\\private"), "send") as opened:
            opened.send(Message(b"secret", privacy_level=5))
    run("export", "private", "messages.jsonl")
    try:
        run(*command)
        assert [name for name in ("private", "other") if run("peek", name, "--json")] == left
    finally:
        for name in ("private", "other"):
            run("queue", "delete", name, "--yes")


def test_a_file_of_messages_is_used_by_one_command_at_a_time(run: Run, tmp_path: Path) -> None:
    run("queue", "create", "filed")
    run("send", "filed", "x")
    run("export", "filed", "file.jsonl")
    written = (tmp_path / "file.jsonl").read_text()
    with (tmp_path / "file.jsonl").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for attempt in (("import", "filed", "file.jsonl"), ("export", "filed", "file.jsonl"),
                        ("export", "filed", "file.jsonl", "--resume")):  # fmt: skip
            assert "another export or import uses it; wait for its end" in run(*attempt, code=1)
    assert (tmp_path / "file.jsonl").read_text() == written
    assert len(run("peek", "filed", "--json").splitlines()) == 1
    run("import", "filed", "file.jsonl")
    assert len(run("peek", "filed", "--json").splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [("label", None, "text"), ("label", 5, "text"), ("priority", "a", "a whole number"),
     ("priority", True, "a whole number"), ("body", 5, ""), ("identifier", 5, "")],
)  # fmt: skip
def test_a_member_of_the_wrong_type_is_named_with_its_line_and_nothing_is_sent_twice(
    run: Run, tmp_path: Path, name: str, value: Any, allowed: str
) -> None:
    good = to_json(Message(b"x"))
    with pytest.raises(ValueError, match=f"{name}.*{allowed}"):
        from_json({**good, name: value})
    queue = f"typed-{name}-{value}"
    run("queue", "create", queue)
    lines = [json.dumps(good), json.dumps(good), json.dumps({**good, name: value})]
    (tmp_path / "file.jsonl").write_text("\n".join(lines))
    assert "file.jsonl, line 3:" in run("import", queue, "file.jsonl", code=1)
    (tmp_path / "file.jsonl").write_text("\n".join([*lines[:2], lines[0]]))
    run("import", queue, "file.jsonl")
    assert len(run("peek", queue, "--json").splitlines()) == 3
