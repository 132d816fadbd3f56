"""Copies of files in a backup."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmsmq.admin.backup import _PIECE, _copy_file


@pytest.mark.parametrize(
    "content",
    [b"", b"x", bytes(10), bytes(_PIECE) + b"end", b"begin" + bytes(3 * _PIECE), b"a" * _PIECE + bytes(_PIECE) + b"b"],
    ids=["empty", "short", "zeros", "zeros first", "zeros last", "zeros between"],
)
def test_a_copy_has_the_content_of_its_original_and_holes_for_zeros(tmp_path: Path, content: bytes) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.write_bytes(content)
    _copy_file(original, copy)
    assert copy.read_bytes() == content and copy.stat().st_mode & 0o777 == 0o600
    written = sum(
        len(piece) for at in range(0, len(content), _PIECE) if (piece := content[at : at + _PIECE]).strip(b"\0")
    )
    assert copy.stat().st_blocks * 512 <= written + 8192
    with pytest.raises(FileExistsError):
        _copy_file(original, copy)
