"""The directory in a file: content, sharing between processes, invalid and replaced files."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from openmsmq.directory.embedded import EmbeddedDirectory
from openmsmq.directory.lookup import Filter, Relation
from openmsmq.directory.provider import (
    Certificate,
    DirectoryNotConnected,
    MachineRecord,
    ObjectExists,
    ObjectNotFound,
    QueueRecord,
)

HERE = MachineRecord(UUID(int=1), "HERE", ("here.example.com",), b"public", b"signing", b"descriptor")
THERE = MachineRecord(UUID(int=2), "THERE")
ORDERS = QueueRecord(
    UUID(int=10), HERE.identifier, "HERE\\Orders", 1, UUID(int=5), "of customers", True, 100, 200, -3, True, 2, True,
    "234.1.1.1:8001", 1000, 2000, b"descriptor",
)  # fmt: skip


def on(path: Path, work: Callable[[EmbeddedDirectory], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        directory = EmbeddedDirectory(path)
        try:
            return await work(directory)
        finally:
            await directory.close()

    return asyncio.run(run())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "directory.sqlite"

    async def fill(d: EmbeddedDirectory) -> None:
        await d.register_machine(HERE)
        await d.register_machine(THERE)
        assert await d.create_queue(ORDERS) == ORDERS

    on(path, fill)
    return path


def test_everything_is_there_after_it_was_closed(path: Path) -> None:
    assert on(path, lambda d: d.queue(ORDERS.identifier)) == ORDERS
    assert on(path, lambda d: d.machine(HERE.identifier)) == HERE
    assert on(path, lambda d: d.machines()) == [HERE, THERE]


def test_only_its_owner_may_read_the_file(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600


def test_machines_and_queues_are_found_by_all_their_names_in_any_case(path: Path) -> None:
    for name in ("here", "HERE", "Here.Example.COM"):
        assert on(path, lambda d, name=name: d.machine_named(name)) == HERE
        assert on(path, lambda d, name=name: d.queue_at(f"{name}\\oRDERS")) == ORDERS
    for missing in ("elsewhere", "", "HERE\\Orders"):
        with pytest.raises(ObjectNotFound):
            on(path, lambda d, missing=missing: d.machine_named(missing))
    for missing in ("HERE\\orders2", "THERE\\Orders", "elsewhere\\Orders", "Orders"):
        with pytest.raises(ObjectNotFound):
            on(path, lambda d, missing=missing: d.queue_at(missing))


def test_a_computer_name_belongs_to_one_queue_manager(path: Path) -> None:
    with pytest.raises(ObjectExists, match=str(HERE.identifier)):
        on(path, lambda d: d.register_machine(replace(THERE, computer_name="here")))
    assert on(path, lambda d: d.machines()) == [HERE, THERE]


def test_a_machine_that_registers_again_keeps_its_keys_and_takes_its_queues_to_a_new_name(path: Path) -> None:
    renamed = MachineRecord(HERE.identifier, "NEW", security=b"other")
    on(path, lambda d: d.register_machine(renamed))
    assert on(path, lambda d: d.machine_named("new")) == replace(
        renamed, public_keys=b"public", signing_keys=b"signing"
    )
    assert on(path, lambda d: d.queue(ORDERS.identifier)).path_name == "NEW\\Orders"
    with pytest.raises(ObjectNotFound):
        on(path, lambda d: d.machine_named("here.example.com"))


def test_a_path_name_and_an_identifier_are_given_once(path: Path) -> None:
    for again in (replace(ORDERS, identifier=uuid4(), path_name="here\\ORDERS"), replace(ORDERS, path_name="HERE\\x")):
        with pytest.raises(ObjectExists):
            on(path, lambda d, again=again: d.create_queue(again))
    with pytest.raises(ObjectNotFound):
        on(path, lambda d: d.create_queue(replace(ORDERS, machine=uuid4())))


def test_a_changed_queue_is_found_by_its_new_properties(path: Path) -> None:
    changed = on(path, lambda d: d.update_queue(ORDERS.identifier, {"label": "New", "quota": 1, "modify_time": 3}))
    assert changed == replace(ORDERS, label="New", quota=1, modify_time=3)
    assert on(path, lambda d: d.find_queues([Filter("label", Relation.EQUALS, "new")], 0, 9)) == [changed]
    with pytest.raises(ObjectNotFound):
        on(path, lambda d: d.update_queue(uuid4(), {"label": "x"}))


def test_a_deleted_queue_is_remembered_until_its_machine_confirms(path: Path) -> None:
    on(path, lambda d: d.delete_queue(ORDERS.identifier))
    assert on(path, lambda d: d.deleted_queues(HERE.identifier)) == [ORDERS.identifier]
    assert on(path, lambda d: d.deleted_queues(THERE.identifier)) == []
    on(path, lambda d: d.confirm_deletion(ORDERS.identifier))
    assert on(path, lambda d: d.deleted_queues(HERE.identifier)) == []
    with pytest.raises(ObjectNotFound):
        on(path, lambda d: d.delete_queue(ORDERS.identifier))


def test_pages_follow_each_other_in_the_order_of_creation(path: Path) -> None:
    async def work(d: EmbeddedDirectory) -> list[str]:
        for n in range(5):
            await d.create_queue(replace(ORDERS, identifier=uuid4(), path_name=f"THERE\\{n}", machine=THERE.identifier))
        names, after = [], 0
        while page := await d.find_queues([Filter("machine", Relation.EQUALS, THERE.identifier)], after, 2):
            assert len(page) <= 2
            names += [record.path_name for record in page]
            after = page[-1].position
        return names

    assert on(path, work) == [f"THERE\\{n}" for n in range(5)]


def test_a_machine_goes_with_the_records_of_its_queues(path: Path) -> None:
    on(path, lambda d: d.remove_machine(HERE.identifier))
    with pytest.raises(ObjectNotFound):
        on(path, lambda d: d.queue(ORDERS.identifier))
    with pytest.raises(ObjectNotFound):
        on(path, lambda d: d.remove_machine(HERE.identifier))


def test_certificates_are_found_by_user(path: Path) -> None:
    first, second = (Certificate(bytes([n]) * 16, UUID(int=n), b"der%d" % n) for n in (1, 2))
    for certificate in (first, second, first):
        on(path, lambda d, certificate=certificate: d.add_certificate("S-1-5-21-1", certificate))
    assert set(on(path, lambda d: d.user("S-1-5-21-1")).certificates) == {first, second}
    on(path, lambda d: d.remove_certificate("S-1-5-21-1", first.digest))
    assert on(path, lambda d: d.user("S-1-5-21-1")).certificates == (second,)
    with pytest.raises(ObjectNotFound):
        on(path, lambda d: d.remove_certificate("S-1-5-21-1", first.digest))


def test_members_of_a_list_are_there_once_in_any_case(path: Path) -> None:
    made = on(path, lambda d: d.create_list("All", ["DIRECT=OS:a\\q", "direct=os:A\\Q", "DIRECT=OS:b\\q"]))
    assert made.members == ("DIRECT=OS:a\\q", "DIRECT=OS:b\\q")
    changed = on(
        path, lambda d: d.set_members(made.identifier, ["DIRECT=OS:c\\q"], ["DIRECT=OS:B\\q", "DIRECT=OS:x\\q"])
    )
    assert changed.members == ("DIRECT=OS:a\\q", "DIRECT=OS:c\\q")
    assert on(path, lambda d: d.distribution_lists()) == [changed]
    with pytest.raises(ObjectExists):
        on(path, lambda d: d.create_list("ALL", []))
    on(path, lambda d: d.remove_list(made.identifier))
    for work in (lambda d: d.distribution_list(made.identifier), lambda d: d.set_members(made.identifier, [], [])):
        with pytest.raises(ObjectNotFound):
            on(path, work)


def test_a_file_that_is_not_a_directory_is_unavailable_and_unchanged(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"not a database at all " * 100)
    later = tmp_path / "later"
    with sqlite3.connect(later) as db:
        db.execute("PRAGMA user_version = 99")
    for path in (garbage, later, tmp_path, tmp_path / "missing" / "file"):
        with pytest.raises(DirectoryNotConnected):
            on(path, lambda d: d.machines())
    assert garbage.read_bytes() == b"not a database at all " * 100


def test_a_file_that_is_put_in_its_place_is_used(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    on(other, lambda d: d.register_machine(replace(THERE, computer_name="RESTORED")))

    async def work(d: EmbeddedDirectory) -> None:
        assert len(await d.machines()) == 2
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        os.replace(other, path)
        assert [machine.computer_name for machine in await d.machines()] == ["RESTORED"]

    on(path, work)


def test_many_open_a_new_file_at_once(tmp_path: Path) -> None:
    async def register(number: int) -> None:
        directory = EmbeddedDirectory(tmp_path / "new.sqlite")
        await directory.register_machine(MachineRecord(UUID(int=number), f"M{number}"))
        await directory.close()

    async def all_of_them() -> None:
        await asyncio.gather(*map(register, range(1, 9)))

    asyncio.run(all_of_them())
    assert len(on(tmp_path / "new.sqlite", lambda d: d.machines())) == 8


WRITER = """
import asyncio, sys
from pathlib import Path
from uuid import UUID, uuid4
from openmsmq.directory.embedded import EmbeddedDirectory
from openmsmq.directory.provider import MachineRecord, QueueRecord

