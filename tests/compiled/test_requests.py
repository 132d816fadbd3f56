"""Requests read and answered by native code: valid, invalid and partial input, and disconnections."""

from __future__ import annotations

import errno
import gc
import os
import random
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import seeds
from compiled.test_fast_path import (
    END,
    RECEIVE,
    SEND,
    START,
    Connection,
    LocalServer,
    SocketConnection,
    in_a_loop,
    some_end,
    some_start,
)
from compiled.test_stubs import some_receive, some_send
from msrpc.rpc import requests
from msrpc.rpc.call import UNAUTHENTICATED, Call
from msrpc.rpc.connection_states import BY_POLLER, BY_TRANSPORT
from msrpc.rpc.dispatcher import MOST_GATHERED
from msrpc.rpc.server import ServerLimits
from msrpc.rpc.timing import Timings
from openmsmq.conversion.receive_buffer import receive_buffer
from openmsmq.conversion.send_buffer import send_buffer
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.model.constants import Access
from openmsmq.model.message import Message

STREAMS = 12
CO_CANCEL, ORPHANED = 18, 19  # PDU types
# Offsets and sizes of the fields of a PDU header.
FIELDS = {"kind": (2, 1), "flags": (3, 1), "drep": (4, 1), "length": (8, 2), "auth": (10, 2)}


