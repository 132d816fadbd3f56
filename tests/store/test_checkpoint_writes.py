"""The writes of a checkpoint."""

from __future__ import annotations

from openmsmq.store.checkpoints import _SLICE, _slices


def test_pieces_are_combined_to_whole_slices_and_large_ones_are_split() -> None:
    half = bytes(_SLICE // 2)
    for pieces, sizes in (
        ([half, half[1:], b"x", half, half[1:], b"x", b"rest"], [_SLICE, _SLICE, 4]),
        ([bytes(2 * _SLICE + 5)], [_SLICE, _SLICE, 5]),
        ([], []),
    ):
        made = list(_slices(pieces))
        assert [len(one) for one in made] == sizes and b"".join(made) == b"".join(pieces)
