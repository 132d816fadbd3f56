"""A disk that fails while the daemon runs."""

from __future__ import annotations

import os
from errno import EIO
from pathlib import Path

import pytest

import openmsmq
from daemon import Daemon

# A daemon whose syncs fail while a file exists. io_uring is disabled, because its syncs cannot be intercepted.
PROGRAM = f"""
import os, sys
from pathlib import Path
from openmsmq.cli import main
from openmsmq.server import daemon

failing, real = Path(sys.argv.pop(1)), os.fdatasync

def sync(handle):
    if failing.exists():
        raise OSError({EIO}, os.strerror({EIO}))
    real(handle)

def no_ring(loop):
    raise OSError("not in this test")

os.fdatasync, daemon.UringSync = sync, no_ring
main()
"""
PATH = r".\private$\orders"


def test_a_failed_sync_acknowledges_nothing_and_the_next_start_has_all_earlier_messages(tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    with Daemon(tmp_path / "data", "--no-audit", program=("-c", PROGRAM, str(failing))) as daemon:
        with daemon.connect() as manager:
            manager.create_queue(PATH)
            with manager.open(PATH, "send") as queue:
                queue.send("acknowledged", recoverable=True)
                failing.touch()
                with pytest.raises(openmsmq.MsmqError):
                    queue.send("not acknowledged", recoverable=True)
        assert daemon.wait() == 1
        said = next(line for line in daemon.log.splitlines() if "CRITICAL" in line)
        (segment,) = (path for path in (tmp_path / "data" / "store").rglob("*") if str(path) in said)
        assert segment.is_file() and f"{os.strerror(EIO)}: '{segment}'. Start it again" in said
        failing.unlink()
        daemon.start()  # as a supervisor does
        with daemon.connect() as manager, manager.open(PATH) as queue:
            assert queue.receive().decode() == "acknowledged"
