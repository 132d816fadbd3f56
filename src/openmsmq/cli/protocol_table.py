"""The table of operations: what the IDL declares, what is served, and the test that proves it.

Names and opnums come from the dispatch tables; the tests from `protocols/proofs.toml`, which a test holds against both
the dispatch tables and the test suite.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from openmsmq.server.interfaces import SERVED


def rows() -> list[dict[str, Any]]:
    """One row for each operation: interface, opnum, name, state, test."""
    proofs = tomllib.loads((resources.files("openmsmq.protocols") / "proofs.toml").read_text(encoding="utf-8"))
    result = []
    for interface in SERVED:
        for operation in interface.description.operations:
            if operation.used_on_wire:
                test = proofs.get(interface.description.name, {}).get(operation.name, "")
                state = interface.states.get(operation.name, "served")
                result.append(
                    {"interface": interface.description.name, "opnum": operation.opnum, "name": operation.name,
                     "state": state, "test": test}
                )  # fmt: skip
    return result


def markdown_table() -> str:
    lines = ["| interface | opnum | operation | state | test |", "|---|---|---|---|---|"]
    for row in rows():
        lines.append(f"| {row['interface']} | {row['opnum']} | `{row['name']}` | {row['state']} | `{row['test']}` |")
    return "\n".join(lines)
