"""The known state of every message while clients use dying connections, and contradictions to it.

A call that was cut off may or may not have been executed. Time is counted in ticks; an operation lasts from the tick
before its first call to the tick after its last reply, or, if its connection died, until its client has a new one: by
then the server has cleaned up after the old one. The rules:

- A message that was sent and not received is in the queue at the end, once. A send that was cut off is there once or
  not at all; the sends of a transaction are there together or not at all.
- A message whose removal was cut off is there or not; the messages of a commit are removed together. A one-phase
  receive that was cut off may have removed one unknown message.
- No message is seen after it was received, before its commit, or at all if its transaction was aborted.
- A read of the first message does not skip a message that was available all the time, that is, neither locked nor
  elsewhere. A lock or transaction that was cut off may have held one unknown message.
- A purge removes messages that were available all the time, and may remove those sent or put back before its end.
- At the end, messages are in the order of priority and arrival, including those put back or moved back.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

NEVER = float("inf")


class Certainty(Enum):
    NO = "no"
    MAYBE = "maybe"
    YES = "yes"


@dataclass(slots=True)
class Span:
    """Ticks from `begin` to `end`; the end is NEVER while it is unknown. With `until_seen`, it has ended at the
    latest when the absent message is seen again: clients are not notified when a participant of a distributed
    transaction has put it back."""

    begin: float
    end: float = NEVER
    until_seen: bool = False

    def overlaps(self, other: Span) -> bool:
        return self.begin <= other.end and other.begin <= self.end


@dataclass(slots=True, eq=False)
class MessageState:
    """State of one message. `group` contains all messages of its transaction, including itself."""

    text: str
    queue: str
    priority: int
    recoverable: bool
    send: Span
    group: list[MessageState] = field(default_factory=list)
    sent: Certainty = Certainty.NO
    offered: float = NEVER  # start of its commit or send: not visible before
    visible: float = NEVER  # tick at which it was certainly in the queue
    away: list[Span] = field(default_factory=list)  # locked, or elsewhere
    taken: Certainty = Certainty.NO
    taken_with: list[MessageState] = field(default_factory=list)
    gone: Span | None = None
    seen: float = 0

    def __repr__(self) -> str:
        kind = "recoverable" if self.recoverable else "express"
        return f"{self.text[:16]}({kind}, priority {self.priority}, sent {self.sent.value}, taken {self.taken.value})"


@dataclass(slots=True)
class FirstRead:
    """A read of the first message of a queue, and its result."""

    queue: str
    span: Span
    found: MessageState | None


class Ledger:
    """Record kept by the clients; `contradictions` checks it at the end."""

    def __init__(self) -> None:
        self.fates: dict[str, MessageState] = {}
        self.looks: list[FirstRead] = []
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.unknown_takes: Counter[str] = Counter()
        self.unknown_holds: defaultdict[str, list[Span]] = defaultdict(list)
        self.purges: defaultdict[str, list[Span]] = defaultdict(list)
        self.unknown_purges: defaultdict[str, list[Span]] = defaultdict(list)
        self.last_crash = 0.0
        self._tick = 0

    def now(self) -> float:
        self._tick += 1
        return self._tick

    def crashed(self) -> None:
        """Record that the server was killed: express messages from before may be missing."""
        self.last_crash = self.now()

    # -- sending -------------------------------------------------------------------------------------------------

    def sending(self, text: str, queue: str, priority: int, recoverable: bool) -> MessageState:
        fate = self.fates[text] = MessageState(text, queue, priority, recoverable, Span(self.now()))
        fate.offered, fate.sent, fate.group = fate.send.begin, Certainty.MAYBE, [fate]
        return fate

    def sent(self, fates: Iterable[MessageState]) -> None:
        now = self.now()
        for fate in fates:
            fate.sent, fate.visible = Certainty.YES, min(fate.visible, now)

    # -- reading -------------------------------------------------------------------------------------------------

    def saw(self, queue: str, text: str, begin: float) -> MessageState | None:
        """Record that a read started at `begin` returned this message."""
        fate = self.fates.get(text)
        if fate is None or fate.queue != queue:
            self.wrong.append(f"{queue}: {text[:16]!r} was never sent there")
            return None
        now = self.now()
        if fate.sent is Certainty.NO:
            self.wrong.append(f"{queue}: {fate} was seen, though its transaction was aborted or not yet committed")
        if fate.offered > now:
            self.wrong.append(f"{queue}: {fate} was seen before its commit")
        if fate.taken is Certainty.YES and fate.gone is not None and fate.gone.end < begin:
            self.wrong.append(f"{queue}: {fate} was seen after it was taken")
        for purge in self.purges[queue]:
            if fate.visible < purge.begin and purge.end < begin and not any(away.overlaps(purge) for away in fate.away):
                self.wrong.append(f"{queue}: {fate} was seen after a purge")
        for away in fate.away:
            if away.until_seen:
                away.end = min(away.end, now)
        fate.seen = max(fate.seen, begin)
        if fate.sent is Certainty.MAYBE:
            self.sent(fate.group)
        return fate

    def looked(self, queue: str, span: Span, found: MessageState | None) -> None:
        self.looks.append(FirstRead(queue, span, found))

    def took(
        self, fate: MessageState, span: Span, known: Certainty, together: list[MessageState] | None = None
    ) -> None:
        """Record a message as taken, certainly or possibly; `together` are the messages of one commit. A message
        that another client has certainly taken stays so: this reader's connection had died, and the reader does not
        know it yet."""
        if fate.taken is Certainty.YES:
            if known is Certainty.YES:
                self.wrong.append(f"{fate.queue}: {fate} was taken twice, in {fate.gone} and in {span}")
            return
        fate.away.append(span)
        fate.taken, fate.gone, fate.taken_with = known, span, together or [fate]

    # -- the check at the end ------------------------------------------------------------------------------------

    def contradictions(self, left: dict[str, list[str]], aside: dict[str, list[str]]) -> list[str]:
        """Return the contradictions as texts; empty if there are none. `left` is the final content of each queue, in
        order; `aside` the final content of its subqueue."""
        places = [*left.items(), *aside.items()]
        found = [
            f"{queue}: {text[:16]} is there {count} times"
            for queue in left
            for text, count in Counter(text for name, texts in places if name == queue for text in texts).items()
            if count > 1
        ]
        for queue, texts in places:
            begin = self.now()
            found += self._out_of_order([fate for text in texts if (fate := self.saw(queue, text, begin)) is not None])
        found += self._lost({text for _, texts in places for text in texts})
        for queue in left:
            fates = [fate for fate in self.fates.values() if fate.queue == queue]
            for look in self.looks:
                if look.queue == queue:
                    found += self._overlooked(look, fates)
        return self.wrong + found

    @staticmethod
    def _out_of_order(fates: list[MessageState]) -> Iterator[str]:
        """Find contradictions of order among the messages of one queue."""
        for index, fate in enumerate(fates):
            behind = next((other for other in fates[index + 1 :] if _before(other, fate)), None)
            if behind is not None:
                yield f"{fate.queue}: {fate} stands before {behind}"

    def _lost(self, there: set[str]) -> Iterator[str]:
        missing: defaultdict[str, list[MessageState]] = defaultdict(list)
        for fate in self.fates.values():
            if fate.text in there or fate.sent is not Certainty.YES or fate.taken is Certainty.YES:
                continue
            if not fate.recoverable and fate.send.begin < self.last_crash:
                continue
            purges = self.purges[fate.queue] + self.unknown_purges[fate.queue]
            if any(fate.send.begin <= purge.end for purge in purges):
                continue
            if fate.taken is Certainty.MAYBE and not any(self._stayed(other, there) for other in fate.taken_with):
                continue
            missing[fate.queue].append(fate)
        for queue, fates in missing.items():
            if len(fates) > self.unknown_takes[queue]:
                yield f"{queue}: {len(fates)} lost, {self.unknown_takes[queue]} may be: {fates[:5]}"

    @staticmethod
    def _stayed(fate: MessageState, there: set[str]) -> bool:
        """Whether a cut-off commit did not take this message: it was seen again, or taken by another client."""
        return (
            fate.text in there or fate.taken is Certainty.YES or (fate.gone is not None and fate.seen > fate.gone.end)
        )

    def _overlooked(self, look: FirstRead, fates: list[MessageState]) -> Iterator[str]:
        found, span = look.found, look.span
        passed = [
            fate for fate in fates
            if fate.visible < span.begin and fate.seen > span.end and fate is not found
            and (found is None or _before(fate, found)) and not any(away.overlaps(span) for away in fate.away)
        ]  # fmt: skip
        excused = sum(hold.overlaps(span) for hold in self.unknown_holds[look.queue])
        if len(passed) > excused:
            yield (
                f"{look.queue}: a read at {span.begin:g} to {span.end:g} got {found} and passed over "
                f"{[(fate, fate.visible, fate.seen, fate.away) for fate in passed[:5]]}, {excused} may be held"
            )


def _before(fate: MessageState, other: MessageState) -> bool:
    return fate.priority > other.priority or (fate.priority == other.priority and fate.send.end < other.send.begin)
