"""Services that handlers use, and the settings of the web process."""

from __future__ import annotations

import hmac
import json
import math
import secrets
import threading
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec

from openmsmq.actions.background import Jobs
from openmsmq.actions.backup_job import BackupJob
from openmsmq.console.callers import WebSessions
from openmsmq.console.history import FigureHistory
from openmsmq.console.managers import Managers
from openmsmq.console.problems import Problem
from openmsmq.console.queue_history import QueueHistory
from openmsmq.model.errors import AccessDenied
from openmsmq.processes.link import DaemonLink

T = TypeVar("T")
_FRESH: Final = 1.0  # lifetime of cached rows in seconds, so that a page and its next one use the same rows
_REST: Final = 5  # how many times longer than their listing rows are kept, if that is more
_LINES: Final = msgspec.json.Decoder(dict[str, Any])
#: Not Basic: browsers would ask for a password, keep it and send it automatically.
CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="openmsmq"'}


@dataclass(frozen=True, slots=True)
class WebSettings:
    """See `server.web.WebServer`. `hosts` are the names of the machine; `open_metrics`: everyone may see sums;
    `metrics_queues`: number of queues in `/metrics`; `openid`: host of the OpenID provider, empty for none; `backups`:
    directory of backups, empty for none; `outside`: files outside the data directory."""

    host: str
    port: int
    certificate: str
    key: str
    socket: str
    data_dir: str
    store: str
    users_file: str
    backups: str
    outside: list[str]
    webhook: str
    webhook_key_file: str
    mail_to: list[str]
    mail_from: str
    mail_server: str
    mail_tls: str
    mail_user: str
    mail_password_file: str
    hosts: list[str]
    open_metrics: bool
    audit: bool
    audit_required: bool
    audit_bytes: int
    log_level: str
    log_format: str
    metrics_queues: int = 0
    openid: str = ""

    @property
    def tls(self) -> bool:
        return bool(self.certificate)

    @property
    def cookie(self) -> str:
        """Name of the cookie. Browsers do not separate cookies by port; the prefix makes them enforce its rules."""
        return "__Host-openmsmq" if self.tls else f"openmsmq-{self.port}"

    @property
    def directory(self) -> Path:
        return Path(self.data_dir)

    @property
    def users_path(self) -> Path:
        return Path(self.users_file)


@dataclass(slots=True)
class _KeptRows:
    """Rows of a user: when they were requested, and until when they are kept: without limit while they are awaited."""

    asked: float
    until: float = math.inf
    rows: Future[list[dict[str, Any]]] = field(default_factory=Future)


class QueueRows:
    """Rows of queues, per user, cached for a second, or longer if the daemon needs long to list them. Concurrent
    requests wait for the same rows, so one user makes the daemon list all queues at most once a second, and not more
    than a sixth of the time."""

    def __init__(self, link: DaemonLink, clock: Callable[[], float] = time.monotonic) -> None:
        self._link: Final = link
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._kept: dict[str, _KeptRows] = {}

    def of(self, ticket: str, *, newest: bool = False) -> list[dict[str, Any]]:
        """Return the rows that the user of a ticket may see; with `newest`, rows that are at most a second old. Raises
        MsmqError."""
        now = self._clock()
        with self._lock:
            self._kept = {key: kept for key, kept in self._kept.items() if now < kept.until}
            known = self._kept.get(ticket)
            if known is None or (newest and now - known.asked >= _FRESH and known.rows.done()):
                mine = self._kept[ticket] = _KeptRows(now)
                known = None
        if known is not None:
            return known.rows.result()
        try:
            _, data = self._link.ask("queues", ticket=ticket).result()
            rows = _LINES.decode_lines(bytes(data))
        except BaseException as error:
            self.forget(ticket)
            mine.rows.set_exception(error)
        else:
            ended = self._clock()
            mine.until = max(now + _FRESH, ended + _REST * (ended - now))
            mine.rows.set_result(rows)
        return mine.rows.result()

    def forget(self, ticket: str) -> None:
        """Drop the cached rows, because the user has changed something."""
        with self._lock:
            self._kept.pop(ticket, None)


