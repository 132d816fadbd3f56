"""Alarms of the daemon: checks conditions every 10 s, records raised and cleared alarms, and sends them as messages to
a queue. Webhooks are called by the web process, because other servers may be slow.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

from openmsmq.admin.alarm_rules import NO_RULES, AlarmRuleError, AlarmRulesFile
from openmsmq.admin.alarms import (
    MOST_OF_CONDITION,
    Alarms,
    Event,
    QueueThresholds,
    document_of,
    event_document,
    key_of,
    read_alarms,
    write_alarms,
)
from openmsmq.files.private import PrivateFileError
from openmsmq.model.constants import INFINITE, Access, Share
from openmsmq.model.errors import MsmqError
from openmsmq.model.histogram import BUCKETS, Histogram
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.message import Message
from openmsmq.model.names import FormatName, parse_format_name
from openmsmq.oletx.manager import TransactionRow
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import OutgoingQueue, OutgoingState
from openmsmq.queueing.queue import APPLICATION_QUEUES, SYSTEM_DEADLETTER, SYSTEM_DEADXACT, Queue
from openmsmq.relaying.relay import Relay
from openmsmq.store import StoreError

logger = logging.getLogger(__name__)

PERIOD: Final = 10.0  # seconds between checks
WINDOW: Final = 600.0  # seconds within which dead letters are counted
_SLICE: Final = 100  # queues per event-loop iteration
_MOST_READS: Final = 500  # maximum messages read by one check to get their age
_DEAD_LETTERS: Final = {SYSTEM_DEADLETTER: "deadletter", SYSTEM_DEADXACT: "xactdeadletter"}
_LOWER_BOUNDS: Final = (0.0, *BUCKETS)

Resolve: TypeAlias = Callable[[FormatName, Access], Awaitable[FormatName]]


@dataclass(slots=True)
class _Check:
    """The result of one check of all queues. The next check compares with `heads` and `stuck`."""

    now: float
    charged: int = 0
    reads: int = 0
    heads: dict[int, tuple[int, int]] = field(default_factory=dict)
    stuck: dict[int, tuple[int, float]] = field(default_factory=dict)


class AlarmWatch:
    """The alarms of one daemon."""

    def __init__(
        self, manager: QueueManager, data_dir: Path, thresholds: Mapping[str, int], syncs: Histogram, queue: str,
        clock: Callable[[], float] = time.time, is_owner: Callable[[], bool] = lambda: True,
        transactions: Callable[[], Iterable[TransactionRow]] = tuple,
        by_queue: QueueThresholds = MappingProxyType({}), relays: Callable[[], Iterable[Relay]] = tuple,
        resolve: Resolve | None = None,
    ) -> None:  # fmt: skip
        """`thresholds`: condition -> threshold, 0 for never; `by_queue` has thresholds of single queues. `queue` is the
        format name of the queue that gets events, empty for none. `is_owner` returns whether the store still belongs to
        this daemon: a daemon that was frozen may have lost it, and then saves and sends nothing. `transactions` returns
        the distributed transactions, `relays` all relays. `resolve` looks up a format name in the directory."""
        self._manager: Final = manager
        self._data_dir: Final = data_dir
        self._settings: Final = thresholds, by_queue
        self._thresholds, self._by_queue = thresholds, by_queue  # in force at the last check
        self._rules_file: Final = AlarmRulesFile(data_dir, clock)
        self._rules = NO_RULES
        self._syncs: Final = syncs
        self._queue: Final = queue
        self._clock: Final = clock
        self._transactions: Final = transactions
        self._relays: Final = relays
        self._is_owner: Final = is_owner
        self._resolve: Final = resolve
        self._started = self._checked = clock()
        self._seen_syncs = list(syncs.counts)
        self._deaths: Final[dict[int, deque[tuple[float, int]]]] = {number: deque() for number in _DEAD_LETTERS}
        self._stuck: dict[
            int, tuple[int, float]
        ] = {}  # outgoing queue -> number of sent messages, and since when it is unchanged
        self._still: dict[
            str, tuple[int, float]
        ] = {}  # queue of a relay -> number of moved messages, and since when it is unchanged
        self._away: dict[str, float] = {}  # machine whose queues are fetched -> since when it has not answered
        self._waits: dict[bytes, float] = {}  # transaction that waits for another machine -> since when
        self._heads: dict[int, tuple[int, int]] = {}  # queue -> first position, and the arrival time of its message
        self.alarms: Final = _known(data_dir)
        self._is_unsaved = False

    async def run(self) -> None:
        """Check periodically, until this is canceled."""
        while True:
            try:
                await self.check()
            except Exception:  # a failed check must not stop the next ones
                logger.exception("alarm check failed; next check in %.0f s", PERIOD)
            await asyncio.sleep(PERIOD)

    async def check(self) -> list[Event]:
        """Check once. Events are on the disk before they are delivered, so that none is delivered twice."""
        self._read_rules()
        if self._clock() < self._checked:
            self._begin_again()
        self._checked = self._clock()
        alarms, limits = self.alarms, (self._thresholds, self._by_queue)
        readings = {
            key: value async for key, value in self._readings(self._clock()) if alarms.concerns(key, value, *limits)
        }  # fmt: skip
        before, was = self.alarms.beyond, dict(self.alarms.active)
        events = self.alarms.update(
            readings, self._thresholds, self._clock(), self._by_queue, self._is_silenced
        )  # fmt: skip
        for name in self.alarms.beyond.keys() - before.keys():
            logger.warning(
                "alarm %s: %d more objects exceed the threshold; at most %d alarms per condition are active at once",
                name, self.alarms.beyond[name], MOST_OF_CONDITION,
            )  # fmt: skip
        changed = events or self.alarms.beyond != before or self.alarms.active != was or self._is_unsaved
        if changed and self._is_owner():
            for event in events:
                level = logging.WARNING if event.state == "raised" and not event.silenced else logging.INFO
                state = f"{event.state} (silenced)" if event.silenced else event.state
                logger.log(level, "alarm %s %s: %s", event.alarm.name, state, event.alarm.sentence)
            document = document_of(self.alarms)
            try:
                await asyncio.get_running_loop().run_in_executor(None, write_alarms, self._data_dir, document)
                self._is_unsaved = False
            except PrivateFileError as error:  # a full disk is itself an alarm
                if not self._is_unsaved:
                    logger.error(
                        "cannot save alarms, so webhook and e-mail do not get them; retrying, and a restart may raise "
                        "them again: %s", error,
                    )  # fmt: skip
                self._is_unsaved = True
            await self._send([event for event in events if not event.silenced])
        return events

    def _begin_again(self) -> None:
        """Measure all durations from now on, because the clock was set back."""
        self._started = self._clock()
        for samples in self._deaths.values():
            samples.clear()
        self._stuck, self._still, self._away, self._waits = {}, {}, {}, {}

    def _read_rules(self) -> None:
        """Read the file of rules. If it can't be read, an error is logged, and the previous rules remain in force."""
        with suppress(AlarmRuleError):
            self._rules = self._rules_file.read()
        self._thresholds, self._by_queue = self._rules.over(*self._settings)

    def _is_silenced(self, name: str, queue: str) -> bool:
        return self._rules.silence_of(name, queue, self._clock()) is not None

    # -- readings --------------------------------------------------------------------------------------------------

    async def _readings(self, now: float) -> AsyncIterator[tuple[tuple[str, str], float | None]]:
        for name, reading in (
            ("disk", lambda: shutil.disk_usage(self._data_dir).free >> 20), ("sync", self._slowest_sync),
        ):  # fmt: skip
            try:
                yield (name, ""), reading()
            except OSError as error:
                LEFT_OUT.note("alarm readings", name, error)
        for waiting in self._waiting_transactions(now):
            yield waiting
        for relayed in self._relay_readings(now):
            yield relayed
        check = _Check(now)
        for number, queue in enumerate(list(self._manager.registry.queues.values()), 1):
            try:
                readings = self._readings_of(queue, check)
            except Exception as error:
                LEFT_OUT.note("alarm readings", queue.properties.path_name, error)
                readings = []
            for reading_of_queue in readings:
                yield reading_of_queue
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        if self._manager.machine.quota not in (0, INFINITE):
            yield ("quota", ""), 100 * check.charged / (self._manager.machine.quota * 1024)
        self._heads, self._stuck = check.heads, check.stuck

    def _readings_of(self, queue: Queue, check: _Check) -> list[tuple[tuple[str, str], float | None]]:
        found: list[tuple[tuple[str, str], float | None]] = []
        check.charged += queue.total_bytes
        name = queue.properties.path_name
        if queue.properties.quota not in (0, INFINITE) and queue.kind in APPLICATION_QUEUES:
            found.append((("quota", name), 100 * queue.charged_bytes / queue.quota_bytes))
        if queue.number in _DEAD_LETTERS:
            found.append((("deadletters", _DEAD_LETTERS[queue.number]), self._deaths_of(queue, check.now)))
        elif isinstance(queue, OutgoingQueue):
            if queue.entries and queue.state(self._manager.outgoing.online) is not OutgoingState.ON_HOLD:
                known = self._stuck.get(queue.number)
                if known is None or known[0] != queue.left:
                    known = queue.left, check.now
                check.stuck[queue.number] = known
                place = str(queue.destination)
                found.append((("outgoing", place), self._since(known[1], check.now, "outgoing", place)))
        elif (
            queue.kind in APPLICATION_QUEUES
            and self._threshold("oldest", name)
            and (first := queue.first()) is not None
        ):
            head = self._heads.get(queue.number)
            if (head is None or head[0] != first) and check.reads < _MOST_READS:
                check.reads += 1
                head = self._head(queue, first)
            if head is not None:
                check.heads[queue.number] = head
            found.append((("oldest", name), None if head is None else check.now - head[1]))
        return found

    def _waiting_transactions(self, now: float) -> list[tuple[tuple[str, str], float | None]]:
        """Return how long distributed transactions have waited for another machine, in seconds. If the wait began
        before the daemon started, it is unknown until the daemon has run for as long as the threshold."""
        stuck = [row.uow for row in self._transactions() if row.is_stuck]
        self._waits = {uow: self._waits.get(uow, now) for uow in stuck}
        return [
            (("indoubt", f"Transaction {uow.hex()}"), self._since(since, now, "indoubt"))
            for uow, since in self._waits.items()
        ]

    def _relay_readings(self, now: float) -> Iterator[tuple[tuple[str, str], float | None]]:
        """Return how long relays with remaining messages have moved none, how many messages of each are refused, and
        how long other machines have not answered. Each machine has one alarm."""
        before, self._still = self._still, {}
        away: dict[str, float] = {}
        for relay in self._relays():
            queue = relay.definition.queue
            yield ("refused", queue), len(relay.refused)
            if relay.away_since:
                host = relay.definition.host
                since = relay.away_since if relay.away_since <= now else self._away.get(host, now)
                away[host] = min(since, away.get(host, now))
            if relay.left:
                known = before.get(queue)
                if known is None or known[0] != relay.progress.moved:
                    known = relay.progress.moved, now
                self._still[queue] = known
                yield ("relay", queue), self._since(known[1], now, "relay")
        self._away = away
        for host, since in away.items():
            yield ("peer", host), self._since(since, now, "peer")

    def _slowest_sync(self) -> float | None:
        """Return a lower bound for the slowest sync since the last check, in milliseconds; None if there was none."""
        before, self._seen_syncs = self._seen_syncs, list(self._syncs.counts)
        slowest = [
            bound
            for bound, old, new in zip(_LOWER_BOUNDS, before, self._seen_syncs, strict=True)
            if new > old
        ]  # fmt: skip
        return slowest[-1] * 1000 if slowest else None

    def _deaths_of(self, queue: Queue, now: float) -> float | None:
        """Return the number of messages that arrived within the window; None while the daemon has run for less than the
        window and the number is below the threshold."""
        samples = self._deaths[queue.number]
        samples.append((now, queue.came))
        while samples[0][0] < now - WINDOW:
            samples.popleft()
        came = queue.came - samples[0][1]
        is_over = now - self._started >= WINDOW or came >= self._thresholds["deadletters"]
        return came if is_over else None

    def _threshold(self, condition: str, queue: str) -> int:
        return self._by_queue.get((condition, key_of(queue)), self._thresholds[condition])

    def _since(self, since: float, now: float, condition: str, queue: str = "") -> float | None:
        """Return how long a condition has held, in seconds. Until the daemon has run for as long as the threshold, it
        is unknown whether the condition held before its start."""
        known = now - self._started >= self._threshold(condition, queue) or since > self._started + PERIOD
        return now - since if known else None

    @staticmethod
    def _head(queue: Queue, first: int) -> tuple[int, int] | None:
        """Return position and arrival time of the first message; None if it cannot be read, which its receiver will get
        as an error."""
        try:
            message = queue.message(first)
        except (KeyError, StoreError, OSError, ValueError):
            return None
        return first, message.arrival_time

    # -- notification
    # ---------------------------------------------------------------------------------------------------

    async def _send(self, events: list[Event]) -> None:
        if not self._queue or not events:
            return
        manager = self._manager
        machine = manager.machine.computer_name
        try:
            name = parse_format_name(self._queue)
            if self._resolve is not None:
                name = await self._resolve(name, Access.SEND)
            descriptor = manager.handles.open_queue(name, Access.SEND, Share.DENY_NONE, SYSTEM)
            try:
                for event in events:
                    manager.sending.enqueue(descriptor, _message(event, machine))
            finally:
                manager.handles.close_queue(descriptor)
        except (MsmqError, ValueError) as error:
            logger.error("cannot send alarms to alarm_queue %s: %s", self._queue, error)


def _message(event: Event, machine: str) -> Message:
    """Return the message for an event: JSON as text. It is recoverable, because its reader may be offline for long."""
    body = json.dumps(event_document(event, machine))
    return Message.of(body, label=f"alarm {event.alarm.name} {event.state}", delivery_guarantee=1)


def _known(data_dir: Path) -> Alarms:
    try:
        return read_alarms(data_dir)
    except (OSError, ValueError) as error:
        logger.warning("cannot read the active alarms; they may be raised again: %s", error)
        return Alarms()
