"""The build hook: distributions have the modules that are generated from the IDL, and openmsmq the extension modules.

`OPENMSMQ_BUILD` in the environment says what to make: `native` fails where a wheel with machine code can't be built,
`pure` does not try. Without it a wheel is pure where there is no C compiler or no headers of Python; a warning says so.
An editable install has no extension modules of its own: `make` builds them beside the sources (native.py).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))
import native

COMPILERS = ["mypy==2.4.1", "setuptools==84.2.1"]
EDITABLE = "editable"  # hatchling's name of that version of a wheel


class NativeModules(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Generates the interfaces, builds extension modules and packs them. Raises CalledProcessError, RuntimeError."""

    def dependencies(self) -> list[str]:
        return COMPILERS if self.config["native"] and self._why_pure() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == EDITABLE or not self.config["native"]:
            native.generate()
            return
        why = self._why_pure()
        if why is not None:
            native.generate()
            self.app.display_warning(f"openmsmq: {why}: this wheel is pure Python, at half the speed")
            return
        self._directory = tempfile.TemporaryDirectory()
        built = Path(self._directory.name)
        native.build(built)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"] |= {str(path): str(path.relative_to(built)) for path in built.rglob("*.so")}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_directory"):
            self._directory.cleanup()

    def _why_pure(self) -> str | None:
        """Why no machine code is built, if none is. Raises RuntimeError where it is demanded."""
        wanted = os.environ.get("OPENMSMQ_BUILD", "")
        if wanted not in ("", "native", "pure"):
            raise RuntimeError(f"OPENMSMQ_BUILD={wanted}: known are native and pure")
        if wanted == "pure":
            return "OPENMSMQ_BUILD=pure"
        lacking: str | None = native.lacking()
        if lacking and wanted == "native":
            raise RuntimeError(f"OPENMSMQ_BUILD=native: {lacking}")
        return lacking
