"""Alarms: the table of conditions, raising and clearing alarms from figures, and the file of active alarms.

An alarm is raised once, when a figure reaches its threshold. It is cleared once, when the figure is 20% below the
threshold (for minimum thresholds: 25% above) or its object is gone. `alarms.json` in the data directory has the active
alarms, so that a restart does not raise them again, and the last events for webhooks and mail.

While a condition is silenced (`alarm_rules`), its events are marked as silenced and not delivered. When the silence
ends, the current state is delivered: an alarm that was raised meanwhile and is still active, or one that was cleared.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from openmsmq.files.private import PrivateFileError, write_private
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.names import is_format_name
from openmsmq.model.remedies import RemedyStep
from openmsmq.model.rights import short_name
from openmsmq.model.text import counted, duration_text

logger = logging.getLogger(__name__)

ALARMS_FILE: Final = "alarms.json"
MOST_OF_CONDITION: Final = 100  # maximum active alarms per condition; further objects must wait
EVENTS: Final = 200  # last events kept in the file
_FORMAT: Final = 1
DELIVERED_FILE: Final = "alarms.delivered"  # last event delivered by webhook
MAILED_FILE: Final = "alarms.mailed"
_CLEARS: Final = 0.8  # factor of the threshold below which an alarm clears

State = Literal["raised", "cleared"]


class Condition(NamedTuple):
    """A condition. `setting` has the threshold in `unit`, 0 for never; `low`: raise the alarm below the threshold;
    `noun` names what is counted if the unit is messages. `sentence` has the placeholders {object}, {value} and
    {threshold}, which include units. `steps` are the actions of the remedy."""

    name: str
    setting: str
    unit: str
    sentence: str
    remedy: str
    steps: tuple[RemedyStep, ...] = ()
    low: bool = False
    noun: str = "message"


CONDITIONS: Final = (
    Condition("disk", "alarm_disk_megabytes", "MB",
              "The disk of the data directory has {value} free, less than {threshold}.",
              "Make room; below minimum_free_megabytes no messages are accepted.",
              (RemedyStep("queues.list"), RemedyStep("setting.show", {"name": "minimum_free_megabytes"})), low=True),
    Condition("quota", "alarm_quota_percent", "%",
              "{object} has used {value} of its quota; the threshold is {threshold}.",
              "Receive or purge messages, or raise the quota.", (RemedyStep("queue.show"), RemedyStep("queue.quota"))),
    Condition("sync", "alarm_sync_milliseconds", "ms",
              "The disk took {value} or more for a sync; the threshold is {threshold}.",
              "Look for errors of the disk, and for what else writes to it."),
    Condition("deadletters", "alarm_dead_letters", "messages",
              "{value} came into {object} within ten minutes; the threshold is {threshold}.",
              "See why they died; then return them or delete them.", (RemedyStep("deadletters.groups"),),
              noun="dead letter"),
    Condition("oldest", "alarm_oldest_seconds", "s",
              "The first message of {object} has waited for {value}; the threshold is {threshold}.",
              "See whether its reader runs.", (RemedyStep("queue.readers"), RemedyStep("queue.show"))),
    Condition("outgoing", "alarm_outgoing_seconds", "s",
              "No message has left {object} for {value}, and some wait; the threshold is {threshold}.",
              "See why they wait.", (RemedyStep("outgoing.show"),)),
    Condition("indoubt", "alarm_in_doubt_seconds", "s",
              "{object} has waited for another machine for {value}, in doubt or with an unconfirmed commit; the "
              "threshold is {threshold}.",
              "See which machine it waits for, why, and what to do.", (RemedyStep("transaction.list"),)),
    Condition("relay", "alarm_relay_seconds", "s",
              "The relay of {object} has carried nothing for {value}, and messages are left; the threshold is "
              "{threshold}.",
              "See why nothing moves.", (RemedyStep("relay.show"),)),
    Condition("refused", "alarm_relay_refused", "messages",
              "{value} of the relay of {object} are refused by the machine that they go to; the threshold is "
              "{threshold}.",
              "See why; they stay where they are, and are tried again.", (RemedyStep("relay.show"),)),
    Condition("peer", "alarm_peer_seconds", "s",
              "The machine {object}, whose queues are fetched, has not answered for {value}; the threshold is "
              "{threshold}.",
              "See whether it runs, and whether it can be reached.",
              (RemedyStep("relay.list"), RemedyStep("peer.test"))),
)  # fmt: skip
BY_NAME: Final = {condition.name: condition for condition in CONDITIONS}

#: (condition, object) -> figure; None if unknown so far, which changes nothing. The object is empty for the machine.
Readings = Mapping[tuple[str, str], "float | None"]


#: (condition, `key_of` a queue) -> threshold, 0 for never.
QueueThresholds = Mapping[tuple[str, str], int]
_NONE: Final[QueueThresholds] = MappingProxyType({})
OF_QUEUES: Final = ("quota", "oldest", "outgoing")  # conditions with thresholds per queue
OF_MACHINE: Final = ("disk", "sync")  # conditions that have no objects


def key_of(queue: str) -> str:
    """Return the key shared by all names of a queue of this machine: for a private queue, its name; for a public one,
    its name after a backslash; for the format name of another machine's queue, all of it. In lower case."""
    name = queue.lower().removeprefix("direct=os:.\\")
    if name != queue.lower():
        name = f".\\{name}"
    if is_format_name(name):
        return name
    machine, _, own = name.partition("\\")
    return own.removeprefix("private$\\") if own.startswith("private$\\") else f"\\{own}" if own else machine


