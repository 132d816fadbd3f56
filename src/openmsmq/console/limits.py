"""How much, and for how long: what a hostile, a slow or a dying peer may take."""

from __future__ import annotations

from typing import Final

BODY: Final = 6 << 20  # bytes of a request: a message of 4 MiB in base64, and its properties
CONNECTIONS: Final = 256
CONNECTIONS_PER_PEER: Final = 64
HEADERS: Final = 32 << 10  # bytes of request line and headers
HEADERS_SECONDS: Final = 10.0  # from the connection, or the last answer, to whole headers
BODY_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 30.0  # in which a peer has to read some of its answer, at least this many bytes:
ANSWER_BYTES: Final = 64 << 10
THREADS: Final = 16  # requests that are worked on at once; the others wait
WORK_SECONDS: Final = 60.0  # for a request to get its answer

STREAMS: Final = 32  # of events, each of which holds a connection
STREAMS_PER_USER: Final = 8
SESSIONS: Final = 1000
SESSIONS_PER_USER: Final = 20
IDLE_SECONDS, SESSION_SECONDS = 30 * 60.0, 12 * 3600.0
