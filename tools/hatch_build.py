"""The build hook: adds modules generated from IDL to all distributions, and extension modules to openmsmq.

`OPENMSMQ_BUILD` in the environment says what to make: `native` fails where a compiled wheel can't be built,
`pure` does not try. If it is unset, a wheel is pure if there is no C compiler or Python headers, with a warning. An
editable install does not build extension modules: `make` builds them next to the sources (native.py).

openmsmq also includes the connector for Spark (connector.py) if javac and PySpark are available; otherwise there is a
warning. With OPENMSMQ_BUILD=native, PySpark is installed for this if there is javac.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))
import connector
import native

COMPILERS = ["mypy==2.4.1", "setuptools==84.2.1"]
SPARK = ["pyspark==4.3.0"]
EDITABLE = "editable"  # hatchling's name for an editable wheel


class NativeModules(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Generates the interfaces, builds extension modules and adds them to the wheel. Raises CalledProcessError,
    RuntimeError."""

    def dependencies(self) -> list[str]:
        if not self.config["native"] or self._why_pure() is not None:
            return []
        wants_spark = os.environ.get("OPENMSMQ_BUILD") == "native" and connector.lacking() == connector.NO_SPARK
        return COMPILERS + (SPARK if wants_spark else [])

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == EDITABLE or not self.config["native"]:
            native.generate()
            return
        self._directory = tempfile.TemporaryDirectory()
        built = Path(self._directory.name)
        self._add_connector(built, build_data)
        why = self._why_pure()
        if why is not None:
            native.generate()
            self.app.display_warning(f"openmsmq: {why}: this wheel is pure Python, at half the speed")
            return
        native.build(built)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"] |= {str(path): str(path.relative_to(built)) for path in built.rglob("*.so")}

    def _add_connector(self, built: Path, build_data: dict[str, Any]) -> None:
        lacking = connector.lacking()
        if lacking:
            self.app.display_warning(f"openmsmq: {lacking}: Spark reads by Python workers with this wheel")
            return
        connector.build(built / connector.JAR)
        build_data["force_include"][str(built / connector.JAR)] = str(connector.JAR)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_directory"):
            self._directory.cleanup()

    def _why_pure(self) -> str | None:
        """Return why no native code is built; None if it is built. Raises RuntimeError if native code is required but
        cannot be built."""
        wanted = os.environ.get("OPENMSMQ_BUILD", "")
        if wanted not in ("", "native", "pure"):
            raise RuntimeError(f"OPENMSMQ_BUILD={wanted}: allowed: native, pure")
        if wanted == "pure":
            return "OPENMSMQ_BUILD=pure"
        lacking: str | None = native.lacking()
        if lacking and wanted == "native":
            raise RuntimeError(f"OPENMSMQ_BUILD=native: {lacking}")
        return lacking
