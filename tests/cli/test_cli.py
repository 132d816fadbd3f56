"""The commands, as typed by a user, against a running daemon."""

from __future__ import annotations

import base64
import errno
import itertools
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from command_line import at, command, invoke
from daemon import Daemon, eventually
from openmsmq.cli.message_files import MessageImport
from openmsmq.files.private import PrivateFileError


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("cli") / "data") as running:
        yield running
    assert "Traceback" not in running.log


@pytest.fixture
def run(service, tmp_path):
    def call(*arguments, stdin="", code=0, **environment):
        result = invoke(*arguments, stdin=stdin, directory=tmp_path, **{**at(service), **environment})
        assert result.code == code, (arguments, *result)
        return result.stdout if code == 0 else result.stderr

    return call


def test_queues_are_created_listed_shown_changed_and_deleted(run):
    assert "created" in run("queue", "create", "orders", "--label", "Bestellungen", "--quota", "500")
    listed = [json.loads(line) for line in run("queue", "list", "--json").splitlines()]
    assert any(row["path_name"].endswith("\\private$\\orders") for row in listed)
    run("queue", "set", "orders", "label=neu", "journal=yes", "quota=0x100")
    shown = json.loads(run("queue", "show", "orders", "--json"))
    assert (shown["label"], shown["journal"], shown["quota"]) == ("neu", True, 256)
    rows = dict(line.split(maxsplit=1) for line in run("queue", "show", "orders").splitlines() if " " in line)
    assert (rows["label"], rows["journal"], rows["quota"], rows["journal_quota"]) == ("neu", "yes", "256 KB", "none")
    assert (rows["priv_level"], rows["delivery_limit"], rows["type"]) == ("optional", "none", "none")
    assert "would be created" in run("queue", "create", "bills", "--dry-run")
    assert "exists" in run("queue", "create", "orders", "--dry-run")
    assert "MQ_ERROR_ILLEGAL_QUEUE_PATHNAME" in run("queue", "create", "bad;x", "--dry-run", code=1)
    assert "'neu' -> 'old'" in run("queue", "set", "orders", "label=old", "--dry-run")
    run("queue", "set", "orders", "type=7d9ccd72-3f1b-4a3c-9d51-0f8a2a5f1e90")
    assert json.loads(run("queue", "show", "orders", "--json"))["type"] == "7d9ccd72-3f1b-4a3c-9d51-0f8a2a5f1e90"
    run("send", "orders", "x")
    assert "1 message" in run("queue", "purge", "orders", "--dry-run")
    assert "with 1 message," in run("queue", "delete", "orders", "--dry-run")
    assert json.loads(run("queue", "show", "orders", "--json"))["message_count"] == 1
    run("queue", "delete", "orders", "--yes")
    assert "MQ_ERROR_QUEUE_NOT_FOUND" in run("queue", "show", "orders", code=3)


def test_a_list_of_queues_has_the_messages_in_subqueues(service, run):
    run("queue", "create", "parent", "--transactional")
    for number in range(3):
        run("send", "parent", str(number), "--transaction")
    with service.connect() as manager, manager.open(r".\private$\parent", protocol="remoteread") as queue:
        for message, subqueue in zip(list(queue), ("one", "two"), strict=False):
            queue.move(message.lookup_identifier, subqueue)
    rows = {row["path_name"]: row for row in map(json.loads, run("queue", "list", "--json").splitlines())}
    [row] = [row for name, row in rows.items() if name.endswith("parent")]
    assert (row["message_count"], row["subqueue_messages"]) == (1, 2)
    assert [line.split()[1:] for line in run("queue", "list").splitlines() if "parent" in line] == [
        ["1", str(row["bytes_in_queue"]), "0", "2"]
    ]


def test_a_table_for_another_program_has_a_line_for_each_row(run):
    name = "long-" * 20 + "name"
    run("queue", "create", name, "--label", "x" * 120)
    label = [line for line in run("queue", "show", name).splitlines() if line.startswith("label")]
    assert label == ["label".ljust(23) + "x" * 120]
    assert any(line.split()[0].endswith(name) for line in run("queue", "list").splitlines())
    assert not any(line.endswith(" ") for line in run("queue", "list").splitlines())


