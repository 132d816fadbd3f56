"""A server that accepts one connection, sends fixed bytes and closes it, as broken servers do."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread


@contextmanager
def answering(data: bytes) -> Iterator[int]:
    """Yield the port of a server that answers its first request with `data`."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            with suppress(OSError):  # the client has closed it
                connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
