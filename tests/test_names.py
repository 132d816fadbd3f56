"""Each public class name occurs once, so that it is unambiguous in messages, traces and documents."""

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
