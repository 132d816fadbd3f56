"""Each public class name occurs once, so that it is unambiguous in messages, traces and documents. Each exception is
shown with its text."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import openmsmq

PACKAGES = Path(openmsmq.__file__).parents[1]
#: The client uses the names of the server's objects.
CLIENT = {"Cursor", "MessageQueue", "QueueManager", "Transaction"}
#: Errors of msrpc have the same names as errors of openmsmq.
ERRORS = ["msrpc/errors.py", "openmsmq/model/errors.py"]


def test_a_public_class_name_occurs_once() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGES.rglob("*.py")):
        module = path.relative_to(PACKAGES).as_posix()
        if path.parent.name in ("interfaces", "sync"):  # generated: names of the specifications, of the asyncio client
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    twice = {name: modules for name, modules in found.items() if len(modules) > 1 and name not in CLIENT}
    assert not {name: modules for name, modules in twice.items() if modules != ERRORS}
    for name in CLIENT:
        assert any(module.startswith("openmsmq/client/asynchronous/") for module in found[name])


def test_no_exception_is_taken_for_false_without_a_text() -> None:
    """Exceptions are always true: `error or "no answer"` is `error`, also if its text is empty."""
    seen, wrong = 0, []
    for path in sorted(PACKAGES.rglob("*.py")):
        for scope in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = _exceptions(scope)
            seen += len(names)
            wrong += [
                f"{path}:{node.lineno}" for node in (ast.walk(scope) if names else ())
                if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or)
                and isinstance(node.values[0], ast.Name) and node.values[0].id in names
            ]  # fmt: skip
    assert seen > 500 and not wrong


def _exceptions(scope: ast.AST) -> set[str]:
    """Return the names that a handler or function gives to exceptions."""
    match scope:
        case ast.ExceptHandler(name=str(name)):
            return {name}
        case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
            typed = [(each.arg, ast.unparse(each.annotation)) for each in arguments.args if each.annotation is not None]
            return {name for name, written in typed if written.endswith(("Error", "Exception"))}
    return set()
