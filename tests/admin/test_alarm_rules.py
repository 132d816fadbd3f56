"""Silences and thresholds set by operators: their file, and their effect on events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from openmsmq.admin.alarm_rules import (
    ALARM_RULES_FILE,
    MOST_SILENCES,
    MOST_THRESHOLDS,
    AlarmRuleError,
    AlarmRules,
    AlarmRulesFile,
    Silence,
    ThresholdRule,
)
from openmsmq.admin.alarms import Alarms, document_of, parse_thresholds, read_alarms, write_alarms
from openmsmq.files.private import write_private

THRESHOLDS = {"disk": 0, "quota": 90, "sync": 0, "deadletters": 0, "oldest": 60, "outgoing": 0, "indoubt": 0}


def nothing(*_: object) -> None:
    return None


def covering(*places: tuple[str, str]) -> Callable[[str, str], bool]:
    return lambda name, queue: (name, queue) in places


def told(alarms: Alarms, value: float, silenced: bool) -> list[str]:
    """Update the alarms and return the states reported to receivers."""
    is_silenced = covering(("oldest", "a")) if silenced else covering()
    events = alarms.update({("oldest", "a"): value}, THRESHOLDS, 1000, is_silenced=is_silenced)
    return [event.state for event in events if not event.silenced]


def test_an_alarm_raised_while_silenced_is_reported_when_the_silence_ends() -> None:
    alarms = Alarms()
    assert told(alarms, 100, True) == [] and len(alarms.active) == 1
    assert [(event.state, event.silenced) for event in alarms.events] == [("raised", True)]
    assert told(alarms, 100, True) == [] and told(alarms, 100, False) == ["raised"] and told(alarms, 100, False) == []
    assert told(alarms, 0, False) == ["cleared"]


def test_an_alarm_raised_and_cleared_while_silenced_is_never_reported() -> None:
    alarms = Alarms()
    assert [told(alarms, value, True) for value in (100, 0, 100, 0)] == [[]] * 4 and len(alarms.events) == 4
    assert told(alarms, 0, False) == []


def test_a_reported_alarm_cleared_while_silenced_is_reported_as_cleared_when_the_silence_ends() -> None:
    alarms = Alarms()
    assert told(alarms, 100, False) == ["raised"] and told(alarms, 0, True) == []
    assert told(alarms, 100, True) == [], "raised again: nothing has changed for receivers"
    assert told(alarms, 0, True) == [] and told(alarms, 0, False) == ["cleared"] and alarms.told == {}


def test_an_alarm_that_ends_with_its_silence_is_never_reported() -> None:
    alarms = Alarms()
    assert told(alarms, 100, True) == [] and told(alarms, 0, False) == []


def test_reported_alarms_survive_a_restart(tmp_path: Path) -> None:
    alarms = Alarms()
    told(alarms, 100, True)
    write_alarms(tmp_path, document_of(alarms))
    again = read_alarms(tmp_path)
    assert again.events == alarms.events and again.told == {} and told(again, 100, False) == ["raised"]


def test_all_alarms_in_a_file_of_an_earlier_version_count_as_reported(tmp_path: Path) -> None:
    alarms = Alarms()
    told(alarms, 100, False)
    document = document_of(alarms)
    del document["told"]
    for event in document["events"]:
        del event["silenced"]
    write_alarms(tmp_path, document)
    assert told(read_alarms(tmp_path), 100, False) == []


class Rules:
    """An alarm rules file with a clock."""

    def __init__(self, directory: Path) -> None:
        self.now, self.directory = 1_000_000.0, directory
        self.file = AlarmRulesFile(directory, lambda: self.now)

    def silence(self, alarm: str, subject: str = "", seconds: int = 3600) -> Silence:
        return self.file.silence(alarm, subject, seconds, "alice", "why", nothing)

    def covers(self, alarm: str, queue: str) -> bool:
        return AlarmRulesFile(self.directory).read().silence_of(alarm, queue, self.now) is not None


def test_a_silence_covers_its_object_by_any_name_until_it_ends(tmp_path: Path) -> None:
    rules = Rules(tmp_path)
    rules.silence("oldest", "orders", 60)
    assert rules.covers("oldest", "mq1\\private$\\ORDERS") and rules.covers("oldest", "orders")
    rules.silence("quota", "private$\\Orders", 60)
    assert rules.covers("quota", "mq1\\private$\\orders")
    rules.file.unsilence("quota", "orders", nothing)
    assert not rules.covers("oldest", "mq1\\private$\\bills") and not rules.covers("quota", "orders")
    rules.now += 60
    assert not rules.covers("oldest", "orders") and rules.file.read().in_force(rules.now) == []


def test_a_silence_without_an_object_covers_the_whole_condition(tmp_path: Path) -> None:
    rules = Rules(tmp_path)
    rules.silence("oldest")
    rules.silence("oldest", "orders", 60)
    assert rules.covers("oldest", "mq1\\private$\\bills") and not rules.covers("disk", "")
    found = rules.file.read().silence_of("oldest", "orders", rules.now)
    assert found is not None and found.subject == "", "the one that ends last is the one that is shown"


def test_a_silence_is_replaced_and_ended(tmp_path: Path) -> None:
    rules = Rules(tmp_path)
    rules.silence("oldest", "orders", 60)
    rules.silence("oldest", ".\\private$\\orders", 600)
    assert [each.until - each.since for each in rules.file.read().in_force(rules.now)] == [600]
    ended = rules.file.unsilence("oldest", "orders", nothing)
    assert ended.user == "alice" and rules.file.read().in_force(rules.now) == []
    with pytest.raises(AlarmRuleError, match="no silence of oldest of orders is in force"):
        rules.file.unsilence("oldest", "orders", nothing)
    with pytest.raises(AlarmRuleError, match="disk is an alarm of the machine: leave out orders"):
        rules.silence("disk", "orders")


def test_silences_and_thresholds_are_bounded_and_those_that_expired_do_not_count(tmp_path: Path) -> None:
    rules = Rules(tmp_path)
    for number in range(MOST_SILENCES):
        rules.silence("oldest", f"q{number}")
    with pytest.raises(AlarmRuleError, match=f"{MOST_SILENCES} silences are active"):
        rules.silence("oldest", "another")
    rules.silence("oldest", "q1")
    rules.now += 3600
    rules.silence("oldest", "another")
    assert len(rules.file.read().silences) == 1
    names = [f"q{number}" for number in range(MOST_THRESHOLDS)]
    rules.file._save(AlarmRules({}, {("oldest", name): ThresholdRule("oldest", name, 1, 1, "") for name in names}))
    with pytest.raises(AlarmRuleError, match=f"{MOST_THRESHOLDS} thresholds are set"):
        rules.file.set_threshold("oldest", "another", 1, "alice", nothing)


def test_a_threshold_takes_the_place_of_the_setting_until_it_is_reset(tmp_path: Path) -> None:
    rules, settings = Rules(tmp_path), ({"oldest": 60, "quota": 90}, {("oldest", "orders"): 5})
    before: list[ThresholdRule | None] = []
    rules.file.set_threshold("oldest", "", 7, "alice", before.append)
    rules.file.set_threshold("oldest", "Bills", 0, "alice", before.append)
    rules.file.set_threshold("oldest", "mq1\\private$\\orders", 9, "alice", before.append)
    assert before == [None] * 3
    assert rules.file.read().over(*settings) == (
        {"oldest": 7, "quota": 90}, {("oldest", "orders"): 9, ("oldest", "bills"): 0}
    )  # fmt: skip
    rules.file.reset_threshold("oldest", "orders", before.append)
    assert before[-1] is not None and before[-1].threshold == 9
    assert rules.file.read().over(*settings)[1][("oldest", "orders")] == 5
    with pytest.raises(AlarmRuleError, match="no threshold of oldest of orders was set here"):
        rules.file.reset_threshold("oldest", "orders", nothing)
    with pytest.raises(AlarmRuleError, match="disk has no thresholds of single queues"):
        rules.file.set_threshold("disk", "orders", 1, "alice", nothing)


def test_a_damaged_file_is_named_and_not_overwritten(tmp_path: Path) -> None:
    write_private(tmp_path / ALARM_RULES_FILE, b"{}")
    with pytest.raises(AlarmRuleError, match=f"{ALARM_RULES_FILE} is not a valid file of rules of alarms"):
        AlarmRulesFile(tmp_path).read()
    with pytest.raises(AlarmRuleError, match=ALARM_RULES_FILE):
        Rules(tmp_path).silence("oldest")
    assert (tmp_path / ALARM_RULES_FILE).read_bytes() == b"{}"


def test_nothing_changes_where_the_audit_log_refuses(tmp_path: Path) -> None:
    def refuse() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        AlarmRulesFile(tmp_path).silence("oldest", "", 60, "alice", "why", refuse)
    assert not (tmp_path / ALARM_RULES_FILE).exists()


@pytest.mark.parametrize("subject", ["orders;retry", ".\\private$\\orders;journal"])
def test_a_rule_for_a_part_of_a_queue_is_refused_because_it_would_have_no_effect(tmp_path: Path, subject: str) -> None:
    rules = AlarmRulesFile(tmp_path)
    for make in (
        lambda: rules.set_threshold("oldest", subject, 5, "alice", lambda before: None),
        lambda: rules.silence("quota", subject, 60, "alice", "", lambda: None),
        lambda: parse_thresholds(f"{subject}:quota=1"),
    ):
        with pytest.raises((AlarmRuleError, ValueError), match=r"is checked for whole queues only, such as .*orders,"):
            make()
    far = "DIRECT=OS:other\\private$\\orders;retry"
    assert rules.set_threshold("outgoing", far, 5, "alice", lambda before: None).subject == far


@pytest.mark.parametrize(
    ("subject", "queue", "other"),
    [
        (".\\Orders", "mq1\\orders", "mq1\\private$\\orders"),
        ("MQ1\\orders", "mq1\\Orders", "mq1\\private$\\orders"),
        ("DIRECT=OS:.\\orders", "mq1\\orders", "mq1\\private$\\orders"),
        ("orders", "mq1\\private$\\orders", "mq1\\orders"),
        ("direct=os:.\\private$\\ORDERS", "mq1\\private$\\orders", "mq1\\orders"),
        ("DIRECT=OS:there\\orders", "direct=os:there\\orders", "mq1\\orders"),
    ],
)
def test_a_rule_holds_for_a_queue_under_each_of_its_names_and_not_for_others(
    tmp_path: Path, subject: str, queue: str, other: str
) -> None:
    file = AlarmRulesFile(tmp_path)
    file.silence("oldest", subject, 3600, "alice", "why", nothing)
    file.set_threshold("oldest", subject, 0, "alice", nothing)
    rules = file.read()
    assert rules.silence_of("oldest", queue, 0) is not None and rules.silence_of("oldest", other, 0) is None
    thresholds, single = rules.over(THRESHOLDS, parse_thresholds(f"{subject}:quota=1"))
    readings = {("oldest", queue): 100.0, ("oldest", other): 100.0, ("quota", queue): 2.0, ("quota", other): 2.0}
    raised = Alarms().update(readings, thresholds, 1000, single)
    assert [(event.alarm.name, event.alarm.queue) for event in raised] == [("oldest", other), ("quota", queue)]
