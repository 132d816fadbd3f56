"""Live figures for open pages, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import ClassVar, Final

from starlette.responses import Response, StreamingResponse

from openmsmq.admin.json_bytes import json_bytes
from openmsmq.console.derived import demand_figures
from openmsmq.console.history import FigureHistory
from openmsmq.console.limits import STREAMS, STREAMS_PER_USER
from openmsmq.console.problems import Problem
from openmsmq.console.table import HttpOperation, WebRequest
from openmsmq.model.errors import MsmqError
from openmsmq.model.roles import Role
from openmsmq.model.shares import Shares

MEDIA_TYPE: Final = "text/event-stream"
_LOOK: Final = 0.5  # seconds between checks for a new sample
_HEARTBEAT: Final = 15.0  # seconds; the login is then checked again


class Streams:
    """Number of open streams, in total and per user SID. Only the event loop changes it."""

    shares: ClassVar[Shares[str]] = Shares(STREAMS, STREAMS_PER_USER)


def events(asked: WebRequest) -> Response:
    demand_figures(asked)
    shares, sid = Streams.shares, asked.caller.sid
    if not shares.has_room(sid):
        raise Problem(
            503,
            f"{shares.held} streams of events are open, {shares.of(sid)} of this user; the limits are {STREAMS} and "
            f"{STREAMS_PER_USER}",
        )
    return StreamingResponse(_stream(asked), media_type=MEDIA_TYPE)


async def _stream(asked: WebRequest) -> AsyncIterator[bytes]:
    """Yield a snapshot immediately and one per sample, no history. A client that does not read gets fewer."""
    services, loop, session = asked.services, asyncio.get_running_loop(), asked.caller.session
    history: FigureHistory = services.history
    last, checked = 0.0, loop.time()
    if not Streams.shares.take(asked.caller.sid):  # several requests were accepted at the same time
        return
    try:
        while session is None or services.sessions.is_open(session):
            found = history.latest()
            if found is not None and found.at != last:
                last = found.at
                yield b"event: figures\ndata: " + json_bytes(found) + b"\n\n"
            if loop.time() - checked > _HEARTBEAT:
                checked = loop.time()
                await asyncio.wrap_future(services.link.ask("whoami", ticket=asked.caller.ticket))
                yield b": still there\n\n"
            await asyncio.sleep(_LOOK)
    except (MsmqError, ConnectionError):
        return  # the login has ended, or the daemon has stopped
    finally:
        Streams.shares.give_back(asked.caller.sid)


OPERATIONS: Final = (
    HttpOperation(
        "GET",
        "/events",
        events,
        "Figures as they change, as server-sent events",
        media_type=MEDIA_TYPE,
        role=Role.MONITOR,
    ),
)
