"""A running relay: its state in the store, and the current state of its work."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from openmsmq.model.message import Message
from openmsmq.model.names import MultipleElementFormatName, SingleFormatName, parse_format_name
from openmsmq.model.relay_states import RelayState
from openmsmq.relaying.records import RelayDefinition, RelayProgress
from openmsmq.relaying.states import DIRECTIONS, Direction

#: Lifetime of an identifier in `taken`. The other machine puts an unremoved message back when it notices that the
#: connection is lost, at the latest at its next start.
DOUBT: Final = 30 * 24 * 3600  # seconds
MOST_IN_DOUBT: Final = 10_000
MOST_REFUSED: Final = 100  # refused messages whose reasons are kept
_RATE_PERIOD: Final = 60  # seconds over which a rate is measured


class RefusedMessage(NamedTuple):
    """Why a message cannot be moved, and since when (seconds since 1970 UTC)."""

    reason: str
    since: int


@dataclass(slots=True, eq=False)
class Relay:
    """One relay.

    Attributes:
        trouble: why the relay does not work; empty while it works.
        trouble_since: since when, in seconds since 1970 UTC; 0 if it works.
        refused: messages refused by the machine they go to, by identifier as text; they stay at the source.
        empty_since: since when the source is empty, in seconds since 1970 UTC; 0 if it is not, or was not checked yet.
        waiting: number of messages at the source, if known.
        unacknowledged: number of messages sent to the other machine without an acknowledgment so far.
        rests_until: nothing is sent before this time, in seconds since 1970 UTC.
        away_since: since when the other machine has not answered; 0 while it does.
        carried_up_to: messages that arrived at the source before this time have been moved, as far as is known, in
            seconds since 1970 UTC; 0 if unknown.
        moved_before: value of `progress.moved` when the daemon started.
    """

    definition: RelayDefinition
    progress: RelayProgress
    trouble: str = ""  # english: ok - the name in the API
    trouble_since: int = 0
    refused: dict[str, RefusedMessage] = field(default_factory=dict)
    empty_since: int = 0
    waiting: int | None = None
    unacknowledged: int = 0
    rests_until: int = 0
    away_since: int = 0
    carried_up_to: int = 0
    moved_before: int = 0
    _samples: deque[tuple[int, int]] = field(default_factory=deque)

    @property
    def direction(self) -> Direction:
        return DIRECTIONS[self.definition.state]

    @property
    def remote_name(self) -> SingleFormatName:
        """Format name of the queue at the other machine."""
        name = parse_format_name(f"DIRECT=OS:{self.definition.host}\\{self.definition.remote}")
        assert not isinstance(name, MultipleElementFormatName)
        return name

    def is_taken(self, message: Message) -> bool:
        """Whether a message at the other machine is already stored here."""
        return message.identifier in self.progress.taken

    def taking(self, messages: Iterable[Message], now: int) -> RelayProgress:
        """Return the progress after these messages are stored here and not yet removed at the other machine."""
        stored = list(messages)
        known = {each: at for each, at in self.progress.taken.items() if now - at < DOUBT}
        for each in list(known)[: max(0, len(known) + len(stored) - MOST_IN_DOUBT)]:
            del known[each]
        known |= {message.identifier: now for message in stored}
        express = {message.identifier for message in stored if not message.recoverable}
        progress = self._counted(stored, known, now)
        return progress._replace(express=(self.progress.express | express) & known.keys())

    def handing_on(self, messages: Iterable[Message], now: int) -> RelayProgress:
        """Return the progress after these messages are sent to the other machine."""
        return self._counted(list(messages), self.progress.taken, now)

    def _counted(self, messages: list[Message], taken: Mapping[bytes, int], now: int) -> RelayProgress:
        volume = sum(message.size for message in messages)
        self.carried_up_to = max((message.arrival_time for message in messages), default=self.carried_up_to)
        moved = self.progress.moved + len(messages)
        return RelayProgress(moved, self.progress.volume + volume, now, taken, self.progress.express)

    def removed(self, identifiers: Iterable[bytes]) -> None:
        """Record that the other machine has removed these messages. The store is updated with the next batch; extra
        identifiers do no harm until then."""
        gone = set(identifiers)
        kept = {each: at for each, at in self.progress.taken.items() if each not in gone}
        self.progress = self.progress._replace(taken=kept, express=self.progress.express & kept.keys())

    def refuse(self, message: Message, reason: str, now: int) -> None:
        """Record that a message was refused and stays at the source."""
        known = self.refused.pop(message.id, None)
        if known is None and len(self.refused) >= MOST_REFUSED:
            del self.refused[next(iter(self.refused))]
        self.refused[message.id] = RefusedMessage(reason, now if known is None else known.since)

    def found_nothing(self, now: int) -> None:
        """Record that the source is empty. Earlier counts and refusals are discarded."""
        if not self.empty_since:
            self.empty_since, self.waiting = now, 0
            self.refused.clear()

    def found_something(self, now: int) -> None:
        """Record that the source is not empty."""
        if self.empty_since:
            self.empty_since, self.carried_up_to = 0, now

    def lag(self, now: int) -> int | None:
        """Return how many seconds the relay is behind its source: 0 if everything was moved; None if unknown."""
        if self.away_since or not (self.empty_since or self.carried_up_to):
            return None
        return 0 if self.empty_since else max(0, now - self.carried_up_to)

    @property
    def left(self) -> int:
        """Number of messages still to be moved, as far as known; 1 if the number is unknown and the source cannot be
        read."""
        if self.direction is Direction.NONE:
            return 0
        if self.waiting is None:
            return int(bool(self.trouble) and not self.away_since)
        return max(0, self.waiting - len(self.refused)) + self.unacknowledged

    def fails(self, reason: str, now: int, *, is_away: bool = False) -> bool:
        """Record a failure of the relay; `is_away`: the other machine does not answer. Return whether it worked
        before."""
        is_news = not self.trouble
        self.away_since = (self.away_since or now) if is_away else 0
        if is_news:
            self.trouble_since = now
        self.trouble = reason
        return is_news

    def works(self) -> bool:
        """Record that the relay works. Return whether it had failed before."""
        is_news = bool(self.trouble)
        self.trouble, self.trouble_since, self.away_since = "", 0, 0
        return is_news

    def sample(self, now: int) -> None:
        """Take a sample for `rate`; called every few seconds."""
        if self._samples and now < self._samples[-1][0]:  # the clock was set back
            self._samples.clear()
        self._samples.append((now, self.progress.moved))
        while len(self._samples) > 2 and self._samples[0][0] < now - _RATE_PERIOD:
            self._samples.popleft()

    @property
    def rate(self) -> float:
        """Messages per second over the last minute."""
        if len(self._samples) < 2:
            return 0.0
        (start, before), (end, after) = self._samples[0], self._samples[-1]
        return (after - before) / (end - start) if end > start else 0.0

    def enter(self, state: RelayState, now: int, *, replies: bool = False) -> RelayDefinition:
        """Return the definition for a new state. `done` keeps the option `replies` of `switched`."""
        replies = replies or (self.definition.replies and state == "done")
        return self.definition._replace(state=state, since=now, replies=replies)

    def begin(self, definition: RelayDefinition) -> None:
        """Enter a new state, which is already stored; reset the state of the work."""
        self.definition = definition
        self.refused.clear()
        self.empty_since, self.waiting, self.unacknowledged, self.rests_until = 0, None, 0, 0
        self.carried_up_to = 0
        self.works()
