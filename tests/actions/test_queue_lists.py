"""Lists of very many queues: the number of pages, and queues that are newer than the kept rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from openmsmq.actions import by_http
from openmsmq.actions.queues import ListQuery, QueueList, list_queues

NAMES = [rf"mq1\private$\q{number:05d}" for number in range(25_000)]


def row(name: str) -> dict[str, Any]:
    numbers = dict.fromkeys(
        ("came", "left", "grown", "messages", "bytes", "journal_messages", "journal_bytes", "quota", "handles",
         "readers", "waiting"), 0
    )  # fmt: skip
    flags = dict.fromkeys(("transactional", "journaling", "exclusive"), False)
    return {"id": name, "kind": "queue", "name": name, "open": name, "label": "", "state": "", **numbers, **flags}


class Daemon:
    """Rows of a list, and of a newer one."""

    def __init__(self, kept: list[str], newer: list[str]) -> None:
        self.kept, self.newer, self.asked = kept, newer, 0

    def queues(self, *, newest: bool = False) -> list[dict[str, Any]]:
        self.asked += newest
        return [row(name) for name in (self.newer if newest else self.kept)]

    def seal(self, document: Any) -> Any:
        return document

    def unseal(self, document: Any, what: str) -> Any:
        return document


def listed(daemon: Daemon, query: ListQuery) -> QueueList:
    site: Any = SimpleNamespace(daemon=daemon)
    found: QueueList = list_queues.run(site, query)
    return found


def test_a_queue_that_is_newer_than_the_kept_rows_is_found() -> None:
    daemon = Daemon(NAMES[:2], NAMES[:3])
    assert [queue.name for queue in listed(daemon, ListQuery(filter="q00002")).queues] == [NAMES[2]]
    assert len(listed(daemon, ListQuery(filter="*q0000*")).queues) == 2 and daemon.asked == 1
    assert len(listed(daemon, ListQuery(filter="q0000")).queues) == 3, "the kept ones have it only in longer names"
    assert not listed(Daemon([], []), ListQuery()).queues


def test_a_program_reads_very_many_queues_in_few_pages(monkeypatch: Any) -> None:
    daemon, pages = Daemon(NAMES, []), []

    def ask(http: Any, action: Any, given: ListQuery) -> QueueList:
        pages.append(given)
        return listed(daemon, given)

    monkeypatch.setattr(by_http, "_ask", ask)
    http: Any = None
    found = by_http.perform(http, list_queues, ListQuery(limit=0))
    assert [queue.name for queue in found.queues] == NAMES and len(pages) == 3
