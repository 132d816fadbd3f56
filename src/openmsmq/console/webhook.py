"""Alarms by webhook: each event is posted as JSON, signed with a shared key.

It runs in a thread of the web process, so a slow, hostile or unavailable receiver blocks nothing. Each attempt has a
time limit, redirects are not followed, and only the status of a response is read.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import ssl
import string
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol, cast
from urllib.parse import quote, urlsplit

from openmsmq.admin.alarms import DELIVERED_FILE, Event, event_document
from openmsmq.admin.deadlines import TimedSocket, connect_by, seconds_left
from openmsmq.console.delivery import AlarmDelivery, EventsRefused

_SECONDS: Final = 10.0  # time limit of one attempt
_REFUSED: Final = {400, 413, 415, 422, 500, 501}  # statuses for which the event can be the reason
SIGNATURE: Final = "X-Openmsmq-Signature"


class Post(Protocol):
    """Posts a document and returns the status of the response. Raises OSError, HTTPException."""

    def __call__(self, url: str, body: bytes, headers: dict[str, str]) -> int: ...


class Webhook:
    """Delivers alarms by webhook, with `AlarmDelivery`. `machine` is the name of this machine in the events; `key`
    signs them, empty for no signature. `is_served` and `wait` are as for `AlarmDelivery`."""

    def __init__(
        self, data_dir: Path, machine: str, url: str, key: bytes, post: Post,
        is_served: Callable[[], bool] = lambda: True, wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._machine, self._url, self._key, self._post, self._clock = machine, url, key, post, clock
        self.delivery: Final = AlarmDelivery(
            data_dir, "by webhook", DELIVERED_FILE, lambda events: [[event] for event in events], self._send,
            is_served, wait,
        )  # fmt: skip

    def _send(self, events: Sequence[Event]) -> None:
        [event] = events
        body = json.dumps(event_document(event, self._machine)).encode()
        headers = {
            "Content-Type": "application/json", "User-Agent": "openmsmq",
            "Idempotency-Key": f"{self._machine}-{event.seq}", **signature(self._key, int(self._clock()), body),
        }  # fmt: skip
        try:
            status = self._post(self._url, body, headers)
        except http.client.HTTPException as error:
            raise OSError(str(error) or type(error).__name__) from None
        if not 200 <= status < 300:
            kind = EventsRefused if status in _REFUSED else OSError
            raise kind(f"the answer is {status}")


def signature(key: bytes, now: int, body: bytes) -> dict[str, str]:
    """Return the header that authenticates sender and time: HMAC-SHA256 of the time, a dot and the body."""
    if not key:
        return {}
    return {SIGNATURE: f"t={now},sha256={hmac.digest(key, b'%d.' % now + body, hashlib.sha256).hex()}"}


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
