"""Backups of a busy daemon, restored in another place."""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
import stat
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from command_line import add_user, at, checked, invoke
from daemon import Daemon, eventually
from openmsmq.accounts.login_links import create_link, redeem_link
from openmsmq.admin import backup
from openmsmq.store import Put, Store, fsck

BODY = b"x" * 200_000
KEPT, PASSING = ".\\private$\\load", ".\\private$\\passing"


class Load(threading.Thread):
    """Sends numbered messages and receives every second one, with bodies so large that old log segments are deleted."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__()
        self.daemon_ = daemon
        self.acknowledged: set[str] = set()
        self.taken: set[str] = set()
        self.ending = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with self.daemon_.connect() as qm, qm.open(KEPT, "send") as sender, qm.open(PASSING, "send") as passing:
                with qm.open(PASSING) as receiver:
                    number = 0
                    while not self.ending.is_set():
                        number += 1
                        sender.send(b"kept", label=str(number), recoverable=True)
                        self.acknowledged.add(str(number))
                        passing.send(BODY, recoverable=True)
                        receiver.receive(5)
        except BaseException as error:
            self.failure = error


def test_a_backup_under_load_holds_every_durable_message_once(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", "--computer-name", "one") as one:
        add_user(one.directory, "alice", "Secret#1")
        with one.connect() as qm:
            qm.create_queue(KEPT)
            qm.create_queue(PASSING)
        load = Load(one)
        load.start()
        try:
            eventually(lambda: len(load.acknowledged) > 200 or load.failure)
            before = set(load.acknowledged)
            options = ("--data-dir", str(one.directory), "--json")
            done = json.loads(checked("backup", str(tmp_path / "backup"), *options))
        finally:
            load.ending.set()
            load.join()
        assert load.failure is None
        assert done["messages"] >= len(before) > 200
    assert fsck.verify(str(tmp_path / "backup" / "store")).clean
    target = tmp_path / "restored"
    assert "restored" in checked("restore", str(tmp_path / "backup"), "--data-dir", str(target))
    assert stat.S_IMODE((target / "users.json").stat().st_mode) == 0o600
    moved = ("--computer-name", "two", "--name-change", "moved")
    with Daemon(target, *moved) as two, two.connect(user="alice", password="Secret#1") as qm:
        with qm.open(KEPT, "peek") as queue:
            found = Counter(message.label for message in queue)
        assert set(found.values()) == {1}
        assert before <= set(found)
        with qm.open(KEPT, "send") as queue:
            queue.send("new", recoverable=True)


def test_a_damaged_backup_is_not_restored(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        checked("queue", "create", "orders", **at(daemon))
        checked("send", "orders", "x", "--recoverable", **at(daemon))
    data = ("--data-dir", str(tmp_path / "data"))
    said = checked("backup", str(tmp_path / "backup"), *data)  # of a stopped daemon
    assert re.search(
        r"1 message, \d+ definitions?, \d segments? of the log with [\d,]+ bytes, \d+ other files?$", said.strip()
    )
    target = ("--data-dir", str(tmp_path / "new"))

    def refused(*arguments: str) -> str:
        ended = invoke(*arguments)
        assert ended.code == 1, ended
        return ended.stderr

    assert "is not empty" in refused("backup", str(tmp_path / "backup"), *data)
    assert "is not empty" in refused("restore", str(tmp_path / "backup"), *data)
    assert "does not exist" in refused("backup", str(tmp_path / "other"), *target)
    (segment, *_) = sorted((tmp_path / "backup" / "store").glob("segment-*"))
    content = bytearray(segment.read_bytes())
    content[5000] ^= 1
    segment.write_bytes(content)
    assert "is not as the backup wrote it" in refused("restore", str(tmp_path / "backup"), *target)
    (tmp_path / "backup" / "backup.json").unlink()
    assert "unfinished" in refused("restore", str(tmp_path / "backup"), *target)
    assert not (tmp_path / "new" / "store").exists()


def test_a_file_that_is_deleted_during_a_backup_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Daemon(tmp_path / "data") as daemon:
        add_user(daemon.directory, "alice", "Secret#1")
    listed = ["deleted.json", *backup._others(daemon.directory)]
    monkeypatch.setattr(backup, "_others", lambda data_dir: listed)
    backup.back_up(daemon.directory, tmp_path / "backup", "now")
    assert (tmp_path / "backup" / "users.json").exists() and not (tmp_path / "backup" / "deleted.json").exists()
    backup.restore(tmp_path / "backup", tmp_path / "restored")


@pytest.mark.parametrize("inside", ["", "backups", "deep/in/it"])
def test_a_backup_is_not_made_in_its_own_data_directory(tmp_path: Path, inside: str) -> None:
    with Daemon(tmp_path / "data"):
        target = tmp_path / "data" / inside
        ended = invoke("backup", "--data-dir", str(tmp_path / "data"), str(target))
        assert ended.code == 1 and "choose a directory elsewhere" in ended.stderr
        assert not inside or not target.exists()


def test_a_backup_has_the_rows_of_databases(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        directory = daemon.directory
    with closing(sqlite3.connect(directory / "directory.sqlite")) as database:
        database.execute("CREATE TABLE things (name TEXT)")
        database.execute("INSERT INTO things VALUES ('orders')")
        database.commit()
        database.execute("INSERT INTO things VALUES ('not committed')")
        backup.back_up(directory, tmp_path / "backup", "now")
    backup.restore(tmp_path / "backup", tmp_path / "restored")
    with closing(sqlite3.connect(tmp_path / "restored" / "directory.sqlite")) as database:
        assert database.execute("SELECT name FROM things").fetchall() == [("orders",)]


def test_a_login_link_is_in_no_backup(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        secret = create_link(daemon.directory, "alice")
        backup.back_up(daemon.directory, tmp_path / "backup", "now")
    backup.restore(tmp_path / "backup", tmp_path / "restored")
    assert redeem_link(daemon.directory, secret) == "alice" and redeem_link(tmp_path / "restored", secret) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root restores for others")
def test_what_root_restores_belongs_to_the_owner_of_the_data_directory(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data"):
        pass
    checked("backup", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "data"))
    target = tmp_path / "new"
    target.mkdir(mode=0o700)
    os.chown(target, 4711, 4712)
    checked("restore", str(tmp_path / "backup"), "--data-dir", str(target))
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in target.rglob("*")}
    assert owners == {(4711, 4712)}


def test_a_daemon_does_not_start_with_a_backup_that_was_not_restored_completely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Daemon(tmp_path / "data") as daemon, daemon.connect() as qm:
        qm.create_queue(KEPT)
        checked("backup", str(tmp_path / "backup"), "--data-dir", str(daemon.directory), **at(daemon))
    copied, names = backup._copy_file, []

    def interrupted(source: Path, target: Path) -> None:
        names.append(target.name)
        if len(names) > 2:
            raise KeyboardInterrupt
        copied(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(backup, "_copy_file", interrupted)
        with pytest.raises(KeyboardInterrupt):
            backup.restore(tmp_path / "backup", tmp_path / "restored")
    ended = invoke("serve", "--data-dir", str(tmp_path / "restored"))
    assert ended.code == 2 and "the restore of a backup was interrupted: empty the directory" in ended.stderr
    backup.restore(tmp_path / "backup", tmp_path / "again")
    assert not (tmp_path / "again" / "restoring").exists()
    with Daemon(tmp_path / "again") as again, again.connect() as qm:
        assert qm.counts(KEPT)["message_count"] == 0


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A data directory with a store and another file, whose daemon is stopped."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    store = Store.open(data / "store")
    store.append([Put(b"name", b"value")])
    store.close()
    (data / "settings.json").write_text("{}")
    return data


def _fill_disk(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Let writing a file whose name begins with `at` fail."""
    sync = os.fsync

    def failing(handle: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{handle}")).name.startswith(at):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr(os, "fsync", failing)


@pytest.mark.parametrize("at", ["segment-", "settings.json"])
def test_a_full_disk_is_named_by_the_file_and_what_was_written_is_removed(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A copy that stays would keep the disk full, and prevent the next attempt."""
    backup.back_up(stopped, tmp_path / "good", "now")
    with monkeypatch.context() as patch:
        _fill_disk(patch, at)
        for work in (
            lambda: backup.back_up(stopped, tmp_path / "backup", "now"),
            lambda: backup.restore(tmp_path / "good", tmp_path / "restored"),
        ):
            with pytest.raises(OSError, match="No space left on device") as caught:
                work()
            assert at in str(caught.value)
    assert not list((tmp_path / "backup").iterdir()) and not list((tmp_path / "restored").iterdir())
    backup.back_up(stopped, tmp_path / "backup", "now")
    backup.restore(tmp_path / "backup", tmp_path / "restored")


def test_the_root_of_a_file_system_is_an_empty_directory(stopped: Path, tmp_path: Path) -> None:
    """Ext4 has a directory lost+found there, in which repairs put files."""
    for name in ("backup", "restored"):
        (tmp_path / name / "lost+found").mkdir(parents=True, mode=0o700)
    (stopped / "lost+found").mkdir(mode=0o700)
    for name in ("data", "backup"):
        (tmp_path / name / "lost+found" / "#17").write_text("found by fsck")
    backup.back_up(stopped, tmp_path / "backup", "now")
    backup.restore(tmp_path / "backup", tmp_path / "restored")
    assert not list((tmp_path / "restored" / "lost+found").iterdir())
    assert (tmp_path / "restored" / "settings.json").exists()


def test_no_backup_is_made_of_a_backup_that_was_not_restored_completely(stopped: Path, tmp_path: Path) -> None:
    (stopped / "restoring").write_text("")
    with pytest.raises(backup.BackupError, match="was interrupted"):
        backup.back_up(stopped, tmp_path / "backup", "now")
