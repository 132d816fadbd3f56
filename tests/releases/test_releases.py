"""Stores of every released format: a daemon opens them and continues to use them, and refuses later formats without
changes."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest
from crc32c import crc32c

from command_line import invoke
from daemon import Daemon
from openmsmq.store import UnknownFormat, frames, fsck
from openmsmq.store.frames import _SEGMENT_HEADER, VERSION
from releases.make import CONTENT, ENDS, HERE, NAME, PATH, look

OPTIONS = ("--computer-name", NAME)
FORMATS = [(version, end) for version in range(1, VERSION + 1) for end in ENDS]


def unpacked(directory: Path, version: int, end: str) -> Path:
    """Return a data directory as written by that version."""
    data = directory / "data"
    data.mkdir(mode=0o700)
    with tarfile.open(HERE / f"format-{version}-{end}.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2, which Debian 12 has
        archive.extractall(data)
    return data


@pytest.mark.parametrize(("version", "end"), FORMATS)
def test_a_daemon_continues_with_a_store_of_every_format(tmp_path: Path, version: int, end: str) -> None:
    data = unpacked(tmp_path, version, end)
    assert fsck.verify(str(data / "store")).clean
    for _ in range(2):  # the second run reads data that this program has written
        with Daemon(data, *OPTIONS) as daemon, daemon.connect() as manager:
            assert {name: look(manager, name) for name in CONTENT} == CONTENT
            assert sorted(name.rpartition("\\")[2] for name in manager.queues()) == [
                "journaled", "plain", "transactional"
            ]  # fmt: skip
            assert manager.properties(PATH.format("plain"), "label", "quota") == {"label": "Ordinary", "quota": 5000}
            with manager.open(PATH.format("plain"), "send") as plain, manager.open(PATH.format("plain")) as reader:
                plain.send("new", label="new", priority=7, recoverable=True)
                assert [reader.receive(0).label for _ in range(2)] == ["urgent", "new"]
                plain.send("körper", label="urgent", priority=7, recoverable=True)
    assert fsck.verify(str(data / "store")).clean


@pytest.mark.parametrize("end", ENDS)
def test_an_earlier_program_refuses_a_store_that_this_one_has_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Also if this program was killed before it wrote a checkpoint or a segment."""
    data = unpacked(tmp_path, 1, end)
    with Daemon(data, *OPTIONS) as daemon:
        daemon.kill()
    for checkpoint in (data / "store").glob("checkpoint-*"):
        checkpoint.unlink()
    assert fsck.verify(str(data / "store")).clean
    monkeypatch.setattr(frames, "READABLE", frozenset((1,)))
    with pytest.raises(UnknownFormat, match=r"segment-\w+: format version 2"):
        fsck.verify(str(data / "store"))


def test_a_later_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """This happens after a rollback from a later version that has changed the format."""
    data = unpacked(tmp_path, VERSION, "stopped")
    for path in (data / "store").glob("segment-*"):
        content = bytearray(path.read_bytes())
        for at in (0, 2048):
            header = bytearray(content[at : at + _SEGMENT_HEADER.size])
            header[8:12] = (VERSION + 1).to_bytes(4, "little")
            header[-4:] = crc32c(header[:-4]).to_bytes(4, "little")
            content[at : at + len(header)] = header
        path.write_bytes(content)
    before = digests(data / "store")
    with pytest.raises(RuntimeError) as refused:
        Daemon(data, *OPTIONS).start()
    said = str(refused.value)
    assert f"format version {VERSION + 1}, this program reads 1 and {VERSION}" in said and "segment-" in said
    assert digests(data / "store") == before
    checked = invoke("fsck", str(data))
    assert checked.code == 2 and "not verified" in checked.stderr, "1 means damaged"
    assert "newer version" in said and "newer version" in checked.stderr


def digests(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
        if path.name.startswith(("segment-", "checkpoint-"))
    }
