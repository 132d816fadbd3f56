"""The navigation shared by all pages: links with counts, and the current page."""

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
    """A page: `counted` is the member of `Counts` shown with it; `bad` if a count above 0 is a problem. `manages` and
    `administers` restrict its users; `group` starts a group."""

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
    """Numbers of application queues, messages in dead-letter queues, outgoing queues, active alarms that are not
    silenced, and running jobs."""

    queues: int = 0
    dead_letters: int = 0
    outgoing: int = 0
    alarms: int = 0
    jobs: int = 0


class NavigationLink(NamedTuple):
    """A navigation link for a template."""

    path: str
    text: str
    number: int
    bad: bool
    current: bool
    group: str


def counts_of(services: Services, caller: WebCaller) -> Counts:
    """Return the counts for a caller. Administrators see all queues, so they get the latest figures of the daemon.
    Others get counts of the queues that they may see, cached for `_KEPT` seconds, because the daemon checks the rights
    of each queue. Counts that cannot be read are 0, so that error pages still have the navigation."""
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
    """Return the links that a user may see, with the page at `path` as the current one."""
    return [
        NavigationLink(
            entry.path, entry.text, getattr(counts, entry.counted) if entry.counted else 0, entry.bad,
            path == entry.path or (entry.path != "/" and path.startswith(f"{entry.path}/")), entry.group,
        )
        for entry in ENTRIES
        if (caller.administrator or not entry.manages) and (caller.administers or not entry.administers)
    ]  # fmt: skip
