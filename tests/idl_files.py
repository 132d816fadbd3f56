"""The IDL files of the project: those of msrpc and those of openmsmq."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import openmsmq
from msrpc.idl.build import OWN, IdlSources

_OPENMSMQ: Final = Path(openmsmq.__path__[0]) / "idl"
SOURCES: Final = IdlSources({_OPENMSMQ: "openmsmq.interfaces"})
DIRECTORIES: Final = [_OPENMSMQ, *OWN]


def idl_files() -> list[Path]:
    """Return the files sorted by name."""
    found = [path for directory in DIRECTORIES for path in directory.glob("*.idl")]
    return sorted(found, key=lambda path: path.name)
