"""Reads of files of the operating system."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmsmq.store.vfs import OsVfs


@pytest.mark.parametrize(("offset", "expected"), [(0, b"0123"), (8, b"89"), (10, b""), (1000, b"")])
def test_a_read_ends_with_the_buffer_or_with_the_file(tmp_path: Path, offset: int, expected: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    vfs, buffer = OsVfs(), bytearray(4)
    with path.open("rb") as file:
        count = vfs.pread_into(file.fileno(), buffer, offset)
    assert (count, bytes(buffer[:count])) == (len(expected), expected)
