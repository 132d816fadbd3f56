"""Options of TCP connections on both sides, and a check whether the other side has closed one."""

from __future__ import annotations

import select
import selectors
import socket
from typing import Final

# A peer that disappears without a FIN (power, network) keeps messages locked and queues open until its connection is
# closed. A blocking receive may be silent for days, so only TCP itself can detect that ([MS-RPCE] 3.3.3.2.1): probes
# after half of the time without traffic, three unanswered ones in the other half.
DEAD_PEER: Final = 120  # seconds
KEEPALIVE_PROBES: Final = 3
LEAST_DEAD_PEER: Final = 2 * KEEPALIVE_PROBES  # whole seconds between probes
_POLLRDHUP: Final = getattr(select, "POLLRDHUP", 0)  # Linux only


def set_options(sock: socket.socket, dead_peer_seconds: int = DEAD_PEER) -> None:
    """Set no delay, keep-alive probes, and a limit for unacknowledged data (TCP_USER_TIMEOUT, RFC 5482).

    The connection fails `dead_peer_seconds` (at least 6) after the last acknowledgment of the peer. Options that a
    platform lacks are not set. Unix sockets need none, because the kernel reports immediately when the other side is
    closed.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    seconds = max(dead_peer_seconds, LEAST_DEAD_PEER)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", seconds // 2),
        ("TCP_KEEPINTVL", seconds // (2 * KEEPALIVE_PROBES)),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", 1000 * seconds),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def peer_has_closed(descriptor: int) -> bool:
    """Whether a FIN or RST of the peer has arrived on an idle connection, so that it would not process further data.
    Elsewhere than on Linux, unread data counts as the end, which a client without a call does not expect either."""
    if not _POLLRDHUP:
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            return bool(selector.select(0))
    poll = select.poll()
    poll.register(descriptor, _POLLRDHUP)
    return bool(poll.poll(0))  # only errors are reported in addition


def without_brackets(host: str) -> str:
    """Remove the brackets of an IPv6 address, which is written as `[::1]` before a port."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host