class ReadByPython(SocketConnection):
    """A connection with real sockets, without native code."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.protocol._source = None


def source_of(client: Connection) -> requests.Source:
    assert isinstance(client, SocketConnection)
    source = client.protocol._source
    assert source is not None
    return source


def send_stub(local: LocalServer, body: bytes = b"body", number: int = 0) -> bytes:
    ptb = send_buffer(Message(label="l", body=body, delivery_guarantee=1))
    return SEND.encode_request(m.rpc_ACSendMessageEx_Request(local.handles[number][0], ptb, None))


def receive_stub(local: LocalServer, number: int = 0) -> bytes:
    return RECEIVE.encode_request(m.rpc_ACReceiveMessageEx_Request(local.readers[number][0], receive_buffer(0, 0)))


def express(handle: bytes) -> bytes:
    ptb = send_buffer(Message(label="l", body=b"body", delivery_guarantee=0))
    return SEND.encode_request(m.rpc_ACSendMessageEx_Request(handle, ptb, None))


def pdu(kind: int, call: int, body: bytes, *, flags: int = 3, drep: int = 0x10, auth: int = 0) -> bytes:
    return struct.pack("<4BIHHI", 5, 0, kind, flags, drep, 16 + len(body), auth, call) + body


def request(context: int, opnum: int, stub: bytes, call: int, **odd: int) -> bytes:
    return pdu(0, call, struct.pack("<IHH", len(stub), context, opnum) + stub, **odd)


def some_pdu(chance: random.Random, local: LocalServer, call: int) -> bytes:
    """Return mostly plain requests, sometimes other PDUs."""
    context, opnum, stub = chance.choice((
        (1, SEND.opnum, some_send(chance, chance.choice(local.handles[0][:5]))),
        (1, RECEIVE.opnum, some_receive(chance, chance.choice(local.readers[0]))),
        (2, START.opnum, some_start(chance, chance.choice(local.remote_readers[0]), chance.randrange(5))),
        (2, END.opnum, some_end(chance, chance.choice(local.remote_readers[0]), chance.randrange(5))),
    ))  # fmt: skip
    dice = chance.random()
    if dice < 0.82:
        return request(context, opnum, stub, call)
    if dice < 0.86:  # about a call that came before, mostly in the same read
        return pdu(chance.choice((CO_CANCEL, ORPHANED)), call - chance.randrange(1, 5), b"")
    if dice < 0.92:  # operations that are never batched or do not exist
        return request(chance.choice((0, 1, 2, 7)), chance.choice((0, 1, 200)), stub, call)
    if dice < 0.95:  # in two fragments
        half = len(stub) // 2
        first = request(context, opnum, stub[:half], call, flags=1)
        return first + request(context, opnum, stub[half:], call, flags=2)
    if dice < 0.98:
        return request(context, opnum, stub, max(1, call - chance.randrange(3)))  # a call number that may be in use
    return request(context, opnum, stub, call, drep=0x11) if dice < 0.998 else chance.randbytes(40)


@pytest.mark.parametrize("number", range(STREAMS))
def test_native_and_python_reading_of_a_stream_have_the_same_result(number: int) -> None:
    chance = seeds.chance(f"streams of requests {number}")

    def work() -> None:
        servers = [LocalServer(True, ReadByPython), LocalServer(True, SocketConnection)]
        fast = servers[1].clients[0]
        assert isinstance(fast, SocketConnection)
        seed = chance.random()
        streams = [some_stream(random.Random(seed), local) for local in servers]
        assert streams[0] == streams[1]  # including the handles
        for local in servers:
            local.clients[0].hear(request(1, SEND.opnum, send_stub(local), 1))
        assert source_of(fast).is_open
        opened = 0
        for part in cut(chance, streams[0]):
            for local in servers:
                client = local.clients[0]
                assert isinstance(client, SocketConnection)
                if not client.transport.closed:
                    client.hear(part)
            opened += source_of(fast).is_open
            if chance.random() < 0.3:
                for local in servers:
                    local.settle()
        for local in servers:
            local.settle()
        assert opened or fast.transport.closed
        slow_said, fast_said = (local.clients[0].said() for local in servers)
        assert fast_said == slow_said
        assert servers[1].contents() == servers[0].contents()

    def some_stream(chance: random.Random, local: LocalServer) -> list[bytes]:
        return [some_pdu(chance, local, call) for call in range(100, 220)]

    in_a_loop(work)


def cut(chance: random.Random, pdus: list[bytes]) -> Iterator[bytes]:
    """Send some PDUs at once and some in two parts."""
    at = 0
    while at < len(pdus):
        count = chance.randrange(1, 9)
        portion = b"".join(pdus[at : at + count])
        at += count
        if chance.random() < 0.2:
            end = chance.randrange(len(portion))
            yield portion[:end]
            portion = portion[end:]
        yield portion


def test_more_requests_than_are_gathered_come_in_one_read() -> None:
    def work() -> None:
        local = LocalServer(True, SocketConnection)
        client, count = local.clients[0], 2 * MOST_GATHERED + 50
        client.hear(b"".join(request(1, SEND.opnum, send_stub(local), 100 + index) for index in range(count)))
        local.settle()
        assert len(client.said()) == count * len(answer_to_send(local))
        assert len(local.server.world.queue("a")) == count + 1

    def answer_to_send(local: LocalServer) -> bytes:
        client = local.clients[1]
        client.hear(request(1, SEND.opnum, send_stub(local, number=1), 7))
        local.settle()
        return client.said()

    in_a_loop(work)


def filled(connection: type[Connection] = SocketConnection, body: bytes = b"body") -> LocalServer:
    """Return a queue with 20 messages, and a source that has read their sends."""
    local = LocalServer(True, connection)
    client = local.clients[0]
    for call in range(20):
        client.hear(request(1, SEND.opnum, send_stub(local, body), 100 + call))
    local.settle()
    client.said()
    assert source_of(client).is_open
    return local


def test_a_disconnected_client_receives_no_message() -> None:
    def work() -> None:
        local = filled()
        first, second = local.clients
        assert isinstance(first, SocketConnection)
        first.hear(request(1, RECEIVE.opnum, receive_stub(local), 1))
        second.hear(request(1, RECEIVE.opnum, receive_stub(local, 1), 1))
        first.far.close()
        local.settle()
        assert len(local.server.world.queue("a")) == 19
        assert len(second.said()) > 200

    in_a_loop(work)


def test_nothing_is_written_to_a_socket_that_its_transport_has_closed() -> None:
    """The descriptor may belong to another connection by then."""

    def work() -> None:
        local = filled()
        client = local.clients[0]
        assert isinstance(client, SocketConnection)
        client.hear(request(1, SEND.opnum, send_stub(local), 1))
        client.transport.closed = True
        local.settle()
        assert client.said() == b""
        client.protocol.connection_lost(None)
        assert source_free(client)

    def source_free(client: SocketConnection) -> bool:
        return client.protocol._source is None and client.protocol._core is None

    in_a_loop(work)


def test_what_was_sent_before_the_connection_was_lost_was_sent() -> None:
    def work() -> None:
        local = filled()
        client = local.clients[0]
        assert isinstance(client, SocketConnection)
        client.hear(request(1, SEND.opnum, send_stub(local), 1))
        client.protocol.connection_lost(None)
        local.settle()
        assert len(local.server.world.queue("a")) == 21

    in_a_loop(work)


def test_the_transport_sends_what_the_socket_does_not_take_and_all_that_follows() -> None:
    def work() -> None:
        body = bytes(range(256)) * 15
        local, expected = filled(body=body), filled(body=body)
        client = local.clients[0]
        assert isinstance(client, SocketConnection)
        client.protocol._transport.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # type: ignore[union-attr]
        for each in (local, expected):
            each.clients[0].hear(
                b"".join(request(1, RECEIVE.opnum, wide_receive(each), 500 + call) for call in range(12))
            )
            each.settle()
            each.rpc.flush()
        assert client.transport.later
        before = len(client.transport.later)
        for each in (local, expected):
            each.clients[0].hear(request(1, RECEIVE.opnum, wide_receive(each), 600))
            each.settle()
            each.rpc.flush()
        assert len(client.transport.later) == before + 1  # queued after the pending responses
        assert client.said() == expected.clients[0].said()

    def wide_receive(local: LocalServer) -> bytes:
        buffer = receive_buffer(1 << 12, 100)
        return RECEIVE.encode_request(m.rpc_ACReceiveMessageEx_Request(local.readers[0][0], buffer))

    in_a_loop(work)


def test_a_timed_call_is_one_of_those_that_came_together() -> None:
    def work() -> None:
        local = filled()
        observed: list[tuple[str, int]] = []
        timings = Timings(lambda name, opnum, seconds: observed.append((name, opnum)), lambda: 1.0, lambda end: 4)
        local.rpc.calls.time_calls(timings)
        client = local.clients[0]
        client.hear(b"".join(request(1, SEND.opnum, send_stub(local), 100 + call) for call in range(12)))
        local.settle()
        assert observed == [("qmcomm2", SEND.opnum)]
        assert len(client.answers()) == 0  # `client` has not made these calls
        assert len(local.server.world.queue("a")) == 32

    in_a_loop(work)


def test_a_request_in_two_pieces_is_read_by_native_code_wherever_it_was_cut() -> None:
    def work() -> None:
        local = LocalServer(True, SocketConnection)
        client = local.clients[0]
        source, sent = source_of(client), request(1, SEND.opnum, send_stub(local), 77)
        for at in range(1, len(sent)):
            client.hear(sent + sent[:at] if at % 2 else sent[:at])
            assert source.is_open and source.incomplete_since == source.heard
            local.settle()
            client.hear(sent[at:])
            assert isinstance(local.rpc.calls._gathered[-1], requests.Request)
            assert source.is_open and not source.incomplete_since
            local.settle()
            assert client.said().count(b"\5\0\2\3") == (2 if at % 2 else 1)  # responses

    in_a_loop(work)


ODD = (
    {"auth": 1}, {"drep": 0x11}, {"flags": 1}, {"flags": 0x83}, {"call": 5}, {"kind": 11}, {"length": 0xFFFF},
    {"length": 3}, {"length": 20}, {"context": 9}, {"opnum": 200},
)  # fmt: skip


def invalid_request(odd: dict[str, int]) -> bytes:
    sent = request(odd.get("context", 1), odd.get("opnum", SEND.opnum), bytes(16), odd.get("call", 6))
    changed = bytearray(sent)
    for name, (place, size) in FIELDS.items():
        if name in odd:
            changed[place : place + size] = odd[name].to_bytes(size, "little")
    return bytes(changed)


@pytest.mark.parametrize("odd", ODD)
def test_an_invalid_request_ends_as_in_python(odd: dict[str, int]) -> None:
    """The request is cut at each position."""

    def work() -> None:
        for at in range(1, 40):
            said = []
            for connection in (ReadByPython, SocketConnection):
                local = LocalServer(True, connection)
                client = local.clients[0]
                client.hear(request(1, SEND.opnum, send_stub(local), 5))
                changed = invalid_request(odd)
                client.hear(changed[:at])
                client.hear(changed[at:])
                local.settle()
                assert isinstance(client, SocketConnection)
                said.append((client.said(), client.transport.closed))
            assert said[0] == said[1]

    in_a_loop(work)


@pytest.mark.parametrize("odd", ODD)
def test_an_invalid_request_ends_as_early_as_in_python(odd: dict[str, int]) -> None:
    """The request comes byte by byte."""

    def work() -> None:
        servers = [LocalServer(True, ReadByPython), LocalServer(True, SocketConnection)]
        for local in servers:
            local.clients[0].hear(request(1, SEND.opnum, send_stub(local), 5))
        for byte in invalid_request(odd):
            said = []
            for local in servers:
                client = local.clients[0]
                assert isinstance(client, SocketConnection)
                if not client.transport.closed:
                    client.hear(bytes([byte]))
                local.settle()
                said.append((client.said(), client.transport.closed))
            assert said[0] == said[1]

    in_a_loop(work)


def test_a_request_that_does_not_get_on_closes_its_connection() -> None:
    def work() -> None:
        local = LocalServer(True, SocketConnection)
        client = local.clients[0]
        assert isinstance(client, SocketConnection)
        source, limits = source_of(client), ServerLimits(incomplete_pdu=60)
        sent = request(1, SEND.opnum, send_stub(local), 77)
        client.hear(sent[:10])
        begun = source.incomplete_since
        client.hear(sent[10:30])
        client.hear(sent[30:31])
        assert begun == source.incomplete_since < source.heard  # bytes alone are not progress
        client.protocol.check_time(begun + 59, limits)
        assert not client.transport.closed
        client.hear(sent[31:] + sent[:10])
        assert source.incomplete_since > begun  # a complete request is
        client.protocol.check_time(begun + 60, limits)
        assert not client.transport.closed
        client.protocol.check_time(source.incomplete_since + 61, limits)
        assert client.transport.closed

    in_a_loop(work)


@pytest.mark.parametrize(("kind", "answers"), [(CO_CANCEL, 2), (ORPHANED, 1)])
def test_cancelled_calls_are_answered_and_orphaned_ones_are_not(kind: int, answers: int) -> None:
    """Both calls are executed, because they arrived before the PDU."""

    def work() -> None:
        local = filled()
        client = local.clients[0]
        client.hear(request(1, SEND.opnum, send_stub(local), 1) + request(1, SEND.opnum, send_stub(local), 2))
        client.hear(pdu(kind, 2, b""))
        local.settle()
        said = client.said()
        assert said.count(b"\x05\x00\x02\x03") == answers
        assert len(local.server.world.queue("a")) == 22

    in_a_loop(work)


def test_an_orphaned_call_does_not_answer_the_next_one_with_its_number() -> None:
    def work() -> None:
        local = filled()
        client = local.clients[0]
        client.hear(request(1, SEND.opnum, send_stub(local), 2))
        client.hear(pdu(ORPHANED, 2, b""))
        client.hear(request(1, RECEIVE.opnum, receive_stub(local), 2))
        local.settle()
        said = client.said()
        assert said.count(b"\x05\x00\x02\x03") == 1
        assert RECEIVE.decode_response(said[24:]).result == 0
        assert len(local.server.world.queue("a")) == 20  # one more, and one less

    in_a_loop(work)


def test_answers_of_one_turn_leave_in_one_write() -> None:
    def work() -> None:
        local = filled()
        before = local.rpc.statistics.packets_out
        client = local.clients[0]
        client.hear(b"".join(request(1, SEND.opnum, send_stub(local), 100 + call) for call in range(12)))
        local.settle()
        assert client.said()
        assert local.rpc.statistics.packets_out == before + 1

    in_a_loop(work)


def test_nothing_is_kept_of_connections_that_are_gone() -> None:
    def blocks(local: LocalServer, count: int) -> int:
        for _ in range(count):
            client = SocketConnection(local.server, local.rpc, UNAUTHENTICATED)
            client.hear(request(0, 200, b"", 1))
            client.hear(request(1, SEND.opnum, send_stub(local), 2))
            client.protocol.connection_lost(None)
            client.far.close()
            client.transport.near.close()
            local.rpc.calls.serve_gathered()
        gc.collect()
        return sys.getallocatedblocks()

    def work() -> None:
        local = LocalServer(True, SocketConnection)
        blocks(local, 20)
        first = blocks(local, 20)
        assert blocks(local, 20) - first < 200

    in_a_loop(work)


class NotACall:
    """An object that is neither a call nor a request."""


def test_invalid_arguments_are_refused() -> None:
    near, far = socket.socketpair()
    good: list[Any] = [None, None, near.fileno(), {}, [], [], 100, 10]
    for index, bad in ((2, "x"), (3, []), (4, {}), (5, None), (6, "x"), (7, None)):
        with pytest.raises(TypeError):
            requests.Source(*[*good[:index], bad, *good[index + 1 :]])
    source = requests.Source(*good)
    assert not source.is_open
    poller = requests.Poller()
    assert poller.read([], 1) == []
    bad_calls: list[Callable[[], Any]] = [
        lambda: poller.add(5), lambda: poller.remove(5), lambda: poller.read((), 1), lambda: poller.read([], "x"),
        lambda: requests.Poller(1),
        lambda: source.know([], None, None, 1), lambda: source.know({}, None, NotACall(), 1),
        lambda: source.know({1: 2}, None, None, 1), lambda: source.know({1: (2, [3])}, None, NotACall(), 1),
        lambda: source.know({1: (2, 3)}, None, NotACall(), 1), lambda: source.know({}, None, None, "x"),
        lambda: requests.answer([NotACall()], [b""]), lambda: requests.answer([NotACall()], [""]),
        lambda: requests.answer([], [b""]),
        lambda: requests.answer((), ()), lambda: requests.flush([NotACall()]), lambda: requests.flush(()),
        lambda: requests.stubs([NotACall()]), lambda: requests.stubs(5), lambda: requests.leading_words([NotACall()]),
        lambda: requests.held([NotACall()], "kind"), lambda: requests.held((), "kind"),
        lambda: requests.any_abandoned(()),
        lambda: requests.any_abandoned([NotACall()]), lambda: requests.by_operation([NotACall(), NotACall()]),
        lambda: requests.by_operation(()), lambda: requests.by_operation(5),
        requests.Request,
    ]  # fmt: skip
    for call in bad_calls:
        with pytest.raises((TypeError, AttributeError, IndexError)):
            call()
    near.close()
    far.close()


def test_what_the_system_does_not_watch_the_transport_reads_on() -> None:
    class FullPoller:
        def add(self, source: requests.Source) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def work() -> None:
        local = LocalServer(True)
        local.rpc.poller = FullPoller()  # type: ignore[assignment]
        client = SocketConnection(local.server, local.rpc, UNAUTHENTICATED)
        handle = client.open("a", Access.SEND).phQueue
        client.hear(request(1, SEND.opnum, express(handle), 50))
        local.settle()
        assert client.protocol._reader == BY_TRANSPORT
        assert client.said()[12] == 50

    in_a_loop(work)


def test_what_the_system_does_not_watch_again_after_a_pause_the_transport_reads_on() -> None:
    class FullPoller:
        def add(self, source: requests.Source) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def work() -> None:
        local = LocalServer(True)
        client = SocketConnection(local.server, local.rpc, UNAUTHENTICATED)
        handle = client.open("a", Access.SEND).phQueue
        client.hear(request(1, SEND.opnum, express(handle), 50))
        local.settle()
        assert client.protocol._reader == BY_POLLER and client.said()[12] == 50
        client.protocol._pause_reading()
        local.rpc.poller, real = FullPoller(), local.rpc.poller  # type: ignore[assignment]
        client.protocol._resume()
        assert client.protocol._reader == BY_TRANSPORT
        local.rpc.poller = real
        client.hear(request(2, SEND.opnum, express(handle), 51))
        local.settle()
        assert client.said()[12] == 51

    in_a_loop(work)
    poller, (near, far) = requests.Poller(), socket.socketpair()
    source = requests.Source(None, None, near.fileno(), {}, [], [], 100, 10)
    near.close()
    with pytest.raises(OSError, match="descriptor"):
        poller.add(source)
    poller.remove(source)
    far.close()
    poller.close()
    with pytest.raises(OSError, match="descriptor"):
        poller.add(source)


def test_a_call_and_a_request_of_the_same_operation_go_together() -> None:
    def work() -> None:
        local = filled()
        client = local.clients[0]
        client.hear(request(1, SEND.opnum, send_stub(local), 1) + request(1, RECEIVE.opnum, receive_stub(local), 2))
        sent, received = local.rpc.calls._gathered
        call = sent.owner.call_of(sent)
        assert isinstance(call, Call)
        assert (call.call_id, call.stub, call.interface) == (1, sent.stub, sent.interface)
        calls = [sent, call, sent, received]
        assert requests.by_operation(calls) == [[sent, call, sent], [received]]
        assert requests.by_operation([received, sent, received]) == [[received, received], [sent]]
        assert requests.by_operation([]) == []
        assert requests.stubs(calls) == [sent.stub] * 3 + [received.stub]
        assert requests.leading_words([received]) == [local.readers[0][0]]
        assert len(requests.held([sent, call], "RPC_QUEUE_HANDLE")) == 2
        assert requests.held([sent, call], "another") == []
        assert not requests.any_abandoned(calls)

    in_a_loop(work)
