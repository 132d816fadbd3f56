"""The tour names files, classes, methods and tables that exist, and architecture.md fits on a few screens."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
LINK = re.compile(r"\[`([\w.]+)`\]\((\.\./(?:src|tests)/[\w/.]+)\)")
LINKS = LINK.findall((DOCS / "tour.md").read_text(encoding="utf-8"))


def names_in(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """Return the classes, functions and assigned names of a module; members of classes as `Class.name`."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.ClassDef):
            found |= {prefix + node.name} | names_in(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(prefix + node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {prefix + target.id for target in targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize(("name", "link"), sorted(set(LINKS)))
def test_each_name_of_the_tour_is_in_the_file_that_it_links_to(name: str, link: str) -> None:
    file = DOCS / link
    if name in (file.name, file.parent.name):
        assert file.exists()
    else:
        assert name in names_in(ast.parse(file.read_text(encoding="utf-8")).body)


def test_the_tour_links_to_all_stages_of_a_message() -> None:
    linked = {Path(link).parts[2] + "/" + Path(link).parts[3] for _, link in LINKS if Path(link).parts[1] == "src"}
    assert {"msrpc/rpc", "openmsmq/protocols", "openmsmq/queueing", "openmsmq/store"} <= linked
    assert len(LINKS) > 30


def test_the_architecture_has_at_most_150_lines_and_its_cells_fit() -> None:
    lines = (DOCS / "architecture.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    packages = False
    for line in lines:
        packages = line.startswith("| package") or (packages and line.startswith("|"))
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        for cell in cells[:2] if packages else cells:
            assert len(cell) <= 90, line
