"""The import contract of packages, from the table in docs/architecture.md, for `lint-imports` (pyproject.toml).

A row of the table has a package, its description, and the packages that it may import, which must be in rows below it.
Imports therefore only go down the table, without cycles. `everything` allows all packages below. Modules outside of
packages (`openmsmq.aio`, `openmsmq.compiled`) are not restricted. Root packages after the first one have one row each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from importlinter import Contract, ContractCheck, fields, output

Link = tuple[str, str]  # importing and imported module, without the first root package


def allowed_imports(document: str) -> dict[str, set[str]]:
    """Return the allowed imports of each package in table order. Raises ValueError for a row that allows itself, a row
    above it or a package without a row."""
    allowed: dict[str, set[str]] = {}
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", document, re.M)
    below = [name for name, _ in rows]
    for name, cell in rows:
        below.remove(name)
        allowed[name] = set(below) if cell == "everything" else set(re.findall(r"`(\w+)`", cell))
        upwards = sorted(allowed[name].difference(below))
        if upwards:
            raise ValueError(f"{name} may import {', '.join(upwards)}, for which there is no row below")
    return allowed


def broken_imports(allowed: Mapping[str, set[str]], links: Iterable[Link]) -> Iterator[str]:
    """Yield the imports between packages that no row allows."""
    for importer, imported in sorted(links):
        package, wanted = importer.partition(".")[0], imported.partition(".")[0]
        if package in allowed and wanted in allowed and wanted != package and wanted not in allowed[package]:
            yield f"{importer} imports {imported}: {package} may not import {wanted}"


class AllowedImports(Contract):
    """Each package imports only what its row of `document` allows, and each package has a row."""

    type_name = "allowed"

    document = fields.StringField()
    ignore_imports = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph, verbose):  # type: ignore[no-untyped-def]
        root, *others = self.session_options["root_packages"]
        allowed = allowed_imports(Path(self.document).read_text(encoding="utf-8"))
        inside = [name for name in graph.modules if name.startswith(f"{root}.") and graph.find_children(name)]
        missing = {*(name.split(".")[1] for name in inside), *others}.symmetric_difference(allowed)
        links = {
            (importer.removeprefix(f"{root}."), imported.removeprefix(f"{root}."))
            for importer in graph.modules
            for imported in graph.find_modules_directly_imported_by(importer)
            if f"{importer} -> {imported}" not in (self.ignore_imports or ())
        }
        problems = [f"{name}: a package without a row, or a row without a package" for name in sorted(missing)]
        problems += broken_imports(allowed, links)
        return ContractCheck(kept=not problems, metadata={"problems": problems})

    def render_broken_contract(self, check):  # type: ignore[no-untyped-def]
        for problem in check.metadata["problems"]:
            output.print_error(problem)
