"""The packet checker is independent: it shares no code with the product."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

READING = ["reading", "names", "headers", "checker", "conversation", "building", "pings", "reports"]


@pytest.mark.parametrize("module", READING)
def test_the_reading_imports_only_itself_and_the_standard_library(module: str) -> None:
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    standard = {
        "__future__", "collections", "collections.abc", "dataclasses", "enum", "itertools", "random", "re",
        "struct", "typing",
    }  # fmt: skip
    assert imported - standard <= {"packets", *(f"packets.{name}" for name in READING)}
