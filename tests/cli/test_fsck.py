"""`openmsmq fsck` without a store, and with damage in a part that a checkpoint covers."""

from __future__ import annotations

from command_line import invoke
from daemon import Daemon

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
