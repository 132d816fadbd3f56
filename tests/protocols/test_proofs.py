"""The table of operations: nothing missing, nothing made up, and the README shows it as it is."""

from __future__ import annotations

import ast
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from openmsmq.cli.protocol_table import markdown_table, rows

ROOT = Path(__file__).parent.parent.parent


def _asserts(test: str) -> bool:
    """Whether the test is there, and asserts something or expects an exception."""
    path, name = test.partition("::")[0], test.rpartition("::")[2]
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return any(isinstance(part, ast.Assert | ast.With) for part in ast.walk(node))
    return False


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['interface']}.{row['name']}")
def test_each_operation_is_proved_by_a_test(row: dict[str, str]) -> None:
    assert row["test"], "no test is named in proofs.toml"
    assert _asserts(row["test"]), f"{row['test']} does not exist or asserts nothing"


def test_the_proofs_name_operations_that_are_there() -> None:
    proofs = tomllib.loads((resources.files("openmsmq.protocols") / "proofs.toml").read_text(encoding="utf-8"))
    named = {(interface, operation) for interface, operations in proofs.items() for operation in operations}
    assert named == {(row["interface"], row["name"]) for row in rows()}


def test_the_readme_shows_the_table_as_it_is() -> None:
    """Otherwise: `openmsmq protocols --markdown` between the two marks."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("<!-- protocols -->\n")[2].partition("<!-- /protocols -->")[0]
    assert shown.strip() == markdown_table().strip()