def test_messages_are_sent_peeked_and_received(run, tmp_path):
    run("queue", "create", "mail")
    identifier = run("send", "mail", "hello", "--label", "first", "--recoverable").strip()
    assert identifier.startswith("{")
    run("send", "mail", stdin="from standard input")
    (tmp_path / "body.bin").write_bytes(b"\x00\x01binary")
    run("send", "mail", "--file", "body.bin", "--priority", "7")
    peeked = [json.loads(line) for line in run("peek", "mail", "--json").splitlines()]
    assert [m["label"] for m in peeked] == ["", "first", ""]
    assert "hello" in run("peek", "mail")
    run("receive", "mail")
    assert run("receive", "mail", "--body-only").replace("\0", "") == "hello"
    assert "standard input" in run("receive", "mail", "-n", "0")
    assert "MQ_ERROR_IO_TIMEOUT" in run("receive", "mail", code=4)


def test_a_transactional_queue_is_used_in_transactions(run):
    run("queue", "create", "ledger", "--transactional")
    assert "MQ_ERROR_TRANSACTION_USAGE" in run("send", "ledger", "x", code=1)
    run("send", "ledger", "42", "--transaction")
    message = json.loads(run("receive", "ledger", "--json"))
    assert message["first_in_transaction"] and message["last_in_transaction"]


def test_an_export_imports_to_the_same_messages(run, tmp_path):
    run("queue", "create", "source")
    run("queue", "create", "target")
    for number in range(5):
        run("send", "source", f"body {number}", "--label", f"l{number}", "--recoverable")
    run("export", "source", "all.jsonl")
    run("import", "target", "all.jsonl")
    kept = ("body", "label", "body_type", "priority", "delivery_guarantee")

    def contents(queue):
        return [{k: json.loads(line)[k] for k in kept} for line in run("peek", queue, "--json").splitlines()]

    assert contents("source") == contents("target")
    assert not (tmp_path / "all.jsonl.progress").exists()


def test_an_interrupted_export_is_completed(run, tmp_path):
    run("queue", "create", "exported")
    for number in range(4):
        run("send", "exported", str(number), "--label", f"l{number}")
    lines = run("export", "exported").splitlines(keepends=True)
    (tmp_path / "part.jsonl").write_text("".join(lines[:2]) + lines[2][:20])
    run("export", "exported", "part.jsonl", "--resume")
    assert [json.loads(line)["label"] for line in (tmp_path / "part.jsonl").open()] == ["l0", "l1", "l2", "l3"]


@pytest.mark.parametrize("protocol", ["auto", "remoteread", "qmcomm"])
def test_a_queue_is_read_through_the_protocol_that_is_asked_for(run, protocol):
    name = f"by-{protocol}"
    run("queue", "create", name)
    run("send", name, "a")
    run("send", name, "b")
    option = ("--protocol", protocol)
    assert [json.loads(m)["label"] for m in run("peek", name, "--json", *option).splitlines()] == ["", ""]
    assert len(run("export", name, "-", *option).splitlines()) == 2
    assert len(run("tail", name, "--from-start", "-n", "2", "--json", *option).splitlines()) == 2
    received = run("receive", name, "--count", "0", "--json", *option).splitlines()
    assert len(received) == 2
    assert run("peek", name, *option) == ""
    assert "'ftp' is not one of" in run("peek", name, "--protocol", "ftp", code=2)


@pytest.mark.parametrize("protocol", ["remoteread", "qmcomm"])
def test_a_message_that_cannot_be_written_stays_in_the_queue(run, service, protocol):
    name = f"full-{protocol}"
    run("queue", "create", name)
    run("send", name, "kept", "--raw")
    with open("/dev/full", "wb") as full:
        receive = command("receive", name, "--body-only", "--protocol", protocol, "--port", str(service.port))
        assert subprocess.run(receive, stdout=full, stderr=subprocess.PIPE, timeout=60).returncode != 0
    assert run("receive", name, "--body-only") == "kept"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{whole}\nnot an export\n{whole}\n", 2),
        ("notes of last week\nmore of them\n", 1),
        ("one line without an end", 1),
        ("{whole}\nkeep me", 2),
        ('{whole}\n{{"body": ""}}\n', 2),
    ],
)
def test_resume_changes_no_file_that_is_not_an_export(run, tmp_path, content, line):
    name = f"resume{line}-{len(content)}"
    run("queue", "create", name)
    run("send", name, "x")
    content = content.format(whole=run("export", name).strip())
    (tmp_path / "kept.jsonl").write_text(content)
    assert f"kept.jsonl, line {line}:" in run("export", name, "kept.jsonl", "--resume", code=1)
    assert (tmp_path / "kept.jsonl").read_text() == content


