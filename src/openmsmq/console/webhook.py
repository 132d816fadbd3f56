"""Alarms by webhook: each event is posted as JSON, signed with a shared key.

It runs in a thread of the web process, so a slow, hostile or unavailable receiver blocks nothing. Each attempt has a
time limit, redirects are not followed, and only the status of a response is read. An event that fails `TRIES` times is
dropped and logged. A file with the number of the last delivered event prevents duplicates after a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import logging
import random
import ssl
import string
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, cast
from urllib.parse import quote, urlsplit

from openmsmq.admin.alarms import (
    ALARMS_FILE,
    DELIVERED_FILE,
    EVENTS,
    Alarms,
    Event,
    event_document,
    read_alarms,
    read_delivered,
    write_delivered,
)
from openmsmq.admin.deadlines import TimedSocket, connect_by, seconds_left

logger = logging.getLogger(__name__)

TRIES: Final = 5
_SECONDS: Final = 10.0  # time limit of one attempt
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds between attempts, increasing exponentially
_PERIOD: Final = 2.0  # seconds between checks for events
SIGNATURE: Final = "X-Openmsmq-Signature"


class Post(Protocol):
    """Posts a document and returns the status of the response. Raises OSError, HTTPException."""

    def __call__(self, url: str, body: bytes, headers: dict[str, str]) -> int: ...


@dataclass(slots=True)
class DeliveredEvents:
    """The number of the last event that was delivered in one `way`, in the file `name`. This process remembers it if it
    can't be saved: a full disk is itself an alarm, and must not be delivered every few seconds."""

    data_dir: Path
    way: str
    name: str = DELIVERED_FILE
    _unsaved: int | None = None

    def due(self, alarms: Alarms, is_served: Callable[[], bool]) -> list[Event]:
        """Return the events to deliver; none if `is_served` returns False."""
        last = self._last()
        due = due_events(alarms, last)
        are_silenced = not due and last is not None and alarms.seq > last
        if not (due or are_silenced) or not is_served():
            return []
        if are_silenced:
            self._save(alarms.seq)
        return due

    def note(self, seq: int, alarms: Alarms) -> None:
        """Record that the events up to `seq` are delivered, or were dropped. Log how many `alarms` no longer had."""
        last = self._last()
        if last is not None and (missed := alarms.events[0].seq - last - 1) > 0:
            logger.error(
                "%d alarm events were not delivered %s: %s keeps the last %d events only", missed, self.way,
                ALARMS_FILE, EVENTS,
            )  # fmt: skip
        self._save(seq)

    def _last(self) -> int | None:
        return read_delivered(self.data_dir, self.name) if self._unsaved is None else self._unsaved

    def _save(self, seq: int) -> None:
        self._unsaved = None if write_delivered(self.data_dir, seq, self.name) else seq


@dataclass(slots=True)
class Webhook:
    """Delivers alarms by webhook. `machine` is the name of this machine in the events; `key` signs them, empty for no
    signature. `is_served` returns whether the daemon answers: a frozen daemon may have lost its store to another
    daemon, which then delivers the same alarms."""

    data_dir: Path
    machine: str
    url: str
    key: bytes = field(repr=False)
    post: Post
    is_served: Callable[[], bool] = lambda: True
    wait: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.time
    _delivered: DeliveredEvents = field(init=False)

    def __post_init__(self) -> None:
        self._delivered = DeliveredEvents(self.data_dir, "by webhook")

    def run(self) -> None:
        """Deliver events until the process ends."""
        while True:
            try:
                self.deliver()
            except Exception:  # a failing event must not stop the thread
                logger.exception("alarms could not be delivered by webhook")
            self.wait(_PERIOD)

    def deliver(self) -> None:
        """Deliver the events since the last delivery."""
        try:
            alarms = read_alarms(self.data_dir)
        except (OSError, ValueError) as error:
            logger.error("cannot deliver alarms by webhook: %s", error)
            return
        for event in self._delivered.due(alarms, self.is_served):
            self._deliver(event)
            self._delivered.note(event.seq, alarms)

    def _deliver(self, event: Event) -> None:
        body = json.dumps(event_document(event, self.machine)).encode()
        failure = ""
        for _ in tries(TRIES, _FIRST_PAUSE, _LONGEST_PAUSE, self.wait):
            headers = {
                "Content-Type": "application/json", "User-Agent": "openmsmq",
                "Idempotency-Key": f"{self.machine}-{event.seq}", **signature(self.key, int(self.clock()), body),
            }  # fmt: skip
            try:
                status = self.post(self.url, body, headers)
            except (OSError, http.client.HTTPException) as error:
                failure = str(error) or type(error).__name__
                continue
            if 200 <= status < 300:
                return
            failure = f"the answer is {status}"
        logger.error("alarm %s %s was not delivered by webhook after %d tries: %s",
                     event.alarm.name, event.state, TRIES, failure)  # fmt: skip


def tries(count: int, first: float, longest: float, wait: Callable[[float], object]) -> Iterator[int]:
    """Yield attempt numbers from 0. Before each except the first, wait for a randomized pause in seconds, which doubles
    from `first` up to `longest`."""
    pause = first
    for number in range(count):
        if number:
            wait(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, longest)
        yield number


def signature(key: bytes, now: int, body: bytes) -> dict[str, str]:
    """Return the header that authenticates sender and time: HMAC-SHA256 of the time, a dot and the body."""
    if not key:
        return {}
    return {SIGNATURE: f"t={now},sha256={hmac.digest(key, b'%d.' % now + body, hashlib.sha256).hex()}"}


def due_events(alarms: Alarms, last: int | None) -> list[Event]:
    """Return the events to deliver, without silenced ones. A receiver that has received nothing yet (`last` is None)
    gets the active alarms. A restored store resets the counter."""
    if last is None:
        raised = {(event.alarm.name, event.alarm.queue): event for event in alarms.events if event.state == "raised"}
        return [event for key, event in raised.items() if key in alarms.active and not event.silenced]
    if last > alarms.seq:
        last = 0
    return [event for event in alarms.events if event.seq > last and not event.silenced]


def posting(context: ssl.SSLContext | None = None) -> Post:
    """Return a function that posts to a URL. An attempt takes at most ten seconds, even if the receiver sends single
    bytes. `context` (default: that of the system) must trust the certificate of the receiver."""

    def post(url: str, body: bytes, headers: dict[str, str]) -> int:
        deadline = time.monotonic() + _SECONDS
        parts = urlsplit(url)
        host = parts.hostname or ""
        target = quote(f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/", string.punctuation)
        if parts.scheme == "https":
            trusted = context or ssl.create_default_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, parts.port, context=trusted)
        else:
            connection = http.client.HTTPConnection(host, parts.port)
        connection.response_class = cast(
            "Any", lambda sock, **named: http.client.HTTPResponse(cast("Any", TimedSocket(sock, deadline)), **named)
        )
        with closing(connection):
            connection.sock = connect_by(host, connection.port, deadline)
            if parts.scheme == "https":
                connection.sock = trusted.wrap_socket(connection.sock, server_hostname=host)
            connection.sock.settimeout(seconds_left(deadline))
            connection.request("POST", target, body, headers)
            with connection.getresponse() as answer:
                return answer.status  # the body is not read

    return post
