"""Queue rows shared by concurrent requests, and sealed tokens."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from openmsmq.console.problems import Problem
from openmsmq.console.services import QueueRows, Seals
from openmsmq.model.errors import AccessDenied


class SlowLink:
    """A link to a daemon that answers after `go` is set."""

    def __init__(self, answer: bytes | Exception = b'{"id":"p16"}') -> None:
        self.asked: list[str] = []
        self.go = threading.Event()
        self._answer = answer

    def ask(self, operation: str, **values: Any) -> Future[Any]:
        self.asked.append(values["ticket"])
        self.go.wait(10)
        future: Future[Any] = Future()
        if isinstance(self._answer, Exception):
            future.set_exception(self._answer)
        else:
            future.set_result((1, memoryview(self._answer)))
        return future


def rows_of(link: SlowLink, now: list[float]) -> QueueRows:
    return QueueRows(link, lambda: now[0])  # type: ignore[arg-type]


def test_concurrent_requests_share_one_query() -> None:
    link, now = SlowLink(), [0.0]
    rows = rows_of(link, now)
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(rows.of, ticket) for ticket in "aaaabbbb"]
        while set(link.asked) != {"a", "b"}:
            pass
        link.go.set()
        assert [future.result(10) for future in found] == [[{"id": "p16"}]] * 8
    assert sorted(link.asked) == ["a", "b"], "of each user one, and of no other user"


def test_rows_are_kept_for_a_second_or_until_the_user_changes_something() -> None:
    link, now = SlowLink(), [0.0]
    link.go.set()
    rows = rows_of(link, now)
    for at, forget, asked in ((0.0, False, 1), (0.9, False, 1), (1.1, False, 2), (1.2, True, 3)):
        now[0] = at
        if forget:
            rows.forget("a")
        rows.of("a")
        assert len(link.asked) == asked


def test_a_failure_is_not_kept() -> None:
    link, now = SlowLink(AccessDenied()), [0.0]
    link.go.set()
    rows = rows_of(link, now)
    for _ in range(2):
        with pytest.raises(AccessDenied):
            rows.of("a")
    assert len(link.asked) == 2


def test_only_tokens_sealed_here_are_opened() -> None:
    seals = Seals()
    text = seals.seal({"a": 1})
    assert seals.open(text, "cursor") == {"a": 1}
    for wrong in ("", "x", "é", text[:-1], text + "A", Seals().seal({"a": 1}), text.swapcase()):
        with pytest.raises(Problem):
            seals.open(wrong, "cursor")


def test_rows_that_took_long_are_kept_for_longer() -> None:
    link, now = SlowLink(), [0.0]
    link.go.set()
    rows, ask = rows_of(link, now), link.ask

    def slow(operation: str, **values: Any) -> Future[Any]:
        now[0] += 2.0  # seconds that the daemon needs
        return ask(operation, **values)

    link.ask = slow  # type: ignore[method-assign]
    rows.of("a")
    for at, newest, asked in ((2.5, False, 1), (11.5, False, 1), (11.6, True, 2), (13.7, True, 3), (26.0, False, 4)):
        now[0] = at
        rows.of("a", newest=newest)
        assert len(link.asked) == asked, at
