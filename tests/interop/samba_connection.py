"""Samba as a client: `samba_client.py` as a process, and the whole API of our client on top of it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import openmsmq
from openmsmq.client.calls import ClientCall
from openmsmq.client.pool import Pool
from requirements import missing

PYTHON = "/usr/bin/python3"  # Debian's interpreter, for which its packages are installed
SCRIPT = Path(__file__).with_name("samba_client.py")
ANONYMOUS = ("", "")


def need_samba() -> None:
    """Skip the test if python3-samba is not installed; if CI is set, fail."""
    probe = [PYTHON, "-I", "-c", "import samba.dcerpc.mgmt"]
    there = os.path.exists(PYTHON) and subprocess.run(probe, capture_output=True).returncode == 0
    if not there:
        missing("python3-samba is not installed: make samba")


class SambaError(Exception):
    """Samba's error text and its NTSTATUS."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(f"{text} ({status:#x})")
        self.status = status


class Samba:
    """One connection of Samba. `options` are those of a binding string, such as "spnego,seal"."""

    def __init__(
        self, port: int, options: str = "", user: tuple[str, str] = ANONYMOUS, interface: str = "mgmt"
    ) -> None:
        endpoint = ",".join(part for part in (str(port), options) if part)
        self._start(interface, f"ncacn_ip_tcp:127.0.0.1[{endpoint}]", *(user if user[0] else ()))

    @classmethod
    def at(cls, binding: str, interface: str = "mgmt") -> Self:
        """Connect anonymously, with a given binding string."""
        self = cls.__new__(cls)
        self._start(interface, binding)
        return self

    def _start(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [PYTHON, "-I", str(SCRIPT), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, question: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([question, *arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Samba's client ended with {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise SambaError(answer["error"], answer["status"])
        return answer["value"]

    def request(
        self, uuid: UUID, version: tuple[int, int], opnum: int, stub: bytes, target: UUID | None = None
    ) -> bytes:
        """Make a raw call; `target` is sent as object UUID."""
        object_uuid = str(target) if target is not None else None
        return bytes.fromhex(
            self.ask("request", str(uuid), version[0] | version[1] << 16, opnum, stub.hex(), object_uuid)
        )

    def manager(self, is_ndr64: bool = False) -> openmsmq.QueueManager:
        """Return the API of our client with all calls made by Samba; `is_ndr64` if it binds with NDR64."""
        pool = _SambaPool(self, is_ndr64)
        return openmsmq.QueueManager(pool, pool)

    def close(self) -> None:
        self._process.communicate(timeout=20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _SambaPool(Pool):
    """A pool of one connection: Samba's."""

    def __init__(self, samba: Samba, is_ndr64: bool) -> None:
        super().__init__("", 0, {})
        self._samba, self._is_ndr64 = samba, is_ndr64

    def call(self, call: ClientCall) -> Any:
        operation = call.operation.ndr64 if self._is_ndr64 else call.operation
        stub = operation.encode_request(call.request)
        interface = call.interface
        return operation.decode_response(
            self._samba.request(interface.uuid, interface.version, call.operation.opnum, stub)
        )
