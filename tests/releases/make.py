"""Make the archives of the current store format, once per format version: `PYTHONPATH=tests python -m
releases.make`.

`format-N-stopped.tar.xz` is a data directory after a regular stop, which writes a checkpoint;
`format-N-killed.tar.xz` is one after SIGKILL, which is recovered from the log. `CONTENT` is their content, which the
test compares.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path
from typing import Final

from daemon import Daemon, eventually
from openmsmq.admin.naming import path_of
from openmsmq.client.sync import QueueManager
from openmsmq.store.frames import VERSION

HERE: Final = Path(__file__).parent
NAME: Final = "released"
ENDS: Final = ("stopped", "killed")
PATH: Final = ".\\private$\\{}"
#: Queue -> the result of `look`: label, body, priority.
CONTENT: Final[dict[str, list[tuple[str, str, int]]]] = {
    "plain": [("urgent", "körper", 7), ("first", "one", 3), ("second", "x" * 5000, 3)],
    "transactional": [("committed 1", "a", 0), ("committed 2", "b", 0)],
    "journaled": [],
    "journaled;journal": [("read", "kept", 3)],
    "plain;sub": [("moved", "m", 3)],
    "deadletter": [("lost", "l", 3)],
}


def fill(manager: QueueManager) -> None:
    """Create all kinds of log records that a client can cause."""
    manager.create_queue(PATH.format("plain"), label="Ordinary", quota=5000)
    manager.create_queue(PATH.format("transactional"), transactional=True)
    manager.create_queue(PATH.format("journaled"), journal=True)
    manager.create_queue(PATH.format("deleted"))
    manager.delete_queue(PATH.format("deleted"))
    with manager.open(PATH.format("plain"), "send") as plain, manager.open(PATH.format("plain")) as reader:
        plain.send("gone", label="received", recoverable=True)
        reader.receive(0)
        plain.send("m", label="moved", recoverable=True)
        with manager.open(PATH.format("plain") + ";sub", "peek"):  # creates the subqueue
            reader.move(reader.peek(0).lookup_identifier, "sub")
        for label, body, priority in (("first", "one", 3), ("second", "x" * 5000, 3), ("urgent", "körper", 7)):
            plain.send(body, label=label, priority=priority, recoverable=True)
        plain.send("l", label="lost", recoverable=True, time_to_be_received=1, journaling_requested=1)
        eventually(lambda: look(manager, "deadletter"))
        plain.send("not kept", label="express", priority=0)
    with manager.open(PATH.format("journaled"), "send") as journaled:
        journaled.send("kept", label="read", recoverable=True)
    with manager.open(PATH.format("journaled")) as journaled:
        journaled.receive(0)
    with manager.open(PATH.format("transactional"), "send") as transactional:
        with manager.transaction() as transaction:
            for number, body in enumerate("ab", 1):
                transactional.send(body, label=f"committed {number}", transaction=transaction)
        aborted = manager.transaction()
        transactional.send("c", label="aborted", transaction=aborted)
        aborted.abort()
        transactional.send("d", label="open", transaction=manager.transaction())


def look(manager: QueueManager, name: str) -> list[tuple[str, str, int]]:
    """Return the content of a queue."""
    with manager.open(path_of(name), "peek") as opened:
        return [(message.label, str(message.decode()), message.priority) for message in opened]


def make(end: str) -> None:
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text) / "data"
        with Daemon(directory, "--computer-name", NAME, "--no-audit") as daemon:
            with daemon.connect() as manager:
                fill(manager)
            if end == "stopped":
                daemon.stop()
            else:
                daemon.kill()
        with tarfile.open(HERE / f"format-{VERSION}-{end}.tar.xz", "w:xz") as archive:
            for path in sorted(directory.rglob("*")):
                if path.is_file() and "store" in path.parts:
                    archive.add(path, str(path.relative_to(directory)))


if __name__ == "__main__":
    for each in ENDS:
        make(each)
