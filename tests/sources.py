"""Lets `import` take the sources of both packages where extension modules lie beside them, which Python prefers."""

from __future__ import annotations

import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path

import msrpc
import openmsmq

_PACKAGES = (Path(msrpc.__path__[0]), Path(openmsmq.__path__[0]))


def _find_sources(path: str) -> FileFinder:
    """A hook of `sys.path_hooks`. Raises ImportError for directories that are not the packages'."""
    if not {Path(path), *Path(path).parents}.intersection(_PACKAGES):
        raise ImportError(path)
    return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))


def prefer() -> None:
    """From now on, in this process. Call it before anything of them is imported."""
    assert not any(name.startswith(("msrpc.", "openmsmq.")) for name in sys.modules)
    sys.path_hooks.insert(0, _find_sources)
    sys.path_importer_cache.clear()