def test_resume_keeps_a_whole_last_line_that_has_no_end(run, tmp_path):
    run("queue", "create", "endless")
    run("send", "endless", "first")
    (tmp_path / "f.jsonl").write_text(run("export", "endless").strip())
    run("receive", "endless")
    run("send", "endless", "second")
    run("export", "endless", "f.jsonl", "--resume")
    assert len([json.loads(line) for line in (tmp_path / "f.jsonl").open()]) == 2


def _broken_import(run, tmp_path, queue):
    """Run an import of f.jsonl that fails at its third line."""
    run("queue", "create", queue)
    lines = [json.dumps({"label": f"l{n}", "body": ""}) for n in range(2)]
    (tmp_path / "f.jsonl").write_text("\n".join([*lines, "{broken"]))
    run("import", queue, "f.jsonl", code=1)


def test_an_import_skips_no_message_of_another_file_of_the_same_name(run, tmp_path):
    _broken_import(run, tmp_path, "renamed")
    others = [json.dumps({"label": f"other{n}", "body": ""}) for n in range(4)]
    (tmp_path / "f.jsonl").write_text("\n".join(others))
    said = run("import", "renamed", "f.jsonl", code=1)
    assert "another file" in said and "--restart" in said
    assert len(run("peek", "renamed", "--json").splitlines()) == 2
    run("import", "renamed", "f.jsonl", "--restart")
    labels = [json.loads(m)["label"] for m in run("peek", "renamed", "--json").splitlines()]
    assert labels == ["l0", "l1", "other0", "other1", "other2", "other3"]


def test_progress_of_an_import_into_another_queue_is_refused(run, tmp_path):
    _broken_import(run, tmp_path, "one")
    run("queue", "create", "two")
    assert "belongs to an import into" in run("import", "two", "f.jsonl", code=1)
    assert run("peek", "two", "--json") == ""


def test_a_file_that_is_not_a_progress_file_is_left_alone(run, tmp_path):
    run("queue", "create", "mine")
    (tmp_path / "f.jsonl").write_text(json.dumps({"label": "l", "body": ""}))
    (tmp_path / "f.jsonl.progress").write_text("my own notes")
    assert "is not the progress of an import" in run("import", "mine", "f.jsonl", code=1)
    assert (tmp_path / "f.jsonl.progress").read_text() == "my own notes"


def test_progress_that_can_not_be_written_leaves_the_earlier_one(run, tmp_path, monkeypatch):
    (tmp_path / "f.jsonl").write_text("".join(json.dumps({"label": f"l{n}", "body": ""}) + "\n" for n in range(4)))
    source = MessageImport(tmp_path / "f.jsonl", "here", restart=False)
    list(itertools.islice(source.messages(), 2))
    source.remember(None)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        with pytest.raises(PrivateFileError, match=r"f\.jsonl\.progress: full"):
            source.remember([])
    again = MessageImport(tmp_path / "f.jsonl", "here", restart=False)
    assert [message.label for message in again.messages()] == ["l2", "l3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.jsonl", "f.jsonl.progress"]


def test_an_interrupted_import_continues_where_it_ended(run, tmp_path):
    run("queue", "create", "resumed")
    lines = [json.dumps({"label": f"l{n}", "body": ""}) for n in range(4)]
    (tmp_path / "f.jsonl").write_text("\n".join([*lines[:2], "{broken", *lines[2:]]))
    error = run("import", "resumed", "f.jsonl", code=1)
    assert "line 3" in error
    (tmp_path / "f.jsonl").write_text("\n".join(lines))
    run("import", "resumed", "f.jsonl")
    assert [json.loads(m)["label"] for m in run("peek", "resumed", "--json").splitlines()] == ["l0", "l1", "l2", "l3"]


