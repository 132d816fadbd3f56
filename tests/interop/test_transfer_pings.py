"""Pings by UDP, sent and answered by a peer written from the documents alone."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import openmsmq
from daemon import Daemon, free_port
from interop.mqqb_peer import ESTABLISH, Peer

HOST, THERE, ELSEWHERE = "127.0.79.1", "127.0.79.2", "127.0.79.3"
PORT, PING_PORT = free_port(HOST, THERE), free_port(HOST, THERE, ELSEWHERE)
GUID = b"\x77" * 16
WITHOUT_PING = 0x0100  # OperatingSystem.SE


def ping(cookie: int, guid: bytes = GUID, flags: int = 0) -> bytes:
    """Encode a ping packet (2.2.7)."""
    return struct.pack("<HHI", flags, 0x5548, cookie) + guid


def serve(directory: Path, *options: str) -> Daemon:
    return Daemon(
        directory / "data", "--listen", HOST, "--message-port", str(PORT), "--peer-message-port", str(PORT),
        "--ping-port", str(PING_PORT), *options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with serve(tmp_path_factory.mktemp("pings"), "--ping", "--max-sessions", "2") as running:
        yield running


@contextmanager
def datagrams(address: str, port: int = 0) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind((address, port))
        made.settimeout(10)
        yield made


def asked(made: socket.socket, question: bytes) -> bytes:
    made.sendto(question, (HOST, PING_PORT))
    answer, address = made.recvfrom(1024)
    assert address == (HOST, PING_PORT)
    return answer


def test_a_ping_is_answered_and_refused_at_the_session_limit(daemon: Daemon) -> None:
    with Peer(HOST, PORT) as peer, datagrams(THERE) as made:
        peer.open()
        answer = asked(made, ping(0xDEADBEEF, flags=0xFFFD))
        assert answer == ping(0xDEADBEEF, peer.server, flags=1), "RC is echoed, unused bits are not"
        for nothing in (b"", b"x" * 24, ping(1)[:-1], ping(1) + b"x"):
            made.sendto(nothing, (HOST, PING_PORT))
        assert asked(made, ping(2)) == ping(2, peer.server), "and invalid pings get no answer"
        with Peer(HOST, PORT, guid=b"\x78" * 16) as other:
            other.open()
            assert asked(made, ping(3)) == ping(3, peer.server, flags=2)
        end = time.monotonic() + 10
        while asked(made, ping(4)) != ping(4, peer.server):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_a_host_is_pinged_before_a_connection_and_a_forged_reply_is_ignored(daemon: Daemon) -> None:
    with (
        openmsmq.connect(HOST, daemon.port) as qm,
        datagrams(THERE, PING_PORT) as here,
        datagrams(ELSEWHERE, PING_PORT) as elsewhere,
        datagrams(THERE) as other_port,
        socket.create_server((THERE, PORT)) as listener,
    ):
        with qm.open(f"DIRECT=TCP:{THERE}\\private$\\q", "send") as queue:
            queue.send("m", recoverable=True)
        question, source = here.recvfrom(1024)
        began = time.monotonic()
        flags, signature, cookie, guid = struct.unpack("<HHI16s", question)
        assert (flags, signature) == (0, 0x5548) and source[0] == HOST and source[1] != PING_PORT
        elsewhere.sendto(ping(cookie), source)
        other_port.sendto(ping(cookie), source)
        here.sendto(ping(cookie ^ 1), source)
        here.sendto(ping(cookie, flags=2)[:-1], source)
        listener.settimeout(0.3)
        with pytest.raises(TimeoutError):
            listener.accept()
        assert time.monotonic() - began < 0.9, "the machine is too slow for this test: the ping has timed out"
        here.sendto(ping(cookie), source)
        listener.settimeout(2)
        accepted, _ = listener.accept()
        assert time.monotonic() - began < 4, "not the retry"
        with Peer("", 0, sock=accepted) as peer:
            request = peer.read()
            assert request is not None and request.kind == ESTABLISH and request.client == guid
            assert not request.system & WITHOUT_PING


def test_no_pings_are_sent_or_answered_unless_enabled(tmp_path: Path, daemon: Daemon) -> None:
    daemon.stop()
    with (
        serve(tmp_path) as quiet,
        openmsmq.connect(HOST, quiet.port) as qm,
        datagrams(THERE) as made,
        datagrams(THERE, PING_PORT) as here,
        socket.create_server((THERE, PORT)) as listener,
    ):
        made.connect((HOST, PING_PORT))
        made.send(ping(1))
        with pytest.raises(ConnectionRefusedError):
            made.recv(1024)
        with qm.open(f"DIRECT=TCP:{THERE}\\private$\\q", "send") as queue:
            queue.send("m", recoverable=True)
        listener.settimeout(10)
        accepted, _ = listener.accept()
        with Peer("", 0, sock=accepted) as peer:
            request = peer.read()
            assert request is not None and request.system & WITHOUT_PING
        here.setblocking(False)
        with pytest.raises(BlockingIOError):
            here.recv(1024)
