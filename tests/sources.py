"""Lets `import` take the sources of openmsmq where extension modules lie beside them, which Python prefers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType


class _SourceFinder:
    """Finds what has a source; see `importlib.abc.MetaPathFinder`. For the rest it says that there is nothing."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("openmsmq."):
            return None
        for directory in path or ():
            found = FileFinder(directory, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)
            if found is not None and found.loader is not None:
                return found
        raise ModuleNotFoundError(f"{name} has no source", name=name)


def prefer() -> None:
    """From now on, in this process. Call it before anything of openmsmq is imported."""
    assert not any(name.startswith("openmsmq.") for name in sys.modules)
    sys.meta_path.insert(0, _SourceFinder())