def test_a_failed_import_resumes_without_sending_anything_twice(run, tmp_path):
    run("queue", "create", "full", "--quota", "40")
    lines = [json.dumps({"label": f"l{n}", "body": base64.b64encode(bytes(9000 if n % 2 else 1)).decode()})
             for n in range(12)]  # fmt: skip
    (tmp_path / "f.jsonl").write_text("\n".join(lines))
    assert "INSUFFICIENT_RESOURCES" in run("import", "full", "f.jsonl", code=1)
    run("queue", "set", "full", "quota=1000")
    run("import", "full", "f.jsonl")
    labels = [json.loads(m)["label"] for m in run("peek", "full", "--count", "0", "--json").splitlines()]
    assert sorted(labels) == sorted(f"l{n}" for n in range(12))


@pytest.mark.parametrize("transactional", [False, True])
def test_a_refused_line_is_named_and_can_be_removed(run, tmp_path, transactional):
    queue = f"refusing {transactional}"
    run("queue", "create", queue, *(["--transactional"] if transactional else []))
    lines = [json.dumps({"label": f"l{n}", "body": ""}) for n in range(400)]
    refused = json.dumps({"label": "refused", "body_type": 0xFFFFFFFF})  # [MS-MQMP] has 16 bits
    (tmp_path / "f.jsonl").write_text("\n".join([*lines[:260], "", refused, *lines[260:]]))
    said = run("import", queue, "f.jsonl", code=1)
    assert "f.jsonl, line 262:" in said and "ILLEGAL_PROPERTY_VALUE" in said
    (tmp_path / "f.jsonl").write_text("\n".join(lines))
    run("import", queue, "f.jsonl")
    labels = [json.loads(m)["label"] for m in run("peek", queue, "--count", "0", "--json").splitlines()]
    assert sorted(labels) == sorted(f"l{n}" for n in range(400))


def test_equal_lines_are_all_sent_by_an_import_that_resumes(run, tmp_path):
    run("queue", "create", "equal", "--quota", "40")
    small, large = (json.dumps({"body": base64.b64encode(bytes(size)).decode()}) for size in (1, 9000))
    (tmp_path / "f.jsonl").write_text("\n".join([small, large] * 6))
    assert "f.jsonl, line " in run("import", "equal", "f.jsonl", code=1)
    run("queue", "set", "equal", "quota=1000")
    run("import", "equal", "f.jsonl")
    assert len(run("peek", "equal", "--count", "0", "--json").splitlines()) == 12


@pytest.mark.parametrize("move", [False, True])
def test_a_message_that_cannot_be_copied_is_named(run, move):
    source, target = f"from {move}", f"to {move}"
    run("queue", "create", source)
    run("queue", "create", target, "--quota", "8")
    run("send", source, "small")
    identifier = run("send", source, "x" * 9000).strip()
    said = run("copy", source, target, *(["--move"] if move else []), code=1)
    assert identifier.startswith("{") and "INSUFFICIENT_RESOURCES" in said and f"message {identifier}" in said


def test_an_unknown_property_in_an_import_is_named(run, tmp_path):
    run("queue", "create", "strict")
    (tmp_path / "f.jsonl").write_text('{"lable": "x"}\n')
    assert "'lable' is not a message property" in run("import", "strict", "f.jsonl", code=1)


def test_a_value_of_zero_is_a_value(run):
    run("queue", "create", "zero", "--priv-level", "0", "--quota", "0", "--journal-quota", "0")
    shown = json.loads(run("queue", "show", "zero", "--json"))
    assert (shown["priv_level"], shown["quota"], shown["journal_quota"]) == (0, 0, 0)


@pytest.mark.parametrize(
    "command",
    [("move", "--to-queue", "nowhere"), ("copy", "--to-queue", "nowhere"), ("resend", "--to-queue", "nowhere")],
)
def test_a_dry_run_finds_that_the_queue_to_go_to_is_missing(run, command):
    name = f"dry-{command[0]}"
    run("queue", "create", name)
    run("send", name, "x")
    for options in (("--dry-run",), ()):
        assert "there is no queue .\\private$\\nowhere" in run(
            "msg", command[0], name, *command[1:], "--all", *options, code=3
        )
    assert len(run("peek", name, "--json").splitlines()) == 1


def test_a_dry_run_of_a_return_names_the_queues_that_are_gone(run):
    run("queue", "create", "goes")
    run("send", "goes", "x", "--deadletter", "--ttl", "1")
    eventually(lambda: run("dlq", "list", "--meant-for", "goes", "--json"))
    run("queue", "delete", "goes", "--yes")
    for verb in ("return", "resend"):
        said = run("dlq", verb, "--meant-for", "goes", "--dry-run", code=1)
        assert "1 message of 1 could not be" in said and "goes" in said
    run("queue", "create", "goes")
    assert "would be returned: 1" in run("dlq", "return", "--meant-for", "goes", "--dry-run")


