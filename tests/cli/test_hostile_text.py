"""Every command with names, labels and bodies that try to control the user's terminal."""

from __future__ import annotations

import os
import subprocess
import unicodedata

import pytest

import openmsmq
from command_line import at, command, invoke
from daemon import Daemon, eventually

NAME = ".\\private$\\a[/x][bold]\x9b31m\u202eb\u2028:smile:"
OTHER = NAME + "2"
REMOTE = "DIRECT=OS:ho[/x]st\x9b\u202e\\private$\\far"
TEXT = "\x1b]0;owned\x07\n\rbody: forged\nlabel: [/x]\x9b\u202e\u2066\u200b\u2029\x7f"
OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}

COMMANDS = [
    ("queue", "list"),
    ("queue", "show", NAME),
    ("queue", "set", NAME, f"label={TEXT}"),
    ("queue", "create", NAME),  # refused: it exists
    ("queue", "create", "bad\x9b;\u202e"),
    ("queue", "show", "missing\x9b\u202e[/x]"),
    ("machine",),
    ("outgoing", "list"),
    ("queue", "show", REMOTE),
    ("peek", NAME),
    ("peek", NAME, "--protocol", "qmcomm"),
    ("tail", NAME, "--from-start", "-n", "2"),
    ("dlq", "list"),
    ("dlq", "show"),
    ("dlq", "purge", "--all", "--dry-run"),
    ("msg", "find", NAME),
    ("queue", "permissions", NAME),
    ("send", NAME, TEXT, "--label", TEXT),
    ("copy", NAME, OTHER),
    ("msg", "move", NAME, "--all", "--to", "su[/x]b\x9b", "--dry-run"),
    ("dlq", "return", "--all", "--dry-run"),
    ("export", NAME),
    ("receive", NAME, "-n", "2"),
    ("queue", "purge", OTHER, "--yes"),
    ("nonsense\x9b\u202e",),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("hostile") / "data", "--log-level", "debug") as running:
        with running.connect() as manager:
            manager.create_queue(NAME, label=TEXT)
            manager.create_queue(OTHER)
            bodies = (TEXT, TEXT.encode(), b"<a>\x1b" + TEXT.encode() + b"</a>", '{"a": "\u202e[/x]"}', b"\x9b\xff")
            with manager.open(NAME, "send") as queue:
                for body in bodies:
                    queue.send(body, label=TEXT)
            with manager.open(REMOTE, "send") as far:
                far.send(TEXT, label=TEXT, journaling_requested=1)
            with manager.open(OTHER, "send") as dying:
                dying.send(TEXT, label=TEXT, journaling_requested=1, time_to_be_received=1)
            eventually(lambda: manager.counts(r".\SYSTEM$;DEADLETTER")["message_count"])
        yield running
        assert not obeyed(running.log)


def obeyed(text):
    return {c for c in text if unicodedata.category(c) in OBEYED and c != "\n"}


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: "-".join(w for w in words[:2] if w.isalpha()))
def test_no_command_passes_control_characters_from_messages_to_the_terminal(service, arguments, as_json):
    result = invoke(*arguments, *(["--json"] if as_json else []), **at(service))
    written = result.stdout + result.stderr
    assert written.strip()
    assert not obeyed(written)
    assert "MarkupError" not in written


def test_a_process_writes_no_control_characters(service):
    environment = {**os.environ, **at(service), "PYTHONUTF8": "1"}
    for arguments in (("peek", NAME), ("nonsense\x9b\u202e",)):
        done = subprocess.run(command(*arguments), capture_output=True, timeout=60, env=environment)
        written = (done.stdout + done.stderr).decode("utf-8")
        assert written.strip() and not obeyed(written) and "Traceback" not in written


def test_a_label_cannot_look_like_a_line_of_its_message(service):
    with service.connect() as manager:
        manager.create_queue(r".\private$\forged")
        with manager.open(r".\private$\forged", "send") as queue:
            queue.send("body\nlabel:       of the body", label="x\nbody:        of the label")
    result = invoke("peek", "forged", **at(service))
    names = [line.partition(":")[0] for line in result.stdout.splitlines()]
    assert names.count("label") == 1 and names.count("body") == 1


def test_an_error_names_the_queue_in_visible_characters(service):
    with service.connect() as manager, pytest.raises(openmsmq.QueueNotFound) as missing:
        manager.open(".\\private$\\mi\x9bs\u202es", "send")
    assert r"mi\x9bs\u202es" in str(missing.value)
