"""The asyncio server and the blocking client over TCP."""

from __future__ import annotations

import time

import pytest

from openmsmq.rpc.client import connect
from openmsmq.rpc.errors import BindError, RpcFault
from openmsmq.rpc.faults import NCA_S_FAULT_CONTEXT_MISMATCH, NCA_S_FAULT_UNSPEC, NCA_S_OP_RNG_ERROR
from rpc.toys import BIG, CLOSE, CRASH, ECHO, NULL, OPEN, OTHER, REVERSE, Toy, running_server


def test_a_call_comes_back_with_its_answer_and_faults_with_their_status() -> None:
    with running_server(Toy(), Toy(OTHER)) as (_, port), connect("127.0.0.1", port) as connection:
        connection.bind(ECHO.uuid, ECHO.version)
        assert connection.call(NULL, b"") == b""
        assert connection.call(REVERSE, bytes(range(256)) * 100) == bytes(reversed(range(256))) * 100
        assert len(connection.call(BIG, (100_000).to_bytes(4, "little"))) == 100_000
        with pytest.raises(RpcFault) as fault:
            connection.call(99, b"")
        assert fault.value.status == NCA_S_OP_RNG_ERROR
        with pytest.raises(RpcFault) as fault:
            connection.call(CRASH, b"")
        assert fault.value.status == NCA_S_FAULT_UNSPEC
        connection.bind(OTHER.uuid, (2, 1))
        assert connection.call(REVERSE, b"abc") == b"cba"


def test_an_interface_that_is_not_offered_cannot_be_bound() -> None:
    with running_server(Toy()) as (_, port), connect("127.0.0.1", port) as connection, pytest.raises(BindError):
        connection.bind(OTHER.uuid, OTHER.version)


def test_a_lost_connection_runs_its_context_handles_down() -> None:
    toy = Toy()
    with running_server(toy) as (_, port):
        with connect("127.0.0.1", port) as connection:
            connection.bind(ECHO.uuid, ECHO.version)
            kept, closed = connection.call(OPEN, b""), connection.call(OPEN, b"")
            assert len(kept) == 20
            assert connection.call(CLOSE, closed) == bytes(20)
            with pytest.raises(RpcFault) as fault:
                connection.call(CLOSE, closed)
            assert fault.value.status == NCA_S_FAULT_CONTEXT_MISMATCH
        deadline = time.monotonic() + 2
        while not toy.rundowns and time.monotonic() < deadline:
            time.sleep(0.01)
        assert toy.rundowns == ["object"]