def check_object(condition: str, name: str) -> None:
    """Raise ValueError if a condition is never checked for an object of this name."""
    if ";" in name and condition in ("quota", "oldest"):
        queue = name.strip().partition(";")[0]
        raise ValueError(f"{condition} is checked for whole queues only, such as {queue}, and not for {name.strip()}")


def parse_thresholds(text: str) -> dict[tuple[str, str], int]:
    """Parse `orders:oldest=60, bills:quota=0`. Raises ValueError."""
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = part.rpartition("=")
        queue, _, condition = name.rpartition(":")
        is_number = value.strip().isascii() and value.strip().isdecimal()
        if not queue or condition.strip() not in OF_QUEUES or not is_number:
            raise ValueError(f"{part!r} is not QUEUE:ALARM=VALUE with one of {', '.join(OF_QUEUES)}")
        check_object(condition.strip(), queue)
        found[condition.strip(), key_of(short_name(queue.strip()))] = int(value)
    return found


@dataclass(frozen=True, slots=True)
class Alarm:
    """An active alarm, raised at `since` (seconds since 1970). `value` is the figure at that time, `now` the figure at
    the last check, and `threshold` the current threshold. `queue` is the object's name, empty for the machine."""

    name: str
    queue: str
    since: int
    value: int
    threshold: int
    now: int

    @property
    def sentence(self) -> str:
        condition = BY_NAME[self.name]
        value, threshold = (figure_text(number, condition) for number in (self.now, self.threshold))
        return condition.sentence.format(object=self.queue or "The machine", value=value, threshold=threshold)

    @property
    def remedy(self) -> str:
        return BY_NAME[self.name].remedy

    @property
    def steps(self) -> tuple[RemedyStep, ...]:
        return tuple(step.about(self.queue) for step in BY_NAME[self.name].steps)


def figure_text(number: int, condition: Condition) -> str:
    """Return a figure with its unit, for a sentence."""
    if condition.unit == "s":
        return duration_text(number)
    return counted(number, condition.noun) if condition.unit == "messages" else f"{number:,} {condition.unit}"


