"""Connections that repeat prepared requests, so that the load generator takes as little CPU time as possible.

Each function prepares a connected socket with blocking calls. It returns the socket, the bytes to repeat, and the
parameters for the native load generator (`load.c`) to recognize responses.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from msrpc.rpc import client
from msrpc.rpc.pdu import NDR, NDR64, SyntaxId
from openmsmq.client import operations, qm2qm, remote_read
from openmsmq.conversion.receive_buffer import receive_buffer
from openmsmq.conversion.send_buffer import send_buffer
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces import ms_mqqp
from openmsmq.interfaces.ms_mqmq import OBJECTID, QUEUE_FORMAT
from openmsmq.interfaces.ms_mqmr import qmmgmt
from openmsmq.interfaces.ms_mqrr import RemoteRead
from openmsmq.model.constants import INFINITE, Access, ReceiveAction
from openmsmq.model.message import Message

BODY = bytes(range(256)) * 4
OPERATIONS = ("null", "express send", "durable send", "receive")
SMALL_BODY = BODY[:64]  # body of a "small durable send": ten million messages take 4 GB on the disk


class Wire(NamedTuple):
    """A prepared connection.

    Attributes:
        requests: sent in rotation, each after the response to the previous one.
        cut: how `load.c` separates responses.
        size: size of each response if cut is "fixed".
        steps: number of responses per operation.
        copies: offset in a response, offset in the next request, and number of bytes to copy.
        listens: the server sends first.
        keep: an object that must live as long as the connection.
    """

    sock: socket.socket
    requests: list[bytes]
    cut: str
    size: int = 0
    steps: int = 1
    copies: tuple[int, int, int] = (0, 0, 0)
    listens: bool = False
    keep: Any = None


# -- the baseline program --------------------------------------------------------------------------------------------


class FloorOperation(NamedTuple):
    """Sizes in bytes of a request, of the data written for it, and of its response."""

    request: int
    record: int
    answer: int


# Sizes for openmsmq with a message of 1 KiB.
FLOOR_OPERATIONS = {"durable send": FloorOperation(1412, 1304, 52), "receive": FloorOperation(2740, 48, 1756)}


def floor(port: int, what: str, _: str) -> Wire:
    """Requests of fixed size that begin with the number of their operation."""
    sock = socket.create_connection(("127.0.0.1", port), 30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    operation, number = FLOOR_OPERATIONS[what], list(FLOOR_OPERATIONS).index(what)
    return Wire(sock, [bytes([number]) + bytes(operation.request - 1)], "fixed", operation.answer)


# -- openmsmq --------------------------------------------------------------------------------------------------------


def openmsmq(port: int, what: str, queue: str, timeout: int = 0, syntax: SyntaxId = NDR) -> Wire:
    connection = client.connect("127.0.0.1", port)
    qmcomm = connection.bind(m.qmcomm.uuid, m.qmcomm.version)
    qmcomm2 = connection.bind(m.qmcomm2.uuid, m.qmcomm2.version, (syntax,))
    if what == "null":
        connection.core.request(qmcomm, 31, bytes(4))
        return Wire(connection._socket, [connection.core.data_to_send()], "responses", keep=connection)
    name = QUEUE_FORMAT(m_qft=3, m_pDirectID=f"OS:.\\private$\\{queue}")
    operation = m.qmcomm.operation("rpc_QMOpenQueueInternal")
    access = 1 if what == "receive" else 2
    stub = operation.encode_request(
        m.rpc_QMOpenQueueInternal_Request(name, access, 0, 0, None, 0, bytes(16), "bench", 0, 0)
    )
    opened = operation.decode_response(connection.call(operation.opnum, stub, interface=qmcomm))
    assert opened.result == 0, hex(opened.result)
    if what == "receive":
        operation = m.qmcomm2.operation("rpc_ACReceiveMessageEx")
        request: Any = m.rpc_ACReceiveMessageEx_Request(
            opened.pdwQMContext, receive_buffer(ReceiveAction.RECEIVE, timeout)
        )
    else:
        operation = m.qmcomm2.operation("rpc_ACSendMessageEx")
        body, is_durable = SMALL_BODY if what.startswith("small") else BODY, what.endswith("durable send")
        message = Message(body=body, delivery_guarantee=int(is_durable))
        request = m.rpc_ACSendMessageEx_Request(opened.phQueue, send_buffer(message), OBJECTID())
    spoken = operation.ndr64 if syntax == NDR64 else operation
    connection.core.request(qmcomm2, operation.opnum, spoken.encode_request(request))
    return Wire(connection._socket, [connection.core.data_to_send()], "results", keep=connection)


def openmsmq_in_ndr64(port: int, what: str, queue: str) -> Wire:
    """Sends and receives in NDR64."""
    return openmsmq(port, what, queue, syntax=NDR64)


def openmsmq_waiting(port: int, what: str, queue: str) -> Wire:
    """Receives that wait for their messages."""
    return openmsmq(port, what, queue, INFINITE)


def two_phases(port: int, what: str, queue: str) -> Wire:
    """Alternate between receive and acknowledgment, through "remoteread" or "qm2qm"."""
    connection = client.connect("127.0.0.1", port)
    protocol: Any = {"remoteread": remote_read, "qm2qm": qm2qm}[what]
    opened = _run(connection, protocol.open_queue(f".\\private$\\{queue}", Access.RECEIVE, False, bytes(16)))
    start = opened.take(0)
    end = opened.end(1, True) if what == "remoteread" else opened._end(bytes(20), qm2qm.RR_ACK)
    interface = RemoteRead if what == "remoteread" else ms_mqqp.qm2qm
    syntax = connection.bind(interface.uuid, interface.version)

    def prepared(steps: Any) -> bytes:
        call = next(steps)
        connection.core.request(syntax, call.operation.opnum, call.operation.encode_request(call.request))
        return bytes(connection.core.data_to_send())

    starting, ending = prepared(start), prepared(end)
    # RemoteQMEndReceive begins with the handle at the start of the response, each after its header.
    copies = (0, 0, 0) if what == "remoteread" else (24, 24, 20)
    return Wire(
        connection._socket, [starting, ending], "results", steps=2, copies=copies, keep=(connection, start, end)
    )


def _run(connection: client.Connection, steps: Any) -> Any:
    try:
        call = next(steps)
        while True:
            syntax = connection.bind(call.interface.uuid, call.interface.version)
            stub = call.operation.encode_request(call.request)
            answer = connection.call(call.operation.opnum, stub, interface=syntax)
            call = steps.send(call.operation.decode_response(answer))
    except StopIteration as stop:
        return stop.value


def management(port: int, what: str, queue: str) -> Wire:
    """Calls of R_QMMgmtGetInfo for all properties of a queue."""
    connection = client.connect("127.0.0.1", port)
    syntax = connection.bind(qmmgmt.uuid, qmmgmt.version)
    call = next(operations.management(f".\\private$\\{queue}"))
    connection.core.request(syntax, call.operation.opnum, call.operation.encode_request(call.request))
    return Wire(connection._socket, [connection.core.data_to_send()], "results", keep=connection)


# -- RabbitMQ: AMQP 0-9-1, persistent messages with publisher confirms; a consumer with a bounded prefetch ------------


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def _method(channel: int, family: int, method: int, arguments: bytes = b"") -> bytes:
    return _frame(1, channel, struct.pack(">HH", family, method) + arguments)


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _amqp_answer(sock: socket.socket, family: int, method: int) -> bytes:
    while True:
        kind, _, size = struct.unpack(">BHI", sock.recv(7, socket.MSG_WAITALL))
        payload = sock.recv(size + 1, socket.MSG_WAITALL)[:-1]
        if kind == 1:
            assert struct.unpack_from(">HH", payload) == (family, method), payload[:100]
            return payload[4:]


def amqp_login(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(b"AMQP\0\0\x09\x01")
    _amqp_answer(sock, 10, 10)
    login = b"\0guest\0guest"
    sock.sendall(
        _method(0, 10, 11, bytes(4) + _short("PLAIN") + struct.pack(">I", len(login)) + login + _short("en_US"))
    )
    channels, size, _ = struct.unpack(">HIH", _amqp_answer(sock, 10, 30))
    sock.sendall(_method(0, 10, 31, struct.pack(">HIH", channels, size, 0)))
    sock.sendall(_method(0, 10, 40, _short("/") + _short("") + b"\0"))
    _amqp_answer(sock, 10, 41)
    sock.sendall(_method(1, 20, 10, _short("")))
    _amqp_answer(sock, 20, 11)
    return sock


def amqp_declare(port: int, queue: str, kind: str) -> None:
    sock = amqp_login(port)
    value = kind.encode()
    entry = _short("x-queue-type") + b"S" + struct.pack(">I", len(value)) + value
    arguments = struct.pack(">I", len(entry)) + entry
    sock.sendall(_method(1, 50, 10, bytes(2) + _short(queue) + b"\x02" + arguments))
    _amqp_answer(sock, 50, 11)
    sock.close()


def rabbitmq(port: int, what: str, queue: str, prefetch: int = 1) -> Wire:
    sock = amqp_login(port)
    if what == "durable send":
        sock.sendall(_method(1, 85, 10, b"\0"))
        _amqp_answer(sock, 85, 11)
        publish = _method(1, 60, 40, bytes(2) + _short("") + _short(queue) + b"\0")
        header = _frame(2, 1, struct.pack(">HHQHB", 60, 0, len(BODY), 1 << 12, 2))
        return Wire(sock, [publish + header + _frame(3, 1, BODY)], "acks")
    sock.sendall(_method(1, 60, 10, struct.pack(">IHB", 0, prefetch, 0)))
    _amqp_answer(sock, 60, 11)
    sock.sendall(_method(1, 60, 20, bytes(2) + _short(queue) + _short("c") + b"\0" + bytes(4)))
    _amqp_answer(sock, 60, 21)
    # The delivery tag follows the consumer tag, which is one byte with its length, in the frame of basic.deliver.
    acknowledge = _method(1, 60, 80, bytes(8) + b"\0")
    return Wire(sock, [acknowledge], "deliveries", copies=(13, 11, 8), listens=True)


# -- Redis: appendfsync always ---------------------------------------------------------------------------------------


def _resp(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def redis(port: int, what: str, queue: str) -> Wire:
    sock = socket.create_connection(("127.0.0.1", port), 30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if what == "durable send":
        return Wire(sock, [_resp(b"XADD", queue.encode(), b"*", b"b", BODY)], "redis")
    if what == "fill":
        return Wire(sock, [_resp(b"LPUSH", queue.encode() + b"-list", BODY)], "redis")
    return Wire(sock, [_resp(b"RPOP", queue.encode() + b"-list")], "redis")


# -- PostgreSQL: prepared statements, SKIP LOCKED --------------------------------------------------------------------

_STATEMENTS = {
    "durable send": "INSERT INTO q (b) VALUES ($1)",
    "receive": "DELETE FROM q WHERE id = (SELECT id FROM q ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING b",
}


def _message(kind: bytes, payload: bytes) -> bytes:
    return kind + struct.pack(">I", len(payload) + 4) + payload


def _until_ready(sock: socket.socket) -> None:
    while True:
        kind, size = struct.unpack(">cI", sock.recv(5, socket.MSG_WAITALL))
        payload = sock.recv(size - 4, socket.MSG_WAITALL) if size > 4 else b""
        assert kind != b"E", payload
        if kind == b"Z":
            return


def postgresql_login(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    words = b"user\0postgres\0database\0postgres\0\0"
    sock.sendall(struct.pack(">II", len(words) + 8, 196608) + words)
    _until_ready(sock)
    return sock


def postgresql_query(port: int, text: str) -> None:
    sock = postgresql_login(port)
    sock.sendall(_message(b"Q", text.encode() + b"\0"))
    _until_ready(sock)
    sock.close()


def postgresql(port: int, what: str, queue: str) -> Wire:
    sock = postgresql_login(port)
    sock.sendall(_message(b"P", b"s\0" + _STATEMENTS[what].encode() + b"\0\0\0") + _message(b"S", b""))
    _until_ready(sock)
    values = struct.pack(">HHHI", 1, 1, 1, len(BODY)) + BODY if what == "durable send" else struct.pack(">HH", 0, 0)
    bind = _message(b"B", b"\0s\0" + values + struct.pack(">HH", 1, 1))
    return Wire(sock, [bind + _message(b"E", b"\0" + bytes(4)) + _message(b"S", b"")], "postgresql")


WIRES: dict[str, Callable[[int, str, str], Wire]] = {
    "openmsmq": openmsmq,
    "ndr64": openmsmq_in_ndr64,
    "two phases": two_phases,
    "management": management,
    "floor": floor,
    "floor, thread": floor,
    "floor, 20 µs": floor,
    "redis": redis,
    "postgresql": postgresql,
}


def connect(system: str, port: int, what: str, queue: str, depth: int = 1) -> Wire:
    """Return a connection for an operation of a system with `depth` concurrent requests. Raises KeyError."""
    if system.startswith("rabbitmq"):
        return rabbitmq(port, what, queue, prefetch=depth)
    return WIRES[system](port, what, queue)
