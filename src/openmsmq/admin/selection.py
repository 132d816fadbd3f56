"""Select messages of queues and act on exactly those.

`select` finds the messages, and `act` acts on each by its identifier, so that messages that arrive in between are never
touched. A `Selection` has a token with the highest sequence number read and the number of messages found. With the
token, a later call selects the same messages and reports if fewer are left or more have become visible.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, NamedTuple

from openmsmq.admin import body_text
from openmsmq.client.dead_letters import SentLimits, is_journal, walk
from openmsmq.client.open_queue import ProtocolWord
from openmsmq.client.sync import Cursor, QueueManager
from openmsmq.model.errors import MessageAlreadyReceived, MsmqError
from openmsmq.model.message import Message, identifier_text
from openmsmq.model.names import parse_format_name
from openmsmq.model.text import printable

_PART: Final = 8  # minimum characters of an identifier; fewer match many identifiers by chance
_PREVIEW: Final = 200  # maximum characters of a body
_TOKEN: Final = re.compile(r"([0-9a-f]+)-([0-9]+)-([0-9a-f]{16})")


@dataclass(frozen=True, slots=True)
class Criteria:
    """Criteria for messages; all that are not None must match.

    Attributes:
        ids: identifiers as text, `{guid}\\number`.
        find: text in the label or the body, or at least eight characters of the identifier, without regard to case.
        label: text in the label, or a pattern with * and ?, without regard to case.
        correlation: a correlation identifier as text.
        classes: message classes.
        destination: the format name of the destination, or text in it, without regard to case. A complete format name
            is not also looked for in longer ones: `orders` would otherwise include `orders2`.
        older: minimum time in the queue in seconds; `newer`: maximum.
        larger: minimum size of the body in bytes; `smaller`: maximum.
        text: text in the body as it is shown, without regard to case.
    """

    ids: frozenset[str] | None = None
    find: str | None = None
    label: str | None = None
    correlation: str | None = None
    classes: frozenset[int] | None = None
    destination: str | None = None
    older: float | None = None
    newer: float | None = None
    larger: int | None = None
    smaller: int | None = None
    text: str | None = None

    def matches(self, message: Message, now: float) -> bool:
        """Whether a message matches; `now` in seconds since 1970."""
        age, size = now - (message.arrival_time or message.sent_time), len(message.body)
        return (
            (self.ids is None or message.id in self.ids)
            and (self.classes is None or message.message_class in self.classes)
            and (self.older is None or age >= self.older)
            and (self.newer is None or age <= self.newer)
            and (self.larger is None or size >= self.larger)
            and (self.smaller is None or size <= self.smaller)
            and (self.label is None or _like(self.label, message.label))
            and (
                self.correlation is None
                or self.correlation.lower() == identifier_text(message.correlation_identifier).lower()
            )
            and (self.destination is None or _is_for(self.destination, message.destination_queue_format_name))
            and (self.text is None or _within(self.text, body_text.show(message).text))
            and (self.find is None or _found(self.find, message))
        )


class Chosen(NamedTuple):
    """Summary of a selected message, enough to show it."""

    id: str
    queue: str
    lookup: int  # lookup identifier, 0 if the protocol has none
    sent: int
    message_class: int
    label: str
    destination: str
    size: int
    preview: str
    transactional: bool = False


@dataclass(slots=True)
class Selection:
    """Result of a scan of some queues. `scanned` messages were read; `bound` is the highest sequence number among them,
    0 if the protocol has none. `complete` is False if a limit ended the scan."""

    chosen: list[Chosen] = field(default_factory=list)
    scanned: int = 0
    bound: int = 0
    complete: bool = True

    @property
    def token(self) -> str:
        """Token for a later call on the same selection; empty if sequence numbers are unknown."""
        return f"{self.bound:x}-{len(self.chosen)}-{self.digest}" if self.bound or not self.scanned else ""

    @property
    def digest(self) -> str:
        """Short digest of the selected messages: other messages have another one."""
        places = sorted(f"{chosen.queue.lower()}/{chosen.lookup}" for chosen in self.chosen)
        return hashlib.sha256("\n".join(places).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class SelectionToken(NamedTuple):
    """Result of a dry run: the highest sequence number read, the number of messages, and their digest."""

    bound: int
    found: int
    digest: str


class ActionResult(NamedTuple):
    """Outcome for a message: `how` it was handled, or the error (the message is then unchanged). If both are None,
    another reader has the message."""

    chosen: Chosen
    how: str | None
    error: MsmqError | None


#: Acts on the message at the cursor; returns how.
Action = Callable[[Cursor, Message], str]


def select(
    qm: QueueManager,
    queues: Iterable[str],
    criteria: Criteria,
    now: float,
    *,
    limit: int = 0,
    scan: int = 0,
    token: SelectionToken | None = None,
    protocol: ProtocolWord = "auto",
    previews: bool = True,
) -> Selection:
    """Find messages. `limit` is the maximum number to find and `scan` the maximum number to read, 0 for no limit.
    Messages beyond the bound of `token` are ignored. Without `previews`, bodies are not decoded. Raises MsmqError."""
    found = Selection()
    for name in queues:
        for message in _matching(qm, name, criteria, now, found, limit, scan, token, protocol):
            found.chosen.append(_chosen(name, message, previews))
    return found


def select_again(qm: QueueManager, queue: str, lookups: Collection[int]) -> Selection:
    """Find the messages with these lookup identifiers that are still there, and no others. Raises MsmqError."""
    found, last = Selection(), max(lookups, default=-1)
    with qm.open(queue, "peek") as opened, closing(iter(opened)) as messages:
        for message in messages:
            if message.lookup_identifier > last or len(found.chosen) == len(lookups):  # they are in queue order
                break
            found.scanned += 1
            if message.lookup_identifier in lookups:
                found.chosen.append(_chosen(queue, message, False))
    return found


def search(
    qm: QueueManager, queue: str, criteria: Criteria, now: float, found: Selection, *, limit: int, scan: int,
    protocol: ProtocolWord = "auto",
) -> Generator[Message, None, None]:  # fmt: skip
    """Yield matching messages while the queue is read; `found` counts them. Close the generator, or the queue stays
    open for a while."""
    with closing(_matching(qm, queue, criteria, now, found, limit, scan, None, protocol)) as messages:
        for message in messages:
            found.chosen.append(_chosen(queue, message, False))
            yield message


def _matching(
    qm: QueueManager, name: str, criteria: Criteria, now: float, found: Selection, limit: int, scan: int,
    token: SelectionToken | None, protocol: ProtocolWord,
) -> Generator[Message, None, None]:  # fmt: skip
    with qm.open(name, "peek", protocol=protocol) as opened, closing(iter(opened)) as messages:
        for message in messages:
            if (limit and len(found.chosen) >= limit) or (scan and found.scanned >= scan):
                found.complete = False
                return
            if token is not None and message.sequence > token.bound:
                continue
            found.scanned += 1
            found.bound = max(found.bound, message.sequence)
            if criteria.matches(message, now):
                yield message


def _chosen(queue: str, message: Message, with_preview: bool) -> Chosen:
    return Chosen(
        message.id, queue, message.lookup_identifier, message.sent_time, message.message_class, message.label,
        message.destination_queue_format_name, len(message.body),
        preview(message) if with_preview else "", message.is_transactional,
    )  # fmt: skip


def act(qm: QueueManager, selection: Selection, action: Action) -> Generator[ActionResult, None, None]:
    """Apply an action to each selected message, in queue order. For a message that another reader has received or
    locked, the result is empty; after an error, the message stays and the next one follows. Raises MsmqError if a queue
    cannot be opened, and ConnectionError."""
    by_queue: dict[str, dict[str, Chosen]] = {}
    for chosen in selection.chosen:
        by_queue.setdefault(chosen.queue, {})[chosen.id] = chosen
    for name, left in by_queue.items():
        # Cursors of qmcomm can receive in transactions of any server; those of RemoteRead can lock a message.
        together = not is_journal(name) and any(chosen.transactional for chosen in left.values())
        protocol: ProtocolWord = "qmcomm" if together else "auto"
        with qm.open(name, protocol=protocol) as opened, SentLimits(qm, name, opened.protocol) as limits:
            for cursor, message in walk(opened):
                known = left.pop(message.id, None)
                if known is not None:
                    limits.restore(message, known.lookup)
                    message.lookup_identifier = known.lookup  # MS-MQMP does not transfer it
                    yield _done(known, action, cursor, message)
                if not left:
                    break
        for gone in left.values():
            yield ActionResult(gone, None, None)


def _done(chosen: Chosen, action: Action, cursor: Cursor, message: Message) -> ActionResult:
    try:
        return ActionResult(chosen, action(cursor, message), None)
    except ConnectionError:
        raise
    except MessageAlreadyReceived:
        return ActionResult(chosen, None, None)
    except MsmqError as error:
        return ActionResult(chosen, None, error)


def parse_token(text: str) -> SelectionToken:
    """Parse the text of a token. Raises ValueError."""
    found = _TOKEN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a selection; a dry run shows one, such as 1f3-100-8c7dd922ad47494f")
    return SelectionToken(int(found.group(1), 16), int(found.group(2)), found.group(3))


def preview(message: Message) -> str:
    """Return the start of a body as one line."""
    text = printable(" ".join(body_text.show(message).text.split()))
    return text if len(text) <= _PREVIEW else text[: _PREVIEW - 1] + "…"


def _within(wanted: str, text: str) -> bool:
    return wanted.casefold() in text.casefold()


def _is_for(wanted: str, destination: str) -> bool:
    return wanted.casefold() == destination.casefold() if _is_complete(wanted) else _within(wanted, destination)


@lru_cache(maxsize=64)
def _is_complete(text: str) -> bool:
    """Whether a text is a complete format name."""
    try:
        parse_format_name(text)
    except MsmqError:
        return False
    return True


def _found(wanted: str, message: Message) -> bool:
    """Whether text is in the message. The body is checked last, because it must be decoded."""
    is_named = len(wanted) >= _PART and _within(wanted, message.id)
    return is_named or _within(wanted, message.label) or _within(wanted, body_text.show(message).text)


def _like(wanted: str, text: str) -> bool:
    if "*" in wanted or "?" in wanted:
        return fnmatchcase(text.casefold(), wanted.casefold().replace("[", "[[]"))
    return _within(wanted, text)