def test_copy_keeps_and_move_removes_the_messages(run):
    run("queue", "create", "from")
    run("queue", "create", "to", "--transactional")
    for number in range(3):
        run("send", "from", str(number))
    assert "copied 3" in run("copy", "from", "to")
    assert "moved 3" in run("copy", "from", "to", "--move")
    counts = {r["path_name"].rpartition("\\")[2]: r["message_count"]
              for r in map(json.loads, run("queue", "list", "--json").splitlines())}  # fmt: skip
    assert (counts["from"], counts["to"]) == (0, 6)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("queue", "create", "a;b,c"), 1, "MQ_ERROR_ILLEGAL_QUEUE_PATHNAME"),
        (("queue", "set", "x", "color=red"), 2, "PROPERTY=VALUE with one of"),
        (("send", "x", "body", "--file", "/etc/hostname"), 2, "not both"),
        (("send", "x", "y", "--priority", "9"), 2, "0<=x<=7"),
        (("queue", "list", "--port", "1"), 6, "refused"),
        (("nonsense",), 2, "No such command"),
    ],
)
def test_mistakes_get_an_exit_code_and_one_clear_line(run, arguments, code, said):
    assert said in run(*arguments, code=code)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("queue", "show", "missing"), 3, "MQ_ERROR_QUEUE_NOT_FOUND"),
        (("peek", "OTHER\\private$\\in"), 3, "connect to it (--host OTHER)"),
        (("queue", "set", "orders", "base_priority=5"), 2, "no base priority"),
        (("queue", "list", "--port", "1"), 6, "refused"),
        (("send", "x", "y", "--priority", "9"), 2, "0<=x<=7"),
    ],
)
def test_a_process_ends_with_the_exit_code_of_its_mistake(service, arguments, code, said):
    environment = {**os.environ, **at(service)}
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr and "Traceback" not in done.stderr


def test_a_body_goes_through_pipes_byte_for_byte(run, service):
    run("queue", "create", "piped")
    script, body = Path(sys.executable).with_name("openmsmq"), bytes(range(256)) + b"\r\n\0"  # the installed script
    environment = {**os.environ, **at(service)}
    subprocess.run([script, "send", "piped"], input=body, check=True, capture_output=True, timeout=60, env=environment)
    received = subprocess.run(
        [script, "receive", "piped", "--body-only"], check=True, capture_output=True, timeout=60, env=environment
    )
    assert received.stdout == body


def test_users_are_added_listed_changed_and_removed(run, service):
    options = ("user", "--data-dir", str(service.directory))
    sid = run(*options, "add", "alice", "--password-stdin", stdin="secret\n").strip()
    assert sid.startswith("S-1-5-21-")
    assert json.loads(run(*options, "list", "--json")) == {
        "name": "alice",
        "sid": sid,
        "administrator": False,
        "role": "administrator",
        "groups": [],
    }
    run(*options, "role", "alice", "monitor")
    assert json.loads(run(*options, "list", "--json"))["role"] == "monitor"
    assert "king" in run(*options, "role", "alice", "king", code=2)
    run("queue", "list", "--user", "alice", OPENMSMQ_PASSWORD="secret")
    run(*options, "passwd", "alice", "--password-stdin", stdin="other\n")
    run("queue", "list", "--user", "alice", "--level", "privacy", OPENMSMQ_PASSWORD="other")
    run("queue", "list", "--user", "alice", OPENMSMQ_PASSWORD="secret", code=5)
    run(*options, "remove", "alice")
    assert "no user" in run(*options, "remove", "alice", code=1)


def test_fsck_refuses_a_store_in_use_and_passes_a_sound_one(run, tmp_path):
    with Daemon(tmp_path / "data") as running:
        assert "another process" in run("fsck", str(running.directory), code=2)
        running.stop()
        assert "clean" in run("fsck", str(running.directory))
        report = json.loads(run("fsck", "--json", str(running.directory)))
        assert report["clean"] is True


