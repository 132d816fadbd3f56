"""What may be compiled, and when the compiled modules are used."""

from __future__ import annotations

import ast
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openmsmq import compiled


def awaits_in_handlers(node: ast.AST, inside: bool = False) -> Iterator[int]:
    if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom)) and inside:
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        handles = isinstance(child, (ast.Try, ast.With, ast.AsyncWith))
        yield from awaits_in_handlers(child, not is_function and (inside or handles))


@pytest.mark.parametrize("module", compiled.MODULES)
def test_no_compiled_coroutine_is_suspended_where_it_handles_exceptions(module: str) -> None:
    """mypyc 2.4 loses the exception that is being handled when a coroutine goes on: a bare `raise` raises another."""
    source = (compiled.PACKAGE / (module.replace(".", "/") + ".py")).read_text()
    assert not list(awaits_in_handlers(ast.parse(source)))


@pytest.mark.parametrize("module", compiled.MODULES)
def test_no_compiled_module_declares_an_exception(module: str) -> None:
    """mypyc 2.4 gives the name of an `except ... as error` one type for the whole function: with a compiled class the
    next clause that uses the name raises TypeError instead of handling its own."""
    declared = [
        value for value in vars(importlib.import_module(f"openmsmq.{module}")).values() if isinstance(value, type)
    ]
    assert not [c for c in declared if issubclass(c, BaseException) and c.__module__ == f"openmsmq.{module}"]


def origin_of(module: str, **environment: str) -> str:
    program = f"import openmsmq, {module} as m; print(m.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip()).suffix


@pytest.mark.skipif(
    not compiled.is_current() and "CI" not in os.environ,
    reason="nothing is compiled here: no C compiler or no headers of Python",
)
def test_a_process_uses_what_was_compiled_unless_it_is_told_not_to() -> None:
    assert origin_of("openmsmq.store.log") == ".so"
    assert origin_of("openmsmq.store.log", OPENMSMQ_PURE="1") == ".py"
    assert origin_of("openmsmq.model.message") == ".py"


def test_compiled_modules_of_other_sources_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "DIRECTORY", tmp_path)
    assert not compiled.is_current()
    stamp = tmp_path / "stamp"
    stamp.write_text(compiled.stamp_of_sources())
    assert compiled.is_current()
    monkeypatch.setattr(compiled, "MODULES", compiled.MODULES[1:])
    assert not compiled.is_current()


def test_the_stamp_is_also_of_what_is_written_in_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = compiled.stamp_of_sources()
    package = tmp_path / "openmsmq"
    shutil.copytree(compiled.PACKAGE, package, ignore=shutil.ignore_patterns("_compiled", "__pycache__"))
    monkeypatch.setattr(compiled, "PACKAGE", package)
    assert compiled.stamp_of_sources() == before
    with (package / "ndr" / "engine.c").open("a") as source:
        source.write("\n")
    assert compiled.stamp_of_sources() != before