@dataclass(frozen=True, slots=True)
class Event:
    """An alarm was raised or cleared. `seq` increases by one per event, also across restarts; `at` in seconds since
    1970. A `silenced` event is not delivered."""

    seq: int
    state: State
    at: int
    alarm: Alarm
    silenced: bool = False


@dataclass(slots=True)
class Alarms:
    """Active alarms and their history. `beyond` counts, by condition, objects over the threshold without an alarm
    because `MOST_OF_CONDITION` alarms are already active. `told` are the alarms whose last delivered event was
    `raised`."""

    active: dict[tuple[str, str], Alarm] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    seq: int = 0
    beyond: dict[str, int] = field(default_factory=dict)
    told: dict[tuple[str, str], Alarm] = field(default_factory=dict)

    def concerns(
        self, key: tuple[str, str], value: float | None, thresholds: Mapping[str, int], by_queue: QueueThresholds
    ) -> bool:
        """Whether `update` needs a reading: it may raise an alarm, or its alarm is active."""
        if value is None or key in self.active:
            return key in self.active
        threshold = by_queue.get((key[0], key_of(key[1])), thresholds[key[0]]) if by_queue else thresholds[key[0]]
        return bool(threshold) and _is_bad(key[0], value, threshold)

    def update(
        self, readings: Readings, thresholds: Mapping[str, int], now: float, by_queue: QueueThresholds = _NONE,
        is_silenced: Callable[[str, str], bool] = lambda name, queue: False,
    ) -> list[Event]:  # fmt: skip
        """Return the alarms raised and cleared by these readings. `thresholds` are those of conditions, `by_queue`
        those of single queues. `is_silenced` gets a condition and an object."""
        happened = []
        for key, alarm in list(self.active.items()):
            threshold = by_queue.get((alarm.name, key_of(alarm.queue)), thresholds[alarm.name])
            value = readings.get(key)
            back = value is not None and _is_over(alarm.name, value, threshold)
            if not threshold or back or key not in readings:  # not in readings: the queue is gone or empty
                del self.active[key]
                happened.append(self._happened("cleared", alarm, now, is_silenced(*key) or key not in self.told))
            elif value is not None:
                self.active[key] = replace(alarm, now=int(value), threshold=threshold)
        count = Counter(name for name, _ in self.active)
        beyond: Counter[str] = Counter()
        for (name, queue), value in readings.items():
            threshold = by_queue.get((name, key_of(queue)), thresholds[name])
            if value is None or not threshold or (name, queue) in self.active or not _is_bad(name, value, threshold):
                continue
            if count[name] >= MOST_OF_CONDITION:
                beyond[name] += 1
                continue
            count[name] += 1
            alarm = Alarm(name, queue, int(now), int(value), threshold, int(value))
            self.active[name, queue] = alarm
            happened.append(self._happened("raised", alarm, now, is_silenced(name, queue)))
        self.beyond = dict(beyond)
        owed: list[tuple[State, Alarm]] = []
        owed += [("raised", alarm) for key, alarm in self.active.items() if key not in self.told]
        owed += [("cleared", alarm) for key, alarm in self.told.items() if key not in self.active]
        happened += [
            self._happened(state, alarm, now, silenced=False)
            for state, alarm in owed
            if not is_silenced(alarm.name, alarm.queue)
        ]
        return happened

    def _happened(self, state: State, alarm: Alarm, now: float, silenced: bool) -> Event:
        self.seq += 1
        event = Event(self.seq, state, int(now), alarm, silenced)
        if not silenced and state == "raised":
            self.told[alarm.name, alarm.queue] = alarm
        elif not silenced:
            self.told.pop((alarm.name, alarm.queue), None)
        self.events = [*self.events, event][-EVENTS:]
        return event


def _is_bad(name: str, value: float, threshold: int) -> bool:
    return value < threshold if BY_NAME[name].low else value >= threshold


def _is_over(name: str, value: float, threshold: int) -> bool:
    return value >= threshold / _CLEARS if BY_NAME[name].low else value < threshold * _CLEARS


