"""Relays for administrators: list, create, and perform steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from openmsmq.gateways.rows import id_of
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.relay_states import RELAY_STATES, RelayState
from openmsmq.queueing.auditing import Actor, Auditor, AuditRecord
from openmsmq.queueing.queue import APPLICATION_QUEUES, Queue, QueueKind
from openmsmq.relaying.relay import Relay
from openmsmq.relaying.relays import Relays
from openmsmq.relaying.states import STEPS, Direction

#: Initial states of relays.
BEGINNINGS: Final[tuple[RelayState, ...]] = ("shadow", "receiving", "sending")


class RelayRequests:
    """Used by `WebGateway`, which checks the caller."""

    def __init__(
        self, relays: Relays, local_queue: Callable[[str], Queue], is_here: Callable[[str], bool], auditor: Auditor,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """`local_queue` finds a queue by its path name, and raises MsmqError; `is_here` tells whether a host is this
        machine; `now` returns seconds since 1970 UTC."""
        self._relays: Final = relays
        self._local_queue: Final = local_queue
        self._is_here: Final = is_here
        self._auditor: Final = auditor
        self._clock: Final = now

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each relay, sorted by queue."""
        for relay in sorted(self._relays, key=lambda relay: relay.definition.queue.lower()):
            yield self._row(relay)

    def figures(self) -> dict[str, Any]:
        """Return figures by the names of `admin.metrics.FAMILIES`."""
        now, relays = self._now(), list(self._relays)
        lags = [relay.lag(now) or 0 for relay in relays if relay.direction is not Direction.NONE]
        return {
            "relays": {state: sum(each.definition.state == state for each in relays) for state in RELAY_STATES},
            "relay_messages_moved_total": self._relays.moved,
            "relay_messages_left": sum(each.waiting or 0 for each in relays),
            "relay_messages_refused": sum(len(each.refused) for each in relays),
            "relay_lag_seconds": max(lags, default=0),
        }

    def begin(self, queue: str, host: str, remote: str, state: str, actor: Actor) -> dict[str, Any]:
        """Create a relay and return its row. Raises MsmqError."""
        if state not in BEGINNINGS:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"a relay begins as {', '.join(BEGINNINGS)}")
        local = self._local_queue(queue)
        if state == "sending" and self._is_here(host):
            raise MsmqError(
                HResult.MQ_ERROR_INVALID_PARAMETER, f"{host} is this machine; name the one to send the messages to"
            )
        if state == "sending" and local.kind not in APPLICATION_QUEUES:
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_OPERATION,
                f"{queue}: journals and dead letters can't be sent to another machine",
            )
        if local.kind not in (*APPLICATION_QUEUES, QueueKind.JOURNAL, QueueKind.SYSTEM):
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_OPERATION, f"{queue} is a {local.kind.value} queue")
        self._auditor.record(
            AuditRecord(actor, "relay.begin", "queue", queue, after={"host": host, "remote": remote, "state": state})
        )
        return self._row(self._relays.add(queue, host, remote, next(each for each in BEGINNINGS if each == state)))

    def step(self, queue: str, step: str, force: bool, replies: bool, actor: Actor) -> dict[str, Any] | None:
        """Perform a step of a relay and return its row; None if there is no such relay. Raises MsmqError if the step is
        not possible or, without `force`, if it would end the relay before all messages are moved."""
        relay = self._relays.get(queue)
        if relay is None:
            return None
        if step == "back" and self._local_queue(queue).kind not in APPLICATION_QUEUES:
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_OPERATION,
                f"{queue}: messages of a journal or dead-letter queue cannot be sent back to another machine",
            )
        unfinished = self._relays.unfinished(relay, step)
        if unfinished and not force:
            raise MsmqError(
                HResult.MQ_ERROR_ILLEGAL_OPERATION,
                f"the relay of {queue} is not finished: {unfinished} (use force to end it)",
            )
        before = relay.definition.state
        self._auditor.record(
            AuditRecord(
                actor,
                "relay.step",
                "queue",
                queue,
                before={"state": before},
                after={"step": step, "replies": replies},
            )
        )
        self._relays.step(relay, step, replies=replies)
        return self._row(relay)

    def _now(self) -> int:
        return int(self._clock())

    def _row(self, relay: Relay) -> dict[str, Any]:
        definition, progress = relay.definition, relay.progress
        try:
            identifier = id_of(self._local_queue(definition.queue))
        except MsmqError:
            identifier = ""
        rate, waiting = relay.rate, relay.waiting
        return {
            "queue": definition.queue, "id": identifier, "host": definition.host, "remote": definition.remote,
            "state": definition.state, "replies": definition.replies,
            "since": definition.since, "began": definition.began,
            "moved": progress.moved, "bytes": progress.volume, "last": progress.last, "rate": round(rate, 2),
            "waiting": waiting, "lag": relay.lag(self._now()), "empty_since": relay.empty_since,
            "seconds_left": round(waiting / rate) if rate and waiting else (0 if relay.empty_since else None),
            "trouble": relay.trouble, "trouble_since": relay.trouble_since,
            "refused": [
                {"message": message, "reason": each.reason, "since": each.since}
                for message, each in relay.refused.items()
            ],
            "unconfirmed": relay.unacknowledged if relay.direction is Direction.OUT else len(progress.taken),
            "steps": [step for state, step in STEPS if state == definition.state],
        }  # fmt: skip
