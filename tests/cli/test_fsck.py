"""`openmsmq fsck` without a store, and with damage in a part that a checkpoint covers."""

from __future__ import annotations

import os

import pytest

from command_line import invoke
from daemon import Daemon
from openmsmq.store import Put, Store

QUEUE = r".\private$\q"


def fsck(directory, *options):
    result = invoke("fsck", str(directory), *options)
    return result.code, result.stdout + result.stderr


def test_a_directory_without_a_store_is_an_error_and_stays_as_it_was(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("not a store")
    for name in ("empty", "other"):
        before = sorted((tmp_path / name).iterdir())
        for options in ((), ("--repair",)):
            code, said = fsck(tmp_path / name, *options)
            assert code == 2 and "holds no store" in said and name in said
        assert sorted((tmp_path / name).iterdir()) == before


def test_damage_under_a_checkpoint_is_found_by_fsck_though_the_daemon_starts(tmp_path):
    with Daemon(tmp_path / "data") as daemon, daemon.connect() as manager:
        manager.create_queue(QUEUE)
        with manager.open(QUEUE, "send") as queue:
            for body in (b"first " * 50, b"second " * 50):
                queue.send(body, recoverable=True)
    assert fsck(tmp_path / "data")[0] == 0
    (segment,) = (path for path in (tmp_path / "data" / "store").iterdir() if b"first first" in path.read_bytes())
    content = bytearray(segment.read_bytes())
    content[content.index(b"first first")] ^= 0xFF
    segment.write_bytes(content)
    with Daemon(tmp_path / "data") as daemon, daemon.connect() as manager:  # the checkpoint covers this part
        assert manager.counts(QUEUE)["message_count"] == 2
    code, said = fsck(tmp_path / "data")
    assert code == 1 and "DAMAGED" in said and segment.name in said
    assert fsck(tmp_path / "data", "--repair")[0] == 0
    with Daemon(tmp_path / "data") as daemon, daemon.connect() as manager, manager.open(QUEUE) as queue:
        assert queue.receive(0).body == b"second " * 50


def _stored(directory):
    store = Store.open(directory / "store")
    store.append([Put(b"name", b"value")])
    store.close()
    return next(iter(sorted((directory / "store").glob("segment-*"))))


@pytest.mark.parametrize("options", [(), ("--repair",)])
def test_a_store_that_cannot_be_opened_was_not_verified(tmp_path, options):
    """For example on a file system that was remounted read-only. Exit code 1 would mean that it is damaged."""
    _stored(tmp_path)
    (tmp_path / "store" / "lock").unlink()
    (tmp_path / "store" / "lock").mkdir()
    code, said = fsck(tmp_path, *options)
    assert code == 2 and "Is a directory" in said and "store/lock" in said and "not verified" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root repairs for others")
def test_what_root_repairs_belongs_to_the_owner_of_the_data_directory(tmp_path):
    segment = _stored(tmp_path)
    (tmp_path / "store" / "lock").unlink()
    for spare in set((tmp_path / "store").glob("segment-*")) - {segment}:
        spare.unlink()
    content = bytearray(segment.read_bytes())
    content[4100] ^= 0xFF
    segment.write_bytes(content)
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, 4711, 4712)
    assert fsck(tmp_path, "--repair")[0] == 0
    assert len(list((tmp_path / "store").glob("segment-*"))) > 1
    assert {(path.stat().st_uid, path.stat().st_gid) for path in tmp_path.rglob("*")} == {(4711, 4712)}
