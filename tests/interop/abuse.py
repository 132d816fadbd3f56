"""Tools of the abuse tests: raw sockets, mutations, and a monitor of the daemon's resources."""

from __future__ import annotations

import contextlib
import random
import socket
import statistics
import struct
import threading
import time
from collections.abc import Iterator

import openmsmq
from daemon import Daemon, eventually
from msrpc.rpc.call_pdus import RequestPdu
from msrpc.rpc.client_connection import ClientConnection
from msrpc.rpc.pdu import SyntaxId
from openmsmq.interfaces import ms_mqmp, ms_mqmr

QMCOMM = SyntaxId(ms_mqmp.qmcomm.uuid, ms_mqmp.qmcomm.version)
QMCOMM2 = SyntaxId(ms_mqmp.qmcomm2.uuid, ms_mqmp.qmcomm2.version)
FIRST, LAST = 1, 2
INTERFACES = {"qmcomm": ms_mqmp.qmcomm, "qmcomm2": ms_mqmp.qmcomm2, "qmmgmt": ms_mqmr.qmmgmt}
MIB = 1 << 20
EXTREMES = (0, 1, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)
BYSTANDER = ".\\private$\\bystander"


def bind_bytes(*interfaces: SyntaxId) -> bytes:
    client = ClientConnection()
    client.bind(list(interfaces or (QMCOMM, QMCOMM2)))
    return client.data_to_send()


def request_bytes(opnum: int, stub: bytes, call_id: int = 2, flags: int = FIRST | LAST, context: int = 0) -> bytes:
    return RequestPdu(call_id, context, opnum, stub, flags=flags).pack()


def raw(daemon: Daemon, mapper: bool = False) -> socket.socket:
    connected = socket.create_connection(("127.0.0.1", daemon.mapper_port if mapper else daemon.port), 10)
    connected.settimeout(10)
    return connected


def bound(daemon: Daemon) -> socket.socket:
    """A connection with qmcomm as context 0 and qmcomm2 as context 1."""
    connected = raw(daemon)
    connected.sendall(bind_bytes())
    assert one_pdu(connected)[2] == 12, "the bind was not acknowledged"
    return connected


def one_pdu(connected: socket.socket) -> bytes:
    """Return the next PDU; empty if the server has closed the connection."""
    try:
        header = connected.recv(16, socket.MSG_WAITALL)
        if len(header) < 16:
            return b""
        return header + connected.recv(struct.unpack_from("<H", header, 8)[0] - 16, socket.MSG_WAITALL)
    except ConnectionError:
        return b""


def send_quietly(connected: socket.socket, data: bytes) -> None:
    """Send and ignore an error if the server has closed the connection."""
    with contextlib.suppress(ConnectionError):
        connected.sendall(data)


def mutate(data: bytes, choose: random.Random) -> bytes:
    """Make one to three changes that typically break parsers."""
    changed = bytearray(data)
    for _ in range(choose.randrange(1, 4)):
        where = choose.randrange(len(changed)) if changed else 0
        match choose.randrange(7):
            case 0 if changed:
                changed[where] ^= 1 << choose.randrange(8)
            case 1 if changed:
                changed[where] = choose.randrange(256)
            case 2 | 3 if len(changed) >= 4:
                aligned = where & ~3
                if aligned + 4 <= len(changed):
                    struct.pack_into("<I", changed, aligned, choose.choice(EXTREMES))
            case 4:
                del changed[where:]
            case 5:
                changed[where:where] = choose.randbytes(choose.choice((1, 2, 4, 8, 64)))
            case _:
                del changed[where : where + choose.choice((1, 2, 4, 8))]
    return bytes(changed)


class Bystander(threading.Thread):
    """A well-behaved client that records the duration of each call."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.error: BaseException | None = None
        self._daemon_process = daemon
        self._over = threading.Event()

    def run(self) -> None:
        try:
            with self._daemon_process.connect() as manager:
                with contextlib.suppress(openmsmq.QueueExists):
                    manager.create_queue(BYSTANDER)
                with manager.open(BYSTANDER, "send") as sender, manager.open(BYSTANDER) as receiver:
                    while not self._over.wait(0.004):
                        begun = time.perf_counter()
                        sender.send(b"x" * 100, recoverable=len(self.seconds) % 4 == 0)
                        assert receiver.receive(5).body == b"x" * 100
                        self.seconds.append(time.perf_counter() - begun)
        except BaseException as error:
            self.error = error

    def go_on(self, calls: int = 20) -> None:
        """Wait until a given number of further calls have succeeded, or one has failed."""
        enough = len(self.seconds) + calls
        eventually(lambda: len(self.seconds) >= enough or not self.is_alive(), 60)

    def finish(self) -> None:
        self._over.set()
        self.join(30)


@contextlib.contextmanager
def watched(
    daemon: Daemon, *, memory: int = 16 * MIB, mostly: float = 0.3, longest: float = 3.0, settle: float = 10.0
) -> Iterator[Bystander]:
    """Within budget: bytes of memory afterwards, seconds of the bystander's calls, and no descriptor left behind. A few
    calls may take longer, because others keep the processors busy; one that takes `longest` was held up."""
    with daemon.connect() as manager:  # modules loaded by the first call do not count
        assert manager.machine_id
    before, descriptors, logged = daemon.resident, daemon.descriptors, len(daemon.log)
    bystander = Bystander(daemon)
    bystander.start()
    try:
        yield bystander
        bystander.go_on()
    finally:
        bystander.finish()
    assert bystander.error is None, repr(bystander.error)
    assert daemon.alive
    assert len(bystander.seconds) >= 5
    took = sorted(bystander.seconds)
    assert statistics.median(took) < mostly, took
    assert took[-1] < longest, took[-5:]
    eventually(lambda: daemon.descriptors <= descriptors + 4, settle)
    assert daemon.resident - before < memory, f"{(daemon.resident - before) / MIB:.1f} MiB more"
    log = daemon.log[logged:]
    assert "Traceback" not in log, log[max(0, log.index("Traceback") - 300) :][:4000]


def is_own_file(name: str) -> bool:
    """Whether this is the name of a file that the daemon creates itself."""
    known = (
        "data",
        "data.log",
        "store",
        "lock",
        "users.json",
        "users.lock",
        "settings.json",
        "audit.jsonl",
        "audit.lock",
    )
    return name in known or name.startswith(("segment-", "checkpoint", "directory.sqlite", "alarms."))
