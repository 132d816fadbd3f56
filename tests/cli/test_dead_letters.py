"""Commands that find, move, change and delete messages, dead letters and journal messages."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from command_line import at, command, invoke
from daemon import Daemon, eventually
from openmsmq.cli.pipeline import _show_letters

Run = Callable[..., str]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("letters") / "data") as running:
        yield running
    assert "Traceback" not in running.log


@pytest.fixture
def run(service: Daemon) -> Run:
    def call(*arguments: str, code: int = 0, stdin: str = "", **environment: str) -> str:
        ended = invoke(*arguments, stdin=stdin, **{**at(service), **environment})
        assert ended.code == code, (arguments, *ended)
        return ended.stdout if code == 0 else ended.stderr

    return call


def sent(run: Run, queue: str, *arguments: str) -> str:
    return run("send", queue, *arguments).strip()


def messages(run: Run, queue: str) -> list[dict]:
    return [json.loads(line) for line in run("peek", queue, "--count", "0", "--json").splitlines()]


def listed(run: Run, queue: str) -> list[str]:
    return [message["id"] for message in messages(run, queue)]


def dying(run: Run, queue: str, count: int, *options: str) -> None:
    """Send `count` messages to a queue, and wait until all of them are dead letters."""
    sent_now = {
        sent(run, queue, f"body {number}", "--label", f"{queue} {number}", "--ttl", "1", "--deadletter", *options)
        for number in range(count)
    }
    eventually(lambda: sent_now <= set(meant_for(run, queue)))


def meant_for(run: Run, queue: str) -> list[str]:
    return [
        m["id"]
        for dead in ("deadletter", "xactdeadletter")
        for m in messages(run, dead)
        if m["destination_queue_format_name"].endswith(queue)
    ]


def test_dead_letters_are_grouped_with_sentence_and_remedy(run: Run) -> None:
    run("queue", "create", "grouped")
    dying(run, "grouped", 2)
    (group,) = (g for g in map(json.loads, run("dlq", "list", "--json").splitlines()) if "grouped" in g["queue"])
    assert (group["count"], group["slug"], group["code"]) == (2, "expired-unread", "0xC002")
    assert "was not received in time" in group["meaning"] and group["remedy"]
    shown = run("dlq", "list", "--meant-for", "grouped")
    assert "expired-unread (NACK_RECEIVE_TIMEOUT, 0xC002): It reached its queue" in shown
    assert "was not received in time" in run("dlq", "show", "--meant-for", "grouped")
    assert run("dlq", "list", "--meant-for", "nowhere").strip() == "no dead letters"


@pytest.mark.parametrize("name", ["alive", r".\private$\alive", "alive;deadletter", "journal", ""])
def test_messages_that_are_alive_are_no_dead_letters(run: Run, name: str) -> None:
    if name == "alive":
        run("queue", "create", "alive")
    identifier = sent(run, "alive", "in use")
    refused = run("dlq", "purge", "--queue", name, "--all", "--yes", code=2)
    assert "allowed: deadletter, xactdeadletter" in refused
    assert run("dlq", "list", "--queue", r"DIRECT=OS:.\SYSTEM$;DeadXact", "--meant-for", "alive") == "no dead letters\n"
    assert identifier in listed(run, "alive")


def test_a_message_that_died_on_its_way_gets_both_times_as_the_remedy_says(run: Run) -> None:
    there = r"DIRECT=OS:nowhere.invalid\private$\a"
    for option in ("--ttl", "--reach-ttl"):
        sent(run, there, "late", option, "1", "--deadletter")
    eventually(lambda: len(meant_for(run, "nowhere.invalid\\private$\\a")) == 2)
    said = run("dlq", "list", "--meant-for", "nowhere.invalid")
    wanted = "openmsmq dlq return --reason expired-on-the-way --reach-ttl SECONDS --ttl SECONDS"
    assert "or to be received, was over" in said and wanted in said


@pytest.mark.parametrize("reason", ["expired-unread", "RECEIVE_TIMEOUT", "nack_receive_timeout", "0xC002"])
def test_a_reason_is_given_by_word_name_or_number(run: Run, reason: str) -> None:
    run("queue", "create", "brief" + reason)
    dying(run, "brief" + reason, 1)
    meant = ("--meant-for", "brief" + reason, "--json", "--dry-run")
    first = run("dlq", "return", "--reason", reason, *meant).splitlines()[0]
    assert json.loads(first)["reason"] == "NACK_RECEIVE_TIMEOUT"
    assert run("dlq", "return", "--reason", "purged", *meant) == ""
    assert "allowed: no-queue, " in run("dlq", "return", "--reason", "EXPIRED", code=2)


def test_only_the_dead_letters_of_the_dry_run_are_returned(run: Run) -> None:
    run("queue", "create", "back")
    dying(run, "back", 3)
    before = meant_for(run, "back")
    wanted = ("dlq", "return", "--meant-for", "$\\back")
    dry = run(*wanted, "--dry-run")
    assert "would be returned: 3" in dry and meant_for(run, "back") == before
    token = dry.split("--selection ")[1].strip()
    dying(run, "back", 4)  # one more dead letter in between
    done = run(*wanted, "--selection", token, "--ttl", "3600")
    assert "returned: 3" in done and "sent, then removed" in done
    assert not set(meant_for(run, "back")) & set(before) and len(meant_for(run, "back")) == 4
    ttls = [message["time_to_be_received"] for message in messages(run, "back")]
    assert len(ttls) == 3 and all(ttl > 3000 for ttl in ttls)


def test_a_transactional_letter_goes_back_in_one_transaction(run: Run) -> None:
    run("queue", "create", "rejecting", "--transactional")
    identifier = sent(run, "rejecting", "bad", "--transaction", "--deadletter")
    kept = sent(run, "rejecting", "good", "--transaction", "--deadletter")
    assert "would be rejected: 1" in run("msg", "reject", "rejecting", "--id", identifier, "--dry-run")
    run("msg", "reject", "rejecting", "--id", identifier)
    assert listed(run, "rejecting") == [kept] and identifier in listed(run, "xactdeadletter")
    done = run("dlq", "return", "--queue", "xactdeadletter", "--id", identifier)
    assert "returned: 1" in done and "in one transaction" in done
    assert identifier not in listed(run, "xactdeadletter") and len(listed(run, "rejecting")) == 2


def test_an_expired_transactional_letter_that_is_returned_expires_again(run: Run) -> None:
    """Nothing is left of its time, and a message sent with nothing left would never expire."""
    run("queue", "create", "fleeting", "--transactional")
    sent(run, "fleeting", "x", "--transaction", "--deadletter", "--ttl", "1")
    eventually(lambda: meant_for(run, "fleeting"))
    [before] = meant_for(run, "fleeting")
    assert "in one transaction" in run("dlq", "return", "--id", before)
    [after] = eventually(lambda: meant_for(run, "fleeting"))
    assert after != before
    assert "returned: 1" in run("dlq", "return", "--id", after, "--ttl", "3600")
    assert len(listed(run, "fleeting")) == 1


def test_messages_of_the_journal_of_a_transactional_queue_are_sent_again(run: Run) -> None:
    run("queue", "create", "booked", "--transactional", "--journal")
    sent(run, "booked", "a", "--transaction")
    sent(run, "booked", "b", "--transaction")
    run("receive", "booked", "--count", "0")
    assert "sent again: 2" in run("journal", "resend", "booked", "--all")
    assert len(listed(run, "booked")) == 2 and len(listed(run, "booked;journal")) == 2
    assert "sent, then removed" in run("journal", "resend", "booked", "--all", "--remove")
    assert len(listed(run, "booked")) == 4 and listed(run, "booked;journal") == []


def test_messages_of_a_journal_or_subqueue_are_sent_again_to_their_destination(run: Run) -> None:
    run("queue", "create", "read", "--journal")
    for body in ("a", "b"):
        sent(run, "read", body)
    run("msg", "move", "read", "--all", "--limit", "1", "--to", "later")
    run("receive", "read")
    assert "sent again: 1" in run("msg", "resend", "read;later", "--all") and listed(run, "read;later") == []
    assert len(listed(run, "read")) == 1
    journaled = listed(run, "read;journal")
    assert f"sent again: {len(journaled)}" in run("msg", "resend", "READ;JOURNAL", "--all")
    assert len(listed(run, "read")) == 1 + len(journaled) and listed(run, "read;journal") == []


def test_letters_that_cannot_be_returned_stay_and_the_others_are_returned(run: Run) -> None:
    for queue in ("failing", "living"):
        run("queue", "create", queue)
        dying(run, queue, 1)
    run("queue", "delete", "failing", "--yes")
    said = run("dlq", "return", "--reason", "expired-unread", "--meant-for", "ing", code=1)
    assert "MQ_ERROR_QUEUE_NOT_FOUND" in said and "and stays where it is" in said
    assert len(meant_for(run, "failing")) == 1 and meant_for(run, "living") == []
    assert "deleted: 1" in run("dlq", "purge", "--meant-for", "failing", "--yes")
    assert meant_for(run, "failing") == []


def test_a_dead_letter_is_changed_and_sent_elsewhere(run: Run) -> None:
    run("queue", "create", "wrong")
    run("queue", "create", "right")
    dying(run, "wrong", 1)
    run("dlq", "resend", "--meant-for", "wrong", "--to", "right", "--set-label", "corrected", "--set-text", "new",
        "--ttl", "60")  # fmt: skip
    (message,) = messages(run, "right")
    assert (message["label"], message["decoded"]["value"]) == ("corrected", "new")
    assert meant_for(run, "wrong") == []


def test_a_message_is_changed_in_an_editor(run: Run, tmp_path) -> None:
    run("queue", "create", "edited")
    run("send", "edited", "grey", "--label", "old")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsleep 1.1\nsed -i \'s/grey/gray/; s/"old"/"new"/\' "$1"\n')
    editor.chmod(0o755)
    run("msg", "resend", "edited", "--all", "--edit", EDITOR=str(editor))
    (message,) = messages(run, "edited")
    assert (message["label"], message["decoded"]["value"]) == ("new", "gray")


def test_journals_are_listed_shown_and_sent_again(run: Run) -> None:
    run("queue", "create", "journaled", "--journal")
    for body in ("a", "b"):
        run("send", "journaled", body, "--label", body)
    run("receive", "journaled", "--count", "0")
    rows = [json.loads(line) for line in run("journal", "list", "--json").splitlines()]
    assert next(row for row in rows if row["queue"].endswith("journaled"))["messages"] == 2
    assert len(run("journal", "show", "journaled", "--json").splitlines()) == 2
    assert len(listed(run, "journaled;journal")) == 2
    assert "sent again: 1" in run("journal", "resend", "journaled", "--label", "b")
    assert [m["label"] for m in messages(run, "journaled")] == ["b"] and len(listed(run, "journaled;journal")) == 2
    assert "deleted: 2" in run("journal", "purge", "journaled", "--all", "--yes")
    assert listed(run, "journaled;journal") == []
    assert run("journal", "show") == ""


def test_messages_are_found_by_their_properties(run: Run) -> None:
    run("queue", "create", "searched")
    run("send", "searched", "the quick brown fox", "--label", "Animals/fox")
    run("send", "searched", "x" * 5000, "--label", "large")
    run("send", "searched", "lazy dog", "--label", "Animals/dog")

    def found(*options: str) -> list[str]:
        return [json.loads(line)["label"] for line in run("msg", "find", "searched", "--json", *options).splitlines()]

    assert found("--label", "animals/*") == ["Animals/fox", "Animals/dog"]
    assert found("--text", "BROWN") == ["Animals/fox"]
    assert found("--larger", "4k") == ["large"]
    assert found("--smaller", "100", "--newer", "1h", "--class", "normal", "--limit", "1") == ["Animals/fox"]
    assert found("--older", "1h") == [] and found("--correlation", "{0}\\1") == []
    assert "is not a time such as" in run("msg", "find", "searched", "--older", "soon", code=2)


def test_a_body_is_written_byte_for_byte_and_stays(run: Run, service: Daemon) -> None:
    run("queue", "create", "bytes")
    with service.connect() as manager, manager.open(".\\private$\\bytes", "send") as opened:
        for data in (b"other", b"\x00\xff\r\n\x1b[2J"):
            opened.send(data)
    first, second = listed(run, "bytes")
    ended = subprocess.run(
        command("msg", "body", "bytes", second), capture_output=True, timeout=60, env={**os.environ, **at(service)}
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"\x00\xff\r\n\x1b[2J", b"")
    assert listed(run, "bytes") == [first, second]
    assert "no such message: {x}" in run("msg", "body", "bytes", "{x}", code=1)


def test_messages_move_and_are_copied_between_queues(run: Run) -> None:
    run("queue", "create", "here")
    for name in ("there", "onward"):
        run("queue", "create", name, "--transactional")
    for body in ("a", "b", "c"):
        run("send", "here", body, "--label", body)
    assert "sent, then removed" in run("msg", "move", "here", "--label", "b", "--to-queue", "there")
    assert [m["label"] for m in messages(run, "here")] == ["a", "c"]
    assert "in one transaction" in run("msg", "move", "there", "--all", "--to-queue", "onward")
    assert [m["label"] for m in messages(run, "onward")] == ["b"] and messages(run, "there") == []
    assert "copied: 2" in run("msg", "copy", "here", "--all", "--to-queue", "there")
    assert len(messages(run, "here")) == len(messages(run, "there")) == 2
    run("msg", "copy", "here", "--label", "a", "--to-queue", "DIRECT=OS:elsewhere\\private$\\orders")
    (waiting,) = map(json.loads, run("outgoing", "list", "--json").splitlines())
    assert waiting["message_count"] == 1
    assert "deleted: 1" in run("msg", "delete", "here", "--label", "c", "--yes")
    assert run("msg", "delete", "here", "--label", "a", code=2).startswith("Delete 1 message?")
    assert [m["label"] for m in messages(run, "here")] == ["a"]


def test_top_shows_the_fullest_queues_and_how_they_change(run: Run) -> None:
    run("queue", "create", "fullest")
    run("queue", "create", "nothing-in-it")
    run("send", "fullest", "x")
    looks = run("top", "--count", "2", "--interval", "0.2", "--filter", "*\\fullest", "--json").splitlines()
    first, second = map(json.loads, looks)
    assert (first["messages"], first["change"], second["change"]) == (1, None, 0.0) and first["oldest"] > 0
    assert "s old" in run("top", "--count", "1", "--filter", "*\\fullest")
    assert "nothing-in-it" in run("top", "--count", "1", "--empty", "--rows", "100")


def test_a_closed_pipe_causes_no_error_output(run: Run, service: Daemon) -> None:
    run("queue", "create", "piped")
    for number in range(20):
        run("send", "piped", "x" * 9000, "--label", str(number))
    environment = {**os.environ, **at(service)}
    find = shlex.join(command("msg", "find", "piped"))
    done = subprocess.run(f"{find} | head -1", shell=True, capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.startswith("id:") and done.stderr == ""


def test_messages_committed_after_the_dry_run_are_not_affected(run: Run, service: Daemon) -> None:
    run("queue", "create", "slow", "--transactional")
    wanted = ("msg", "delete", "slow", "--label", "late", "--yes")
    with service.connect() as qm, qm.open(".\\private$\\slow", "send") as queue:
        with qm.transaction() as transaction:
            queue.send("begun before", label="late", transaction=transaction)
            run("send", "slow", "x", "--label", "late", "--transaction")
            dry = run(*wanted, "--dry-run")
            assert "would be deleted: 1" in dry
        token = dry.split("--selection ")[1].strip()
    said = run(*wanted, "--selection", token, code=2)
    assert "the dry run found 1 messages, and the options now select 2, not just these" in said
    assert len(listed(run, "slow")) == 2
    run("send", "slow", "y", "--label", "late", "--transaction")
    token = run(*wanted, "--dry-run").split("--selection ")[1].strip()
    run("receive", "slow")
    assert "the options now select 2, not just these" in run(*wanted, "--selection", token, code=2)
    token = run(*wanted, "--dry-run").split("--selection ")[1].strip()
    assert "deleted: 2" in run(*wanted, "--selection", token)


def test_a_limited_selection_never_moves_on_to_other_messages(run: Run) -> None:
    run("queue", "create", "limited")
    for label, priority in (("low", "1"), ("low", "1"), ("high", "6"), ("high", "6")):
        run("send", "limited", "x", "--label", label, "--priority", priority)
    wanted = ("msg", "delete", "limited", "--all", "--limit", "2", "--yes")
    token = run(*wanted, "--dry-run").split("--selection ")[1].strip()
    assert "deleted: 2" in run(*wanted, "--selection", token)
    assert "not just these" in run(*wanted, "--selection", token, code=2)
    assert [each["label"] for each in messages(run, "limited")] == ["low", "low"]


@pytest.mark.parametrize("command", [("dlq", "resend", "--all"), ("msg", "resend", "edited", "--all")])
def test_a_new_body_is_text_or_the_content_of_a_file(tmp_path: Path, command: tuple[str, ...]) -> None:
    body = tmp_path / "body"
    body.write_text("new")
    refused = invoke(*command, "--set-text", "new", "--set-body", str(body))
    assert refused.code == 2 and "give --set-text or --set-body, not both" in refused.stderr


def test_tables_of_dead_letters_are_separated(capsys: pytest.CaptureFixture[str]) -> None:
    def counted(value: str) -> Any:
        return SimpleNamespace(value=value, messages=2, last=datetime(2026, 1, 1, tzinfo=UTC))

    letters: Any = SimpleNamespace(by={"queue": [counted("q")], "reason": [], "day": [counted("d")]}, messages=2)
    _show_letters(letters, False)
    assert capsys.readouterr().out.count("\n\n") == 2
