"""`openmsmq directory`, run on the directory file."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from command_line import CommandResult, checked, invoke
from openmsmq.directory.embedded import EmbeddedDirectory
from openmsmq.directory.provider import MachineRecord, QueueRecord

MACHINE = MachineRecord(UUID(int=1), "BERLIN", ("berlin.example.com",))
QUEUE = QueueRecord(UUID(int=2), MACHINE.identifier, "BERLIN\\orders", label="of \x1b[31mcustomers", create_time=0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    async def fill() -> None:
        directory = EmbeddedDirectory(tmp_path / "directory.sqlite")
        await directory.register_machine(MACHINE)
        await directory.create_queue(QUEUE)
        await directory.close()

    asyncio.run(fill())
    return tmp_path


def run(data: Path, *arguments: str) -> CommandResult:
    return invoke("directory", "--data-dir", str(data), *arguments)


def documents(data: Path, *arguments: str) -> list[dict[str, Any]]:
    given = ("directory", "--data-dir", str(data), *arguments, "--json")
    return [json.loads(line) for line in checked(*given).splitlines()]


def test_directory_commands_show_machines_queues_and_lists(data: Path) -> None:
    (shown,) = documents(data, "show")
    assert (shown["machines"], shown["public_queues"], shown["distribution_lists"]) == (1, 1, 0)
    assert shown["file"] == str(data / "directory.sqlite")
    (machine,) = documents(data, "machines")
    assert machine == {
        "computer_name": "BERLIN", "identifier": str(MACHINE.identifier), "dns_names": ["berlin.example.com"],
    }  # fmt: skip
    for text in (run(data, "queues").stdout, run(data, "machines").stdout, run(data, "show").stdout):
        assert "BERLIN" in text or "public_queues" in text


def test_queues_are_chosen_by_label_and_machine_and_shown_without_control_characters(data: Path) -> None:
    (queue,) = documents(data, "queues", "--label", QUEUE.label.upper(), "--machine", "berlin.example.com")
    assert (queue["path_name"], queue["format_name"]) == ("BERLIN\\orders", f"PUBLIC={QUEUE.identifier}")
    assert documents(data, "queues", "--label", "another") == []
    assert "\x1b" not in run(data, "queues").stdout
    missing = run(data, "queues", "--machine", "PARIS")
    assert (missing.code, "PARIS is not in the directory" in missing.stderr) == (3, True)


def test_a_list_is_created_filled_emptied_and_deleted(data: Path) -> None:
    name = run(data, "lists", "create", "offices", "DIRECT=OS:a\\x").stdout.strip()
    assert name.startswith("DL=")
    run(data, "lists", "add", "OFFICES", "DIRECT=OS:b\\x", "direct=os:A\\x")
    (record,) = documents(data, "lists")
    assert record == {"name": "offices", "format_name": name, "members": ["DIRECT=OS:a\\x", "DIRECT=OS:b\\x"]}
    removed = run(data, "lists", "remove", name, "DIRECT=OS:a\\x", "DIRECT=OS:c\\x")
    assert (removed.code, "DIRECT=OS:c\\x is not a member" in removed.stderr) == (0, True)
    assert "offices" in run(data, "lists").stdout
    assert run(data, "lists", "delete", "offices", "--yes").code == 0
    assert documents(data, "lists") == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("lists", "create", "x", "orders"), 2, "expected one of PUBLIC="),
        (("lists", "create", "x", "DIRECT=OS:a\\x,DIRECT=OS:b\\x"), 2, "each queue as a separate argument"),
        (("lists", "create", "x", f"MACHINE={UUID(int=1)};JOURNAL"), 2, "messages cannot be sent"),
        (("lists", "add", "missing", "DIRECT=OS:a\\x"), 3, "there is no distribution list missing; there are: there"),
        (("lists", "add", "DL=5", "DIRECT=OS:a\\x"), 2, "DL=GUID"),
        (("lists", "add", f"DL={UUID(int=5)}", "DIRECT=OS:a\\x"), 3, "is not in the directory"),
        (("lists", "create", "There"), 7, "the directory already has distribution list There"),
        (("lists", "delete", "missing", "--yes"), 3, "there is no distribution list missing"),
        (("machines", "remove", "missing", "--yes"), 3, "missing is not in the directory"),
        (("lists", "delete", "there"), 2, "give --yes"),
    ],
)
def test_errors_are_explained(data: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    run(data, "lists", "create", "there")
    ended = run(data, *arguments)
    assert (ended.code, said in ended.stderr) == (code, True), ended
    assert [record["name"] for record in documents(data, "lists")] == ["there"]


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 1, 1), ("y", 0, 0)])
def test_a_machine_is_removed_only_after_its_user_has_agreed(data: Path, answer: str, code: int, left: int) -> None:
    ended = invoke("directory", "--data-dir", str(data), "machines", "remove", "berlin", stdin=answer)
    assert ended.code == code and "Remove berlin and the records" in ended.stderr and "Remove" not in ended.stdout
    (shown,) = documents(data, "show")
    assert (shown["machines"], shown["public_queues"]) == (left, left)


def test_a_retired_machine_is_removed_with_its_queues(data: Path) -> None:
    assert run(data, "machines", "remove", "berlin", "--yes").code == 0
    (shown,) = documents(data, "show")
    assert (shown["machines"], shown["public_queues"]) == (0, 0)


def test_a_missing_or_unusable_directory_is_not_created(tmp_path: Path) -> None:
    missing = run(tmp_path, "queues")
    assert (missing.code, "there is no directory at" in missing.stderr) == (6, True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "directory.sqlite").write_text("text " * 1000)
    unusable = run(tmp_path, "show")
    assert (unusable.code, "file is not a database" in unusable.stderr) == (6, True)
    with sqlite3.connect(tmp_path / "later") as later:
        later.execute("PRAGMA user_version = 2")
    ended = invoke("directory", "--directory-path", str(tmp_path / "later"), "show")
    assert (ended.code, "has version 2 of the schema; this release reads 1" in ended.stderr) == (6, True)
