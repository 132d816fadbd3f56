"""Find a message by its identifier in all queues that a user may read, within bounds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.limits import FOUND_SECONDS, SCANNED
from openmsmq.actions.messages import messages_behind
from openmsmq.client.sync import QueueManager
from openmsmq.console.table import WebRequest
from openmsmq.model.errors import MsmqError

#: `{guid}\number` or a GUID alone, braces optional.
_IDENTIFIER: Final = re.compile(r"\{?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\}?(?:\\([0-9]{1,10}))?", re.ASCII)


@dataclass(slots=True)
class MessageSearch:
    """Result of a search. `queue` and `lookup` locate the message and are empty if it was not found; messages in
    outgoing queues have no lookup identifier. `scanned` messages in `searched` queues were read. `left` are rows of
    queues that were not read to the end, `unread` are names of queues that could not be read."""

    identifier: str
    queue: str = ""
    lookup: str = ""
    scanned: int = 0
    searched: int = 0
    left: list[Mapping[str, Any]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def parse_identifier(text: str) -> str | None:
    r"""Return the prefix of the identifiers to search for: `{guid}\number`, or `{guid}\` for a GUID alone, which is
    that of the sending queue manager ([MS-MQMQ] 2.2.8). None for any other text."""
    found = _IDENTIFIER.fullmatch(text.strip().lower())
    return None if found is None else f"{{{found.group(1)}}}\\{int(found.group(2)) if found.group(2) else ''}"


def find_message(
    asked: WebRequest, identifier: str, clock: Callable[[], float] = time.monotonic, most: int = SCANNED
) -> MessageSearch:
    """Read queues until a message is found, `most` messages are read, or about `FOUND_SECONDS` have passed. Shorter
    queues are read first, so that a long queue does not keep the others from being read. Raises MsmqError if the queues
    can't be listed."""
    found, until = MessageSearch(identifier), clock() + FOUND_SECONDS
    rows = [row for row in asked.services.rows.of(asked.caller.ticket) if row["messages"]]
    rows.sort(key=lambda row: int(row["messages"]))

    def is_over() -> bool:
        return found.scanned >= most or clock() >= until

    with asked.queue_manager() as manager:
        for row in rows:
            if is_over():
                found.left.append(row)
                continue
            try:
                is_whole = _read(manager, row, found, is_over)
            except (MsmqError, ActionRefused):
                found.unread.append(row["name"])
                continue
            if found.queue:
                break
            if is_whole:
                found.searched += 1
            else:
                found.left.append(row)
    return found


def _read(
    manager: QueueManager, row: Mapping[str, Any], found: MessageSearch, is_over: Callable[[], bool]
) -> bool:  # fmt: skip
    """Read a queue until the message is found or `is_over`. Return whether the queue was read to the end. Raises
    MsmqError, ActionRefused."""
    wanted = found.identifier
    with closing(messages_behind(manager, row, None)) as messages:
        for message in messages:
            if is_over():
                return False
            found.scanned += 1
            if message.id == wanted or (wanted.endswith("\\") and message.id.startswith(wanted)):
                found.queue = row["id"]
                found.lookup = "" if row["kind"] == "outgoing" else str(message.lookup_identifier)
                return False
    return True
