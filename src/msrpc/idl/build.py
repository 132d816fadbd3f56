"""Generate modules from IDL files, at build time only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from msrpc.idl.lexer import IdlError
from msrpc.idl.parser import parse
from msrpc.idl.python_backend import generate, generate_ndr64
from msrpc.idl.python_emitter import NDR64_SUFFIX, module_name
from msrpc.idl.semantics import Analyzer
from msrpc.idl.wiretypes import LibraryType

#: Directory of this package's IDL files, which others can import, and the package of the modules generated from them.
OWN: Final[Mapping[Path, str]] = {Path(__file__).parents[1] / "interfaces": "msrpc.interfaces"}


class IdlSources:
    """Directories searched for imported IDL files, each with the package of its generated modules. An empty package
    means that modules are imported by name only. Directories are searched in order, that of this package last."""

    def __init__(self, directories: Mapping[Path, str]) -> None:
        self._directories: Final = {**directories, **OWN}

    def find(self, name: str) -> tuple[Path, str]:
        """Return the path of an IDL file and the name of its module. Raises IdlError."""
        for directory, package in self._directories.items():
            if (directory / name).is_file():
                return directory / name, f"{package}.{module_name(name)}".lstrip(".")
        raise IdlError(f"{name} is in none of {', '.join(map(str, self._directories))}")

    def compile(self, name: str) -> LibraryType:
        """Run the front end over one IDL file. Raises IdlError."""
        return Analyzer(lambda file: parse(self.find(file)[0].read_text(encoding="utf-8"), file)).analyze(name)

    def module_of(self, name: str) -> str:
        """Return the name of the module of an IDL file. Raises IdlError."""
        return self.find(name)[1]

    def generate(self, name: str) -> dict[str, str]:
        """Return the modules of an IDL file: name -> source. Raises IdlError."""
        library, module = self.compile(name), module_name(name)
        return {
            module: generate(library, name, self.module_of),
            module + NDR64_SUFFIX: generate_ndr64(library, name, self.module_of),
        }


def write_modules(
    files: Iterable[Path], target: Path, package: str = "", included: Mapping[Path, str] | None = None
) -> list[Path]:
    """Write the modules of each IDL file into `target`, unless they are up to date. Files are replaced atomically.

    `package` is the name of the package `target`. `included` has further directories of IDL files with their packages.
    Returns the paths of the modules. Raises IdlError, OSError.
    """
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for file in files:
        modules = IdlSources({file.parent: package, **(included or {})}).generate(file.name)
        for name, source in modules.items():
            path = target / f"{name}.py"
            if not path.exists() or path.read_text(encoding="utf-8") != source:
                _write(path, source)
            written.append(path)
    return written


def _write(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            # Generated modules are readable for all users, unlike temporary files.
            os.fchmod(handle, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
