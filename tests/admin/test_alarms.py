"""Readings that raise and clear alarms, and the file that stores them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openmsmq.admin.alarms import (
    ALARMS_FILE,
    BY_NAME,
    CONDITIONS,
    EVENTS,
    MOST_OF_CONDITION,
    Alarms,
    document_of,
    event_document,
    read_alarms,
    write_alarms,
)

THRESHOLDS = {
    "disk": 1000, "quota": 90, "sync": 1000, "deadletters": 100, "oldest": 3600, "outgoing": 900, "indoubt": 300,
    "relay": 900, "refused": 1, "peer": 300,
}  # fmt: skip


def steps(alarms: Alarms, name: str, *values: float | None) -> list[str]:
    """Return the events of each reading."""
    return [
        "".join(event.state for event in alarms.update({(name, ""): value}, THRESHOLDS, 1000.0 + number))
        for number, value in enumerate(values)
    ]


def test_each_condition_has_a_threshold() -> None:
    assert {condition.name for condition in CONDITIONS} == set(THRESHOLDS)


def test_an_alarm_is_raised_and_cleared_once() -> None:
    assert steps(Alarms(), "quota", 89.9, 90, 95, 89, 80, 72, 71, 71) == ["", "raised", "", "", "", "", "cleared", ""]
    assert steps(Alarms(), "disk", 1000, 999, 5, 1100, 1249, 1250, 1001, 999) == [
        "", "raised", "", "", "", "cleared", "", "raised"
    ]  # fmt: skip


def test_a_value_oscillating_around_its_threshold_is_reported_once() -> None:
    assert steps(Alarms(), "deadletters", *([100, 99] * 50)).count("raised") == 1


def test_unknown_values_change_nothing() -> None:
    assert steps(Alarms(), "oldest", None, 4000, None, None, 0) == ["", "raised", "", "", "cleared"]


def test_an_object_that_is_gone_and_a_threshold_of_zero_clear() -> None:
    alarms = Alarms()
    alarms.update({("quota", "a"): 99, ("quota", "b"): 99}, THRESHOLDS, 1)
    [gone] = alarms.update({("quota", "b"): 99}, THRESHOLDS, 2)
    assert (gone.state, gone.alarm.queue, gone.alarm.since) == ("cleared", "a", 1)
    [off] = alarms.update({("quota", "b"): 99}, {**THRESHOLDS, "quota": 0}, 3)
    assert (off.state, off.alarm.queue) == ("cleared", "b")
    assert alarms.update({("quota", "b"): 99}, {**THRESHOLDS, "quota": 0}, 4) == [] and not alarms.active


def test_many_objects_do_not_fill_the_memory() -> None:
    alarms = Alarms()
    readings = {("quota", f"q{number}"): 99.0 for number in range(3 * EVENTS)}
    alarms.update(readings, THRESHOLDS, 1)
    assert len(alarms.active) == MOST_OF_CONDITION
    assert alarms.beyond == {"quota": 3 * EVENTS - MOST_OF_CONDITION}, "nobody takes the list for all of them"
    for number in range(5):
        alarms.update({} if number % 2 else readings, THRESHOLDS, 1)
    assert len(alarms.events) == EVENTS


def test_a_restart_does_not_raise_again_what_is_known(tmp_path: Path) -> None:
    alarms = Alarms()
    alarms.update({("outgoing", "DIRECT=OS:x\\private$\\y"): 1000}, THRESHOLDS, 1)
    write_alarms(tmp_path, document_of(alarms))
    assert (tmp_path / ALARMS_FILE).stat().st_mode & 0o777 == 0o600
    known = read_alarms(tmp_path)
    assert known == alarms
    assert known.update({("outgoing", "DIRECT=OS:x\\private$\\y"): None}, THRESHOLDS, 2) == []
    assert known.update({("outgoing", "DIRECT=OS:x\\private$\\y"): 2000}, THRESHOLDS, 3) == []
    [cleared] = known.update({}, THRESHOLDS, 4)
    assert (cleared.seq, cleared.state) == (2, "cleared")


def test_the_number_of_unlisted_alarms_is_stored(tmp_path: Path) -> None:
    alarms = Alarms()
    readings = {("quota", f"q{number}"): 99.0 for number in range(MOST_OF_CONDITION + 7)}
    alarms.update(readings, THRESHOLDS, 1)
    write_alarms(tmp_path, document_of(alarms))
    assert read_alarms(tmp_path).beyond == {"quota": 7}
    alarms.update({("quota", "q0"): 99.0}, THRESHOLDS, 2)
    assert alarms.beyond == {}


def test_a_file_of_an_earlier_version_has_no_number_of_unlisted_alarms(tmp_path: Path) -> None:
    document = document_of(Alarms())
    del document["beyond"]
    write_alarms(tmp_path, document)
    assert read_alarms(tmp_path) == Alarms()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"active": 5, "events": [], "seq": 0}', '{"active": [{}]}'])
def test_a_damaged_file_is_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / ALARMS_FILE).write_text(content)
    with pytest.raises(ValueError):
        read_alarms(tmp_path)


def test_conditions_of_another_version_are_ignored(tmp_path: Path) -> None:
    alarms = Alarms()
    alarms.update({("disk", ""): 1}, THRESHOLDS, 1)
    document = json.loads(json.dumps(document_of(alarms)).replace('"disk"', '"moon"'))
    write_alarms(tmp_path, document)
    assert read_alarms(tmp_path) == Alarms(seq=1)


def test_the_sentence_of_an_alarm_follows_its_figure() -> None:
    alarms = Alarms()
    [raised] = alarms.update({("oldest", "q"): 90_123.0}, THRESHOLDS, 1)
    assert "has waited for 1 d 1 h; the threshold is 1 h" in raised.alarm.sentence
    assert alarms.update({("oldest", "q"): 183.0 * 1000}, THRESHOLDS, 2) == []
    [on] = alarms.active.values()
    assert (on.value, on.now, on.since) == (90_123, 183_000, 1) and "2 d 2 h" in on.sentence
    assert alarms.update({("oldest", "q"): None}, THRESHOLDS, 3) == [] and alarms.active["oldest", "q"] == on


def test_a_file_of_an_earlier_version_has_the_figure_of_the_beginning(tmp_path: Path) -> None:
    alarms = Alarms()
    alarms.update({("disk", ""): 3.0}, THRESHOLDS, 1)
    document = document_of(alarms)
    for entry in (*document["active"], *(event["alarm"] for event in document["events"])):
        del entry["now"]
    write_alarms(tmp_path, document)
    assert read_alarms(tmp_path) == alarms


@pytest.mark.parametrize("name", list(BY_NAME))
def test_an_event_says_what_is_wrong_and_what_to_do(name: str) -> None:
    alarms = Alarms()
    [event] = alarms.update({(name, "orders {0}"): 1 if BY_NAME[name].low else 10_000}, THRESHOLDS, 5)
    document = event_document(event, "mq1")
    assert document["machine"] == "mq1" and document["state"] == "raised" and document["at"] == 5
    assert document["sentence"].endswith(".") and "{value}" not in document["sentence"] and document["remedy"]
