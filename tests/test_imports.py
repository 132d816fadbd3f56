"""Imports, also for TYPE_CHECKING, have no cycles, and `queueing` has no chains of base classes (invariant I8)."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import grimp
import pytest

import openmsmq

ROOT = Path(__file__).parents[1]
CONTRACT = ROOT / "tools" / "import_contract.py"
DOCUMENT = ROOT / "docs" / "architecture.md"


def imports() -> dict[str, set[str]]:
    """Return the project modules that each one imports anywhere."""
    graph = grimp.build_graph("msrpc", "openmsmq", cache_dir=None)
    return {
        name: {
            other
            for other in graph.find_modules_directly_imported_by(name)
            for each in graph.get_import_details(importer=name, imported=other)
            if not each["line_contents"].startswith(f"import {other}.")  # an extension module, which has no source
        }
        for name in graph.modules
    }


def test_no_imports_are_circular() -> None:
    left = imports()
    while leaves := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in leaves:
            del left[name]
    while tops := [name for name in left if not any(name in needs for needs in left.values())]:
        for name in tops:  # these only use a cycle
            del left[name]
    assert not left, {name: sorted(needs & left.keys()) for name, needs in left.items()}


def test_no_class_of_the_queue_manager_extends_another_one() -> None:
    """Only kinds of queues have base classes: the queue of messages in transit, and its two subclasses."""
    parents = {
        node.name: [ast.unparse(base) for base in node.bases]
        for path in Path(openmsmq.__file__).with_name("queueing").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    own = {name: bases for name, bases in parents.items() if any(base in parents for base in bases)}
    assert own == {"TransitQueue": ["Queue"], "OutgoingQueue": ["TransitQueue"], "ConnectorQueue": ["TransitQueue"]}


@pytest.fixture(scope="module")
def contract() -> ModuleType:
    spec = importlib.util.spec_from_file_location("import_contract", CONTRACT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLE = """
| package | what it is | what it may import |
|---|---|---|
| `commands` | the `top` \\| the rest | everything |
| `service` | serves `model` | `model` (errors) |
| `store` | a log | – |
| `model` | words | – |
"""


def test_the_last_cell_of_a_row_lists_the_allowed_imports(contract: ModuleType) -> None:
    allowed = contract.allowed_imports(TABLE)
    assert allowed == {"commands": {"service", "store", "model"}, "service": {"model"}, "store": set(), "model": set()}


def test_a_forbidden_import_is_named(contract: ModuleType) -> None:
    links = [("service.a", "store.b"), ("service.a", "model.c"), ("service.a", "service.b"), ("service.a", "compiled")]
    assert list(contract.broken_imports(contract.allowed_imports(TABLE), links)) == [
        "service.a imports store.b: service may not import store"
    ]


def test_a_row_that_allows_a_package_above_it_is_refused(contract: ModuleType) -> None:
    with pytest.raises(ValueError, match="store may import service"):
        contract.allowed_imports(TABLE.replace("a log | –", "a log | `service`"))


def test_child_processes_do_not_import_the_queue_manager(contract: ModuleType) -> None:
    allowed = contract.allowed_imports(DOCUMENT.read_text(encoding="utf-8"))
    daemon = {"server", "gateways", "protocols", "peering", "queueing"}
    assert {name for name in ("console", "flight", "spark", "bulk", "client", "com") if allowed[name] & daemon} == set()
