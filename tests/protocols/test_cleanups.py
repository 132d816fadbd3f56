"""Cleanups by timer."""

from __future__ import annotations

from typing import Any

import pytest

from openmsmq.protocols.cleanups import Cleanups
from protocols.clients import Server


@pytest.fixture
def server() -> Server:
    return Server()


def cleanups(server: Server, over: list[Any], seconds: float = 10) -> Cleanups[Any]:
    return Cleanups(server.environment, seconds, over.append)


def test_each_cleanup_has_its_own_time_and_all_share_one_timer(server: Server) -> None:
    over: list[str] = []
    some = cleanups(server, over)
    some.add(["a"])
    server.pass_time(4)
    some.add(["b"])
    some.add(["c"])
    assert len(server.timers) == 1
    server.pass_time(5.9)
    assert not over
    server.pass_time(0.1)
    assert over == ["a"] and len(server.timers) == 1
    server.pass_time(4)
    assert over == ["a", "b", "c"] and not server.timers
    some.add(["d"])
    server.pass_time(10)
    assert over[3:] == ["d"]


def test_a_finished_cleanup_is_not_run(server: Server) -> None:
    over: list[str] = []
    some = cleanups(server, over)
    for item in "abc":
        some.add([item])
    some.discard("b")
    some.discard("never there")
    server.pass_time(10)
    assert over == ["a", "c"]


def test_the_timer_runs_once_a_second_at_most(server: Server) -> None:
    over: list[int] = []
    some = cleanups(server, over)
    for number in range(100):
        some.add([number])
        server.seconds += 0.01
    runs = 0
    while server.timers:
        server.pass_time(max(0.0, server.timers[0].due - server.seconds))
        runs += 1
    assert over == list(range(100)) and runs <= 3


def test_a_failing_cleanup_does_not_stop_the_others(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    over: list[str] = []

    def clean_up(item: str) -> None:
        if item == "b":
            raise RuntimeError("a bug")
        over.append(item)
        some.discard("c")  # a cleanup may discard another item

    some: Cleanups[str] = Cleanups(server.environment, 10, clean_up)
    for item in "abcd":
        some.add([item])
    server.pass_time(10)
    assert over == ["a", "c", "d"] and "cannot undo" in caplog.text