def test_fsck_repairs_a_damaged_store_and_loses_nothing_else(run, tmp_path):
    with Daemon(tmp_path / "data") as running:
        with running.connect() as manager:
            queue = manager.create_queue(r".\private$\q")
            with manager.open(queue, "send") as opened:
                for number in range(10):
                    opened.send(f"message number {number}".encode(), recoverable=True)
        running.kill()
        segment = min((running.directory / "store").glob("segment-*"))
        data = bytearray(segment.read_bytes())
        data[data.index(b"message number 4")] ^= 0xFF
        segment.write_bytes(data)
        assert "DAMAGED" in invoke("fsck", str(running.directory)).stdout
        assert "moved to" in run("fsck", "--repair", str(running.directory))
        running.start()
        with running.connect() as manager, manager.open(queue) as opened:
            assert [m.body[-1:] for m in opened] == [b"%d" % n for n in range(10) if n != 4]


def test_protocols_lists_each_operation_with_its_state(run):
    rows = json.loads(run("protocols", "--json"))
    by_name = {row["name"]: row for row in rows}
    assert by_name["rpc_ACSendMessageEx"]["state"] == "served"
    assert by_name["rpc_ACSendMessageEx"]["opnum"] == 1
    assert by_name["R_QMEnlistTransaction"]["state"] == "served"


def test_tail_shows_what_arrives_and_leaves_it(run, service):
    run("queue", "create", "watched")
    run("send", "watched", "old", "--label", "old")
    with _tail(service, "watched", "--from-start", "--count", "2") as following:
        assert json.loads(following.stdout.readline())["label"] == "old"
        run("send", "watched", "new", "--label", "new")
        assert json.loads(following.stdout.readline())["label"] == "new"
        assert following.wait(20) == 0
    assert len(run("peek", "watched", "--json").splitlines()) == 2


def test_tail_begins_with_the_next_message(run, service):
    run("queue", "create", "busy")
    run("send", "busy", "old", "--label", "old")
    with _tail(service, "busy", "--count", "1") as following:
        numbers = itertools.count()

        def has_ended():  # sends again, in case the watch begins late
            run("send", "busy", "new", "--label", f"new {next(numbers)}")
            return following.poll() is not None

        eventually(has_ended)
        assert json.loads(following.stdout.readline())["label"].startswith("new")


def test_tail_continues_after_a_restart_and_shows_each_message_once(tmp_path):
    with Daemon(tmp_path / "data") as own:
        with own.connect() as manager:
            manager.create_queue(".\\private$\\q")
        environment = at(own)
        for label in ("a", "b"):
            assert invoke("send", "q", "x", "--label", label, "--recoverable", **environment).code == 0
        with _tail(own, "q", "--from-start", "--count", "4") as following:
            shown = [json.loads(following.stdout.readline())["label"] for _ in "ab"]
            own.kill()
            own.start()
            for label in ("c", "d"):
                assert invoke("send", "q", "x", "--label", label, **environment).code == 0
            shown += [json.loads(line)["label"] for line in following.stdout]
            assert (shown, following.wait()) == (["a", "b", "c", "d"], 0)


@contextmanager
def _tail(service, *arguments):
    environment = {**os.environ, **at(service)}
    tail = command("tail", *arguments, "--json")
    with subprocess.Popen(tail, stdout=subprocess.PIPE, text=True, env=environment) as following:
        try:
            yield following
        finally:
            following.kill()


THERE = "DIRECT=OS:there\\private$\\orders"


@pytest.fixture
def operator(run, service):
    """The options and environment of an administrator."""
    users = ("user", "--data-dir", str(service.directory))
    run(*users, "add", "operator", "--admin", "--password-stdin", stdin="secret\n")
    yield lambda *arguments, **more: run(*arguments, "--user", "operator", OPENMSMQ_PASSWORD="secret", **more)
    run(*users, "remove", "operator")


def sent(run, queue, *arguments):
    return run("send", queue, *arguments).strip()


def listed(run, queue):
    return [json.loads(line)["id"] for line in run("peek", queue, "--count", "0", "--json").splitlines()]


