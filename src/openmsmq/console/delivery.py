"""Delivery of alarms to a receiver outside: which events are due, attempts, and what becomes of events that fail.

Events for a receiver that is unreachable or busy, or that refuses the settings, are sent again until it takes them: a
failed network raises alarms, and also stops their delivery. Events whose content a receiver refuses `TRIES` times are
dropped and logged, so that they do not block later ones. A file with the number of the last event that was delivered or
dropped prevents duplicates after a restart.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from openmsmq.admin.alarms import ALARMS_FILE, EVENTS, Alarms, Event, read_alarms, read_delivered, write_delivered
from openmsmq.model.text import reason_of, some_of

logger = logging.getLogger(__name__)

TRIES: Final = 5  # attempts before a pause, or before events are dropped
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between attempts, increasing exponentially
_PERIOD: Final = 2.0  # seconds between checks for events


class EventsRefused(Exception):
    """The receiver does not take these events. The text is its answer."""


@dataclass(slots=True)
class AlarmDelivery:
    """Delivers alarms in one `way` ("by webhook", for the log), in a thread of its own.

    `batches` divides the due events into those that are sent together, and may leave some for later. `send` sends a
    batch; it raises EventsRefused, or OSError if they are to be sent again. `name` is the file with the
    number of the last event. `is_served` returns whether the daemon answers: a frozen daemon may have lost its store to
    another daemon, which then delivers the same alarms.
    """

    data_dir: Path
    way: str
    name: str
    batches: Callable[[Sequence[Event]], Sequence[Sequence[Event]]]
    send: Callable[[Sequence[Event]], None]
    is_served: Callable[[], bool] = lambda: True
    wait: Callable[[float], object] = time.sleep
    _is_away: bool = False
    _unsaved: int | None = None  # a full disk is itself an alarm, and must not be delivered every few seconds

    def run(self) -> None:
        """Deliver events until the process ends."""
        while True:
            is_settled = True
            try:
                is_settled = self.deliver()
            except Exception:  # a failing event must not stop the thread
                logger.exception("alarms could not be delivered %s", self.way)
            self.wait(_PERIOD if is_settled else LONGEST_PAUSE)

    def deliver(self) -> bool:
        """Deliver the events since the last delivery. Returns whether all that are due were delivered or dropped."""
        try:
            alarms = read_alarms(self.data_dir)
        except (OSError, ValueError) as error:
            logger.error("cannot deliver alarms %s: %s", self.way, error)
            return True
        for batch in self.batches(self._due(alarms)):
            if not self._is_settled(batch):
                return False
            self._note(batch[-1].seq, alarms)
        return True

    def _is_settled(self, events: Sequence[Event]) -> bool:
        """Send a batch, at most `TRIES` times. Returns whether it was sent or refused."""
        failure: Exception | None = None
        pause = FIRST_PAUSE
        for number in range(TRIES):
            if number:
                self.wait(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, LONGEST_PAUSE)
            try:
                self.send(events)
            except (OSError, EventsRefused) as error:
                failure = error
            else:
                self._report_back()
                return True
        about = some_of([f"{event.alarm.name} {event.state}" for event in events])
        assert failure is not None
        reason = reason_of(failure)
        if isinstance(failure, EventsRefused):
            logger.error(
                "alarm events (%s) were not delivered %s: refused %d times: %s", about, self.way, TRIES, reason
            )
            return True
        if not self._is_away:
            logger.error(
                "alarm events (%s) can't be delivered %s, retrying every %d s: %s", about, self.way, LONGEST_PAUSE,
                reason,
            )  # fmt: skip
        self._is_away = True
        return False

    def _report_back(self) -> None:
        if self._is_away:
            logger.warning("alarm events are delivered %s again", self.way)
        self._is_away = False

    def _due(self, alarms: Alarms) -> list[Event]:
        last = self._last()
        due = due_events(alarms, last)
        are_silenced = not due and last is not None and alarms.seq > last
        if not (due or are_silenced) or not self.is_served():
            return []
        if are_silenced:
            self._save(alarms.seq)
        return due

    def _note(self, seq: int, alarms: Alarms) -> None:
        """Record that the events up to `seq` are delivered, or were dropped. Log how many `alarms` no longer had."""
        last = self._last()
        if last is not None and (missed := alarms.events[0].seq - last - 1) > 0:
            logger.error(
                "%d alarm events were not delivered %s: %s keeps the last %d events only", missed, self.way,
                ALARMS_FILE, EVENTS,
            )  # fmt: skip
        self._save(seq)

    def _last(self) -> int | None:
        return read_delivered(self.data_dir, self.name) if self._unsaved is None else self._unsaved

    def _save(self, seq: int) -> None:
        self._unsaved = None if write_delivered(self.data_dir, seq, self.name) else seq


def due_events(alarms: Alarms, last: int | None) -> list[Event]:
    """Return the events to deliver, without silenced ones. A receiver that has received nothing yet (`last` is None)
    gets the active alarms. A restored store resets the counter."""
    if last is None:
        raised = {(event.alarm.name, event.alarm.queue): event for event in alarms.events if event.state == "raised"}
        active = [event for key, event in raised.items() if key in alarms.active and not event.silenced]
        return sorted(active, key=lambda event: event.seq)  # the last one has the number to continue from
    if last > alarms.seq:
        last = 0
    return [event for event in alarms.events if event.seq > last and not event.silenced]
