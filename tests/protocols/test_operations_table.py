"""The table of operations is complete and correct, and the documents match it."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Callable
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path

import pytest

from openmsmq.cli.protocol_table import markdown_summary, markdown_table, rows

ROOT = Path(__file__).parent.parent.parent


def _asserts(test: str) -> bool:
    """Whether the test exists and asserts something or expects an exception."""
    path, name = test.partition("::")[0], test.rpartition("::")[2]
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return any(isinstance(part, ast.Assert | ast.With) for part in ast.walk(node))
    return False


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['interface']}.{row['name']}")
def test_each_operation_is_verified_by_a_test(row: dict[str, str]) -> None:
    assert row["test"], "no test is named in proofs.toml"
    assert _asserts(row["test"]), f"{row['test']} does not exist or asserts nothing"


def test_the_proofs_name_existing_operations() -> None:
    proofs = tomllib.loads((resources.files("openmsmq.protocols") / "proofs.toml").read_text(encoding="utf-8"))
    there = [(row["interface"], row["name"]) for row in rows()]
    for interface, operations in proofs.items():
        for pattern in operations:
            assert any(name == interface and fnmatchcase(operation, pattern) for name, operation in there), pattern


@pytest.mark.parametrize(
    ("mark", "printed", "option"),
    [("summary", markdown_summary, "--summary"), ("protocols", markdown_table, "--markdown")],
)
def test_documents_match_the_table(mark: str, printed: Callable[[], str], option: str) -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    shown = text.partition(f"<!-- {mark} -->\n")[2].partition(f"<!-- /{mark} -->")[0]
    assert shown.strip() == printed().strip(), f"put what openmsmq protocols {option} prints between the two marks"
