"""Readings of the daemon for alarms, and its actions on alarms."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from openmsmq.admin.alarm_rules import AlarmRulesFile
from openmsmq.admin.alarms import Alarms, parse_thresholds, read_alarms
from openmsmq.model.constants import Access
from openmsmq.model.histogram import Histogram
from openmsmq.model.message import Message
from openmsmq.model.names import FormatName, PublicFormatName, parse_format_name
from openmsmq.oletx.manager import EnlistmentRow, TransactionRow
from openmsmq.oletx.states import EnlistmentState
from openmsmq.oletx.structures import Partner
from openmsmq.queueing.locations import QueueLocation
from openmsmq.queueing.queue import SYSTEM_DEADLETTER
from openmsmq.relaying.records import RelayDefinition, RelayProgress
from openmsmq.relaying.relay import Relay
from openmsmq.server.alarms import PERIOD, WINDOW, AlarmWatch
from openmsmq.server.config import Configuration, ConfigurationError
from queueing.world import World

OFF = {"disk": 0, "quota": 0, "sync": 0, "deadletters": 0, "oldest": 0, "outgoing": 0, "indoubt": 0,
       "relay": 0, "refused": 0, "peer": 0}  # fmt: skip


class Watch:
    """An AlarmWatch on a test queue manager, with a clock."""

    def __init__(self, directory: Path, queue: str = "", **thresholds: int) -> None:
        self.world = World()
        self.now = 1_000_000.0
        self.syncs = Histogram()
        self.directory = directory
        self.queue, self.thresholds = queue, {**OFF, **thresholds}
        self.transactions: list[TransactionRow] = []
        self.relays: list[Relay] = []
        self.by_queue: dict[tuple[str, str], int] = {}
        self.start()

    def start(self) -> None:
        self.watch = AlarmWatch(
            self.world.manager, self.directory, self.thresholds, self.syncs, self.queue, lambda: self.now,
            transactions=lambda: self.transactions, by_queue=self.by_queue,
            relays=lambda: self.relays,
        )  # fmt: skip

    def receive(self, name: str) -> Message:
        return self.world.read(self.world.open(name)).message

    def look(self, seconds: float = PERIOD) -> list[tuple[str, str, str]]:
        self.now += seconds
        events = asyncio.run(self.watch.check())
        return [(event.state, event.alarm.name, event.alarm.queue) for event in events]


def test_a_quota_that_is_nearly_used(tmp_path: Path) -> None:
    watch = Watch(tmp_path, quota=50)
    queue = watch.world.create("small", QUOTA=10)
    assert watch.look() == []
    watch.world.send("small", body=b"x" * 6000)
    name = queue.properties.path_name
    assert watch.look() == [("raised", "quota", name)] and watch.look() == []
    watch.receive("small")
    assert watch.look() == [("cleared", "quota", name)]


def test_rules_stay_in_force_while_their_file_is_damaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch(tmp_path)
    AlarmRulesFile(tmp_path).set_threshold("disk", "", 1 << 40, "alice", lambda before: None)
    assert watch.look() == [("raised", "disk", "")]
    rules = (tmp_path / "alarm-rules.json").read_bytes()
    (tmp_path / "alarm-rules.json").write_bytes(b"?")
    assert watch.look() == [] and caplog.text.count("alarm-rules.json is not a valid file of rules of alarms") == 1
    (tmp_path / "alarm-rules.json").write_bytes(rules)
    AlarmRulesFile(tmp_path).reset_threshold("disk", "", lambda before: None)
    assert watch.look() == [("cleared", "disk", "")]


def test_a_disk_that_is_slow_or_nearly_full(tmp_path: Path) -> None:
    watch = Watch(tmp_path, sync=1000, disk=1 << 40)
    assert watch.look() == [("raised", "disk", "")]
    watch.syncs.observe(0.01)
    watch.syncs.observe(2.0)
    assert watch.look() == [("raised", "sync", "")]
    assert watch.look() == [], "no sync says nothing"
    watch.syncs.observe(0.01)
    assert watch.look() == [("cleared", "sync", "")]


def test_dead_letters_that_grow(tmp_path: Path) -> None:
    watch = Watch(tmp_path, deadletters=10)
    dead = watch.world.manager.registry.queues[SYSTEM_DEADLETTER]
    assert watch.look() == []
    dead.came += 9
    assert watch.look() == []
    dead.came += 1
    assert watch.look() == [("raised", "deadletters", "deadletter")]
    assert watch.look(WINDOW / 2) == []
    watch.start()  # counts from zero again; the state is not known yet
    assert watch.look() == [] and watch.look(WINDOW / 2) == []
    assert watch.look(WINDOW) == [("cleared", "deadletters", "deadletter")]


def test_the_first_message_is_old(tmp_path: Path) -> None:
    watch = Watch(tmp_path, oldest=3600)
    queue = watch.world.create("q")
    watch.world.send("q")
    watch.now = watch.world.now / 1000
    assert watch.look(3599) == []
    assert watch.look(2) == [("raised", "oldest", queue.properties.path_name)]
    watch.start()
    assert watch.look() == []
    watch.receive("q")
    assert watch.look() == [("cleared", "oldest", queue.properties.path_name)]


def test_an_outgoing_queue_that_is_stuck(tmp_path: Path) -> None:
    watch = Watch(tmp_path, outgoing=900)
    name = "DIRECT=OS:elsewhere\\private$\\q"
    watch.look(1000)
    watch.world.send(name)
    assert watch.look() == [] and watch.look(890) == []
    assert watch.look(20) == [("raised", "outgoing", name)]
    watch.start()
    assert watch.look() == [], "a restart knows neither that it is stuck nor that it is not"
    queue = watch.world.registry.outgoing_queue(parse_format_name(name))
    assert queue is not None
    queue.left += 1
    assert watch.look(900) == [("cleared", "outgoing", name)]


def test_after_the_clock_was_set_back_durations_begin_again(tmp_path: Path) -> None:
    watch = Watch(tmp_path, outgoing=900, deadletters=10)
    name = "DIRECT=OS:elsewhere\\private$\\q"
    dead = watch.world.manager.registry.queues[SYSTEM_DEADLETTER]
    watch.look(1000)
    watch.world.send(name)
    dead.came += 9
    assert watch.look() == []
    watch.now -= 86400
    assert watch.look() == [] and watch.look(880) == []
    dead.came += 9
    assert watch.look(30) == [("raised", "outgoing", name)], "not a day later"
    dead.came += 1
    assert watch.look() == [("raised", "deadletters", "deadletter")], "those before the step do not count"


def branch(uow: bytes, state: EnlistmentState) -> TransactionRow:
    enlistment = EnlistmentRow("superior", Partner(UUID(int=1), "FAR"), state, "", "", False)
    return TransactionRow(uow, "undecided", 1.0, (enlistment,))


def decision(uow: bytes) -> TransactionRow:
    enlistment = EnlistmentRow("subordinate", Partner(UUID(int=1), "FAR"), EnlistmentState.COMMITTING, "", "", False)
    return TransactionRow(uow, "committed", 1.0, (enlistment,))


def test_a_transaction_that_is_in_doubt_or_whose_commit_is_not_confirmed(tmp_path: Path) -> None:
    watch = Watch(tmp_path, indoubt=300)
    watch.look(1000)
    one, two, three = (bytes([number]) * 16 for number in (1, 2, 3))
    watch.transactions = [branch(one, EnlistmentState.IN_DOUBT), decision(two), branch(three, EnlistmentState.PREPARED)]
    assert watch.look() == [] and watch.look(290) == []
    names = [f"Transaction {uow.hex()}" for uow in (one, two)]
    assert watch.look() == [("raised", "indoubt", name) for name in names]
    watch.transactions = [decision(two), branch(three, EnlistmentState.PREPARED)]
    assert watch.look(400) == [("cleared", "indoubt", names[0])], "three has a superior that is connected"
    watch.start()
    assert watch.look() == [], "a restart does not clear what still waits"
    watch.transactions = []
    assert watch.look() == [("cleared", "indoubt", names[1])]


def test_a_transaction_that_a_restart_has_found_is_counted_from_there(tmp_path: Path) -> None:
    watch = Watch(tmp_path, indoubt=300)
    watch.transactions = [branch(bytes(16), EnlistmentState.IN_DOUBT)]
    assert watch.look() == [] and watch.look(250) == []
    assert watch.look(60) == [("raised", "indoubt", f"Transaction {bytes(16).hex()}")]


def relay(name: str, host: str = "old") -> Relay:
    definition = RelayDefinition(f".\\private$\\{name}", host, f"private$\\{name}", "shadow", 5, 5)
    return Relay(definition, RelayProgress())


def test_a_relay_that_stops_with_messages_left_raises_an_alarm(tmp_path: Path) -> None:
    watch = Watch(tmp_path, relay=900)
    watch.look(1000)
    moves, done = relay("orders"), relay("done")
    done.waiting, done.empty_since = 0, 7
    watch.relays = [moves, done]
    moves.waiting = 3
    assert watch.look() == [] and watch.look(890) == []
    assert watch.look(20) == [("raised", "relay", moves.definition.queue)]
    moves.progress = moves.progress._replace(moved=1)
    assert watch.look() == [("cleared", "relay", moves.definition.queue)]
    assert watch.look(890) == [] and watch.look(20) == [("raised", "relay", moves.definition.queue)]
    moves.waiting = 0
    assert watch.look() == [("cleared", "relay", moves.definition.queue)]


def test_refused_messages_do_not_count_as_a_stopped_relay(tmp_path: Path) -> None:
    watch = Watch(tmp_path, relay=900, refused=1)
    watch.look(1000)
    moves = relay("orders")
    watch.relays = [moves]
    assert watch.look() == []
    moves.refuse(Message(b"x", identifier=bytes(20)), "no room", 5)
    moves.waiting = 1
    assert watch.look() == [("raised", "refused", moves.definition.queue)]
    [alarm] = watch.watch.alarms.active.values()
    assert "1 message of the relay of .\\private$\\orders are refused" in alarm.sentence
    assert alarm.steps[0].command == "openmsmq adopt status orders"
    assert watch.look(2000) == []
    moves.found_nothing(9)
    assert watch.look() == [("cleared", "refused", moves.definition.queue)]


def test_an_unreachable_machine_has_one_alarm_for_all_its_queues(tmp_path: Path) -> None:
    watch = Watch(tmp_path, peer=300)
    watch.look(1000)
    watch.relays = [relay("orders"), relay("bills"), relay("news", "other")]
    for each in watch.relays[:2]:
        each.fails("no route", int(watch.now), is_away=True)
    watch.relays[2].fails("access denied", int(watch.now))
    assert watch.look(290) == [] and watch.look(20) == [("raised", "peer", "old")]
    watch.relays[0].works()
    assert watch.look() == [], "the other queue has not been reached yet"
    watch.relays[1].works()
    assert watch.look() == [("cleared", "peer", "old")]


def test_an_unreachable_machine_raises_an_alarm_after_the_clock_was_set_back(tmp_path: Path) -> None:
    watch = Watch(tmp_path, peer=300)
    watch.relays = [relay("orders")]
    watch.look(1000)
    watch.relays[0].fails("no route", int(watch.now), is_away=True)
    assert watch.look(100) == []
    watch.now -= 86400
    assert watch.look() == [] and watch.look(290) == []
    assert watch.look(20) == [("raised", "peer", "old")], "not a day later"


def test_readings_without_effect_are_left_out_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All readings of 99,000 queues together held the event loop for 0.2 s. They are examined in slices."""
    watch = Watch(tmp_path, oldest=100, quota=50)
    given: list[set[tuple[str, str]]] = []
    update = Alarms.update

    def recording(alarms: Alarms, readings: Any, *others: Any) -> Any:
        given.append(set(readings))
        return update(alarms, readings, *others)

    monkeypatch.setattr(Alarms, "update", recording)
    for number in range(3):
        watch.world.create(f"q{number}", QUOTA=10)
    watch.world.send("q1")
    watch.now = watch.world.now / 1000
    name = watch.world.queue("q1").properties.path_name
    assert watch.look() == [] and watch.look(100) == [("raised", "oldest", name)]
    watch.receive("q1")
    assert watch.look() == [("cleared", "oldest", name)]
    assert given == [set(), {("oldest", name)}, set()]


