"""Options of TCP connections on both sides, and a check whether the other side has closed one."""

from __future__ import annotations

import select
import socket
from typing import Final

# A peer that disappears without a FIN (power, network) keeps messages locked and queues open until its connection is
# closed. A blocking receive may be silent for days, so only TCP itself can detect that ([MS-RPCE] 3.3.3.2.1): probes
# after half of the time without traffic, three unanswered ones in the other half.
DEAD_PEER: Final = 120  # seconds
KEEPALIVE_PROBES: Final = 3
LEAST_DEAD_PEER: Final = 2 * KEEPALIVE_PROBES  # whole seconds between probes
_POLLRDHUP: Final = getattr(select, "POLLRDHUP", 0)  # Linux


def set_options(sock: socket.socket, dead_peer_seconds: int = DEAD_PEER) -> None:
    """No delay, keep-alive probes, and a limit for data that is not acknowledged (TCP_USER_TIMEOUT, RFC 5482).

    The connection fails `dead_peer_seconds` after the peer's last acknowledgment; 6 at least. A platform without one of
    the options goes without. A Unix socket needs none of this: the kernel knows at once when its other side is gone.
    """
    if sock.family == socket.AF_UNIX:
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
    """Whether the peer's FIN or RST has arrived on an idle connection: what is sent now would not be handled."""
    poll = select.poll()
    poll.register(descriptor, _POLLRDHUP)
    return bool(poll.poll(0))  # nothing else is reported but errors


def without_brackets(host: str) -> str:
    """`::1` for `[::1]`, as an IPv6 address is written before a port."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host
