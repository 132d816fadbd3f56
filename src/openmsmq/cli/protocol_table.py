"""The table of operations: what the IDL declares, what is served, and the test that proves it.

Names and opnums come from the dispatch tables; the tests from `protocols/proofs.toml`, which a test holds against both
the dispatch tables and the test suite.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any

from msrpc.ndr import Interface
from openmsmq.interfaces import mc_mqac as m
from openmsmq.protocols.mqac.classes import CLASSES
from openmsmq.server.interfaces import SERVED

# Interfaces of objects that are for no script.
_PLAIN = (m.ITransaction, m.IConnectionPointContainer, m.IConnectionPoint, m.IEnumConnectionPoints, m.IEnumConnections)
RESERVED = "reserved: E_NOTIMPL, as specified"
_FIRST_OPNUM = 7  # of a dual interface, behind IDispatch


def rows() -> list[dict[str, Any]]:
    """Return one row for each operation: interface, opnum, name, state, test. Only the newest revision of an object
    interface is listed, which has the operations of all."""
    proofs = tomllib.loads((resources.files("openmsmq.protocols") / "proofs.toml").read_text(encoding="utf-8"))
    return [
        {"interface": interface, "opnum": opnum, "name": name, "state": state,
         "test": _proof(proofs.get(interface, {}), name)}
        for interface, opnum, name, state in _operations()
    ]  # fmt: skip


def _proof(tests: dict[str, str], operation: str) -> str:
    """Return the test of an operation: the first entry of the table, a name or a pattern, that matches."""
    return next((test for pattern, test in tests.items() if fnmatchcase(operation, pattern)), "")


def _operations() -> Iterator[tuple[str, int, str, str]]:
    for served in SERVED:
        for operation in served.description.operations:
            if operation.used_on_wire:
                state = served.states.get(operation.name, "served")
                yield served.description.name, operation.opnum, operation.name, state
    seen = set()
    for kind in CLASSES:
        for interface in _newest(kind.interfaces()):
            for operation in interface.operations:
                if operation.opnum < max(_FIRST_OPNUM, _own(interface)) or (interface.name, operation.opnum) in seen:
                    continue
                seen.add((interface.name, operation.opnum))
                reserved = operation.name.replace("putref_", "put_") in kind.not_implemented
                state = RESERVED if reserved else kind.states.get(operation.name, "served")
                yield interface.name, operation.opnum, operation.name, state
    for interface in _PLAIN:
        for operation in interface.operations:
            if operation.used_on_wire:
                yield interface.name, operation.opnum, operation.name, "served"


def _newest(interfaces: tuple[Interface, ...]) -> list[Interface]:
    """Return the last revision of each interface family."""
    return list({interface.name.rstrip("0123456789"): interface for interface in interfaces}.values())


def _own(interface: Interface) -> int:
    """Return the first opnum that an interface adds to its base; 0 if it is a later revision of its base."""
    base = interface.base
    if base is None or base.members is None or base.name.rstrip("0123456789") == interface.name.rstrip("0123456789"):
        return 0
    return len(base.operations)


def markdown_table() -> str:
    lines = ["| interface | opnum | operation | state | test |", "|---|---|---|---|---|"]
    for row in rows():
        lines.append(f"| {row['interface']} | {row['opnum']} | `{row['name']}` | {row['state']} | `{row['test']}` |")
    return "\n".join(lines)


def markdown_summary() -> str:
    """Return a Markdown table: per interface, the number of supported operations, and of those with another result."""
    counts: dict[str, Counter[bool]] = {}
    for row in rows():
        counts.setdefault(row["interface"], Counter())[row["state"].startswith("served")] += 1
    lines = ["| interface | served | answer an error, as specified or because something is missing |", "|---|---|---|"]
    for interface, count in counts.items():
        lines.append(f"| {interface} | {count[True]} | {count[False]} |")
    return "\n".join(lines)
