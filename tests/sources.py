"""Lets `import` take the sources of openmsmq where extension modules lie beside them, which Python prefers."""

from __future__ import annotations

import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path

import openmsmq


def _find_sources(path: str) -> FileFinder:
    """A hook of `sys.path_hooks`. Raises ImportError for directories that are not the package's."""
    package = Path(openmsmq.__path__[0])
    if package not in (Path(path), *Path(path).parents):
        raise ImportError(path)
    return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))


def prefer() -> None:
    """From now on, in this process. Call it before anything of openmsmq is imported."""
    assert not any(name.startswith("openmsmq.") for name in sys.modules)
    sys.path_hooks.insert(0, _find_sources)
    sys.path_importer_cache.clear()
