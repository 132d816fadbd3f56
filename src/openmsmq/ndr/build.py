"""From IDL files to importable modules, with a cache: generated code is made when the IDL or the compiler changed.

A wheel has them. Otherwise they land beside `openmsmq.interfaces` when the package is writable (a checkout), else in
the user's cache directory, else in memory: then each start compiles the IDL, and leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tempfile
from importlib import resources
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openmsmq.ndr.wiretypes import Library

# The compiler is imported where it is used: every program that starts comes here, and finds its modules up to date.

logger = logging.getLogger(__name__)

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


def generate_all() -> dict[str, str]:
    """The source of one Python module for each IDL file, by module name."""
    from openmsmq.ndr.python_backend import generate
    from openmsmq.ndr.python_emitter import module_name

    return {module_name(path.name): generate(compile_idl(path.name), path.name) for path in idl_files()}


def interfaces_directory(package: Path) -> Path | None:
    """The directory of up-to-date generated modules, generating them where needed; None where no directory can be
    written, and `import` makes them of what is in memory."""
    fingerprint = _fingerprint()
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openmsmq" / fingerprint[:16]
    candidates = (package, user_cache)
    for candidate in candidates:
        if _stamp_of(candidate) == fingerprint:
            return candidate
    sources = generate_all()
    for candidate in candidates:
        try:
            _write_all(candidate, sources, fingerprint)
        except OSError:
            continue
        return candidate
    logger.info("generated interfaces can be written neither to %s nor to %s; compiled in memory", *candidates)
    sys.meta_path.append(_InMemory(sources))
    return None


def bring_up_to_date(package: Path) -> None:
    """Generate the modules in `package`, for a build. Raises OSError."""
    fingerprint = _fingerprint()
    if _stamp_of(package) != fingerprint:
        _write_all(package, generate_all(), fingerprint)


class _InMemory(InspectLoader):
    """Finds and loads generated modules that are in no file."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = {f"openmsmq.interfaces.{name}": source for name, source in sources.items()}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name in self._sources else None

    def get_source(self, fullname: str) -> str:
        return self._sources[fullname]


def _write_all(target: Path, sources: dict[str, str], fingerprint: str) -> None:
    """Atomic a file, the stamp last. Raises OSError."""
    target.mkdir(parents=True, exist_ok=True)
    for name, source in sources.items():
        _write(target / f"{name}.py", source)
    _write(target / _STAMP, fingerprint)


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
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            # Whoever may read the package may read these: a temporary file is for its owner alone.
            os.fchmod(handle, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
