"""How TCP connections are set up on both sides."""

from __future__ import annotations

import socket
from typing import Final

# A client that vanished without a word holds locked messages and open queues until its connection is given up: after
# a minute of silence, three unanswered probes 20 seconds apart. A blocking receive may be silent for days, so only
# TCP itself can tell ([MS-RPCE] 3.3.3.2.1).
KEEPALIVE_IDLE: Final = 60
KEEPALIVE_INTERVAL: Final = 20
KEEPALIVE_PROBES: Final = 3


def set_options(sock: socket.socket) -> None:
    """No delay, and keep-alive probes. A platform without one of the options goes without."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
