"""Child-process end of the channel to the daemon. Thread-safe."""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
import traceback
from concurrent.futures import Future
from typing import Any

from openmsmq.model.errors import HResult, MsmqError, error_for
from openmsmq.processes.framing import HEADER, MAXIMUM_BYTES, frame_head

Answer = tuple[Any, memoryview]


class DaemonLink:
    """Sends numbered requests; answers may arrive in any order. If the daemon closes the connection, this process
    exits."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[Answer]] = {}
        self._sending = threading.Lock()
        threading.Thread(target=self._receive, name="daemon", daemon=True).start()

    def ask(self, operation: str, *data: bytes | memoryview, **values: Any) -> Future[Answer]:
        """Request an operation of the daemon, optionally with bytes. The future's result is the value and the bytes of
        the answer, or the MsmqError that the daemon raised."""
        length = sum(map(len, data))
        if length > MAXIMUM_BYTES:
            detail = f"{operation}: {length} bytes at once, allowed: {MAXIMUM_BYTES}"
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, detail)
        future: Future[Answer] = Future()
        number = next(self._numbers)
        head = frame_head(number, {"op": operation, **values}, length)
        self._pending[number] = future
        try:
            with self._sending:
                for part in (head, *data):
                    self._connection.sendall(part)
        except OSError:
            os._exit(0)  # `_receive` has not noticed yet; clients are disconnected and retry
        return future

    def call(self, operation: str, **values: Any) -> Any:
        """Request an operation and wait for its value."""
        return self.ask(operation, **values).result()[0]

    def _receive(self) -> None:
        try:
            while True:
                number, text_length, length = HEADER.unpack(self._exactly(HEADER.size))
                values = json.loads(bytes(self._exactly(text_length)))
                data = self._exactly(length)
                future = self._pending.pop(number)
                if "hresult" in values:
                    future.set_exception(error_for(values["hresult"], values["detail"]))
                else:
                    future.set_result((values["result"], data))
        except OSError:
            os._exit(0)  # immediately: no cleanup is needed, and other threads may be blocked
        except BaseException:  # otherwise all requests would hang; the daemon restarts the process
            traceback.print_exc()
            os._exit(1)

    def _exactly(self, length: int) -> memoryview:
        buffer = bytearray(length)
        view = memoryview(buffer)
        at = 0
        while at < length:
            count = self._connection.recv_into(view[at:])
            if not count:
                raise ConnectionError("the daemon closed the connection")
            at += count
        return view
