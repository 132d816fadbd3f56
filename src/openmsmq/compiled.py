"""The hot half of the queue manager as machine code, where it has been compiled; otherwise the same modules as Python.

`tools/compile` makes extension modules of `MODULES` with mypyc, and of `WRITTEN_IN_C`, and puts them into `_compiled`,
with a stamp of the sources that they were made of. They are used only while the stamp is true, all or none: whoever
edits a source runs that source at once. `OPENMSMQ_PURE=1` in the environment keeps them out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from hashlib import blake2b
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

PACKAGE: Final = Path(__file__).parent
DIRECTORY: Final = PACKAGE / "_compiled"
GROUP: Final = "openmsmq"  # mypyc puts the code of all modules into `openmsmq__mypyc`
SUFFIX: Final = EXTENSION_SUFFIXES[0]

# What a call passes on its way from the socket to the disk and back, and what recovery reads a log with.
MODULES: Final = (
    "model.lookup_id",
    "ndr.runtime", "protocols.dispatch", "protocols.environment", "protocols.management",
    "protocols.qm2qm", "protocols.qmcomm", "protocols.qmcomm2", "protocols.qmmgmt", "protocols.remote_read",
    "protocols.transaction_manager",
    "queueing.administration", "queueing.authorization", "queueing.change_set", "queueing.changes",
    "queueing.consumer_group", "queueing.consumer_groups", "queueing.descriptors", "queueing.handles",
    "queueing.holds", "queueing.machine", "queueing.manager", "queueing.outbox", "queueing.outgoing",
    "queueing.outgoing_queues", "queueing.properties", "queueing.queue", "queueing.reading", "queueing.records",
    "queueing.registry", "queueing.sending", "queueing.sinks", "queueing.sorted_keys", "queueing.source_names",
    "queueing.staged_writes", "queueing.stages", "queueing.storage", "queueing.subqueues", "queueing.timers",
    "queueing.transactions", "queueing.unit_of_work",
    "rpc.assembly", "rpc.association", "rpc.call", "rpc.server", "rpc.server_connection", "rpc.splitter",
    "store.batch", "store.bookkeeping", "store.checkpoints", "store.columns", "store.committer", "store.compaction",
    "store.frames", "store.uring_sync", "store.log", "store.opening", "store.operations", "store.recovery",
    "store.replay", "store.scan", "store.segments", "store.specs", "store.vfs", "store.writer",
    "transfer.queue_format", "transfer.receive_buffer", "transfer.send_buffer",
)  # fmt: skip
# What has no Python source: whoever imports it does without where it is not there.
WRITTEN_IN_C: Final = ("bulk.checksums", "ndr.engine", "queueing.packing", "store.framing")
# Their constants and declarations are compiled in.
_IMPORTED_BY_THEM: Final = ("model", "ndr", "packet", "protocols", "queueing", "rpc", "store", "transfer")


def stamp_of_sources() -> str:
    """A hash of all that the compiled code depends on, the interpreter and the list of modules too."""
    digest = blake2b(f"{SUFFIX} {sys.version} {MODULES} {WRITTEN_IN_C}".encode(), digest_size=16)
    imported = [source for name in _IMPORTED_BY_THEM for source in sorted((PACKAGE / name).glob("*.py"))]
    headers = sorted(PACKAGE.glob("*/*.h"))
    for source in [*imported, *map(source_in_c, WRITTEN_IN_C), *headers]:
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()


def file_of(module: str) -> Path:
    """Where the extension module of a module is; "" stands for the code of all `MODULES`."""
    return DIRECTORY / (module.replace(".", "/") + SUFFIX if module else f"{GROUP}__mypyc{SUFFIX}")


def source_in_c(module: str) -> Path:
    """Where the source of one of `WRITTEN_IN_C` is."""
    return PACKAGE / f"{module.replace('.', '/')}.c"


class _Finder:
    """Offers the compiled modules to `import`; see `importlib.abc.MetaPathFinder`."""

    def __init__(self) -> None:
        self._files = {f"{__package__}.{module}": file_of(module) for module in (*MODULES, *WRITTEN_IN_C)}
        self._files[f"{GROUP}__mypyc"] = file_of("")

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(name)
        if file is None:
            return None
        return spec_from_file_location(name, file, loader=ExtensionFileLoader(name, str(file)))


def is_current() -> bool:
    """Whether compiled modules are there and were made of the sources that are there."""
    try:
        return (DIRECTORY / "stamp").read_text() == stamp_of_sources()
    except OSError:
        return False


def use() -> bool:
    """Let `import` find the compiled modules. Returns whether it does."""
    if os.environ.get("OPENMSMQ_PURE", "0") not in ("", "0") or not is_current():
        return False
    sys.meta_path.insert(0, _Finder())
    return True


in_use: Final = use()
