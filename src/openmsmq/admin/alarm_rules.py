"""Silences and thresholds of alarms that operators set while a daemon runs: `alarm-rules.json` in the data directory.

A silence covers a condition of one object or of all objects until it expires. Meanwhile, alarms are raised, cleared and
shown as usual, but no notifications are sent. A threshold here takes precedence over the setting of the same condition.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from openmsmq.admin.alarms import BY_NAME, OF_MACHINE, OF_QUEUES, QueueThresholds, check_object, key_of
from openmsmq.files.private import CachedFile, PrivateFileError, write_private
from openmsmq.model.rights import short_name

ALARM_RULES_FILE: Final = "alarm-rules.json"
MOST_SILENCES: Final = 100
MOST_THRESHOLDS: Final = 1000
LONGEST_SILENCE: Final = 30 * 86_400  # seconds
SHORTEST_SILENCE: Final = 60
_FORMAT: Final = 1


class AlarmRuleError(Exception):
    """A rule cannot be set or removed; the message says why and what to do."""


def subject_key(subject: str) -> str:
    """Return the key that all names of an object of alarms share; empty for the whole condition."""
    name = subject.strip()
    name = f".\\{name}" if name.lower().startswith("private$\\") else name
    return key_of(short_name(name))


@dataclass(frozen=True, slots=True)
class Silence:
    """A silence. `subject` is the name of a queue or transaction, empty for every object of the condition. Times in
    seconds since 1970."""

    alarm: str
    subject: str
    since: int
    until: int
    user: str
    reason: str


@dataclass(frozen=True, slots=True)
class ThresholdRule:
    """A threshold in the unit of the condition, 0 for never. `subject` as in `Silence`."""

    alarm: str
    subject: str
    threshold: int
    at: int
    user: str


@dataclass(frozen=True, slots=True)
class AlarmRules:
    """The contents of the file, by condition and `subject_key`."""

    silences: Mapping[tuple[str, str], Silence]
    thresholds: Mapping[tuple[str, str], ThresholdRule]

    def silence_of(self, alarm: str, queue: str, now: float) -> Silence | None:
        """Return the silence that covers an object of a condition: of two, the one that ends last. None if there is
        none."""
        known = (self.silences.get((alarm, key)) for key in {subject_key(queue), ""})
        return max((each for each in known if each is not None and now < each.until),
                   key=lambda each: each.until, default=None)  # fmt: skip

    def in_force(self, now: float) -> list[Silence]:
        """Return the silences that have not expired, the first to expire first."""
        found = [each for each in self.silences.values() if now < each.until]
        return sorted(found, key=lambda each: (each.until, each.alarm, each.subject))

    def over(self, thresholds: Mapping[str, int], by_queue: QueueThresholds) -> tuple[dict[str, int], QueueThresholds]:
        """Return the thresholds of conditions and of single queues, overridden by those of the file."""
        of_conditions = {rule.alarm: rule.threshold for (_, key), rule in self.thresholds.items() if not key}
        single = {place: rule.threshold for place, rule in self.thresholds.items() if place[1]}
        return {**thresholds, **of_conditions}, {**by_queue, **single}


NO_RULES: Final = AlarmRules({}, {})


class AlarmRulesFile:
    """The file of one data directory; commands, the HTTP process and the daemon may use it at the same time."""

    def __init__(self, data_dir: Path, clock: Callable[[], float] = time.time) -> None:
        self._file: Final = CachedFile(data_dir / ALARM_RULES_FILE, _parse, NO_RULES, kind="rules of alarms")
        self._clock: Final = clock

    def read(self) -> AlarmRules:
        """Read the file. Raises AlarmRuleError, which is also logged."""
        try:
            return self._file.value()
        except PrivateFileError as error:
            raise AlarmRuleError(str(error)) from error

    def silence(
        self, alarm: str, subject: str, seconds: int, user: str, reason: str, on_change: Callable[[], object]
    ) -> Silence:
        """Silence a condition for `seconds`; an existing silence of the same subject is replaced. `on_change` is called
        before the change. Raises AlarmRuleError, and exceptions of `on_change`."""
        if subject.strip() and alarm in OF_MACHINE:
            raise AlarmRuleError(f"{alarm} is an alarm of the machine: leave out {subject.strip()}")
        _check_object(alarm, subject)
        now = int(self._clock())
        made = Silence(alarm, subject.strip(), now, now + seconds, user, reason)
        with self._changing() as known:
            silences = {key: each for key, each in known.silences.items() if now < each.until}
            silences[alarm, subject_key(subject)] = made
            if len(silences) > MOST_SILENCES:
                raise AlarmRuleError(f"{MOST_SILENCES} silences are active, which is the limit: end one")
            on_change()
            self._save(replace(known, silences=silences))
        return made

    def unsilence(self, alarm: str, subject: str, on_change: Callable[[], object]) -> Silence:
        """End a silence now. Raises as `silence`."""
        now, place = self._clock(), (alarm, subject_key(subject))
        with self._changing() as known:
            found = known.silences.get(place)
            if found is None or found.until <= now:
                about = f" of {subject}" if subject else ""
                raise AlarmRuleError(f"no silence of {alarm}{about} is in force; `openmsmq alarms` shows all")
            on_change()
            self._save(replace(known, silences={key: each for key, each in known.silences.items() if key != place}))
        return found

    def set_threshold(
        self, alarm: str, subject: str, threshold: int, user: str, on_change: Callable[[ThresholdRule | None], object]
    ) -> ThresholdRule:
        """Set the threshold of a condition, or of one queue. `on_change` gets the previous rule. Raises as
        `silence`."""
        if subject.strip() and alarm not in OF_QUEUES:
            allowed = ", ".join(OF_QUEUES)
            raise AlarmRuleError(f"{alarm} has no thresholds of single queues; alarms that have: {allowed}")
        _check_object(alarm, subject)
        place = alarm, subject_key(subject)
        made = ThresholdRule(alarm, subject.strip(), threshold, int(self._clock()), user)
        with self._changing() as known:
            if len(known.thresholds) >= MOST_THRESHOLDS and place not in known.thresholds:
                raise AlarmRuleError(f"{MOST_THRESHOLDS} thresholds are set, which is the limit: reset one")
            on_change(known.thresholds.get(place))
            self._save(replace(known, thresholds={**known.thresholds, place: made}))
        return made

    def reset_threshold(
        self, alarm: str, subject: str, on_change: Callable[[ThresholdRule | None], object]
    ) -> ThresholdRule:
        """Remove a threshold, so that the setting applies again. Raises as `set_threshold`."""
        place = alarm, subject_key(subject)
        with self._changing() as known:
            found = known.thresholds.get(place)
            if found is None:
                about = f" of {subject}" if subject else ""
                raise AlarmRuleError(
                    f"no threshold of {alarm}{about} was set here; `openmsmq alarm thresholds` shows all"
                )
            on_change(found)
            rest = {key: each for key, each in known.thresholds.items() if key != place}
            self._save(replace(known, thresholds=rest))
        return found

    @contextmanager
    def _changing(self) -> Iterator[AlarmRules]:
        """Yield the rules while holding the lock of the file. Raises AlarmRuleError."""
        try:
            with self._file.changing() as known:
                yield known
        except PrivateFileError as error:
            raise AlarmRuleError(str(error)) from error

    def _save(self, rules: AlarmRules) -> None:
        content = {
            "format": _FORMAT, "silences": [asdict(each) for each in rules.silences.values()],
            "thresholds": [asdict(each) for each in rules.thresholds.values()],
        }  # fmt: skip
        write_private(self._file.path, (json.dumps(content, indent=1) + "\n").encode())


def _check_object(alarm: str, subject: str) -> None:
    try:
        check_object(alarm, subject)
    except ValueError as error:
        raise AlarmRuleError(str(error)) from None


def _parse(data: bytes) -> AlarmRules:
    content = json.loads(data)
    silences = [_silence(entry) for entry in content["silences"]]
    thresholds = [_threshold(entry) for entry in content["thresholds"]]
    return AlarmRules(
        {(each.alarm, subject_key(each.subject)): each for each in silences if each.alarm in BY_NAME},
        {(each.alarm, subject_key(each.subject)): each for each in thresholds if each.alarm in BY_NAME},
    )


def _silence(entry: Any) -> Silence:
    return Silence(
        str(entry["alarm"]), str(entry["subject"]), int(entry["since"]), int(entry["until"]), str(entry["user"]),
        str(entry["reason"]),
    )  # fmt: skip


def _threshold(entry: Any) -> ThresholdRule:
    return ThresholdRule(
        str(entry["alarm"]), str(entry["subject"]), int(entry["threshold"]), int(entry["at"]), str(entry["user"])
    )
