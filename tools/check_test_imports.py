"""Check that the names which tests, benchmarks and the demo import from each other and from `src` exist.

Linters do not resolve these imports, because the directories are on the path only when pytest or a script runs. They
also do not see the imports in strings, which tests run as programs.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).parents[1]
#: Directory of the importing files -> directories in which their imports are searched.
ROOTS = {
    "tests": ("tests", "tests/msrpc", "benchmarks", "src"),
    "benchmarks": ("benchmarks", "tests", "src"),
    "demo": ("demo", "src"),
}
OPTIONAL = {"gssapi", "ldap", "samba"}  # packages that need not be installed
IN_STRING = re.compile(r"\bfrom (?:openmsmq|msrpc)[\w.]* import (?:\([^)]*\)|\w+(?:, *\w+)*)")


@cache
def names_in(module: Path) -> frozenset[str]:
    """Return all names bound anywhere in a module."""
    found = {"*"}
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    return frozenset(found)


def imports_in(file: Path) -> Iterator[tuple[int, ast.ImportFrom]]:
    """Yield each `from … import …`, also in strings, with the line of the statement or of the string."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.lineno, node
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for statement in IN_STRING.findall(node.value):
                (found,) = ast.parse(statement).body
                assert isinstance(found, ast.ImportFrom)
                yield node.lineno, found


def problems(file: Path, roots: tuple[str, ...]) -> Iterator[str]:
    """Yield a line for each import of a missing module or name. Of other packages, only the existence is checked."""
    for line, node in imports_in(file):
        if node.module is None or node.level:
            continue
        at, first = f"{file.relative_to(HOME)}:{line}", node.module.partition(".")[0]
        places = [HOME / root / node.module.replace(".", "/") for root in roots]
        files = [place.with_suffix(end) for place in places for end in (".py", ".pyi")]
        modules = [path for path in (*files, *(place / "__init__.py" for place in places)) if path.exists()]
        if not modules and not any(place.is_dir() for place in places):
            is_own = any((HOME / root / first).is_dir() for root in roots)
            if is_own or (first not in OPTIONAL and find_spec(first) is None):
                yield f"{at}: there is no module {node.module}"
            continue
        known = {name for module in modules for name in names_in(module)}
        known |= {path.name.partition(".")[0] for place in places if place.is_dir() for path in place.iterdir()}
        yield from (f"{at}: {node.module} has no {a.name}" for a in node.names if a.name not in known | {"__getattr__"})


if __name__ == "__main__":
    found = [
        line for top in ROOTS for file in sorted((HOME / top).rglob("*.py")) for line in problems(file, ROOTS[top])
    ]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))
