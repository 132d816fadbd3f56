"""Measurements without the load generator: the disk, the codec, and the cost of a million stored messages."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import wires
from systems import Daemon

from openmsmq.conversion.send_buffer import send_buffer
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces.ms_mqmq import OBJECTID
from openmsmq.model.message import Message

KIB = 1024
WRITTEN = 16 << 20


def fdatasync(directory: Path, seconds: float, size: int = 1200) -> tuple[float, float]:
    """Return p50 and p99 in microseconds of writing `size` bytes into an existing file with a sync."""
    path = directory / "bare"
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(handle, bytes(WRITTEN), 0)
        os.fsync(handle)
        data, offset, took = os.urandom(size), 0, []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begin = time.perf_counter()
            os.pwrite(handle, data, offset)
            os.fdatasync(handle)
            took.append(time.perf_counter() - begin)
            offset = (offset + size) % (WRITTEN - size)
    finally:
        os.close(handle)
        path.unlink()
    took.sort()
    return took[len(took) // 2] * 1e6, took[len(took) * 99 // 100] * 1e6


class Codec(NamedTuple):
    """Durations in microseconds."""

    encode: float
    decode: float
    impacket_encode: float
    impacket_decode: float

    @property
    def ratio(self) -> float:
        return (self.impacket_encode + self.impacket_decode) / (self.encode + self.decode)


def codec() -> Codec:
    """Measure the codec for a send of 1 KiB: encode and decode the request of rpc_ACSendMessageEx."""
    from interop import impacket_msmq as impacket

    operation = m.qmcomm2.operation("rpc_ACSendMessageEx")
    message = Message(body=wires.BODY, delivery_guarantee=1, label="a label", application_tag=7)
    ours = m.rpc_ACSendMessageEx_Request(bytes(range(20)), send_buffer(message), OBJECTID())
    stub = operation.encode_request(ours)
    theirs = impacket.rpc_ACSendMessageEx(stub)
    assert operation.decode_request(theirs.getData()) == operation.decode_request(stub)
    return Codec(
        _each(lambda: operation.encode_request(ours), 5000),
        _each(lambda: operation.decode_request(stub), 5000),
        _each(theirs.getData, 100),
        _each(lambda: impacket.rpc_ACSendMessageEx(stub), 100),
    )


def _each(call: object, count: int) -> float:
    assert callable(call)
    rounds = []
    for _ in range(5):
        begin = time.process_time()
        for _ in range(count):
            call()
        rounds.append((time.process_time() - begin) / count * 1e6)
    return statistics.median(rounds)


class Stored(NamedTuple):
    """Durations in seconds, and bytes per message."""

    messages: int
    scan: float
    scan_until_ready: float
    checkpoint: float
    checkpoint_until_ready: float
    memory: float
    disk: float


def stored(directory: Path, messages: int) -> Stored:
    """Fill a queue, then start the daemon by reading the log, and again from its checkpoint."""
    with Daemon(directory / "empty", "--log-level", "error") as empty:
        idle = empty.resident
    data = directory / "filled"
    subprocess.run([sys.executable, __file__, str(data), str(messages)], check=True)
    disk = sum(path.stat().st_blocks * 512 for path in (data / "store").iterdir()) / messages
    figures = []
    memory = 0.0
    for _ in range(2):
        begin = time.perf_counter()
        with Daemon(data, "--log-level", "error") as daemon:
            figures += [float(daemon.ready["restart_seconds"]), time.perf_counter() - begin]
            memory = (daemon.resident - idle) / messages
            with daemon.connect() as manager:
                assert manager.counts(".\\private$\\bench")["message_count"] == messages
    return Stored(messages, *figures, memory, disk)


def fill(data: Path, messages: int) -> None:
    """Fill a queue through the queue manager without RPC; end as in a crash."""
    from openmsmq.model.constants import Access, Share
    from openmsmq.model.names import parse_format_name
    from openmsmq.queueing.authorization import Caller
    from openmsmq.server.daemon import Daemon as Server
    from openmsmq.server.loading import load

    server = Server(load(options={"data_dir": data}, environment={}))
    manager, caller = server.manager, Caller.anonymous()
    manager.administration.create_queue(".\\private$\\bench", {}, None, caller)
    name = parse_format_name("DIRECT=OS:.\\private$\\bench")
    opened = manager.handles.open_queue(name, Access.SEND, Share.DENY_NONE, caller)
    for number in range(messages):
        manager.sending.enqueue(opened, Message(body=wires.BODY, delivery_guarantee=1), None)
        if number % 256 == 255:
            server.store.sync()
    server.store.sync()
    os._exit(0)


if __name__ == "__main__":
    fill(Path(sys.argv[1]), int(sys.argv[2]))
