"""Text charts of figures over time."""

from __future__ import annotations

import pytest

from openmsmq.admin.series import Rates, thinned
from openmsmq.cli.series import sparkline


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([0, 0], "▁▁"), ([0, 7, 3.5], "▁█▅"), ([1, 1], "██"), ([0.001, 1000], "▂█"), ([-1, 1], "▁█"),
        (list(range(8)), "▁▂▃▄▅▆▇█"), ([None, 1, None], " █ "), ([None], " "), ([], ""),
    ],
)  # fmt: skip
def test_a_sparkline_shows_larger_values_higher(values: list[float | None], line: str) -> None:
    assert sparkline(values) == line


NOTHING = (None, None, None)


def test_points_are_means_of_their_samples_and_the_last_is_the_newest() -> None:
    found = [Rates(at, at, at, 2 * at, 0, *NOTHING) for at in range(1, 8)]
    assert thinned(found, 3) == [
        Rates(1, 1, 1, 2, 0, *NOTHING), Rates(4, 4, 3, 6, 0, *NOTHING), Rates(7, 7, 6, 12, 0, *NOTHING)
    ]  # fmt: skip
    assert thinned(found, 7) == found and thinned([], 3) == []
    known = [Rates(1, 0, 0, 0, 0, sync, None, free) for sync, free in ((None, 5), (2.0, 4), (None, 3), (4.0, None))]
    assert thinned(known, 1) == [Rates(1, 0, 0, 0, 0, 3.0, None, None)]
