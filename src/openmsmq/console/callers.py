"""Authentication of requests by session cookie, by token, or by name and password; CSRF protection for browsers. The
daemon checks tokens (`admin.tokens`).

A session maps 256 random bits, of which this process keeps only the hash, to a ticket of the daemon. It ends when it
expires, with `close`, and when the daemon no longer accepts its ticket: after a change of the password, the deletion of
the user, or a restart of the daemon.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from openmsmq.admin.tokens import PREFIX
from openmsmq.console.limits import IDLE_SECONDS, SESSION_SECONDS, SESSIONS, SESSIONS_PER_USER
from openmsmq.model.roles import Role


@dataclass(slots=True)
class WebSession:
    """A login session, identified by a cookie; changes also need `csrf`."""

    ticket: str = field(repr=False)
    sid: str
    name: str
    csrf: str = field(repr=False)
    begun: float
    used: float
    closed: bool = False


@dataclass(frozen=True, slots=True)
class WebCaller:
    """The user authenticated by the daemon for this request, with its limits; `token` is the identifier of the token
    used to log in, empty for none."""

    ticket: str = field(repr=False)
    name: str
    sid: str
    administrator: bool
    peer: str
    role: Role = Role.MONITOR
    token: str = ""
    session: WebSession | None = None

    @property
    def administers(self) -> bool:
        """Whether the caller may use the pages that only administrators may use."""
        return self.administrator and self.role is Role.ADMINISTRATOR


class WebSessions:
    """All sessions, in memory. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._sessions: Final[OrderedDict[bytes, WebSession]] = OrderedDict()  # least recently used first
        self._of_user: Final[dict[str, OrderedDict[bytes, None]]] = {}  # in the same order

    def open(self, ticket: str, sid: str, name: str) -> tuple[str, WebSession]:
        """Open a session. Return the secret that identifies it, and the session. If there are too many sessions of this
        user, or in total, the least recently used one ends."""
        secret = secrets.token_urlsafe(32)
        now = self._clock()
        session = WebSession(ticket, sid, name, secrets.token_urlsafe(32), now, now)
        with self._lock:
            while self._sessions and _is_over(next(iter(self._sessions.values())), now):
                self._end(next(iter(self._sessions)))
            own = self._of_user.get(sid)
            if own is not None and len(own) >= SESSIONS_PER_USER:
                self._end(next(iter(own)))
            if len(self._sessions) >= SESSIONS:
                self._end(next(iter(self._sessions)))
            self._sessions[_hashed(secret)] = session
            self._of_user.setdefault(sid, OrderedDict())[_hashed(secret)] = None
        return secret, session

    def find(self, secret: str, *, used: bool = True) -> WebSession | None:
        """Return the session of a secret; None if unknown or expired. Unless `used` is false, this counts as use."""
        key, now = _hashed(secret), self._clock()
        with self._lock:
            session = self._sessions.get(key)
            if session is None:
                return None
            if _is_over(session, now):
                self._end(key)
                return None
            if not used:
                return session
            session.used = now
            self._sessions.move_to_end(key)
            self._of_user[session.sid].move_to_end(key)
            return session

    def is_open(self, session: WebSession) -> bool:
        """Whether a session has not ended. This does not count as use."""
        return not session.closed and not _is_over(session, self._clock())

    def close(self, session: WebSession) -> None:
        with self._lock:
            for key in [key for key in self._of_user.get(session.sid, ()) if self._sessions[key] is session]:
                self._end(key)

    def __len__(self) -> int:
        return len(self._sessions)

    def _end(self, key: bytes) -> None:
        session = self._sessions.pop(key)
        session.closed = True
        own = self._of_user[session.sid]
        del own[key]
        if not own:
            del self._of_user[session.sid]


def _is_over(session: WebSession, now: float) -> bool:
    return now - session.used > IDLE_SECONDS or now - session.begun > SESSION_SECONDS


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def basic(value: str) -> tuple[str, str] | None:
    """Return user and password from an Authorization header (RFC 7617); None for another scheme or a malformed
    value."""
    scheme, _, encoded = value.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except ValueError:  # not ASCII, not base64 or not UTF-8
        return None
    user, separator, password = text.partition(":")
    return (user, password) if separator else None


def bearer(value: str) -> str | None:
    """Return the token from an Authorization header (RFC 6750); None for anything else."""
    scheme, _, token = value.partition(" ")
    found = token.strip()
    return found if scheme.lower() == "bearer" and found.startswith(PREFIX) else None


def same(given: str | None, expected: str) -> bool:
    """Compare two secrets in constant time."""
    return given is not None and hmac.compare_digest(given.encode(), expected.encode())
