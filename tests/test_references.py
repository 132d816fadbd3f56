"""The reference pages list exactly the errors and warnings of the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = [path for path in sorted((ROOT / "src").rglob("*.py")) if "interfaces" not in path.parts]
LEVELS = {"warning", "error", "exception", "critical"}
ERROR = re.compile(r"\b(?:HResult|ComResult|ResolverError)\.((?:MQ|E|DISP|RPC|OR|CO|TYPE|XACT)_[A-Z0-9_]+)")


def rows(document: str) -> list[list[str]]:
    lines = (ROOT / "docs" / document).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]


def logged() -> Iterator[str]:
    """Return the texts of warnings and errors, with `…` for values. Computed texts are not included."""
    texts = (path.read_text(encoding="utf-8") for path in SOURCES)
    for text in (text for text in texts if any(f".{level}(" in text for level in LEVELS)):
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS
                and isinstance(node.func.value, ast.Name) and node.func.value.id in ("logger", "_logger", "log")
                and isinstance(node.args[0], ast.Constant)
            ):  # fmt: skip
                yield re.sub(r"%[-#.\d]*[a-z]", "…", node.args[0].value).replace("`", "’")


def test_each_warning_and_error_of_the_log_has_an_entry() -> None:
    written = {row[0].strip("`"): row for row in rows("log-messages.md")}
    texts = set(logged())
    assert len(texts) > 150
    assert texts == set(written), sorted(texts ^ set(written))
    assert all(len(row) == 4 and row[2] and row[3] for row in written.values())


def test_each_error_name_has_an_entry() -> None:
    used = set().union(*(ERROR.findall(path.read_text(encoding="utf-8")) for path in SOURCES))
    written = {row[0].strip("`"): row for row in rows("errors.md")}
    assert len(used) > 80
    assert used == set(written), sorted(used ^ set(written))
    assert all(len(row) == 4 and row[2] and row[3] for row in written.values())
