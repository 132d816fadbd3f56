"""What commands ask the HTTP API of a daemon about queues, who has them open, and figures over time."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from types import TracebackType
from typing import Final, NamedTuple, cast

from openmsmq.admin.checked_json import ExactTime, Time
from openmsmq.admin.http_requests import ApiNotFound, HttpCredentials, HttpRequests, step
from openmsmq.admin.naming import path_of, shown
from openmsmq.admin.series import Range, Rates

_PAGE: Final = 500
_HERE: Final = ".\\"  # of path names: the machine of the server


class ListedQueue(NamedTuple):
    """A queue as lists have it. `came` and `left` count messages since the daemon started, `grown` is how many messages
    more it holds than five minutes ago, `waiting` are reads that wait for messages."""

    id: str
    kind: str
    name: str
    messages: int
    bytes: int
    came: int
    left: int
    grown: int
    journal_messages: int
    waiting: int
    state: str


class OpenHandleInfo(NamedTuple):
    """A queue that somebody has open. `exclusive`: share mode DENY_RECEIVE; `held` messages are received in two phases
    that have not ended; `origin` is the door and the address behind it."""

    id: str
    queue: str
    name: str
    access: str
    since: Time
    exclusive: bool
    waiting: int
    cursors: int
    held: int
    user: str
    sid: str
    origin: str


class OpenHandlesInfo(NamedTuple):
    """The first ones; `matching` is how many there are."""

    handles: list[OpenHandleInfo]
    matching: int


class ListedSequence(NamedTuple):
    """How far a queue manager, `source`, is with a transactional queue."""

    queue: str
    name: str
    source: str
    sequence: str
    number: int
    rejected: int
    accessed: Time


class SequencesInfo(NamedTuple):
    """The latest ones; `matching` is how many there are."""

    sequences: list[ListedSequence]
    matching: int


class CallerInfo(NamedTuple):
    """Who asks, and in what role. `administrator`: of the queue manager."""

    user: str
    sid: str
    administrator: bool
    role: str


class _Point(NamedTuple):
    """`Rates` as they travel."""

    at: ExactTime
    messages: int
    came: float
    left: float
    dead: float
    sync: float | None
    call: float | None
    free: int | None


class HttpApi:
    """The API at a URL, for one user."""

    def __init__(
        self, url: str, who: HttpCredentials, trust: ssl.SSLContext | None = None, seconds: float | None = None
    ) -> None:
        """As `HttpRequests`."""
        self.requests: Final = HttpRequests(url, who, trust, seconds)
        self.url: Final = self.requests.url

    def caller(self) -> CallerInfo:
        """Whose credentials these are."""
        return cast("CallerInfo", self.requests.value(self.requests.ask("GET", "/session"), CallerInfo))

    def queues(self, text: str = "") -> Iterator[ListedQueue]:
        """All that the user may see, or those with a text or pattern in their names; the fullest first."""
        query = {"sort": "-messages", "limit": str(_PAGE)} | ({"filter": text} if text else {})
        for page in self.requests.pages("/queues", query):
            yield from self.requests.member(page, "queues", list[ListedQueue])

    def queue_named(self, name: str) -> ListedQueue:
        """Of a name as people type it. Raises ApiNotFound."""
        wanted = shown(path_of(name)).casefold()
        text = wanted.removeprefix(_HERE)
        found = (queue for queue in self.queues(f"*{text}" if "*" in text or "?" in text else text))
        queue = next((queue for queue in found if _is_called(queue, wanted)), None)
        if queue is None:
            raise ApiNotFound(f"{self.url}: there is no queue {name}, or the user of the token may not see it")
        return queue

    def oldest(self, queue: str) -> int | None:
        """When the first message of a queue came, in seconds since 1970; None where there is none, or the user may not
        look. Raises ApiNotFound."""
        found = self.requests.ask("GET", f"/queues/{step(queue)}")
        return cast("int | None", self.requests.member(found, "oldest", Time | None))

    def handles(
        self, queue: str | None = None, *, exclusive: bool = False, waiting: bool = False, limit: int | None = None
    ) -> OpenHandlesInfo:
        """Who has which queue open, exclusive ones first; `limit` of them, or all. `queue` is the identifier of one."""
        size = _PAGE if limit is None else min(limit, _PAGE)
        query = {"limit": str(size)} | ({"queue": queue} if queue is not None else {})
        query |= {name: "true" for name, wanted in (("exclusive", exclusive), ("waiting", waiting)) if wanted}
        found: list[OpenHandleInfo] = []
        matching = 0
        for page in self.requests.pages("/handles", query):
            handles, matching = self.requests.value(page, OpenHandlesInfo)
            found += handles
            if limit is not None and len(found) >= limit:
                break
        return OpenHandlesInfo(found[:limit], matching)

    def handle(self, identifier: str) -> OpenHandleInfo:
        """Raises ApiNotFound."""
        return self._handle("GET", identifier)

    def close_handle(self, identifier: str) -> OpenHandleInfo:
        """End what somebody has open; returns what it was. Raises ApiNotFound where it is closed already."""
        return self._handle("DELETE", identifier)

    def _handle(self, method: str, identifier: str) -> OpenHandleInfo:
        return cast(
            "OpenHandleInfo",
            self.requests.value(self.requests.ask(method, f"/handles/{step(identifier)}"), OpenHandleInfo),
        )

    def delete_outgoing(self, identifier: str, count: int) -> int:
        """Delete an outgoing queue that holds `count` messages; returns how many went with it. Raises ApiNotFound."""
        done = self.requests.ask("DELETE", f"/outgoing/{step(identifier)}", {"count": str(count)})
        return cast("int", self.requests.member(done, "messages", int))

    def sequences(self, queue: str | None, source: str | None = None, limit: int = _PAGE) -> SequencesInfo:
        """Transactional sequences that come in, the latest first. `queue` is the identifier of one, `source` that of a
        queue manager."""
        query = {"limit": str(limit)} | ({"queue": queue} if queue is not None else {})
        query |= {"source": source} if source is not None else {}
        return cast("SequencesInfo", self.requests.value(self.requests.ask("GET", "/sequences", query), SequencesInfo))

    def forget_sequence(self, queue: str, source: str) -> None:
        """Raises ApiNotFound."""
        self.requests.ask("DELETE", f"/sequences/{step(queue)}/{step(source)}")

    def series(self, span: Range) -> list[Rates]:
        """Figures over time, the oldest first."""
        found = self.requests.ask("GET", "/series", {"range": span})
        return [Rates(*point) for point in self.requests.member(found, "points", list[_Point])]

    def close(self) -> None:
        self.requests.close()

    def __enter__(self) -> HttpApi:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _is_called(queue: ListedQueue, wanted: str) -> bool:
    """Whether a name, in lower case, is that of a queue. Outgoing queues have the name of their destination."""
    name = queue.name.casefold()
    if wanted.startswith(_HERE) and queue.kind not in ("outgoing", "connector"):
        return name.partition("\\")[2] == wanted.removeprefix(_HERE)
    return name == wanted
