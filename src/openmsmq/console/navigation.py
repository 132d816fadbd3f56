"""The navigation that pages share: links, how much each has, and which is the page that is shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from openmsmq.actions.alarms import list_alarms
from openmsmq.console.callers import WebCaller
from openmsmq.console.derived import handler_of
from openmsmq.console.problems import Problem
from openmsmq.console.services import Services
from openmsmq.console.table import WebRequest
from openmsmq.model.errors import MsmqError


class NavigationEntry(NamedTuple):
    """A page: `counted` is the member of `Counts` shown with it; `bad` if a number there is bad news. `manages` and
    `administers` restrict its users; `group` begins a group."""

    path: str
    text: str
    counted: str = ""
    bad: bool = False
    manages: bool = False
    administers: bool = False
    group: str = ""


_KEPT: Final = 10.0  # seconds
ENTRIES: Final = (
    NavigationEntry("/", "Overview"),
    NavigationEntry("/queues", "Queues", "queues"),
    NavigationEntry("/deadletters", "Dead letters", "dead_letters", bad=True),
    NavigationEntry("/outgoing", "Outgoing", "outgoing"),
    NavigationEntry("/clients", "Clients", manages=True),
    NavigationEntry("/handles", "Open queues", manages=True),
    NavigationEntry("/moves", "Moves", manages=True),
    NavigationEntry("/transactions", "Transactions", manages=True),
    NavigationEntry("/sequences", "Sequences", manages=True),
    NavigationEntry("/alarms", "Alarms", "alarms", bad=True),
    NavigationEntry("/jobs", "Jobs", "jobs"),
    NavigationEntry("/users", "Users and groups", administers=True, group="Administration"),
    NavigationEntry("/tokens", "Tokens"),
    NavigationEntry("/definitions", "Definitions"),
    NavigationEntry("/backups", "Backups", administers=True),
    NavigationEntry("/settings", "Settings", administers=True),
    NavigationEntry("/audit", "Audit log", administers=True),
)


@dataclass(frozen=True, slots=True)
class Counts:
    """Queues of applications, messages in dead-letter queues, outgoing queues, alarms that are on and not silenced, and
    jobs that are under way."""

    queues: int = 0
    dead_letters: int = 0
    outgoing: int = 0
    alarms: int = 0
    jobs: int = 0


class NavigationLink(NamedTuple):
    """A link as a page shows it."""

    path: str
    text: str
    number: int
    bad: bool
    current: bool
    group: str


def counts_of(services: Services, caller: WebCaller) -> Counts:
    """For administrators, who see all queues: what the daemon said last. For others: counts of the queues that they may
    see, kept for `_KEPT` seconds, because the daemon checks the rights of each queue. Zeros for what can't be read: an
    error page still has its navigation."""
    if not caller.administrator:
        return services.recent.of(caller.ticket, lambda: _counts_seen_by(services, caller), _KEPT)
    sums = services.history.sums
    if sums is None:
        return Counts()
    under_way = sum(not view.is_over for view in services.jobs.views())
    dead = sums.messages.get("deadletter", 0)
    queues = sums.queues
    return Counts(queues.get("queue", 0), dead, queues.get("outgoing", 0), _alarms(services, caller), under_way)


def _counts_seen_by(services: Services, caller: WebCaller) -> Counts:
    try:
        rows = services.rows.of(caller.ticket)
    except MsmqError:
        return Counts()
    kinds = Counter(row["kind"] for row in rows)
    dead = sum(row["messages"] for row in rows if row["kind"] == "deadletter")
    under_way = sum(not view.is_over for view in services.jobs.views() if view.sid == caller.sid)
    return Counts(kinds["queue"], dead, kinds["outgoing"], _alarms(services, caller), under_way)


def _alarms(services: Services, caller: WebCaller) -> int:
    try:
        active = handler_of(list_alarms)(WebRequest(services, caller)).active
    except (Problem, MsmqError):
        return 0
    return sum(alarm.silenced is None for alarm in active)


def links(path: str, counts: Counts, caller: WebCaller) -> list[NavigationLink]:
    """Return the entries for a user, on the page of a path."""
    return [
        NavigationLink(
            entry.path, entry.text, getattr(counts, entry.counted) if entry.counted else 0, entry.bad,
            path == entry.path or (entry.path != "/" and path.startswith(f"{entry.path}/")), entry.group,
        )
        for entry in ENTRIES
        if (caller.administrator or not entry.manages) and (caller.administers or not entry.administers)
    ]  # fmt: skip