def test_events_are_stored_and_sent(tmp_path: Path) -> None:
    watch = Watch(tmp_path, queue="DIRECT=OS:.\\private$\\alarms", disk=1 << 40)
    watch.world.create("alarms")
    watch.look()
    assert [event.state for event in read_alarms(tmp_path).events] == ["raised"]
    message = watch.receive("alarms")
    body: dict[str, Any] = json.loads(str(message.decode()))
    assert message.label == "alarm disk raised" and body["alarm"] == "disk" and message.recoverable


def test_queues_above_the_alarm_limit_of_a_condition_are_counted_in_the_log_and_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openmsmq.admin.alarms.MOST_OF_CONDITION", 2)
    monkeypatch.setattr("openmsmq.server.alarms.MOST_OF_CONDITION", 2)
    watch = Watch(tmp_path, quota=50)
    for number in range(5):
        watch.world.create(f"q{number}", QUOTA=10)
        watch.world.send(f"q{number}", body=bytes(6000))
    watch.look()
    watch.look()
    assert [record.message for record in caplog.records if "3 more objects" in record.message] == [
        "alarm quota: 3 more objects exceed the threshold; at most 2 alarms per condition are active at once"
    ]
    assert read_alarms(tmp_path).beyond == {"quota": 3}


def test_a_daemon_that_has_lost_its_store_writes_and_sends_nothing(tmp_path: Path) -> None:
    watch = Watch(tmp_path, queue="DIRECT=OS:.\\private$\\alarms", disk=1 << 40)
    queue = watch.world.create("alarms")
    watch.watch = AlarmWatch(
        watch.world.manager, tmp_path, watch.thresholds, watch.syncs, watch.queue, lambda: watch.now, lambda: False
    )  # fmt: skip
    watch.look()
    assert not list(tmp_path.iterdir()) and not queue.entries