def test_messages_are_put_aside_and_back(run):
    run("queue", "create", "aside")
    first, second = sent(run, "aside", "one"), sent(run, "aside", "two")
    preview = run("msg", "move", "aside", "--id", first, "--to", "later", "--dry-run")
    assert "one" in preview and "would be moved: 1" in preview and listed(run, "aside") == [first, second]
    assert "moved: 1" in run("msg", "move", "aside", "--id", first, "--to", "later")
    assert (listed(run, "aside"), listed(run, "aside;later")) == ([second], [first])
    done = json.loads(run("msg", "move", "aside;later", "--all", "--json"))
    assert done["done"] and done["to"].endswith("aside") and listed(run, "aside") == [first, second]
    assert "no such message" in run("msg", "move", "aside", "--id", "{x}\\1", "--to", "later", code=1)
    assert "--to SUBQUEUE" in run("msg", "move", "aside", "--all", code=2)
    assert "select messages by --id" in run("msg", "move", "aside", "--to", "later", code=2)


def test_messages_for_another_machine_are_listed_held_looked_at_and_purged(run, operator):
    for number in range(2):
        run("send", THERE, f"message {number}", "--reach-ttl", "500")

    def listed() -> dict[str, Any]:
        (only,) = map(json.loads, run("outgoing", "list", "--json").splitlines())
        return only

    eventually(lambda: listed()["state"] == "NEED VALIDATION")  # WAITING while the name is looked up
    assert (listed()["format_name"], listed()["message_count"]) == (THERE, 2)
    assert "orders" in run("outgoing", "list")
    assert json.loads(operator("outgoing", "pause", THERE, "--json")) == {"queue": THERE, "state": "ONHOLD"}
    shown = json.loads(run("queue", "show", "there\\private$\\orders", "--json"))
    assert shown["management"]["state"] == "ONHOLD"
    assert "there\\private$\\orders: " in operator("outgoing", "resume", "there\\private$\\orders")
    assert listed()["state"] != "ONHOLD"
    peeked = [json.loads(line) for line in operator("outgoing", "peek", THERE, "--json").splitlines()]
    assert all(0 < message["time_to_reach_queue"] <= 500 for message in peeked), "what is left of it"
    assert "2 messages" in operator("outgoing", "purge", THERE, "--yes")
    assert run("outgoing", "list", "--json") == ""


@pytest.mark.parametrize("command", ["pause", "resume", "peek"])
def test_other_users_cannot_change_outgoing_queues(run, command):
    run("send", THERE, "x")
    assert "MQ_ERROR_ACCESS_DENIED" in run("outgoing", command, THERE, code=5)


def test_the_machine_is_shown_disconnected_and_connected(run, operator):
    assert "MQ_ERROR_ACCESS_DENIED" in run("machine", "disconnect", code=5)
    for action, state in (("disconnect", "DISCONNECTED"), ("connect", "CONNECTED"), ("tidy", "CONNECTED")):
        operator("machine", action)
        machine = json.loads(run("machine", "--json"))
        assert (machine["connected"], machine["version"], machine["ds_server"]) == (state, "6.3.0", None)
    assert "bytes_in_all_queues" in run("machine")


def test_everything_about_a_queue_is_shown(run):
    run("queue", "create", "whole")
    shown = json.loads(run("queue", "show", "whole", "--json"))
    assert (shown["message_count"], shown["management"]["state"]) == (0, "LOCAL CONNECTION")
    assert len(shown["management"]) == 27
    assert "LOCAL CONNECTION" in run("queue", "show", "whole")
    assert "MACHINE" in run("queue", "show", "DIRECT=OS:.\\SYSTEM$;DEADLETTER")
    assert json.loads(run("queue", "show", ".\\private$\\whole;journal", "--json"))["management"]["type"] == "PRIVATE"


def test_administrator_rights_are_granted_and_revoked(run, service):
    options = ("user", "--data-dir", str(service.directory))
    run(*options, "add", "chief", "--password-stdin", stdin="secret\n")
    for arguments, code in ((("chief",), 0), (("chief", "--revoke"), 5)):
        run(*options, "admin", *arguments)
        run("machine", "connect", "--user", "chief", OPENMSMQ_PASSWORD="secret", code=code)
    assert "no user" in run(*options, "admin", "nobody", code=1)


def test_a_second_interrupt_does_not_disturb_the_end():
    """`timeout -s INT` sends two signals: one to the process and one to its group."""
    program = """
import atexit, os, signal
from openmsmq.cli import root

def interrupted(**_):
    os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in jobs in the background of a shell
atexit.register(interrupted)
root.cli = interrupted
root.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
