"""Rules for compiled modules; a process reports whether it runs native code."""

from __future__ import annotations

import ast
import importlib
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import openmsmq
from daemon import Daemon
from openmsmq import compiled

PACKAGE = Path(openmsmq.__file__).parent
SOURCES = PACKAGE.parent
# In another process, because imports of this one prefer sources.
HOW_IT_RUNS = "native" if list((SOURCES / "msrpc" / "ndr").glob("engine.*.so")) else "interpreted"
QUEUE = r".\private$\orders"


def awaits_in_handlers(node: ast.AST, inside: bool = False) -> Iterator[int]:
    if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom)) and inside:
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        handles = isinstance(child, (ast.Try, ast.With, ast.AsyncWith))
        yield from awaits_in_handlers(child, not is_function and (inside or handles))


@pytest.mark.parametrize("module", compiled.MODULES)
def test_no_compiled_coroutine_is_suspended_where_it_handles_exceptions(module: str) -> None:
    """In mypyc 2.4, a resumed coroutine loses the exception being handled: a bare `raise` raises another."""
    source = (SOURCES / (module.replace(".", "/") + ".py")).read_text()
    assert not list(awaits_in_handlers(ast.parse(source)))


@pytest.mark.parametrize("module", compiled.MODULES)
def test_no_compiled_module_declares_an_exception(module: str) -> None:
    """mypyc 2.4 gives the name of an `except ... as error` one type for the whole function: with a compiled class the
    next clause that uses the name raises TypeError instead of handling its own."""
    declared = [value for value in vars(importlib.import_module(module)).values() if isinstance(value, type)]
    assert not [c for c in declared if issubclass(c, BaseException) and c.__module__ == module]


def test_a_build_begins_again_after_a_change_of_any_module() -> None:
    """Otherwise daemons of tests would run an earlier state of it."""
    script = Path(__file__).parents[1] / "tools" / "native.py"
    native = runpy.run_path(str(script))
    inputs = set(native["inputs"]())
    sources = {SOURCES / f"{module.replace('.', '/')}.py" for module in compiled.MODULES}
    assert sources | set(map(native["source_in_c"], compiled.WRITTEN_IN_C)) | {script} <= inputs
    assert {path for path in SOURCES.rglob("*.h") if path.is_file()} <= inputs


def test_comparisons_of_c_with_python_run_with_compiled_modules() -> None:
    """With sources only, a function in C is its version in Python, and such a test compares nothing."""
    home = Path(__file__).parent
    makefile = (home.parent / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    listed = re.search(r"^NATIVE_TESTS := (.*)$", makefile, re.MULTILINE)
    assert listed is not None
    covered = [home.parent / name for name in listed.group(1).split()]
    comparing = [
        path
        for path in home.rglob("test_*.py")
        if re.search(r"import[^#]*_in_python\b", path.read_text(encoding="utf-8"))
    ]
    assert len(comparing) >= 5
    assert not [path for path in comparing if path not in covered and not {*path.parents}.intersection(covered)]


def test_subclasses_of_compiled_classes_are_compiled() -> None:
    """Otherwise mypyc raises an error at run time: "interpreted classes cannot inherit from compiled"."""
    names = [
        path.relative_to(SOURCES).with_suffix("").as_posix().replace("/", ".")
        for name in ("client", "model", "protocols", "queueing", "server", "store", "conversion")
        for home in (SOURCES / "msrpc" / "ndr", SOURCES / "msrpc" / "rpc", PACKAGE / name)
        for path in home.glob("[!_]*.py")
    ]
    modules = set(compiled.MODULES)
    classes = [
        value for name in names for value in vars(importlib.import_module(name)).values()
        if isinstance(value, type) and value.__module__ == name
    ]  # fmt: skip
    wrong = [
        kind.__name__ for kind in classes
        if kind.__module__ not in modules and any(base.__module__ in modules for base in kind.__mro__[1:])
    ]  # fmt: skip
    assert len(classes) > 200 and not wrong


def said_by(*program: str) -> str:
    return subprocess.run([sys.executable, *program], capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_process_runs_the_built_modules_and_reports_it() -> None:
    assert said_by("-m", "openmsmq", "--version") == f"openmsmq {openmsmq.__version__}, {HOW_IT_RUNS}\n"


def test_the_log_of_a_daemon_says_whether_it_runs_native_code(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        assert f": openmsmq {openmsmq.__version__}, {HOW_IT_RUNS}\n" in daemon.log


@pytest.mark.skipif(HOW_IT_RUNS == "interpreted", reason="io_uring needs the compiled module")
def test_a_compiled_daemon_uses_io_uring_or_logs_why_the_kernel_refuses(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        opened = [os.path.realpath(path) for path in Path(f"/proc/{daemon.pid}/fd").iterdir()]
        assert any("[io_uring]" in path for path in opened) != ("io_uring is not available" in daemon.log)
        assert "not compiled" not in daemon.log


def test_an_interpreted_daemon_syncs_in_its_loop_and_says_why(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import sources; sources.prefer()\n"
        "from openmsmq.cli import main; main()"
    )
    with Daemon(tmp_path / "data", program=("-c", program)) as daemon:
        assert ", interpreted\n" in daemon.log
        assert re.search("io_uring is not available, so disk syncs block the event loop: .* not compiled", daemon.log)
        with daemon.connect() as manager:
            manager.create_queue(QUEUE)
            with manager.open(QUEUE, "send") as queue:
                queue.send(b"kept", recoverable=True)
        daemon.kill()
        daemon.start()
        with daemon.connect() as manager, manager.open(QUEUE) as queue:
            assert queue.receive(0).body == b"kept"


def test_a_process_that_prefers_sources_runs_them() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import sources; sources.prefer()\n"
        "from openmsmq import compiled, store; from openmsmq.store import row_frames\n"
        "print(compiled.how_it_runs(), store.log.__file__, 'openmsmq.store.framing' in sys.modules)"
    )
    assert said_by("-c", program).split() == ["interpreted", str(PACKAGE / "store" / "log.py"), "False"]
