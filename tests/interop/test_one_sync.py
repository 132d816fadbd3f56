"""A message for a waiting reader is written together with its removal: one sync answers sender and reader."""

from __future__ import annotations

import struct
import threading
import time
from pathlib import Path

from daemon import Daemon
from openmsmq.store import frames

COUNT = 40


def writes(directory: Path) -> tuple[dict[int, int], dict[int, int]]:
    """Return the position of the write that inserted each message, and of the write that removed it."""
    inserted: dict[int, int] = {}
    removed: dict[int, int] = {}
    for path in directory.rglob("segment-*"):
        data, at = path.read_bytes(), frames.FRAMES_START
        while at + frames.HEADER_SIZE <= len(data):
            _, length, position, key, _, _, _, group, kind, _, _ = frames.HEADER.unpack_from(data, at)
            if kind not in frames.KINDS or not position:
                break
            if kind == frames.INSERT:
                inserted[key] = position - group
            elif kind == frames.REMOVE:
                removed[key] = position - group
            elif kind == frames.REMOVE_MANY:
                for each in struct.unpack_from(f"<{length // 16}Q", data, at + frames.HEADER_SIZE):
                    removed[each] = position - group
            at += frames.frame_size(length)
    return inserted, removed


def test_a_message_that_comes_and_goes_is_written_once(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        with daemon.connect() as qm:
            qm.create_queue(".\\private$\\q")

        def receive() -> None:
            with daemon.connect() as qm, qm.open(".\\private$\\q", "receive", protocol="qmcomm") as queue:
                for _ in range(COUNT):
                    queue.receive(timeout=20)

        reader = threading.Thread(target=receive)
        reader.start()
        with daemon.connect() as qm, qm.open(".\\private$\\q", "send") as queue:
            for _ in range(COUNT):
                time.sleep(0.02)  # the reader waits again
                queue.send("body", recoverable=True)
        reader.join()
    inserted, removed = writes(tmp_path / "data")
    assert len(inserted) == len(removed) == COUNT
    assert sum(inserted[key] == write for key, write in removed.items()) > COUNT / 2
