from __future__ import annotations

import os

import pytest

from mixed_load.figures import MIB, Figures, family, figures_of


def _figures(what: str, values: list[int]) -> Figures:
    figures = Figures()
    for value in values:
        figures.add("queue manager", {what: value})
    return figures


@pytest.mark.parametrize(
    ("what", "values", "grown"),
    [
        ("resident bytes", [70 * MIB + number * MIB // 2 for number in range(200)], "from 115,081,216 to 167,510,016"),
        ("descriptors", [30 + number // 8 for number in range(200)], "from 40 to 52"),
        ("threads", [9] * 120 + [12] * 80, "from 9 to 12"),
        ("bytes on disk", [200 * MIB + number * MIB for number in range(200)], "from 293,076,992 to 397,934,592"),
    ],
)
def test_growth_is_found(what: str, values: list[int], grown: str) -> None:
    assert _figures(what, values).growth() == [f"queue manager: {what} grew {grown}"]


@pytest.mark.parametrize(
    ("what", "values"),
    [
        ("resident bytes", [20 * MIB] * 40 + [70 * MIB] * 160),  # caches fill at the start
        ("resident bytes", [70 * MIB] * 190 + [300 * MIB] * 10),  # one large message
        ("descriptors", [30, 44, 30, 41] * 50),
        ("bytes on disk", [64 * MIB, 128 * MIB, 192 * MIB, 64 * MIB] * 50),
    ],
)
def test_variation_is_allowed(what: str, values: list[int]) -> None:
    assert not _figures(what, values).growth()


def test_a_family_has_the_process_itself_and_its_figures() -> None:
    assert family(os.getpid())["queue manager"] == os.getpid()
    assert figures_of(os.getpid())["threads"] > 0
