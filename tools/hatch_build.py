"""The build hook: a wheel has the modules that are generated from the IDL, so that no start has to compile it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GeneratedInterfaces(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Brings `openmsmq/interfaces` up to date before it is packed. Raises OSError, IdlError."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root) / "src"
        sys.path.insert(0, str(source))
        try:
            build = importlib.import_module("openmsmq.ndr.build")
            build.bring_up_to_date(source / "openmsmq" / "interfaces")
        finally:
            sys.path.remove(str(source))
