"""The writes of a checkpoint."""

from __future__ import annotations

from openmsmq.store.checkpoints import _SLICE, Checkpoints, _slices
from store.memory_vfs import MemoryVfs


def test_pieces_are_combined_to_whole_slices_and_large_ones_are_split() -> None:
    half = bytes(_SLICE // 2)
    for pieces, sizes in (
        ([half, half[1:], b"x", half, half[1:], b"x", b"rest"], [_SLICE, _SLICE, 4]),
        ([bytes(2 * _SLICE + 5)], [_SLICE, _SLICE, 5]),
        ([], []),
    ):
        made = list(_slices(pieces))
        assert [len(one) for one in made] == sizes and b"".join(made) == b"".join(pieces)


def test_a_write_returns_the_size_of_the_file() -> None:
    vfs = MemoryVfs()
    written = Checkpoints(vfs, "d").write([b"one", bytes(_SLICE)])
    (file,) = vfs.names.values()
    assert written == len(file.content) == 3 + _SLICE + 4  # and a checksum
