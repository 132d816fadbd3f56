"""All relays of a queue manager, by local queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.relay_states import RelayState
from openmsmq.model.text import counted
from openmsmq.relaying.records import (
    RelayDefinition,
    RelayProgress,
    drop_progress,
    drop_relay,
    left_by_deleted,
    put_progress,
    put_relay,
    relay_key,
    relays_of,
)
from openmsmq.relaying.relay import Relay
from openmsmq.relaying.states import Direction, following
from openmsmq.store import Operation

MOST: Final = 2_000  # relays; each has its own connection


class Relays:
    """Stores relays and reports changes of their states."""

    def __init__(
        self, write: Callable[[Sequence[Operation]], None], changed: Callable[[Relay], None], now: Callable[[], int]
    ) -> None:
        """`write` stores operations; if it raises MsmqError, nothing has changed. `changed` starts or stops the work of
        a relay after its state has changed. `now` returns seconds since 1970 UTC."""
        self._write: Final = write
        self._changed: Final = changed
        self._now: Final = now
        self._relays: Final[dict[str, Relay]] = {}
        self._left: Final[dict[str, RelayProgress]] = {}  # by deleted relays: see `release`
        self._moved_by_deleted = 0

    def recover(self, definitions: Mapping[bytes, bytes]) -> None:
        """Restore the relays from the store."""
        for definition, progress in relays_of(definitions):
            self._relays[relay_key(definition.queue)] = Relay(definition, progress, moved_before=progress.moved)
        self._left.update(left_by_deleted(definitions))

    def __iter__(self) -> Iterator[Relay]:
        return iter(list(self._relays.values()))

    def get(self, queue: str) -> Relay | None:
        """Return the relay of a queue, by path name; None if there is none."""
        return self._relays.get(relay_key(queue))

    def add(self, queue: str, host: str, remote: str, state: RelayState) -> Relay:
        """Create a relay. Raises MsmqError if the queue already has a relay or there are too many."""
        known = self.get(queue)
        if known is not None:
            raise MsmqError(
                HResult.MQ_ERROR_ILLEGAL_OPERATION,
                f"{queue} already has a relay, from or to {known.remote_name}, {known.definition.state}",
            )
        if len(self._relays) >= MOST:
            raise MsmqError(
                HResult.MQ_ERROR_INSUFFICIENT_RESOURCES, f"there are already {MOST} relays, which is the limit"
            )
        now, key = self._now(), relay_key(queue)
        relay = Relay(RelayDefinition(queue, host, remote, state, now, now), self._left.get(key, RelayProgress()))
        relay.remote_name  # noqa: B018 - raises for an invalid name
        self._write([put_relay(relay.definition)])
        self._relays[key] = relay
        self._left.pop(key, None)
        self._changed(relay)
        return relay

    def step(self, relay: Relay, step: str, *, replies: bool = False) -> None:
        """Perform a step of a relay; `replies` (only for the step switch) as in `RelayDefinition`. Raises MsmqError if
        the step is not possible."""
        queue = relay.definition.queue
        if replies and step != "switch":
            raise MsmqError(
                HResult.MQ_ERROR_INVALID_PARAMETER, f"replies is an option of the step switch, not of {step}"
            )
        state = following(queue, relay.definition.state, step).state
        if state is None:
            left = relay.progress.of_taken()
            self._write(drop_relay(queue, left))
            del self._relays[relay_key(queue)]
            if left.taken:
                self._left[relay_key(queue)] = left
            self._moved_by_deleted += relay.progress.moved - relay.moved_before
            relay.definition = relay.enter("done", self._now())
        else:
            definition = relay.enter(state, self._now(), replies=replies)
            self._write([put_relay(definition)])
            relay.begin(definition)
        self._changed(relay)

    def release(self, relay: Relay) -> None:
        """Drop the record of a deleted relay, except identifiers of messages that the other machine may still have: a
        later relay of the queue recognizes them. Called when its work has ended. Raises MsmqError with nothing
        changed."""
        key, left = relay_key(relay.definition.queue), relay.progress.of_taken()
        if key not in self._left or left == self._left[key]:
            return
        queue = relay.definition.queue
        self._write([put_progress(queue, left) if left.taken else drop_progress(queue)])
        del self._left[key]
        if left.taken:
            self._left[key] = left

    @property
    def moved(self) -> int:
        """Messages moved by all relays since the daemon started, including deleted relays."""
        return self._moved_by_deleted + sum(each.progress.moved - each.moved_before for each in self)

    def unfinished(self, relay: Relay, step: str) -> str:
        """Return why a step would end the relay before everything is moved; empty if it would not."""
        if step not in ("done", "end") or relay.direction is Direction.NONE or relay.empty_since:
            return ""
        if relay.trouble:
            return f"nothing moves: {relay.trouble}"
        where = "at the other machine" if relay.direction is Direction.IN else "here or in transit"
        if relay.waiting is None:
            return f"messages are still {where}"
        count = relay.waiting + relay.unacknowledged
        return f"{counted(count, 'message')} {'is' if count == 1 else 'are'} still {where}"
