"""Active and past alarms, silences, and thresholds."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from openmsmq.actions.errors import ActionRefused, InputError
from openmsmq.actions.fields import CommandText, EpochSeconds, doc
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Empty, Flag, Input, LineView, Output, Rows, action
from openmsmq.admin.alarm_rules import (
    LONGEST_SILENCE,
    SHORTEST_SILENCE,
    AlarmRuleError,
    AlarmRules,
    AlarmRulesFile,
    Silence,
    ThresholdRule,
    subject_key,
)
from openmsmq.admin.alarms import (
    BY_NAME,
    CONDITIONS,
    EVENTS,
    MOST_OF_CONDITION,
    Alarm,
    Event,
    parse_thresholds,
    read_alarms,
)
from openmsmq.admin.settings import settings_in_force
from openmsmq.model.amounts import parse_age
from openmsmq.model.errors import AccessDenied
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.roles import Role, missing_administrator
from openmsmq.model.text import duration_text, time_text

_HIGHEST: Final = 1 << 40
_LONGEST_REASON: Final = 200
_CONDITION: Final = doc("Name of the condition.", "oldest")
ConditionName = Literal[
    "disk", "quota", "sync", "deadletters", "oldest", "outgoing", "indoubt", "relay", "refused", "peer"
]  # fmt: skip
assert set(ConditionName.__args__) == BY_NAME.keys()  # type: ignore[attr-defined]
Subject = Annotated[
    str,
    Meta(
        max_length=1024, examples=["orders"],
        description="Name of the queue or transaction; empty for all objects of the condition.",
    ),
]  # fmt: skip


class RemedyStepView(Output, frozen=True):
    """A step of a remedy."""

    action: Annotated[str, doc("Name of the action.", "queue.show")]
    arguments: Annotated[dict[str, str], doc("Its arguments.", {"queue": "mq1\\private$\\orders"})]
    words: Annotated[str, doc("Text for a link or a button.", "Open the queue")]
    command: Annotated[str, doc("The command for it.", "openmsmq queue show orders")]


class SilenceView(Output, frozen=True):
    """A silence: notifications of a condition are suppressed until it ends."""

    alarm: Annotated[ConditionName, _CONDITION]
    subject: Subject
    since: Annotated[EpochSeconds, doc("When it was set, in seconds since 1970.")]
    until: Annotated[EpochSeconds, doc("When it expires, in seconds since 1970.")]
    user: Annotated[str, doc("Name of the user who set it; empty for a command in the data directory.", "alice")]
    reason: Annotated[str, doc("Why it was set.", "the reader is being replaced")]


class KnownAlarm(Output, frozen=True):
    """An alarm."""

    alarm: Annotated[str, doc("Name of the condition.", "disk")]
    queue: Annotated[str, doc("Name of the queue; empty for the machine.")]
    since: Annotated[EpochSeconds, doc("When it was raised, in seconds since 1970.")]
    value: Annotated[int, doc("The value when it was raised, in `unit`.")]
    threshold: Annotated[int, doc("The threshold at the last check while the alarm was active, in `unit`.")]
    unit: Annotated[str, doc("Unit of value and threshold.", "MB")]
    sentence: Annotated[str, doc("What is wrong, with the value at the last check.")]
    remedy: Annotated[str, doc("What to do about it.")]
    now: Annotated[int, doc("The value at the last check while the alarm was active, in `unit`.")]
    steps: Annotated[list[RemedyStepView], doc("The remedy as actions.")]
    silenced: Annotated[SilenceView | None, doc("The silence that covers it now; null for none.")] = None


class AlarmEventView(Output, frozen=True):
    """An alarm was raised or cleared."""

    seq: Annotated[int, doc("Number of the event; increases by one.")]
    state: Annotated[Literal["raised", "cleared"], doc("What happened.")]
    at: Annotated[EpochSeconds, doc("When it happened, in seconds since 1970.")]
    alarm: Annotated[KnownAlarm, doc("The alarm.")]
    silenced: Annotated[bool, doc("Whether notifications were suppressed by a silence.")] = False


class AlarmList(Output, frozen=True):
    """Alarms and the last events."""

    active: Annotated[list[KnownAlarm], doc("Active alarms, the oldest first.")]
    events: Annotated[list[AlarmEventView], doc("Alarms raised and cleared recently, the newest first.")]
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
    silences: Annotated[list[SilenceView], doc("The silences in force, the first to end first.")]


class NewSilence(Input, frozen=True):
    """A condition to silence for a time."""

    alarm: Annotated[ConditionName, _CONDITION]
    reason: Annotated[
        str,
        Meta(
            min_length=1, max_length=_LONGEST_REASON, examples=["the reader is being replaced"],
            description="Reason, shown to other users.",
        ),
    ]  # fmt: skip
    subject: Subject = ""
    duration: Annotated[
        str,
        Meta(
            max_length=20, examples=["2h"],
            description="Duration: 90 (seconds), 10m, 2h, 3d; 1 minute to 30 days.",
        ),
    ] = "1h"  # fmt: skip


class SilenceQuery(Input, frozen=True):
    """A silence to end."""

    alarm: Annotated[ConditionName, _CONDITION]
    subject: Subject = ""


class ChangedSilence(Output, frozen=True):
    """A silence that was set or ended."""

    silence: Annotated[SilenceView, doc("The silence.")]
    command: CommandText


class ThresholdView(Output, frozen=True):
    """A threshold in force, of a condition or of one queue."""

    alarm: Annotated[ConditionName, _CONDITION]
    subject: Subject
    threshold: Annotated[int, doc("The threshold in `unit`; 0 for never.", 3600)]
    unit: Annotated[str, doc("Unit of the threshold.", "s")]
    setting: Annotated[str, doc("Name of the setting.", "alarm_oldest_seconds")]
    configured: Annotated[int | None, doc("The threshold of the setting; null if it has none for this queue.", 86400)]
    at: Annotated[
        EpochSeconds | None,
        doc("When it was set here, in seconds since 1970; null for the threshold of the setting."),
    ]
    user: Annotated[str, doc("Name of the user who set it here, otherwise empty.", "alice")]


class ThresholdList(Output, frozen=True):
    """Thresholds in force."""

    thresholds: Annotated[list[ThresholdView], doc("Thresholds of conditions, then those of single queues.")]
    command: CommandText


class NewThreshold(Input, frozen=True):
    """A threshold to set."""

    alarm: Annotated[ConditionName, _CONDITION]
    threshold: Annotated[
        int, Meta(ge=0, le=_HIGHEST, examples=[3600], description="Threshold in the unit of the condition (0: never).")
    ]
    subject: Subject = ""


class ThresholdQuery(Input, frozen=True):
    """A threshold to reset to that of the setting."""

    alarm: Annotated[ConditionName, _CONDITION]
    subject: Subject = ""


class ChangedThreshold(Output, frozen=True):
    """A threshold that was set or reset."""

    threshold: Annotated[ThresholdView | None, doc("The threshold in force; null if this queue has none any more.")]
    command: CommandText


def _alarm_document(alarm: KnownAlarm, found: AlarmList) -> dict[str, Any]:
    known = msgspec.to_builtins(alarm)
    return {"name": known.pop("alarm"), **known}


def _event_document(event: AlarmEventView, found: AlarmList) -> dict[str, Any]:
    """Return the document for webhooks and messages."""
    known = msgspec.to_builtins(event.alarm)
    del known["silenced"]
    return {"seq": event.seq, "state": event.state, "at": event.at, "machine": found.machine, **known}


def _said(silence: SilenceView) -> str:
    """Return a line such as `silenced until … by alice: oldest of orders (reason)`."""
    about = f"{silence.alarm} of {silence.subject}" if silence.subject else silence.alarm
    by = f" by {silence.user}" if silence.user else ""
    return f"silenced until {time_text(silence.until)}{by}: {about} ({silence.reason})"


_ACTIVE: Final = Rows(
    lambda found: found.active, ("since", "alarm", "what", "do"),
    lambda alarm: [time_text(alarm.since), alarm.alarm, alarm.sentence,
                   " ".join([alarm.remedy, "; ".join(step.command for step in alarm.steps)]).strip()],
    _alarm_document, empty="no alarm is on",
    note=lambda found: [
        *(f"{name}: {count} more, which are not listed" for name, count in found.beyond.items()),
        *map(_said, found.silences),
    ],
)  # fmt: skip
_HISTORY: Final = Rows(
    lambda found: found.events[::-1], ("time", "", "alarm", "what"),
    lambda event: [time_text(event.at), event.state + (" (silenced)" if event.silenced else ""), event.alarm.alarm,
                   event.alarm.sentence],
    _event_document,
)  # fmt: skip


@action(
    "alarm.list", http="GET /alarms", role=Role.MONITOR,
    commands=(
        ActionCommand(
            "alarms", show=_ACTIVE,
            views={Flag("--history", "Show alarms raised and cleared recently instead of active ones."): _HISTORY},
            more="They are in its data directory; with --url, its HTTP API is asked. Exit code 0 whether there are any "
            "or not.",
        ),
    ),
)  # fmt: skip
def list_alarms(site: ActionSite, given: Empty) -> AlarmList:
    """Show the active alarms of a daemon: disk, quotas, syncs, dead letters, old messages, outgoing queues.

    Users who are not administrators see the alarms of queues that they may see.
    """
    directory, now = site.data_dir, time.time()
    try:
        found, rules = read_alarms(directory), AlarmRulesFile(directory).read()
    except (OSError, ValueError, AlarmRuleError) as error:
        raise ActionRefused(503, f"alarms can't be read: {error}") from None
    active, events, silences = list(found.active.values()), found.events, rules.in_force(now)
    if site.visible is not None:
        seen = site.visible()
        active = [alarm for alarm in active if alarm.queue in seen]
        events = [event for event in events if event.alarm.queue in seen]
        keys = {subject_key(alarm.queue) for alarm in active}
        silences = [silence for silence in silences if subject_key(silence.subject) in keys]
    active.sort(key=lambda alarm: (alarm.since, alarm.name, alarm.queue))
    return AlarmList(
        list(LEFT_OUT.each("alarms", active, lambda alarm: _known(alarm, rules, now), lambda alarm: alarm.name)),
        list(LEFT_OUT.each("alarm events", events[: -EVENTS - 1 : -1], _event, lambda event: event.seq)),
        site.machine,
        site.command,
        {} if site.visible is not None else found.beyond,
        [_silence(silence) for silence in silences],
    )


@action(
    "alarm.silence", http="POST /alarms/silences", status=201, effect="changes", role=Role.OPERATOR,
    audit=("alarm.silence",), refuses={AlarmRuleError: 409},
    commands=(
        ActionCommand(
            "alarm silence",
            {"alarm": "CONDITION", "subject": "[SUBJECT]", "duration": "--for TIME", "reason": "--reason TEXT"},
            LineView(lambda done: _said(done.silence), lambda done: msgspec.to_builtins(done.silence), err=True),
            more="SUBJECT is a queue or a transaction, as `openmsmq alarms` names it; without it, the silence covers "
            "all objects of the condition. A second silence of the same replaces the first.",
        ),
    ),
)  # fmt: skip
def silence_alarm(site: ActionSite, given: NewSilence) -> ChangedSilence:
    """Suppress the notifications of a condition for a time.

    Alarms are raised, cleared and listed as usual, and `openmsmq_alarm_active` stays; webhooks, e-mail and the queue
    `alarm_queue` receive nothing. When the silence ends, they receive the result: alarms that were raised in the
    meantime and are still active, and those that were cleared. For administrators of the queue manager.
    """
    _demand_administrator(site)
    try:
        seconds = int(parse_age(given.duration))
    except ValueError as error:
        raise InputError(str(error), "/duration") from None
    if not SHORTEST_SILENCE <= seconds <= LONGEST_SILENCE:
        longest = duration_text(LONGEST_SILENCE)
        raise InputError(f"a silence lasts 1 minute to {longest}, not {duration_text(seconds)}", "/duration")

    def on_change() -> None:
        after = {"seconds": seconds, "reason": given.reason}
        site.record("alarm.silence", "alarm", _about(given), after=after)

    file = AlarmRulesFile(site.data_dir)
    made = file.silence(given.alarm, given.subject, seconds, site.caller.name, given.reason, on_change)
    return ChangedSilence(_silence(made), site.command)


@action(
    "alarm.unsilence", http="DELETE /alarms/silences/{alarm}", effect="destroys", role=Role.OPERATOR,
    audit=("alarm.unsilence",), refuses={AlarmRuleError: 409},
    commands=(
        ActionCommand(
            "alarm unsilence", {"alarm": "CONDITION", "subject": "[SUBJECT]"},
            LineView(lambda done: f"ended: {_said(done.silence)}", err=True),
        ),
    ),
)  # fmt: skip
def unsilence_alarm(site: ActionSite, given: SilenceQuery) -> ChangedSilence:
    """End a silence now."""
    _demand_administrator(site)

    def on_change() -> None:
        site.record("alarm.unsilence", "alarm", _about(given))

    ended = AlarmRulesFile(site.data_dir).unsilence(given.alarm, given.subject, on_change)
    return ChangedSilence(_silence(ended), site.command)


def _from(each: ThresholdView) -> str:
    return each.setting if each.at is None else f"set {time_text(each.at)}" + (f" by {each.user}" if each.user else "")


def _threshold_line(done: ChangedThreshold) -> str:
    known = done.threshold
    if known is None:
        return "the queue has no threshold of its own any more"
    about = f"{known.alarm} of {known.subject}" if known.subject else known.alarm
    return f"{about}: {f'{known.threshold:,} {known.unit}' if known.threshold else 'never'} ({_from(known)})"


@action(
    "alarm.thresholds", http="GET /alarms/thresholds", administrators=True,
    refuses={OSError: 503, AlarmRuleError: 503},
    commands=(
        ActionCommand(
            "alarm thresholds",
            show=Rows(
                lambda found: found.thresholds, ("alarm", "queue", "threshold", "unit", "from"),
                lambda each: [each.alarm, each.subject, each.threshold or "never", each.unit, _from(each)],
            ),
        ),
    ),
)  # fmt: skip
def list_thresholds(site: ActionSite, given: Empty) -> ThresholdList:
    """Show the thresholds of alarms, and the origin of each: a setting, or a change while the daemon was running."""
    return ThresholdList(list(_thresholds(site).values()), site.command)


@action(
    "alarm.threshold.set", http="PUT /alarms/thresholds/{alarm}", effect="changes", administrators=True,
    audit=("alarm.threshold",), refuses={AlarmRuleError: 409, OSError: 503},
    commands=(
        ActionCommand(
            "alarm set-threshold", {"alarm": "CONDITION", "threshold": "VALUE", "subject": "[SUBJECT]"},
            LineView(_threshold_line, err=True),
            more="SUBJECT is a queue, for quota, oldest and outgoing; without it, the threshold is that of all queues "
            "that have none of their own. 0 is for never. It takes precedence over the setting, also after a restart.",
        ),
    ),
)  # fmt: skip
def set_threshold(site: ActionSite, given: NewThreshold) -> ChangedThreshold:
    """Set a threshold of alarms while the daemon runs.

    It takes precedence over the setting, also after a restart, until it is reset.
    """
    if BY_NAME[given.alarm].unit == "%" and given.threshold > 100:
        raise InputError(f"a threshold in percent is 0 to 100, not {given.threshold}", "/threshold")

    def on_change(before: ThresholdRule | None) -> None:
        known = {"threshold": before.threshold} if before is not None else None
        site.record("alarm.threshold", "alarm", _about(given), before=known, after={"threshold": given.threshold})

    file = AlarmRulesFile(site.data_dir)
    file.set_threshold(given.alarm, given.subject, given.threshold, site.caller.name, on_change)
    return ChangedThreshold(_thresholds(site).get((given.alarm, subject_key(given.subject))), site.command)


@action(
    "alarm.threshold.reset", http="DELETE /alarms/thresholds/{alarm}", effect="destroys", administrators=True,
    audit=("alarm.threshold",), refuses={AlarmRuleError: 409, OSError: 503},
    commands=(
        ActionCommand(
            "alarm reset-threshold", {"alarm": "CONDITION", "subject": "[SUBJECT]"},
            LineView(_threshold_line, err=True),
        ),
    ),
)  # fmt: skip
def reset_threshold(site: ActionSite, given: ThresholdQuery) -> ChangedThreshold:
    """Remove a threshold that was set while the daemon was running, so that the setting applies again."""

    def on_change(before: ThresholdRule | None) -> None:
        known = {"threshold": before.threshold} if before is not None else None
        site.record("alarm.threshold", "alarm", _about(given), before=known, after={"threshold": "that of the setting"})

    AlarmRulesFile(site.data_dir).reset_threshold(given.alarm, given.subject, on_change)
    return ChangedThreshold(_thresholds(site).get((given.alarm, subject_key(given.subject))), site.command)


def _about(given: NewSilence | SilenceQuery | NewThreshold | ThresholdQuery) -> str:
    """Return the object of an audit record."""
    return f"{given.alarm} {given.subject}".strip()


def _demand_administrator(site: ActionSite) -> None:
    """Silences affect all users, so administrators only; the role operator is sufficient. Raises AccessDenied."""
    if not site.caller.administrator:
        raise AccessDenied(detail=missing_administrator(site.caller.name))


def _thresholds(site: ActionSite) -> dict[tuple[str, str], ThresholdView]:
    """Return all thresholds in force: those of conditions, then those of queues. Raises OSError, AlarmRuleError."""
    directory = site.data_dir
    settings, rules = settings_in_force(directory), AlarmRulesFile(directory).read()
    values = {name: entry["value"] for name, entry in settings.items()}
    configured: dict[tuple[str, str], int] = {
        (each.name, ""): int(values[each.setting]) for each in CONDITIONS if each.setting in values
    }
    configured |= parse_thresholds(str(values.get("alarm_by_queue") or ""))
    places = sorted({*configured, *rules.thresholds}, key=lambda place: (bool(place[1]), place[1], _ORDER[place[0]]))
    return {place: _threshold(place, configured.get(place), rules.thresholds.get(place)) for place in places}


_ORDER: Final = {each.name: number for number, each in enumerate(CONDITIONS)}


def _threshold(place: tuple[str, str], configured: int | None, rule: ThresholdRule | None) -> ThresholdView:
    name, key = place
    condition = BY_NAME[name]
    return ThresholdView(
        _condition(name), rule.subject if rule is not None else key,
        rule.threshold if rule is not None else configured or 0, condition.unit,
        "alarm_by_queue" if key else condition.setting, configured, rule.at if rule is not None else None,
        rule.user if rule is not None else "",
    )  # fmt: skip


def _condition(name: str) -> ConditionName:
    found: ConditionName = msgspec.convert(name, ConditionName)
    return found


def _silence(silence: Silence) -> SilenceView:
    return SilenceView(
        _condition(silence.alarm), silence.subject, silence.since, silence.until, silence.user, silence.reason
    )


def _known(alarm: Alarm, rules: AlarmRules | None = None, now: float = 0) -> KnownAlarm:
    silence = rules.silence_of(alarm.name, alarm.queue, now) if rules is not None else None
    return KnownAlarm(
        alarm.name, alarm.queue, alarm.since, alarm.value, alarm.threshold, BY_NAME[alarm.name].unit, alarm.sentence,
        alarm.remedy, alarm.now,
        [RemedyStepView(step.action, dict(step.arguments), step.words, step.command) for step in alarm.steps],
        None if silence is None else _silence(silence),
    )  # fmt: skip


def _event(event: Event) -> AlarmEventView:
    return AlarmEventView(event.seq, event.state, event.at, _known(event.alarm), event.silenced)


ACTIONS: Final = (list_alarms, silence_alarm, unsilence_alarm, list_thresholds, set_threshold, reset_threshold)
