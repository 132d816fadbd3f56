"""Alarms that are on, and those that were."""

from __future__ import annotations

from typing import Final, Literal

from openmsmq.admin.alarms import BY_NAME, EVENTS, Alarm, Event, read_alarms
from openmsmq.console.problems import Problem
from openmsmq.console.table import HttpOperation, Output, WebRequest
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.roles import Role


class KnownAlarm(Output, frozen=True):
    """`queue` is empty for the machine. `since` in seconds since 1970; `value` and `threshold`, in `unit`, are those
    when it was raised."""

    alarm: str
    queue: str
    since: int
    value: int
    threshold: int
    unit: str
    sentence: str
    remedy: str


class AlarmEventView(Output, frozen=True):
    seq: int
    state: Literal["raised", "cleared"]
    at: int
    alarm: KnownAlarm


class AlarmList(Output, frozen=True):
    """What is on, the longest first, and the last events, the newest first. Who is no administrator sees the alarms of
    queues that they may see."""

    active: list[KnownAlarm]
    events: list[AlarmEventView]
    command: str


def list_alarms(asked: WebRequest) -> AlarmList:
    try:
        found = read_alarms(asked.services.settings.directory)
    except (OSError, ValueError) as error:
        raise Problem(503, f"alarms can't be read: {error}") from None
    active, events = list(found.active.values()), found.events
    if not asked.caller.administrator:
        seen = {row["name"] for row in asked.services.rows.of(asked.caller.ticket)}
        active = [alarm for alarm in active if alarm.queue in seen]
        events = [event for event in events if event.alarm.queue in seen]
    active.sort(key=lambda alarm: (alarm.since, alarm.name, alarm.queue))
    return AlarmList(
        list(LEFT_OUT.each("alarms", active, _known, lambda alarm: alarm.name)),
        list(LEFT_OUT.each("alarm events", events[: -EVENTS - 1 : -1], _event, lambda event: event.seq)),
        "openmsmq alarms",
    )


def _known(alarm: Alarm) -> KnownAlarm:
    return KnownAlarm(
        alarm.name, alarm.queue, alarm.since, alarm.value, alarm.threshold, BY_NAME[alarm.name].unit, alarm.sentence,
        alarm.remedy,
    )  # fmt: skip


def _event(event: Event) -> AlarmEventView:
    return AlarmEventView(event.seq, event.state, event.at, _known(event.alarm))


OPERATIONS: Final = (
    HttpOperation(
        "GET", "/alarms", list_alarms, "Alarms that are on, and the last events", AlarmList, role=Role.MONITOR
    ),
)
