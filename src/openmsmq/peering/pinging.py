"""Pings, UDP port 3527 ([MS-MQQB] 2.1.2, 3.1.7.6 to 3.1.7.9): queries whether a session would be accepted, and their
replies.

Source addresses of datagrams can be forged. Therefore a reply is as long as its ping, the number of replies per second
is limited, and pings are sent from a socket that receives only from the queried peer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Any

from openmsmq.packet import BadPacket
from openmsmq.packet.internal import PingPacket
from openmsmq.transport.rate import Rate

logger = logging.getLogger(__name__)

PORT = 3527
ANSWERS_PER_SECOND = 100
_LONGEST = 64  # maximum bytes read of a datagram; a ping has 24
_BUFFER = 8192  # receive buffer in bytes; replies to older datagrams would be too late


async def ask(address: str, port: int, identifier: bytes, timeout: float, source: str = "") -> bool:
    """Ask the queue manager at a host whether it would accept a session.

    Args:
        identifier: identifier of this queue manager, 16 bytes.
        timeout: seconds to wait for the reply; other datagrams are ignored.
        source: local address, empty for the choice of the system.

    Raises TimeoutError, OSError.
    """
    loop = asyncio.get_running_loop()
    # Deviation D-152: an unpredictable cookie for this ping only.
    question = PingPacket(int.from_bytes(os.urandom(4), "little"), identifier)
    answer: asyncio.Future[bool] = loop.create_future()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Query(question.cookie, answer),
        remote_addr=(address, port),
        local_addr=(source, 0) if source else None,
    )
    try:
        transport.sendto(question.pack())
        async with asyncio.timeout(timeout):
            return await answer
    finally:
        transport.close()


class _Query(asyncio.DatagramProtocol):
    """Receives only from the connected peer: the kernel drops datagrams from other addresses and ports."""

    def __init__(self, cookie: int, answer: asyncio.Future[bool]) -> None:
        self._cookie, self._answer = cookie, answer

    def datagram_received(self, data: bytes, addr: Any) -> None:
        try:
            ping = PingPacket.parse(data)
        except BadPacket:
            return
        if ping.cookie == self._cookie and not self._answer.done():
            self._answer.set_result(not ping.refused)

    def error_received(self, exc: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc)


def answer_to(data: bytes, identifier: bytes, accepts: bool) -> bytes | None:
    """Return the reply of the queue manager `identifier` to a datagram (3.1.7.7); None if it is not a ping."""
    try:
        question = PingPacket.parse(data)
    except BadPacket:
        return None
    return PingPacket(question.cookie, identifier, question.workstation, not accepts).pack()


class PingListener:
    """Answers pings. While there are too many, the socket is not read, and the kernel drops further datagrams."""

    def __init__(self, identifier: bytes, accepts: Callable[[str], bool], loop: asyncio.AbstractEventLoop) -> None:
        """`accepts` returns whether a session from an IP address would be accepted."""
        self._identifier, self._accepts, self._loop = identifier, accepts, loop
        self._rate = Rate(ANSWERS_PER_SECOND)
        self._socket: socket.socket | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._port = 0
        self._has_warned = False

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen at an IP address. Returns address and port. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = made = socket.socket(family, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((host, port))
        except OSError:
            self.stop()
            raise
        address = made.getsockname()
        self._port = int(address[1])
        self._loop.add_reader(made, self._readable)
        return str(address[0]), self._port

    def stop(self) -> None:
        """Stop answering."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _readable(self) -> None:
        assert self._socket is not None
        now = self._loop.time() * 1000
        if not self._rate.allows(now):
            self._loop.remove_reader(self._socket)
            self._pause = self._loop.call_later(self._rate.again(now) / 1000, self._go_on)
            if not self._has_warned:
                logger.warning("more than %d pings per second; the rest are not answered", ANSWERS_PER_SECOND)
                self._has_warned = True
            return
        try:
            data, address = self._socket.recvfrom(_LONGEST)
            # Deviation D-153: datagrams from the ping port are replies, or their replies would be taken for pings.
            answer = None if address[1] == self._port else answer_to(data, self._identifier, self._accepts(address[0]))
            if answer is not None:
                self._socket.sendto(answer, address)
        except OSError as error:  # no data, a full buffer, or an unreachable address; pings may be lost
            logger.debug("cannot answer a ping: %s", error)

    def _go_on(self) -> None:
        self._pause = None
        if self._socket is not None:
            self._loop.add_reader(self._socket, self._readable)
