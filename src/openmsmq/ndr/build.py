"""From IDL files to modules: `python -m openmsmq.ndr` writes them into `openmsmq/interfaces`; see `__main__`.

The build hook (`tools/hatch_build.py`) and `make` run that. Nothing is generated where the package is used.
"""

from __future__ import annotations

import os
import tempfile
from importlib import resources
from pathlib import Path

from openmsmq.ndr.parser import parse
from openmsmq.ndr.python_backend import generate
from openmsmq.ndr.python_emitter import module_name
from openmsmq.ndr.semantics import Analyzer
from openmsmq.ndr.wiretypes import LibraryType

IDL_DIRECTORY = Path(str(resources.files("openmsmq"))) / "idl"


def idl_files() -> list[Path]:
    """The IDL files of the package, sorted by name."""
    return sorted(IDL_DIRECTORY.glob("*.idl"))


def compile_idl(filename: str, directory: Path = IDL_DIRECTORY) -> LibraryType:
    """Run the front end over one IDL file. Raises IdlError."""
    analyzer = Analyzer(lambda name: parse((directory / name).read_text(encoding="utf-8"), name))
    return analyzer.analyze(filename)


def generate_all() -> dict[str, str]:
    """The source of one Python module for each IDL file, by module name."""
    return {module_name(path.name): generate(compile_idl(path.name), path.name) for path in idl_files()}


def write_all(package: Path) -> None:
    """Write the modules that `package` lacks or has otherwise; each is replaced at once. Raises IdlError, OSError."""
    package.mkdir(parents=True, exist_ok=True)
    for name, source in generate_all().items():
        path = package / f"{name}.py"
        if not path.exists() or path.read_text(encoding="utf-8") != source:
            _write(path, source)


def _write(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            # Whoever may read the package may read these: a temporary file is for its owner alone.
            os.fchmod(handle, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
