"""Last part of the demo: transactional messages to another queue manager, which is killed meanwhile."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import openmsmq

SENDERS, RECEIVERS = "127.0.80.1", "127.0.80.2"
BATCH = 10  # messages in a transaction


class Peer:
    """A queue manager on its own loopback address, which transfers messages on `message_port`."""

    def __init__(self, directory: Path, address: str, name: str, message_port: int) -> None:
        self._directory, self.address, self._name, self._message_port = directory, address, name, message_port
        self._directory.mkdir()
        self._rpc_port = 0
        self.start()

    def start(self) -> None:
        port = str(self._message_port)
        command = [sys.executable, "-m", "openmsmq.cli", "serve", "--data-dir", str(self._directory / "data")]
        command += ["--listen", self.address, "--computer-name", self._name, "--log-level", "error"]
        command += ["--endpoint-mapper-port", "0", "--rpc-port", str(self._rpc_port)]
        command += ["--message-port", port, "--peer-message-port", port]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._name} did not start: {(self._directory / 'log').read_text()}")
        self._rpc_port = json.loads(line)["endpoints"]["qmcomm"]["port"]

    def connect(self) -> openmsmq.QueueManager:
        return openmsmq.connect(self.address, self._rpc_port)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait()


def free_port() -> int:
    """Return a port that is free on both addresses."""
    while True:
        with socket.create_server((SENDERS, 0)) as one:
            port: int = one.getsockname()[1]
            try:
                with socket.create_server((RECEIVERS, port)):
                    return port
            except OSError:
                continue


def exchange(directory: Path, texts: list[str]) -> tuple[list[str], float]:
    """Send texts in transactions to the other queue manager, which is killed with SIGKILL halfway.

    Returns the final contents of its queue, in order, and the duration in seconds.
    """
    directory.mkdir()
    port = free_port()
    here = Peer(directory / "alpha", SENDERS, "ALPHA", port)
    there = Peer(directory / "beta", RECEIVERS, "BETA", port)
    try:
        with there.connect() as manager:
            manager.create_queue(".\\private$\\exchange", transactional=True)
        name = f"DIRECT=TCP:{RECEIVERS}\\private$\\exchange"
        started = time.monotonic()
        with here.connect() as manager, manager.open(name, "send") as queue:
            for at in range(0, len(texts), BATCH):
                if at == len(texts) // 2 // BATCH * BATCH:
                    there.kill()
                with manager.transaction() as transaction:
                    for text in texts[at : at + BATCH]:
                        queue.send(text, transaction=transaction)
            there.start()
            while any(row["message_count"] for row in manager.outgoing()) and time.monotonic() - started < 60:
                time.sleep(0.05)
        seconds = time.monotonic() - started
        with there.connect() as manager, manager.open(".\\private$\\exchange", "receive") as queue:
            count = manager.management(".\\private$\\exchange")["message_count"]
            return [str(queue.receive(timeout=5).decode()) for _ in range(count)], seconds
    finally:
        here.stop()
        there.stop()
