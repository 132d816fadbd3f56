"""From IDL files to importable modules, with a cache: generated code is made when the IDL or the compiler changed.

The modules land beside `openmsmq.interfaces` when the package is writable (a checkout), otherwise in the user's cache
directory, otherwise in a temporary one.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openmsmq.ndr.wiretypes import Library

# The compiler is imported where it is used: every program that starts comes here, and finds its modules up to date.

IDL_DIRECTORY = Path(str(resources.files("openmsmq"))) / "idl"
_COMPILER_DIRECTORY = Path(__file__).parent
_STAMP = "_stamp.txt"


def idl_files() -> list[Path]:
    """The IDL files of the package, sorted by name."""
    return sorted(IDL_DIRECTORY.glob("*.idl"))


def compile_idl(filename: str, directory: Path = IDL_DIRECTORY) -> Library:
    """Run the front end over one IDL file. Raises IdlError."""
    from openmsmq.ndr.parser import parse
    from openmsmq.ndr.semantics import Analyzer

    analyzer = Analyzer(lambda name: parse((directory / name).read_text(encoding="utf-8"), name))
    return analyzer.analyze(filename)


def generate_all(target: Path, fingerprint: str) -> None:
    """Write one Python module for each IDL file to `target`; atomic a file, the stamp last."""
    from openmsmq.ndr.python_backend import generate
    from openmsmq.ndr.python_emitter import module_name

    target.mkdir(parents=True, exist_ok=True)
    for path in idl_files():
        _write(target / f"{module_name(path.name)}.py", generate(compile_idl(path.name), path.name))
    _write(target / _STAMP, fingerprint)


def interfaces_directory(package: Path) -> Path:
    """Return the directory of up-to-date generated modules, generating them where needed."""
    fingerprint = _fingerprint()
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openmsmq" / fingerprint[:16]
    for candidate in (package, user_cache):
        if _stamp_of(candidate) == fingerprint:
            return candidate
    for candidate in (package, user_cache, Path(tempfile.mkdtemp(prefix="openmsmq-"))):
        try:
            generate_all(candidate, fingerprint)
        except OSError:
            continue
        return candidate
    raise OSError("no directory to write generated interface modules to")


def _stamp_of(directory: Path) -> str:
    try:
        return (directory / _STAMP).read_text(encoding="utf-8")
    except OSError:  # not there, or not for us
        return ""


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for path in [*idl_files(), *sorted(_COMPILER_DIRECTORY.glob("*.py"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _write(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
        # Whoever may read the package may read these: a temporary file is for its owner alone.
        os.fchmod(handle, 0o644)
    os.replace(temporary, path)