def test_a_full_event_queue_does_not_stop_alarms(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch(tmp_path, queue="DIRECT=OS:.\\private$\\none", disk=1 << 40)
    assert watch.look() == [("raised", "disk", "")]
    assert "alarm_queue" in caplog.text


def test_events_go_to_a_public_queue_of_another_machine(tmp_path: Path) -> None:
    public = PublicFormatName(UUID(int=7))
    watch = Watch(tmp_path, queue=str(public), disk=1 << 40)

    async def resolve(name: FormatName, access: Access) -> FormatName:
        watch.world.registry.remember_place(public.guid, QueueLocation("OTHER\\alarms"))
        return name

    watch.watch = AlarmWatch(
        watch.world.manager, tmp_path, watch.thresholds, watch.syncs, watch.queue, lambda: watch.now, resolve=resolve
    )
    watch.look()
    assert watch.world.labels(watch.world.registry.outgoing[str(public).lower()]) == ["alarm disk raised"]


def test_an_unwritable_directory_does_not_stop_alarms_which_are_saved_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch(tmp_path, disk=1 << 40)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    (tmp_path / "alarms.json").mkdir()
    assert watch.look() == [("raised", "disk", "")] and watch.look() == []
    assert caplog.text.count("may raise them again") == 1
    (tmp_path / "alarms.json").rmdir()
    assert watch.look() == [] and [event.state for event in read_alarms(tmp_path).events] == ["raised"]


def test_a_failed_check_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch(tmp_path, disk=1 << 40)
    monkeypatch.setattr("openmsmq.server.alarms.PERIOD", 0.01)
    usage, failures = shutil.disk_usage, iter([OSError("the disk is gone")])

    def failing(path: Path) -> Any:
        for error in failures:
            raise error
        return usage(path)

    monkeypatch.setattr("openmsmq.server.alarms.shutil.disk_usage", failing)

    async def run() -> None:
        running = asyncio.create_task(watch.watch.run())
        while not watch.watch.alarms.active:
            await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert "the disk is gone" in caplog.text


def test_a_queue_that_gets_stuck_is_reported_as_fine_before_the_threshold(tmp_path: Path) -> None:
    watch = Watch(tmp_path, outgoing=900)
    name = "DIRECT=OS:elsewhere\\private$\\q"
    watch.look(1000)
    watch.world.send(name)
    watch.look()
    assert watch.look(901) == [("raised", "outgoing", name)]
    watch.start()
    queue = watch.world.registry.outgoing_queue(parse_format_name(name))
    assert queue is not None
    assert watch.look() == []
    queue.left += 1
    assert watch.look(2 * PERIOD) == [("cleared", "outgoing", name)], "it began to wait after the start"


def test_a_queue_may_have_a_threshold_of_its_own(tmp_path: Path) -> None:
    watch = Watch(tmp_path, quota=50)
    watch.by_queue = parse_thresholds(r".\private$\Strict:quota=10, lax:quota=0")
    watch.start()
    for name in ("strict", "lax", "usual"):
        watch.world.create(name, QUOTA=10)
        watch.world.send(name, body=b"x" * 2000)
    assert [place.rpartition("\\")[2] for _, _, place in watch.look()] == ["strict"]
    for name in ("lax", "usual"):
        watch.world.send(name, body=b"x" * 6000)
    assert [place.rpartition("\\")[2] for _, _, place in watch.look()] == ["usual"]


def test_a_queue_has_an_alarm_that_others_do_not_have(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    watch.by_queue = parse_thresholds("orders:oldest=60")
    watch.start()
    for name in ("orders", "others"):
        watch.world.create(name)
        watch.world.send(name, body=b"x")
    assert watch.look() == []
    watch.now = watch.world.now / 1000 + 100
    assert [(name, place.rpartition("\\")[2]) for _, name, place in watch.look()] == [("oldest", "orders")]


@pytest.mark.parametrize("text", ["q", "q:oldest", "oldest=5", "q:disk=5", "q:quota=-1", "q:oldest=x"])
def test_thresholds_of_invalid_queue_names_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="QUEUE:ALARM=VALUE"):
        Configuration(data_dir=tmp_path, alarm_by_queue=text)
    there = r"DIRECT=OS:there\private$\x"
    assert parse_thresholds(f"{there}:outgoing=5,") == {("outgoing", there.lower()): 5}
