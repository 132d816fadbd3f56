"""Alarms that are on, and those that were."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import CommandText, EpochSeconds, doc
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Empty, Flag, Output, Rows, action
from openmsmq.admin.alarms import BY_NAME, EVENTS, MOST_OF_CONDITION, Alarm, Event, read_alarms
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.roles import Role
from openmsmq.model.text import time_text


class RemedyStepView(Output, frozen=True):
    """A step of a remedy."""

    action: Annotated[str, doc("Name of the action.", "queue.show")]
    arguments: Annotated[dict[str, str], doc("Its arguments.", {"queue": "mq1\\private$\\orders"})]
    words: Annotated[str, doc("What it does, for a link or a button.", "Open the queue")]
    command: Annotated[str, doc("The command that does it.", "openmsmq queue show orders")]


class KnownAlarm(Output, frozen=True):
    """An alarm."""

    alarm: Annotated[str, doc("Name of the condition.", "disk")]
    queue: Annotated[str, doc("Name of the queue; empty for the machine.")]
    since: Annotated[EpochSeconds, doc("When it was raised, in seconds since 1970.")]
    value: Annotated[int, doc("The value when it was raised, in `unit`.")]
    threshold: Annotated[int, doc("The threshold when it was raised, in `unit`.")]
    unit: Annotated[str, doc("Unit of value and threshold.", "MB")]
    sentence: Annotated[str, doc("What is wrong, with the value at the last look.")]
    remedy: Annotated[str, doc("What to do about it.")]
    now: Annotated[int, doc("The value at the last look while it was on, in `unit`.")]
    steps: Annotated[list[RemedyStepView], doc("What the remedy says, as actions.")]


class AlarmEventView(Output, frozen=True):
    """An alarm was raised or cleared."""

    seq: Annotated[int, doc("Number of the event; it rises by one.")]
    state: Annotated[Literal["raised", "cleared"], doc("What happened.")]
    at: Annotated[EpochSeconds, doc("When it happened, in seconds since 1970.")]
    alarm: Annotated[KnownAlarm, doc("The alarm.")]


class AlarmList(Output, frozen=True):
    """Alarms and the last events."""

    active: Annotated[list[KnownAlarm], doc("The alarms that are on, the longest first.")]
    events: Annotated[list[AlarmEventView], doc("What was raised and cleared last, the newest first.")]
    machine: Annotated[str, doc("Name of the machine.", "mq1")]
    command: CommandText
    beyond: Annotated[
        dict[str, int],
        doc(
            "By condition, how many more objects are over the threshold than the "
            f"{MOST_OF_CONDITION} for which an alarm is on. Empty for users who see only some queues.",
            {"quota": 12},
        ),
    ]


def _alarm_document(alarm: KnownAlarm, found: AlarmList) -> dict[str, Any]:
    known = msgspec.structs.asdict(alarm)
    return {"name": known.pop("alarm"), **known}


def _event_document(event: AlarmEventView, found: AlarmList) -> dict[str, Any]:
    """As webhooks and messages have it."""
    known = msgspec.structs.asdict(event.alarm)
    return {"seq": event.seq, "state": event.state, "at": event.at, "machine": found.machine, **known}


_ACTIVE: Final = Rows(
    lambda found: found.active, ("since", "alarm", "what", "do"),
    lambda alarm: [time_text(alarm.since), alarm.alarm, alarm.sentence,
                   " ".join([alarm.remedy, "; ".join(step.command for step in alarm.steps)]).strip()],
    _alarm_document, empty="no alarm is on",
    note=lambda found: "\n".join(f"{name}: {count} more, which are not listed" for name, count in found.beyond.items()),
)  # fmt: skip
_HISTORY: Final = Rows(
    lambda found: found.events[::-1], ("time", "", "alarm", "what"),
    lambda event: [time_text(event.at), event.state, event.alarm.alarm, event.alarm.sentence],
    _event_document,
)  # fmt: skip


@action(
    "alarm.list", http="GET /alarms", role=Role.MONITOR,
    commands=(
        ActionCommand(
            "alarms", show=_ACTIVE,
            views={Flag("--history", "Show what was raised and cleared last, and not what is on."): _HISTORY},
            more="They are in its data directory; with --url, its HTTP API is asked. Exit code 0 whether there are any "
            "or not.",
        ),
    ),
)  # fmt: skip
def list_alarms(site: ActionSite, given: Empty) -> AlarmList:
    """Show the alarms of a daemon that are on: disk, quotas, syncs, dead letters, old messages, outgoing queues.

    Users who are no administrators see the alarms of queues that they may see.
    """
    directory = site.data_dir
    try:
        found = read_alarms(directory)
    except (OSError, ValueError) as error:
        raise ActionRefused(503, f"alarms can't be read: {error}") from None
    active, events = list(found.active.values()), found.events
    if site.visible is not None:
        seen = site.visible()
        active = [alarm for alarm in active if alarm.queue in seen]
        events = [event for event in events if event.alarm.queue in seen]
    active.sort(key=lambda alarm: (alarm.since, alarm.name, alarm.queue))
    return AlarmList(
        list(LEFT_OUT.each("alarms", active, _known, lambda alarm: alarm.name)),
        list(LEFT_OUT.each("alarm events", events[: -EVENTS - 1 : -1], _event, lambda event: event.seq)),
        site.machine,
        site.command,
        {} if site.visible is not None else found.beyond,
    )


def _known(alarm: Alarm) -> KnownAlarm:
    return KnownAlarm(
        alarm.name, alarm.queue, alarm.since, alarm.value, alarm.threshold, BY_NAME[alarm.name].unit, alarm.sentence,
        alarm.remedy, alarm.now,
        [RemedyStepView(step.action, dict(step.arguments), step.words, step.command) for step in alarm.steps],
    )  # fmt: skip


def _event(event: Event) -> AlarmEventView:
    return AlarmEventView(event.seq, event.state, event.at, _known(event.alarm))


ACTIONS: Final = (list_alarms,)
