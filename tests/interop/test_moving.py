"""Queues move from one queue manager to another and back: no message is lost or duplicated."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import openmsmq
from command_line import at, invoke
from console.browser import ADMINISTRATOR, PASSWORD, USER
from daemon import Daemon, eventually
from interop.moving import Move, connect, moving
from openmsmq.accounts.users import UsersFile
from openmsmq.model.constants import QueueAccessMask
from openmsmq.model.default_descriptors import SEES_AND_SENDS
from openmsmq.model.message import Message
from openmsmq.model.security import EVERYONE, SecurityDescriptor, allow

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
                    opened.send(body, label=body[:20], transaction=transaction)
            else:
                opened.send(body, label=body[:20], **properties)


def messages(daemon: Daemon, queue: str) -> list[Message]:
    with connect(daemon) as manager, manager.open(queue, "peek") as opened:
        return list(opened)


def bodies(daemon: Daemon, queue: str) -> list[Any]:
    return [message.decode() for message in messages(daemon, queue)]


def test_messages_keep_identity_and_order_and_new_ones_follow(machines: Move) -> None:
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
            "id",
            "body",
            "label",
            "priority",
            "sent_time",
            "arrival_time",
            "correlation_identifier",
            "extension",
            "application_tag",
            "delivery_guarantee",
            "abort_count",
            "source_machine_identifier",
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


def test_requests_on_their_way_name_the_response_queue_that_has_moved(machines: Move) -> None:
    """A program replies to the name in the request; the reply does not pass through the old machine."""
    move = machines
    requests, replies = r".\private$\requests", r".\private$\replies"
    for queue in (requests, replies):
        create(move, queue)
        move.done("adopt", "shadow", queue.removeprefix(".\\private$\\"), "--from", "old")

    def request(number: int, **properties: Any) -> openmsmq.Message:
        name = r"DIRECT=OS:OLD\private$\replies"
        send(move.old, requests, str(number), response_queue_format_name=name, **properties)
        eventually(lambda: bodies(move.new, requests) == [str(number)])
        with connect(move.new) as manager, manager.open(requests) as queue:
            return queue.receive(5)

    assert request(1).response_queue_format_name == r"DIRECT=OS:OLD\private$\replies"
    assert "signed requests" in move.done("adopt", "switch", "--help").lower()
    move.done("adopt", "switch", "replies", "--replies")
    assert move.status("replies")["replies"] is True
    assert request(2, priority=5).response_queue_format_name == r"DIRECT=OS:NEW\private$\replies"
    with connect(move.new) as manager, manager.open(r"DIRECT=OS:NEW\private$\replies", "send") as queue:
        queue.send("answer")
    assert bodies(move.new, replies) == ["answer"]
    move.done("adopt", "back", "replies")
    assert request(3).response_queue_format_name == r"DIRECT=OS:OLD\private$\replies"
    wrong = move.run("adopt", "done", "replies", "--replies")
    assert wrong.code == 2


def test_the_journal_and_the_dead_letters_move_too(machines: Move) -> None:
    move, queue = machines, r".\private$\kept"
    create(move, queue, journal=True)
    send(move.old, queue, "in the journal", "dead", recoverable=True, journaling_requested=1, time_to_be_received=1)
    with connect(move.old) as manager, manager.open(queue) as opened:
        opened.receive(0)
    eventually(lambda: bodies(move.old, r"DIRECT=OS:.\SYSTEM$;DEADLETTER") == ["dead"])
    for name in ("kept;journal", "deadletter"):
        move.done("adopt", "shadow", name, "--from", "old")
        move.when(name, moved=1, empty_since=True)
    assert bodies(move.new, queue + ";journal") == ["in the journal"]
    dead = messages(move.new, r"DIRECT=OS:.\SYSTEM$;DEADLETTER")
    assert [(message.decode(), hex(message.message_class)) for message in dead] == [("dead", "0xc002")]
    assert "cannot be sent back" in move.run("adopt", "back", "deadletter").stderr
    for name in ("kept;journal", "deadletter"):
        move.done("adopt", "switch", name)
        move.when(name, empty_since=True)
        move.done("adopt", "done", name)


def test_the_user_confirms_what_else_moves(machines: Move) -> None:
    move = machines
    create(move, r".\private$\along", journal=True)
    there = ("--from", "old", "--there", "127.0.91.1", "--port", str(move.old.port))
    assert move.done("adopt", "run", "along", *there).splitlines() == [r".\private$\along: shadow"]
    said = move.done("adopt", "run", "along", "deadletter", "--journal", "--dead-letters", *there)
    assert said.splitlines() == [
        r".\private$\along: shadow",
        r".\private$\along;journal: shadow",
        r".\system$;deadletter: shadow",
        r".\system$;deadxact: shadow",
    ]
    for name in ("along", "along;journal", "deadletter", "xactdeadletter"):
        move.when(name, empty_since=True)
        switched = move.done("adopt", "switch", name).splitlines()[1:]
        if name == "along":
            assert r"DIRECT=OS:old\private$\along: change it to DIRECT=OS:NEW\private$\along" in switched[0]
            assert "the name old lead to NEW" in switched[1] and 'peers = "old=NEW"' in switched[2]
            assert "PRIVATE=" in switched[3] and r"replies to old\private$\along" in switched[4]
        else:
            assert switched == []
        move.when(name, empty_since=True)
        move.done("adopt", "done", name)
        move.done("adopt", "forget", name)


def test_a_refused_message_stays_there_is_named_and_others_arrive(machines: Move) -> None:
    move, queue = machines, r".\private$\full"
    create(move, queue)
    with connect(move.new) as manager:
        manager.set_properties(queue, quota=10)
    send(move.old, queue, "x" * 20_000, recoverable=True)
    send(move.old, queue, "small", recoverable=True)
    move.done("adopt", "shadow", "full", "--from", "old")
    found = move.when("full", moved=1)
    eventually(lambda: move.status("full")["refused"])
    [refused] = move.status("full")["refused"]
    assert "quota" in refused["reason"]
    assert "1 message not taken" in " ".join(move.done("adopt", "status", "full").split())
    assert not found["empty_since"]
    assert bodies(move.new, queue) == ["small"]
    assert move.run("adopt", "switch", "full").code == 0
    assert "still at the other machine" in move.run("adopt", "done", "full").stderr
    with connect(move.new) as manager:
        manager.set_properties(queue, quota=1000)
    move.done("adopt", "again", "full")  # starts again immediately instead of waiting for the next attempt
    move.when("full", moved=2, empty_since=True)


def test_if_order_matters_nothing_overtakes_a_refused_message(machines: Move) -> None:
    move, queue = machines, r".\private$\strict"
    create(move, queue, transactional=True)
    with connect(move.new) as manager:
        manager.set_properties(queue, quota=10)
    send(move.old, queue, "x" * 20_000, "small", transactional=True)
    move.done("adopt", "shadow", "strict", "--from", "old")
    eventually(lambda: "has to wait" in move.status("strict")["trouble"])
    assert bodies(move.new, queue) == []
    with connect(move.new) as manager:
        manager.set_properties(queue, quota=1000)
    move.when("strict", moved=2, trouble="")
    assert [len(body) for body in bodies(move.new, queue)] == [20_000, 5]


def test_an_unreachable_machine_is_named_and_read_when_it_returns(machines: Move) -> None:
    move, queue = machines, r".\private$\away"
    create(move, queue)
    move.old.kill()
    move.done("adopt", "shadow", "away", "--from", "old")
    eventually(lambda: "old" in move.status("away")["trouble"])
    assert "nothing moves" in move.done("adopt", "status", "away")
    move.old.start()
    send(move.old, queue, "back", recoverable=True)
    move.when("away", moved=1, trouble="")


@pytest.mark.slow
def test_a_machine_that_does_not_answer_is_named_and_nothing_is_lost_or_duplicated(machines: Move) -> None:
    move, queue = machines, r".\private$\frozen"
    create(move, queue)
    move.done("adopt", "shadow", "frozen", "--from", "old")
    move.when("frozen", empty_since=True)
    sent = [str(number) for number in range(500)]
    send(move.old, queue, *sent, recoverable=True)
    os.kill(move.old.pid, signal.SIGSTOP)
    try:
        eventually(lambda: "did not answer" in move.status("frozen")["trouble"], 300)
    finally:
        os.kill(move.old.pid, signal.SIGCONT)
    move.when("frozen", empty_since=True, trouble="", moved=500)
    assert bodies(move.new, queue) == sent


def test_a_queue_that_may_not_be_read_is_named_and_others_continue(machines: Move) -> None:
    move, queue, other = machines, r".\private$\closed", r".\private$\open"
    create(move, queue)
    create(move, other)
    with connect(move.old) as manager:
        send(move.old, queue, "secret", recoverable=True)
        manager.set_security(queue, SecurityDescriptor(dacl=()).pack(), 4)
    send(move.old, other, "public", recoverable=True)
    for name in ("closed", "open"):
        move.done("adopt", "shadow", name, "--from", "old")
    move.when("open", moved=1)
    eventually(lambda: "MQ_ERROR_ACCESS_DENIED" in move.status("closed")["trouble"])


def test_messages_refused_by_the_other_machine_are_kept_here(machines: Move) -> None:
    move, queue, ordered = machines, r".\private$\only_here", r".\private$\only_here_ordered"
    with connect(move.new) as manager:
        manager.create_queue(queue)
        manager.create_queue(ordered, transactional=True)
    send(move.new, queue, "nobody wants me", recoverable=True)
    send(move.new, ordered, "me neither", transactional=True)
    for name in ("only_here", "only_here_ordered"):
        move.done("forward", "to", name, "--to", "old")
    eventually(lambda: move.status("only_here")["unconfirmed"] == 1)  # no NACK: send_insecure_nacks is off
    assert bodies(move.new, queue + ";relay") == ["nobody wants me"]
    eventually(lambda: bodies(move.new, r"DIRECT=OS:.\SYSTEM$;DEADXACT") == ["me neither"])
    assert "1 message is still here or in transit" in move.run("forward", "end", "only_here").stderr
    with connect(move.old) as manager:
        manager.create_queue(queue)
    host = move.new.options[move.new.options.index("--listen") + 1]
    again = invoke("msg", "move", "only_here;relay", "--all", "--host", host, **at(move.new))
    assert again.code == 0, again
    move.when("only_here", empty_since=True, unconfirmed=0)
    assert bodies(move.old, queue) == ["nobody wants me"]


def test_a_full_remote_queue_gets_its_messages_when_it_has_space(machines: Move) -> None:
    move, queue = machines, r".\private$\full_there"
    create(move, queue)
    with connect(move.old) as manager:
        manager.set_properties(queue, quota=10)
    send(move.new, queue, "x" * 20_000, recoverable=True)
    move.done("forward", "to", "full_there", "--to", "old")
    eventually(lambda: "NACK_Q_EXCEED_QUOTA" in move.status("full_there")["trouble"])
    with connect(move.old) as manager:
        manager.set_properties(queue, quota=1000)
    move.when("full_there", empty_since=True, trouble="", unconfirmed=0)
    assert [len(body) for body in bodies(move.old, queue)] == [20_000]


def test_a_bridge_continues_after_a_restart(machines: Move) -> None:
    move, queue = machines, r".\private$\bridge"
    create(move, queue)
    move.done("forward", "from", "bridge", "--from", "old")
    send(move.old, queue, "one", recoverable=True)
    move.when("bridge", moved=1)
    move.new.kill()
    move.new.start()
    send(move.old, queue, "two", recoverable=True)
    eventually(lambda: bodies(move.new, queue) == ["one", "two"])
    assert move.status("bridge")["state"] == "receiving"


def test_impossible_steps_list_the_possible_ones(machines: Move) -> None:
    move = machines
    create(move, r".\private$\steps")
    move.done("forward", "to", "steps", "--to", "old")
    refused = move.run("adopt", "switch", "steps")
    assert (refused.code, "allowed: end" in refused.stderr) == (1, True)
    again = move.run("adopt", "shadow", "steps", "--from", "old")
    assert "already has a relay" in again.stderr
    assert move.run("adopt", "shadow", "nowhere", "--from", "old").code == 3
    assert move.run("adopt", "switch", "nowhere").code == 3


def at_old(move: Move) -> tuple[str, ...]:
    return ("--from", "old", "--there", move.old.options[1 + move.old.options.index("--listen")],
            "--port", str(move.old.port))  # fmt: skip


def test_queues_are_created_with_properties_and_rights_and_receive_their_messages(
    machines: Move, tmp_path: Path
) -> None:
    move, there = machines, at_old(machines)
    with connect(move.old) as manager:
        for name in ("invoices", "invoices2"):
            manager.create_queue(f".\\private$\\{name}", transactional=True, label="Invoices", quota=5000, journal=True)
        rights = allow("S-1-5-21-1-2-3-1105", QueueAccessMask.GENERIC_ALL), allow(EVERYONE, SEES_AND_SENDS)
        manager.set_security(r".\private$\invoices2", SecurityDescriptor(dacl=rights).pack(), 4)
    send(move.old, r".\private$\invoices", "1", "2", transactional=True)
    would = move.done("adopt", "plan", "invoices", "invoices2", *there)
    assert "would create queue invoices" in would
    assert "invoices: would fetch 2 messages from old, and those that arrive later" in would
    assert "account S-1-5-21-1-2-3-1105 belongs to old" in would
    refused = move.run("adopt", "run", "invoices", "invoices2", *there)
    assert (refused.code, "map it to an account of this machine with --accounts" in refused.stderr) == (1, True)
    accounts = tmp_path / "accounts.json"
    accounts.write_text('{"S-1-5-21-1-2-3-1105": "' + USER + '"}')
    said = move.done("adopt", "run", "invoices", "invoices2", "--accounts", str(accounts), *there)
    assert ".\\private$\\invoices: shadow" in said
    move.when("invoices", moved=2)
    with connect(move.new, user=ADMINISTRATOR, password=PASSWORD) as manager:
        made = manager.properties(r".\private$\invoices2")
        assert (made["label"], made["quota"], made["transactional"], made["journal"]) == ("Invoices", 5000, True, True)
        given = SecurityDescriptor.parse(manager.security(r".\private$\invoices2")).dacl or ()
    assert {ace.sid for ace in given} == {EVERYONE, UsersFile(move.new.directory / "users.json").sid_of(USER)}
    assert "is already being moved" in move.done("adopt", "plan", "invoices", *there)
    move.done("adopt", "run", "invoices", *there)  # a repetition, which changes nothing


def test_two_queues_are_compared_message_by_message(machines: Move) -> None:
    move, queue, there = machines, r".\private$\compared", at_old(machines)
    create(move, queue)
    send(move.old, queue, "a", "b", recoverable=True)
    here = ("--here", move.new.options[1 + move.new.options.index("--listen")], "--here-port", str(move.new.port))
    ended = move.run("adopt", "verify", "compared", *there, *here)
    assert ended.code == 1
    assert "2 messages at old, 0 messages here, 0 in both" in ended.stdout
    assert "only at old: {" in ended.stdout
    move.done("adopt", "shadow", "compared", "--from", "old")
    move.when("compared", moved=2)
    move.done("adopt", "back", "compared")
    move.when("compared", state="returning", empty_since=True, unconfirmed=0)
    send(move.new, queue, "c", recoverable=True)
    move.when("compared", moved=5, empty_since=True, unconfirmed=0)
    assert move.run("adopt", "verify", "compared", *there, *here).stdout.startswith("3 messages at old")
