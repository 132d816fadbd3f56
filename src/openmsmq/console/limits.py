"""Limits on the resources that a hostile, slow or failing peer can use."""

from __future__ import annotations

from typing import Final

from openmsmq.admin.http_requests import MOST_BYTES

BODY: Final = MOST_BYTES  # of a request
CONNECTIONS: Final = 256
CONNECTIONS_PER_PEER: Final = 64
HEADERS: Final = 32 << 10  # bytes of request line and headers
HEADERS_SECONDS: Final = 10.0  # from connect or the last response until the headers are complete
BODY_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 30.0  # time in which a peer must read at least ANSWER_BYTES of a response
ANSWER_BYTES: Final = 64 << 10
THREADS: Final = 16  # concurrent requests; more requests wait
WORK_SECONDS: Final = 60.0  # maximum time of a request

STREAMS: Final = 32  # event streams; each occupies a connection
STREAMS_PER_USER: Final = 8
SESSIONS: Final = 1000
SESSIONS_PER_USER: Final = 20
IDLE_SECONDS, SESSION_SECONDS = 30 * 60.0, 12 * 3600.0
