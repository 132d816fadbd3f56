"""An unreadable queue, handle or metric does not fail a list: it is named, counted and omitted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openmsmq.actions import dead_letters, outgoing
from openmsmq.actions.alarms import list_alarms
from openmsmq.actions.audit import AuditQuery, list_records
from openmsmq.actions.site import OPERATOR_OF_FILES, ActionSite
from openmsmq.actions.table import Empty
from openmsmq.admin import definitions
from openmsmq.admin.alarms import BY_NAME, Alarms, document_of, write_alarms
from openmsmq.admin.audit import AuditEntry, AuditLog
from openmsmq.console import health
from openmsmq.console.history import FigureHistory
from openmsmq.gateways import figures, rows
from openmsmq.gateways.growth import DepthTrend
from openmsmq.gateways.openings import Openings
from openmsmq.model.constants import Access
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.histogram import Histogram
from openmsmq.model.left_out import LEFT_OUT, LeftOut
from openmsmq.model.once_a_minute import PERIOD
from openmsmq.model.security import SecurityDescriptor
from openmsmq.queueing.auditing import NoAudit
from openmsmq.queueing.changes import UNUSED_PERIOD
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.server.alarms import AlarmWatch
from queueing.world import ALICE, World

THERE = "DIRECT=OS:there\\private$\\q"


class Poison:
    """An object on which every attribute access fails."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"poison: {name}")

    def __len__(self) -> int:
        raise RuntimeError("poison: len")

    def __bool__(self) -> bool:
        raise RuntimeError("poison: bool")


@pytest.fixture(autouse=True)
def forget() -> None:
    """Reset the counts and the rate limit of omitted items."""
    LEFT_OUT.counts.clear()
    LEFT_OUT._logged._next.clear()


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
def test_figures_continue_after_a_queue_of_any_kind_has_gone(world: World, kind: QueueKind) -> None:
    world.registry.gone[kind] = (5, 3)
    assert of_queues(world)["messages"]["queue"] == 3


def test_figures_continue_after_an_outgoing_queue_was_unused_for_ten_minutes(world: World) -> None:
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


def test_lists_of_queues_and_handles_continue(world: World) -> None:
    opened = [world.open(name) for name in ("a", "bad", "z")]
    openings = Openings(world.manager, NoAudit())
    assert len(list(openings.rows())) == 3
    opened[1].access = Poison()  # type: ignore[assignment]
    assert [row["name"].rpartition("\\")[2] for row in openings.rows()] == ["a", "z"]
    poisoned(world)
    growth = DepthTrend(lambda: world.registry.queues)
    names = [row["name"] for row in rows.visible(world.manager, growth, ALICE) if row is not None]
    assert {name.rpartition("\\")[2] for name in names} >= {"a", "z"} and not any("bad" in name for name in names)


def test_alarms_look_at_all_other_queues(world: World, tmp_path: Any) -> None:
    thresholds = dict.fromkeys(BY_NAME, 0) | {"oldest": 10}
    poisoned(world)
    watch = AlarmWatch(world.manager, tmp_path, thresholds, Histogram(), "", clock=lambda: world.now / 1000)
    world.advance(60_000)
    events = asyncio.run(watch.check())
    assert {event.alarm.queue.rpartition("\\")[2] for event in events if event.alarm.name == "oldest"} == {"a", "z"}
    assert LEFT_OUT.counts["alarm readings"]


def test_a_failing_metric_does_not_remove_the_others(tmp_path: Any) -> None:
    def call(name: str, **given: str) -> Any:
        if name == "deepest":
            raise MsmqError(HResult.MQ_ERROR, "a defect")
        return {"throttled": 1, "logins_total": "nonsense", "handles": 7}

    services = SimpleNamespace(
        link=SimpleNamespace(call=call),
        settings=SimpleNamespace(directory=str(tmp_path), store=str(tmp_path / "absent"), metrics_queues=5),
    )
    text = health.aggregated(services)  # type: ignore[arg-type]
    assert "openmsmq_handles 7" in text and "openmsmq_disk_free_bytes" in text
    assert "openmsmq_logins_total" not in text and "store_size" not in text and "queue_messages" not in text


def test_readiness_names_the_failing_part() -> None:
    def ask(name: str) -> Any:
        assert name == "health", "readiness needs no figures"
        return SimpleNamespace(result=lambda patience: ({"disk": "ok", "store": "failed"}, b""))

    services: Any = SimpleNamespace(link=SimpleNamespace(ask=ask), history=FigureHistory())
    assert health.check(services) == {"daemon": "ok", "disk": "ok", "store": "failed"}

    def fails(name: str) -> Any:
        raise MsmqError(HResult.MQ_ERROR, "a defect")

    services.link.ask = fails
    assert "a defect" in health.check(services)["daemon"]


def site_of(directory: Path) -> ActionSite:
    """Return the site of a data directory in which a daemon has started, for an operator of its files."""
    (directory / "settings.json").write_text("{}")
    return ActionSite(directory, directory / "users.json", OPERATOR_OF_FILES, record=lambda *_, **__: None)


