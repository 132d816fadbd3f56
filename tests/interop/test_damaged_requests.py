"""Requests of every operation, damaged in all ways and sent to the live daemon: it replies with results or faults,
at low cost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest

import openmsmq
from daemon import Daemon
from interop.abuse import INTERFACES, MIB, mutate, watched
from msrpc.ndr import Operation
from msrpc.rpc import aio, client
from msrpc.rpc.faults import RpcFault
from msrpc.rpc.throttle import Attempt
from openmsmq.conversion.send_buffer import send_buffer
from openmsmq.interfaces import ms_mqmp
from openmsmq.interfaces.ms_mqmq import OBJECTID, QUEUE_FORMAT
from openmsmq.model.errors import RpcConnectionError
from openmsmq.model.message import Message

VECTORS = Path(__file__).parents[1] / "vectors" / "ndr"


class Victim:
    """Requests of every operation that refer to live objects, from recorded stubs and from our own marshaller."""

    def __init__(self, connection: aio.AsyncConnection) -> None:
        self._connection = connection
        self.syntaxes: dict[str, Any] = {}

    async def prepare(self) -> dict[str, Any]:
        for name, interface in INTERFACES.items():
            self.syntaxes[name] = await self._connection.bind(interface.uuid, interface.version)
        direct = QUEUE_FORMAT(m_qft=3, m_pDirectID="OS:.\\private$\\victim")
        opened = ms_mqmp.rpc_QMOpenQueueInternal_Request(direct, 1, 0, 0, None, 0, bytes(16), "c", 0, 0)
        queue = await self._call("qmcomm", "rpc_QMOpenQueueInternal", opened)
        enlisted = ms_mqmp.R_QMEnlistInternalTransaction_Request(ms_mqmp.XACTUOW(os.urandom(16)))
        transaction = await self._call("qmcomm", "R_QMEnlistInternalTransaction", enlisted)
        return {
            "hQueue": queue.phQueue, "phQueue": queue.phQueue, "hProxy": queue.phQueue,
            "hQMContext": queue.pdwQMContext, "phIntXact": transaction.phIntXact, "pQueueFormat": direct,
            "pObjectFormat": ms_mqmp.OBJECT_FORMAT(1, direct), "lpwcsPathName": ".\\private$\\victim",
        }  # fmt: skip

    async def _call(self, interface: str, name: str, request: Any) -> Any:
        operation = INTERFACES[interface].operation(name)
        stub = operation.encode_request(request)
        return operation.decode_response(
            await self._connection.call(operation.opnum, stub, interface=self.syntaxes[interface])
        )


def recorded() -> list[tuple[str, Operation, bytes]]:
    found = []
    for path in sorted(VECTORS.glob("*.req.*.json")):
        vector = json.loads(path.read_text(encoding="utf-8"))
        if vector["interface"] in INTERFACES and ".be." not in path.name:
            operation = INTERFACES[vector["interface"]].operations[vector["opnum"]]
            found.append((vector["interface"], operation, bytes.fromhex(vector["stub_hex"])))
    return found


def requests() -> list[tuple[str, Operation, bytes]]:
    """Return the recorded requests, and those of the two operations without a recording."""
    internal = ms_mqmp.qmcomm2.operation("QMSendMessageInternalEx")
    name = QUEUE_FORMAT(m_qft=3, m_pDirectID="OS:.\\private$\\victim")
    request = ms_mqmp.QMSendMessageInternalEx_Request(name, send_buffer(Message(body=b"x" * 50)), OBJECTID())
    return [
        *recorded(),
        ("qmcomm", ms_mqmp.qmcomm.operation("R_QMCloseRemoteQueueContext"), bytes(range(20))),
        ("qmcomm2", internal, internal.encode_request(request)),
    ]


def test_every_operation_on_the_wire_is_among_the_requests() -> None:
    known = {operation.name for _, operation, _ in requests()}
    served = {o.name for interface in INTERFACES.values() for o in interface.operations if o.used_on_wire}
    assert known == served


def revived(operation: Operation, stub: bytes, live: dict[str, Any]) -> bytes:
    """Return the request with valid handles and names."""
    request = operation.decode_request(stub)
    for name in getattr(request, "__slots__", ()):
        if name in live and not (name == "pObjectFormat" and operation.name.startswith("R_QMMgmt")):
            setattr(request, name, live[name])
    if getattr(request, "ptb", None) is not None and hasattr(request.ptb, "old"):
        request.ptb.old.pUow = None
        if request.ptb.old.Receive is not None:
            request.ptb.old.Receive.RequestTimeout = 0
            request.ptb.old.Receive.Cursor = 0
    return operation.encode_request(request)


async def hammer(port: int, seed: int, rounds: int) -> tuple[int, int, int]:
    """Send damaged calls on new connections; returns the numbers of replies, of faults and of ended connections."""
    choose = random.Random(seed)
    answered = faults = closed = 0
    for _ in range(rounds):
        async with await aio.connect("127.0.0.1", port) as connection:
            victim = Victim(connection)
            live = await victim.prepare()
            calls = []
            for interface, operation, stub in requests():
                with contextlib.suppress(Exception):  # a request that cannot be made valid is sent as recorded
                    stub = revived(operation, stub, live)
                calls.append((victim.syntaxes[interface], operation.opnum, stub))
            choose.shuffle(calls)
            tasks = [
                asyncio.create_task(connection.call(opnum, mutate(stub, choose), interface=syntax))
                for syntax, opnum, stub in calls
            ]
            done, waiting = await asyncio.wait(tasks, timeout=2 if len(tasks) else 0.1, return_when="ALL_COMPLETED")
            for task in waiting:  # reads that wait for a message, for the time in the damaged request
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            for task in done:
                error = task.exception()
                assert error is None or isinstance(error, RpcFault | RpcConnectionError), repr(error)
                answered += error is None
                faults += isinstance(error, RpcFault)
                closed += isinstance(error, RpcConnectionError)
    return answered, faults, closed


def run_hammer(daemon: Daemon, seed: int, rounds: int) -> None:
    with daemon.connect() as manager:
        with contextlib.suppress(openmsmq.QueueExists):
            manager.create_queue(".\\private$\\victim")
    with watched(daemon, memory=32 * MIB):
        answered, faults, closed = asyncio.run(hammer(daemon.port, seed, rounds))
    print(f"{answered} answered, {faults} faults, {closed} on connections that were closed")
    # On a fast machine, the damaged handles are too many guesses in ten seconds.
    assert answered and faults and (not closed or Attempt.CALL.value in daemon.log)


def test_damaged_requests_of_every_operation_are_answered_or_faults(daemon: Daemon) -> None:
    run_hammer(daemon, seed=20, rounds=15)


@pytest.mark.slow
def test_very_many_damaged_requests_are_answered_or_faults(daemon: Daemon) -> None:
    run_hammer(daemon, seed=21, rounds=400)


def test_huge_counts_in_every_word_of_every_request_are_refused_quickly(daemon: Daemon) -> None:
    with watched(daemon), client.connect("127.0.0.1", daemon.port) as connection:
        begun = time.monotonic()
        for interface, operation, stub in requests():
            found = INTERFACES[interface]
            connection.bind(found.uuid, found.version)
            for offset in range(0, min(len(stub), 400) - 3, 4):
                for value in (0x80000000, 0xFFFFFFFF):
                    damaged = bytearray(stub)
                    struct.pack_into("<I", damaged, offset, value)
                    with contextlib.suppress(RpcFault):
                        connection.call(operation.opnum, bytes(damaged), timeout=10)
        assert time.monotonic() - begun < 60


def test_cut_requests_of_every_operation_are_refused(daemon: Daemon) -> None:
    with watched(daemon), client.connect("127.0.0.1", daemon.port) as connection:
        for interface, operation, stub in requests():
            found = INTERFACES[interface]
            connection.bind(found.uuid, found.version)
            for length in sorted({0, 1, 3, len(stub) // 4, len(stub) // 2, len(stub) - 5}):
                if 0 <= length < len(stub) - 4:
                    with pytest.raises(RpcFault):
                        connection.call(operation.opnum, stub[:length], timeout=10)
