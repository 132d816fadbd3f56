"""Connecting to invalid host names."""

from __future__ import annotations

import asyncio

import pytest

from msrpc.errors import RpcConnectionError
from msrpc.rpc import aio, client


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "\u202e.example", "\ud800"])
def test_an_invalid_host_name_is_a_failed_connection(host: str) -> None:
    with pytest.raises(RpcConnectionError):
        client.connect(host, 1)
    with pytest.raises(RpcConnectionError):
        asyncio.run(aio.connect(host, 1))
