"""Connecting to invalid host names, and to hosts that do not answer: the reasons."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl

import pytest

from msrpc.errors import RpcConnectionError
from msrpc.rpc import aio, client
from msrpc.text import reason_of


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "\u202e.example", "\ud800"])
def test_an_invalid_host_name_is_a_failed_connection(host: str) -> None:
    with pytest.raises(RpcConnectionError, match=r":1: no host can have this name$"):
        client.connect(host, 1)
    with pytest.raises(RpcConnectionError, match=r":1: no host can have this name$"):
        asyncio.run(aio.connect(host, 1))


def test_a_refused_connection_has_the_reason_of_the_operating_system() -> None:
    with pytest.raises(RpcConnectionError, match=r"^127.0.0.1:1: Connection refused$"):
        client.connect("127.0.0.1", 1)
    with pytest.raises(RpcConnectionError, match=r"^127.0.0.1:1: Connection refused$"):
        asyncio.run(aio.connect("127.0.0.1", 1))


def test_a_connection_that_is_not_established_in_time_says_so() -> None:
    with pytest.raises(RpcConnectionError, match=r"^127.0.0.1:1: no answer within 0 s$"):
        asyncio.run(aio.connect("127.0.0.1", 1, timeout=0))
    assert reason_of(TimeoutError("timed out")) == "timed out"  # of the blocking client
    assert reason_of(TimeoutError()) == "TimeoutError"
    assert reason_of(OSError(errno.ETIMEDOUT, "")) == "Connection timed out"
    assert reason_of(ssl.SSLError(1, "wrong version number")) == "wrong version number"
    assert reason_of(socket.gaierror(-2, "Name or service not known")) == "Name or service not known"
