"""Makes `import` prefer the sources of both packages to the extension modules next to them."""

from __future__ import annotations

import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path

import msrpc
import openmsmq

_PACKAGES = (Path(msrpc.__path__[0]), Path(openmsmq.__path__[0]))


def _find_sources(path: str) -> FileFinder:
    """Path hook for `sys.path_hooks`. Raises ImportError for directories outside the packages."""
    if not {Path(path), *Path(path).parents}.intersection(_PACKAGES):
        raise ImportError(path)
    return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))


def prefer() -> None:
    """Prefer sources in this process from now on. Call it before any import of the packages."""
    assert not any(name.startswith(("msrpc.", "openmsmq.")) for name in sys.modules)
    sys.path_hooks.insert(0, _find_sources)
    sys.path_importer_cache.clear()
