"""msrpc and its tests do not import openmsmq."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msrpc

HERE = Path(__file__).parent
PACKAGE = Path(msrpc.__path__[0])
#: Imports all modules of msrpc while openmsmq cannot be imported, and prints their number.
PROGRAM = """
import importlib, pkgutil, sys
sys.modules["openmsmq"] = None
import msrpc
names = [module.name for module in pkgutil.walk_packages(msrpc.__path__, "msrpc.") if not module.name.endswith("__")]
for name in names:
    importlib.import_module(name)
print(msrpc.__path__[0], len(names))
"""


def imported(path: Path) -> Iterator[str]:
    """Return the top-level names that a file imports anywhere."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_every_module_is_imported_without_openmsmq(tmp_path: Path) -> None:
    copy = tmp_path / "msrpc"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    place, modules = done.stdout.split()
    assert Path(place) == copy and int(modules) > 60


def test_no_test_of_msrpc_uses_openmsmq_or_its_daemon() -> None:
    files = [path for path in HERE.rglob("*.py") if path != Path(__file__)]
    assert len(files) > 25
    wrong = {path.name: {"openmsmq", "daemon", "pyspark_msmq"} & set(imported(path)) for path in files}
    assert {name: found for name, found in wrong.items() if found} == {}
