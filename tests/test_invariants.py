"""Each invariant of docs/architecture.md is stated by the modules that keep it, and tests refer to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = re.findall(r"^\| (I\d) \| [^|]+ \| ([^|]+) \|$", (ROOT / "docs" / "architecture.md").read_text(), re.M)
KEPT_BY_LINT = {"I8", "I9"}


@pytest.mark.parametrize(("number", "keepers"), ROWS)
def test_the_modules_state_the_invariant_in_their_docstring(number: str, keepers: str) -> None:
    for module in re.findall(r"`([\w/]+\.py)`", keepers):
        file = next(path for home in ("openmsmq", "") if (path := ROOT / "src" / home / module).exists())
        assert re.search(rf"\b{number}\b", file.read_text().split('"""')[1]), f"{module} does not state {number}"


@pytest.mark.parametrize("number", [number for number, _ in ROWS if number not in KEPT_BY_LINT])
def test_tests_refer_to_the_invariant(number: str) -> None:
    referring = [
        path for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__) and re.search(rf"\b{number}\b", path.read_text())
    ]  # fmt: skip
    assert referring


def test_the_table_has_all_invariants() -> None:
    assert [number for number, _ in ROWS] == [f"I{number}" for number in range(1, 10)]