def test_a_damaged_record_does_not_fail_the_audit_page_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(tmp_path)
    for name in ("a", "b"):
        log.append(AuditEntry("queue.create", "queue", name, "alice"))
    (path,) = tmp_path.glob("audit*.jsonl")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\n{ poison\n", 1))
    found = list_records.perform(site_of(tmp_path), AuditQuery())
    assert [record.object for record in found.records] == ["b", "a"]
    assert LEFT_OUT.counts["audit records"] == 1 and "line 2 from the end of" in caplog.text


def test_a_damaged_alarm_does_not_fail_a_list_and_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    known = Alarms()
    known.update({("oldest", queue): 100 for queue in ("a", "bad", "z")}, {"oldest": 10}, 5.0)
    document = document_of(known)
    document["active"][1]["value"] = document["events"][1]["alarm"]["since"] = "poison"
    write_alarms(tmp_path, document)
    found = list_alarms.perform(site_of(tmp_path), Empty())
    assert [alarm.queue for alarm in found.active] == ["a", "z"]
    assert [event.alarm.queue for event in found.events] == ["z", "a"]
    assert LEFT_OUT.counts["alarms"] == LEFT_OUT.counts["alarm events"] == 1 and "poison" in caplog.text


class Manager:
    """A queue manager stub without outgoing queues."""

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def outgoing(self) -> list[dict[str, Any]]:
        return []

    def management(self, *_: Any) -> dict[str, Any]:
        return {"connected": 1}


def test_dead_letters_of_one_queue_are_shown_though_those_of_another_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = set(dead_letters.DEAD_LETTER_QUEUES[:1])

    def select(manager: Any, paths: list[str], *_: Any, **__: Any) -> Any:
        if paths[0] in {dead_letters.path_of(name) for name in failing}:
            raise MsmqError(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED, "poison")
        chosen = [SimpleNamespace(message_class=0x8002, destination="q", size=1, sent=1)]
        return SimpleNamespace(chosen=chosen, scanned=1, complete=True)

    monkeypatch.setattr(dead_letters, "select", select)
    site: Any = SimpleNamespace(manager=Manager())
    found = dead_letters.list_groups.run(site, dead_letters.GroupsQuery())
    assert [group.queue for group in found.groups] == list(dead_letters.DEAD_LETTER_QUEUES[1:]) and not found.complete
    assert LEFT_OUT.counts["lists of dead letters"] == 1 and "poison" in caplog.text
    failing.update(dead_letters.DEAD_LETTER_QUEUES)
    with pytest.raises(MsmqError, match="poison"):
        dead_letters.list_groups.run(site, dead_letters.GroupsQuery())


def test_an_unexplainable_outgoing_queue_does_not_fail_a_list(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        {"kind": "outgoing", "id": name, "name": name, "state": "waiting", "messages": 1, "bytes": 1}
        for name in ("a", "bad", "z")
    ]

    def explanation(queue: dict[str, Any], connected: Any) -> str:
        if queue["format_name"] == "bad":
            raise RuntimeError("poison")
        return "it waits"

    monkeypatch.setattr(outgoing, "explanation", explanation)
    site: Any = SimpleNamespace(manager=Manager(), daemon=SimpleNamespace(queues=lambda: rows))
    found = outgoing.list_outgoing.run(site, Empty())
    assert [queue.name for queue in found.queues] == ["a", "z"] and found.all == 3
    assert LEFT_OUT.counts["lists of outgoing queues"] == 1 and "bad" in caplog.text


@pytest.mark.parametrize("part", ["properties", "rights"])
def test_an_unreadable_queue_does_not_fail_an_export_and_is_named(
    monkeypatch: pytest.MonkeyPatch, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Queues:
        def queues(self) -> list[str]:
            return [f"H\\private$\\{name}" for name in ("a", "bad", "z")]

        def properties_of_each(self, paths: list[str], *names: str) -> list[dict[str, Any] | Exception]:
            fails = part == "properties"
            return [RuntimeError("poison") if fails and "bad" in path else {"label": path} for path in paths]

        def security_of_each(self, paths: list[str]) -> list[bytes | Exception]:
            good = SecurityDescriptor(owner="S-1-5-18", dacl=()).pack()
            fails = part == "rights"
            return [RuntimeError("poison") if fails and "bad" in path else good for path in paths]

    document = definitions.export(Queues(), {})  # type: ignore[arg-type]
    assert [queue["name"] for queue in document["queues"]] == ["a", "bad", "z"]
    assert definitions.unreadable(document) == ["bad"] and "poison" in caplog.text


def test_a_step_of_an_import_that_fails_is_said_and_the_others_continue(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    def fail() -> None:
        raise RuntimeError("poison")

    steps = [
        definitions.DefinitionChange(f"step {n}", fail if n == 1 else lambda n=n: done.append(n)) for n in range(3)
    ]  # type: ignore[misc]
    said = [definitions.apply(step) for step in steps]
    assert said[0] == said[2] == definitions.DONE and "poison" in said[1] and done == [0, 2]
    assert "step 1" in caplog.text


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