async def main(path, number):
    d = EmbeddedDirectory(Path(path))
    await d.register_machine(MachineRecord(UUID(int=number), f"M{number}"))
    n = 0
    while True:
        n += 1
        await d.create_queue(QueueRecord(uuid4(), UUID(int=number), f"M{number}\\\\q{n}"))
        print(f"M{number}\\\\q{n}", flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def test_what_was_reported_is_there_after_writers_were_killed(tmp_path: Path) -> None:
    path = tmp_path / "shared.sqlite"
    program = tmp_path / "writer.py"
    program.write_text(textwrap.dedent(WRITER))
    writers = [
        subprocess.Popen([sys.executable, str(program), str(path), str(n)], stdout=subprocess.PIPE, text=True)
        for n in (1, 2)
    ]
    reported: list[str] = []
    for writer in writers:
        assert writer.stdout is not None
        reported += [writer.stdout.readline().strip() for _ in range(20)]
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
    for writer in writers:
        assert writer.stdout is not None
        reported += [line.strip() for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        writer.wait()
    there = {record.path_name for record in on(path, lambda d: d.find_queues([], 0, 1_000_000))}
    assert len(reported) >= 40
    assert set(reported) <= there
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_calls_at_the_same_time_are_served_one_after_the_other(tmp_path: Path) -> None:
    async def work(directory: EmbeddedDirectory) -> list[str]:
        await directory.register_machine(HERE)
        names = [f"NAME{number}" for number in range(20)]
        await asyncio.gather(*(directory.register_machine(replace(HERE, computer_name=name)) for name in names))
        return names

    names = on(tmp_path / "directory", work)
    with closing(sqlite3.connect(tmp_path / "directory")) as db:
        assert db.execute("SELECT computer_name FROM machine").fetchall() == [(names[-1],)]