# -- the file ------------------------------------------------------------------------------------------------------


def read_alarms(data_dir: Path) -> Alarms:
    """Read the file of a data directory; empty if it does not exist. Raises OSError; ValueError for a damaged file."""
    try:
        content = json.loads((data_dir / ALARMS_FILE).read_text(encoding="utf-8"))
        active = list(LEFT_OUT.each("alarms", content["active"], _alarm))
        events = list(LEFT_OUT.each("alarm events", content["events"], _event))
        known = {(alarm.name, alarm.queue): alarm for alarm in active if alarm.name in BY_NAME}
        beyond = {name: int(count) for name, count in content.get("beyond", {}).items() if name in BY_NAME}
        told = LEFT_OUT.each("alarms", content.get("told", content["active"]), _alarm)  # absent in old files
        return Alarms(
            known, [event for event in events if event.alarm.name in BY_NAME], int(content["seq"]), beyond,
            {(alarm.name, alarm.queue): alarm for alarm in told if alarm.name in BY_NAME},
        )  # fmt: skip
    except FileNotFoundError:
        return Alarms()
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{data_dir / ALARMS_FILE} is not a valid file of alarms: {error!r}") from None


def _event(entry: Mapping[str, Any]) -> Event:
    silenced = bool(entry.get("silenced"))
    return Event(int(entry["seq"]), _state(entry["state"]), int(entry["at"]), _alarm(entry["alarm"]), silenced)


def write_alarms(data_dir: Path, document: Mapping[str, Any]) -> None:
    """Write the file of a data directory. Raises PrivateFileError."""
    write_private(data_dir / ALARMS_FILE, (json.dumps(document, indent=1) + "\n").encode())


def document_of(alarms: Alarms) -> dict[str, Any]:
    """Return the document to write: a copy that another thread may use."""
    return {
        "format": _FORMAT, "seq": alarms.seq, "active": [asdict(alarm) for alarm in alarms.active.values()],
        "events": [asdict(event) for event in alarms.events], "beyond": alarms.beyond,
        "told": [asdict(alarm) for alarm in alarms.told.values()],
    }  # fmt: skip


def read_delivered(data_dir: Path, name: str = DELIVERED_FILE) -> int | None:
    """Return the number of the last delivered event from the file `name`; None before the first delivery."""
    try:
        return int((data_dir / name).read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        logger.warning("%s can't be read, so alarms that are on are delivered again: %s", data_dir / name, error)
        return None


def write_delivered(data_dir: Path, seq: int, name: str = DELIVERED_FILE) -> bool:
    """Save the number of the last delivered event; return whether it is saved. A failure is logged; a restart then
    delivers the event again."""
    try:
        write_private(data_dir / name, f"{seq}\n".encode())
    except PrivateFileError as error:
        logger.warning("cannot record that alarm event %d was delivered; a restart delivers it again: %s", seq, error)
        return False
    return True


def event_document(event: Event, machine: str) -> dict[str, Any]:
    """Return an event as the document for webhooks and messages."""
    alarm = event.alarm
    return {
        "seq": event.seq, "state": event.state, "at": event.at, "machine": machine, "alarm": alarm.name,
        "queue": alarm.queue, "since": alarm.since, "value": alarm.value, "threshold": alarm.threshold,
        "unit": BY_NAME[alarm.name].unit, "sentence": alarm.sentence, "remedy": alarm.remedy,
        "commands": [step.command for step in alarm.steps],
    }  # fmt: skip


def _alarm(entry: Any) -> Alarm:
    value = int(entry["value"])
    now = int(entry.get("now", value))  # absent in files of earlier versions
    return Alarm(str(entry["name"]), str(entry["queue"]), int(entry["since"]), value, int(entry["threshold"]), now)


def _state(text: Any) -> State:
    return "raised" if text == "raised" else "cleared"
