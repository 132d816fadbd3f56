"""The files of the audit log."""

from __future__ import annotations

import fcntl
import json
import stat
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from openmsmq.admin.audit import AuditEntry, AuditFilter, AuditLog
from openmsmq.model.left_out import LEFT_OUT


def entry(name: str = "orders") -> AuditEntry:
    return AuditEntry("queue.delete", "queue", name, "alice", "S-1-5-21-1-2-3-1001", "rpc 10.0.0.7", count=3)


def test_a_record_has_user_origin_action_and_count(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.append(entry())
    log.append(
        AuditEntry("queue.properties", "queue", "o", "bob", before={"label": "a\x1b"}, after={"label": "x" * 1000})
    )
    second, first = log.read()
    assert first["actor"] == {"name": "alice", "sid": "S-1-5-21-1-2-3-1001"}
    assert first["from"] == {"door": "rpc", "peer": "10.0.0.7"}
    assert (first["action"], first["object"]["name"], first["count"], first["seq"]) == (
        "queue.delete", "orders", 3, "1",
    )  # fmt: skip
    assert "\x1b" not in second["before"]["label"] and len(second["after"]["label"]) == 256
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (AuditFilter(), True), (AuditFilter(action="queue.*"), True), (AuditFilter(action="Queue.*"), False),
        (AuditFilter(name="ORD*"), True), (AuditFilter(name="ord"), False), (AuditFilter(by="AL?CE"), True),
        (AuditFilter(by="s-1-5-21-*-1001"), True), (AuditFilter(by="S-1-5"), False), (AuditFilter(denied=True), False),
        (AuditFilter(before=2), True), (AuditFilter(before=1), False), (AuditFilter(by="bob", name="orders"), False),
    ],
)  # fmt: skip
def test_records_are_found_by_action_object_and_user(wanted: AuditFilter, fits: bool, tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.append(entry())
    [record] = log.read()
    assert wanted.fits(record) is fits


@pytest.mark.parametrize(
    "change",
    [
        {"actor": "alice"}, {"actor": {"name": "alice"}}, {"object": None}, {"seq": 7}, {"seq": "x"},
        {"seq": "9" * 9999}, {"count": "3"}, {"before": []}, {"from": {"door": 1, "peer": None}}, {"result": None},
        "no object", ["list"],
    ],
)  # fmt: skip
def test_invalid_records_are_skipped(change: Any, tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    for name in ("first", "second"):
        log.append(entry(name))
    file = tmp_path / "audit.jsonl"
    first, second = file.read_text().splitlines()
    damaged = json.loads(first) | change if isinstance(change, dict) else change
    file.write_text("".join(f"{line}\n" for line in (json.dumps(damaged), "{", "[" * 100_000, second)))
    assert [record["object"]["name"] for record in log.read()] == ["second"]


def test_the_files_are_bounded_and_numbers_continue(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, size=2000, files=3)
    for number in range(100):
        log.append(entry(f"q{number}"), sync=False)
    files = sorted(path.name for path in tmp_path.glob("*.jsonl*"))
    assert files == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert all(path.stat().st_size < 2500 for path in tmp_path.iterdir())
    numbers = [int(record["seq"]) for record in log.read()]
    assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1))
    assert next(r["object"]["name"] for r in log.read() if r["action"] == "queue.delete") == "q99"


def test_a_reader_misses_nothing_that_is_rotated_meanwhile(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, size=2000, files=10)

    def write(count: int) -> None:
        for _ in range(count):
            log.append(entry(), sync=False)

    write(30)
    files = len(list(tmp_path.glob("audit.jsonl*")))
    records = log.read()
    numbers = [int(next(records)["seq"])]
    write(20)
    assert files < len(list(tmp_path.glob("audit.jsonl*"))) < 10, "rotated, nothing deleted"
    numbers += [int(record["seq"]) for record in records]
    assert numbers == list(range(len(numbers), 0, -1)) and len(numbers) >= 30


def test_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    def write(name: str) -> None:
        log = AuditLog(tmp_path, size=3000, files=100)
        for number in range(50):
            log.append(entry(f"{name}{number}"), sync=False)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = list(AuditLog(tmp_path, files=100).read())
    assert sorted(r["object"]["name"] for r in records if r["action"] == "queue.delete") == sorted(
        f"{name}{number}" for name in "abcd" for number in range(50)
    )
    assert [int(r["seq"]) for r in records] == list(range(len(records), 0, -1))


def test_a_full_disk_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(tmp_path)
    log.append(entry())
    write = __import__("os").write
    with monkeypatch.context() as patch:
        patch.setattr("openmsmq.admin.audit.os.write", lambda handle, data: write(handle, data[:10]))
        with pytest.raises(OSError, match="whole"):
            log.append(entry())
    log.append(entry("after"))
    assert [record["object"]["name"] for record in log.read()] == ["after", "orders"]


def test_numbers_continue_after_a_disk_that_was_full_at_a_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(tmp_path, size=1000)
    while (tmp_path / "audit.jsonl").stat().st_size < 1000 if (tmp_path / "audit.jsonl").exists() else True:
        log.append(entry())
    last = next(log.read())["seq"]
    with monkeypatch.context() as patch:
        patch.setattr("openmsmq.admin.audit.os.write", lambda handle, data: 0)
        with pytest.raises(OSError, match="not written whole"):
            log.append(entry())
    assert log.append(entry("after")) == int(last) + 2
    (tmp_path / "audit.jsonl").replace(tmp_path / "audit.jsonl.1")  # as a crash between two renames leaves it
    assert AuditLog(tmp_path, size=1000).append(entry("later")) == int(last) + 3


def test_a_process_that_keeps_the_lock_blocks_nobody(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.append(entry())
    with (tmp_path / "audit.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="kept the lock"):
            log.append(entry())
    log.append(entry("after"))
    assert [record["object"]["name"] for record in log.read()] == ["after", "orders"]


def test_the_newest_records_are_read_without_the_others(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    for number in range(500):  # more than one block
        log.append(entry(f"q{number}"), sync=False)
    file = tmp_path / "audit.jsonl"
    file.write_text("damaged\n" + file.read_text())
    before = LEFT_OUT.counts["audit records"]
    assert [record["object"]["name"] for record in islice(log.read(), 400)] == [f"q{n}" for n in range(499, 99, -1)]
    assert LEFT_OUT.counts["audit records"] == before
    assert len(list(log.read())) == 500
    assert LEFT_OUT.counts["audit records"] == before + 1
