"""One queue, handle or figure whose data can't be had spoils no list: it is named, counted and left out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from openmsmq.model.constants import Access
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.histogram import Histogram
from openmsmq.model.left_out import LEFT_OUT, PERIOD, LeftOut
from openmsmq.operating.alarms import BY_NAME
from openmsmq.queueing.auditing import NoAudit
from openmsmq.queueing.changes import UNUSED_PERIOD
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.server.alarms import AlarmWatch
from openmsmq.web import figures, health, rows
from openmsmq.web.growth import Growth
from openmsmq.web.history import History
from openmsmq.web.openings import Openings
from queueing.world import ALICE, World

THERE = "DIRECT=OS:there\\private$\\q"


class Poison:
    """Whatever is asked of it fails."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"poison: {name}")

    def __len__(self) -> int:
        raise RuntimeError("poison: len")

    def __bool__(self) -> bool:
        raise RuntimeError("poison: bool")


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    for name in ("a", "bad", "z"):
        world.create(name)
        world.send(name, "m")
    LEFT_OUT.counts.clear()
    yield world
    LEFT_OUT.counts.clear()


def poisoned(world: World) -> Queue:
    queue = world.queue("bad")
    queue.entries = Poison()  # type: ignore[assignment]
    return queue


def of_queues(world: World) -> dict[str, Any]:
    found = [part for part in figures.of_queues(world.manager) if part is not None]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("kind", QueueKind)
def test_figures_go_on_after_a_queue_of_any_kind_has_gone(world: World, kind: QueueKind) -> None:
    world.registry.gone[kind] = (5, 3)
    assert of_queues(world)["messages"]["queue"] == 3


def test_figures_go_on_after_an_outgoing_queue_was_unused_for_ten_minutes(world: World) -> None:
    world.manager.handles.close_queue(world.open(THERE, Access.SEND))
    for _ in range(3):
        world.advance(UNUSED_PERIOD)
    assert not world.registry.outgoing and of_queues(world)["queues"]["outgoing"] == 0


def test_a_queue_whose_figures_fail_is_named_counted_and_left_out(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    poisoned(world)
    for _ in range(3):
        found = of_queues(world)
        assert found["messages"]["queue"] == 2 and found["queues"]["deadletter"] == 2
    assert LEFT_OUT.counts["figures of queues"] == 3
    assert "private$\\bad" in caplog.text


def test_lists_of_queues_and_handles_go_on(world: World) -> None:
    opened = [world.open(name) for name in ("a", "bad", "z")]
    openings = Openings(world.manager, NoAudit())
    assert len(list(openings.rows())) == 3
    opened[1].access = Poison()  # type: ignore[assignment]
    assert [row["name"].rpartition("\\")[2] for row in openings.rows()] == ["a", "z"]
    poisoned(world)
    growth = Growth(lambda: world.registry.queues)
    names = [row["name"] for row in rows.visible(world.manager, growth, ALICE) if row is not None]
    assert {name.rpartition("\\")[2] for name in names} >= {"a", "z"} and not any("bad" in name for name in names)


def test_alarms_look_at_all_other_queues(world: World, tmp_path: Any) -> None:
    thresholds = dict.fromkeys(BY_NAME, 0) | {"oldest": 10}
    poisoned(world)
    watch = AlarmWatch(world.manager, tmp_path, thresholds, Histogram(), "", clock=lambda: world.now / 1000)
    world.advance(60_000)
    events = asyncio.run(watch.look())
    assert {event.alarm.queue.rpartition("\\")[2] for event in events if event.alarm.name == "oldest"} == {"a", "z"}
    assert LEFT_OUT.counts["alarm readings"]


def test_a_figure_that_can_not_be_had_does_not_take_the_metrics_with_it(tmp_path: Any) -> None:
    services = SimpleNamespace(
        link=SimpleNamespace(call=lambda name: {"throttled": 1, "logins_total": "nonsense", "handles": 7}),
        settings=SimpleNamespace(directory=str(tmp_path), store=str(tmp_path / "absent")),
    )
    text = health.aggregated(services)  # type: ignore[arg-type]
    assert "openmsmq_handles 7" in text and "openmsmq_disk_free_bytes" in text
    assert "openmsmq_logins_total" not in text and "store_size" not in text


def test_readiness_names_the_part_that_is_ill() -> None:
    def ask(name: str) -> Any:
        assert name == "health", "readiness needs no figures"
        return SimpleNamespace(result=lambda patience: ({"disk": "ok", "store": "failed"}, b""))

    services: Any = SimpleNamespace(link=SimpleNamespace(ask=ask), history=History())
    assert health.check(services) == {"daemon": "ok", "disk": "ok", "store": "failed"}

    def fails(name: str) -> Any:
        raise MsmqError(HResult.MQ_ERROR, "a defect")

    services.link.ask = fails
    assert "a defect" in health.check(services)["daemon"]


def test_the_log_says_once_a_minute_what_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    left_out = LeftOut(lambda: now)

    def fails(item: int) -> int:
        if item % 2:
            raise ValueError(f"{item} is odd")
        return item

    for _ in range(10):
        assert list(left_out.each("numbers", range(6), fails)) == [0, 2, 4]
    assert left_out.counts["numbers"] == 30 and len(caplog.records) == 1
    assert caplog.records[0].exc_info and "numbers: 1 is left out" in caplog.text
    now = PERIOD
    list(left_out.each("numbers", range(6), fails))
    assert len(caplog.records) == 2 and not caplog.records[1].exc_info