class RecentValues:
    """Cache of values by key with a lifetime in seconds. Thread-safe."""

    _MOST: Final = 1000

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._kept: Final[OrderedDict[str, tuple[float, Any]]] = OrderedDict()
        self._lock: Final = threading.Lock()

    def of(self, key: str, make: Callable[[], T], seconds: float) -> T:
        """Return the cached value if it is newer than `seconds`, else a new one."""
        now = self._clock()
        with self._lock:
            known = self._kept.get(key)
        if known is not None and now - known[0] < seconds:
            return cast("T", known[1])
        made = make()
        with self._lock:
            self._kept[key] = now, made
            self._kept.move_to_end(key)
            while len(self._kept) > self._MOST:
                self._kept.popitem(last=False)
        return made


class Seals:
    """Seals documents for clients (cursors and selections), so that it can verify them later. Seals end with the
    process."""

    def __init__(self) -> None:
        self._secret: Final = secrets.token_bytes(32)

    def seal(self, document: Any) -> str:
        data = json.dumps(document, separators=(",", ":")).encode()
        return urlsafe_b64encode(hmac.digest(self._secret, data, "sha256")[:16] + data).decode().rstrip("=")

    def open(self, text: str, what: str) -> Any:
        """Return a sealed document. Raises Problem if this process did not seal it."""
        try:
            raw = urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        except ValueError:
            raw = b""
        if not hmac.compare_digest(raw[:16], hmac.digest(self._secret, raw[16:], "sha256")[:16]):
            raise Problem(400, f"this {what} was not issued by this server, or the server was restarted: start again")
        return json.loads(raw[16:])


@dataclass(frozen=True, slots=True)
class Services:
    """The services of this process. Thread-safe."""

    settings: WebSettings
    link: DaemonLink
    managers: Managers
    rows: QueueRows
    history: FigureHistory = field(default_factory=FigureHistory)
    queue_history: QueueHistory = field(default_factory=QueueHistory)
    sessions: WebSessions = field(default_factory=WebSessions)
    backups: BackupJob = field(default_factory=BackupJob)
    jobs: Jobs = field(default_factory=Jobs)
    seals: Seals = field(default_factory=Seals)
    recent: RecentValues = field(default_factory=RecentValues)

    def login(self, user: str, password: str, peer: str) -> Mapping[str, Any]:
        """Log in; return ticket, name, SID, role, token, and whether the user is an administrator. Raises Problem if
        the daemon refuses the login, or rejects all logins for a while after too many failures."""
        return self._logged_in("login", user=user, password=password, peer=peer)

    def login_by_token(self, token: str, peer: str) -> Mapping[str, Any]:
        """Log in with a token."""
        return self._logged_in("login_by_token", token=token, peer=peer)

    def login_by_link(self, secret: str, peer: str) -> Mapping[str, Any]:
        """Log in with a one-time link."""
        return self._logged_in("login_by_link", secret=secret, peer=peer)

    def begin_openid(self, redirect: str) -> Mapping[str, str]:
        """Return `url` at the OpenID provider, and `state`. Raises Problem while the provider is unavailable."""
        found: Mapping[str, str] = self._asked("begin_openid", redirect=redirect)
        return found

    def login_by_openid(self, state: str, code: str, redirect: str, peer: str) -> Mapping[str, Any]:
        """Log in with a code from the OpenID provider; return the same as `login`."""
        return self._logged_in("login_by_openid", state=state, code=code, redirect=redirect, peer=peer)

    def _asked(self, operation: str, **given: str) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = self.link.call(operation, **given)
        except AccessDenied as error:
            raise Problem(401, error.detail, headers=CHALLENGE) from None
        if "unavailable" in found:
            raise Problem(503, f"the OpenID provider is not available: {found['unavailable']}")
        return found

    def _logged_in(self, operation: str, **given: str) -> Mapping[str, Any]:
        found = self._asked(operation, **given)
        if "wait" in found:
            wait = int(found["wait"]) + 1
            raise Problem(429, f"too many logins that failed: wait {wait} s", headers={"Retry-After": str(wait)})
        return found

    def queue(self, ticket: str, identifier: str) -> dict[str, Any]:
        """Return the row of a queue. Raises QueueNotFound, also if the user may not see the queue."""
        row: dict[str, Any] = self.link.call("queue", ticket=ticket, id=identifier)
        return row
