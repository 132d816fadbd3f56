"""Copies of a log during writes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from openmsmq.store import Insert, Remove, Store, fsck
from openmsmq.store.copying import copy_log
from openmsmq.store.errors import DamagedStore, NoStore

SIZE = 64 << 10


class Writer:
    """A thread that inserts and removes messages in a store, so that segments are recycled continually."""

    def __init__(self, directory: Path) -> None:
        self.store = Store.open(directory, segment_size=SIZE)
        self.live: dict[int, int] = {}
        self.durable: dict[int, int] = {}  # key -> location of synced messages
        self.removed = 0  # removal was requested for all keys up to this one
        self.number = 0
        self.failure: BaseException | None = None

    def step(self) -> None:
        inserts = []
        for _ in range(8):
            self.number += 1
            inserts.append(Insert(1, self.number, 0, self.number.to_bytes(8, "big") * 100))
        for insert, location in zip(inserts, self.store.append(inserts), strict=True):
            self.live[insert.key] = location
        self.store.sync()
        self.durable = dict(self.live)
        old = [key for key in self.live if key <= self.number - 200 and key % 50]
        if old:
            self.removed = max(self.removed, *old)
            self.store.append([Remove(key, self.live.pop(key)) for key in old])
            self.store.sync()
            self.durable = dict(self.live)
        while self.store.wants_compaction and self.store.compact_step(self._is_live, self._relocated):
            self.store.sync()

    def _is_live(self, queue: int, key: int, deadline: int, location: int) -> bool:
        return self.live.get(key) == location

    def _relocated(self, queue: int, key: int, deadline: int, old: int, new: int) -> None:
        self.live[key] = new

    def run(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                self.step()
        except BaseException as error:
            self.failure = error


def keys_in(directory: Path) -> list[int]:
    store = Store.open(directory)
    try:
        columns = store.recovered.queues.get(1)
        found = []
        for key, location in zip(columns.keys, columns.locations, strict=True) if columns else ():
            assert store.read(location) == key.to_bytes(8, "big") * 100
            found.append(key)
        return found
    finally:
        store.close()


def test_copies_of_a_busy_log_hold_what_was_durable_before_and_are_sound(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "store")
    stop = threading.Event()
    thread = threading.Thread(target=writer.run, args=(stop,))
    thread.start()
    seen, recycled = 0, 0
    try:
        for number in range(25):
            before = set(writer.durable)
            target = tmp_path / f"copy-{number}"
            target.mkdir()
            copied = copy_log(tmp_path / "store", target)
            gone = writer.removed
            keys = keys_in(target)
            assert len(keys) == len(set(keys))
            missing = {key for key in before if key > gone or not key % 50} - set(keys)
            assert not missing
            assert fsck.verify(str(target)).clean
            seen += len(keys)
            recycled = max(recycled, copied.segments[0])
    finally:
        stop.set()
        thread.join()
    assert writer.failure is None
    assert seen and recycled > 3, "the log must have lost its old end while it was copied"


def test_a_log_recycled_during_a_copy_is_copied_from_its_new_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(tmp_path / "store")
    for _ in range(100):
        writer.step()
    (tmp_path / "copy").mkdir()
    steps: list[int] = []

    def pause() -> None:
        if not steps:  # after the first segment, all others are recycled
            steps.append(1)
            for _ in range(300):
                writer.step()

    before = {key for key in writer.durable if not key % 50}
    copied = copy_log(tmp_path / "store", tmp_path / "copy", pause=pause)
    assert steps and sorted(p.name for p in (tmp_path / "copy").iterdir()) == [
        f"segment-{n:016x}" for n in copied.segments
    ]
    assert before <= set(keys_in(tmp_path / "copy"))


def test_a_copy_of_a_closed_store_is_whole(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "store")
    for _ in range(20):
        writer.step()
    writer.store.close()
    (tmp_path / "copy").mkdir()
    copy_log(tmp_path / "store", tmp_path / "copy")
    assert keys_in(tmp_path / "copy") == sorted(writer.durable)


def test_a_store_that_cannot_be_copied_is_an_error(tmp_path: Path) -> None:
    for name in ("store", "copy"):
        (tmp_path / name).mkdir()
    with pytest.raises(NoStore):
        copy_log(tmp_path / "store", tmp_path / "copy")
    writer = Writer(tmp_path / "store")
    for _ in range(20):
        writer.step()
    writer.store.close()
    segments: list[Any] = sorted((tmp_path / "store").glob("segment-*"))
    data = bytearray(segments[0].read_bytes())
    data[20000] ^= 1
    segments[0].write_bytes(data)
    with pytest.raises(DamagedStore):
        copy_log(tmp_path / "store", tmp_path / "copy")
