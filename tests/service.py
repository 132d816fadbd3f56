"""The daemon as users start it: a process on ports that the system chooses, in a directory of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import openmsmq


class Service:
    """`openmsmq serve` in a subprocess; `start` may be called again after `stop` or `kill`."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.data_dir = directory / "data"
        self.log = directory / "daemon.log"
        self._options = options
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "openmsmq.cli", "serve", "--data-dir", str(self.data_dir)]
        command += ["--endpoint-mapper-port", "0", "--rpc-port", "0", *self._options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.ready: dict[str, Any] = json.loads(line)

    @property
    def port(self) -> int:
        port: int = self.ready["endpoints"]["qmcomm"]["port"]
        return port

    @property
    def mapper_port(self) -> int:
        port: int = self.ready["endpoints"]["ept"]["port"]
        return port

    def connect(self, **options: Any) -> openmsmq.QueueManager:
        return openmsmq.connect("127.0.0.1", self.port, **options)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(timeout=30)

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
