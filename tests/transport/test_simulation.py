"""Two queue managers that lose their connections: despite cuts, delays and splits, no recoverable message is lost.

All random choices derive from a seed. The independent packet checker verifies all packets of the sessions. At the
end of a run the network works, and all waiting messages must arrive.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from openmsmq.transport import Acknowledged, Closed, CloseReason, Event, MessageReceived, MqqbSession, SessionSettings
from packets.conversation import Conversation, Side
from seeds import several
from transport.peers import ALICE, BOB, message

MESSAGES = 120
HARMLESS = {CloseReason.DISCONNECTED, CloseReason.IDLE, CloseReason.INITIALIZATION_TIMEOUT, CloseReason.ACK_TIMEOUT}


@dataclass
class Manager:
    """A queue of messages to be sent, and a slow disk."""

    identifier: bytes
    queue: deque[tuple[int, bool]]
    session: MqqbSession[tuple[int, bool]] | None = None
    stored: list[int] = field(default_factory=list)  # in the order of their syncs
    express: list[int] = field(default_factory=list)
    syncing: deque[tuple[float, int, int, MqqbSession[tuple[int, bool]]]] = field(default_factory=deque)
    completed: set[int] = field(default_factory=set)

    def send(self, now: float) -> None:
        while self.session is not None and self.session.room and self.queue:
            number, recoverable = token = self.queue.popleft()
            self.session.send(message(b"%d" % number, recoverable), token, now)

    def sync(self, now: float) -> None:
        while self.syncing and self.syncing[0][0] <= now:
            _, number, receipt, session = self.syncing.popleft()
            self.stored.append(number)
            session.durable([receipt], now)

    def handle(self, events: list[Event[tuple[int, bool]]], now: float, disk: random.Random) -> None:
        for event in events:
            match event:
                case MessageReceived():
                    number = int(event.message.properties.body)
                    if event.receipt is None:
                        self.express.append(number)
                    else:
                        assert self.session is not None
                        due = max(now + disk.choice([0, 5, 900]), self.syncing[-1][0] if self.syncing else 0)
                        self.syncing.append((due, number, event.receipt, self.session))
                case Acknowledged():
                    numbers = {number for number, _ in event.tokens}
                    assert not numbers & self.completed
                    self.completed |= numbers
                case Closed():
                    assert event.reason in HARMLESS, event
                    self.queue.extendleft(reversed(event.unacknowledged))
                    self.session = None


@dataclass
class Pipe:
    """One direction of a connection: bytes with their arrival times."""

    to: Manager
    segments: deque[tuple[float, bytes]] = field(default_factory=deque)

    def write(self, data: bytes, now: float, network: random.Random) -> None:
        while data:
            size = network.choice([1, 7, 100, 3000, len(data)])
            at = max(now + network.choice([0, 1, 40]), self.segments[-1][0] if self.segments else 0)
            self.segments.append((at, data[:size]))
            data = data[size:]


def simulate(seed: int, cut: bool = True) -> tuple[Manager, Manager]:
    chance = random.Random(seed)
    mixed = [(number, chance.random() < 0.6) for number in range(2 * MESSAGES)]
    alice, bob = Manager(ALICE, deque(mixed[:MESSAGES])), Manager(BOB, deque(mixed[MESSAGES:]))
    windows = {ALICE: chance.choice([1, 3, 64]), BOB: chance.choice([2, 64, 500])}
    pipes: list[Pipe] = []
    now, connected_at = 0.0, 0.0
    cuts = chance.randrange(1, 12) if cut else 0
    while alice.queue or bob.queue or len(alice.completed) + len(bob.completed) < 2 * MESSAGES:
        assert now < 3_600_000, "nothing moves any more"
        if alice.session is None and bob.session is None and now >= connected_at:
            alice.session = MqqbSession.initiator(
                SessionSettings(ALICE, windows[ALICE]), now, chance.choice([BOB, bytes(16)])
            )
            bob.session = MqqbSession.acceptor(SessionSettings(BOB, windows[BOB]), now)
            pipes = [Pipe(bob), Pipe(alice)]
            conversation = Conversation()
            budget = int(chance.expovariate(1 / 6_000)) if cuts else -1  # bytes until the connection breaks
        for manager, pipe, side in zip((alice, bob), pipes, Side, strict=False):
            manager.sync(now)
            if manager.session is not None:
                manager.handle(manager.session.tick(now), now, chance)
            if manager.session is not None:
                manager.send(now)
                assert manager.session._sending.in_flight <= min(windows.values())
                data = manager.session.data_to_send()
                conversation.feed(side, data)
                pipe.write(data, now, chance)
        moved = False
        for pipe in pipes:
            while pipe.segments and pipe.segments[0][0] <= now and pipe.to.session is not None:
                _, data = pipe.segments.popleft()
                moved = True
                if budget >= 0:
                    data, budget = data[:budget], budget - len(data)
                pipe.to.handle(pipe.to.session.receive(data, now), now, chance)
                if cuts and budget < 0:
                    break
        broken = bool(pipes) and cuts > 0 and budget < 0
        if broken or (alice.session is None) != (bob.session is None):
            cuts -= broken
            for manager in (alice, bob):
                if manager.session is not None:
                    manager.handle(manager.session.disconnected(), now, chance)
            pipes, connected_at = [], now + 5_000
        if not moved:
            due = [pipe.segments[0][0] for pipe in pipes if pipe.segments]
            due += [manager.syncing[0][0] for manager in (alice, bob) if manager.syncing]
            sessions = [manager.session for manager in (alice, bob) if manager.session is not None]
            due += [session.next_deadline for session in sessions if session.next_deadline is not None]
            now = max(now, min(due, default=connected_at)) if sessions else max(now, connected_at)
    return alice, bob


@pytest.mark.parametrize("number", range(60))
def test_every_recoverable_message_arrives_at_least_once_over_connections_that_break_at_any_byte(number: int) -> None:
    alice, bob = simulate(several(1000)[number])
    chance = random.Random(several(1000)[number])
    kinds = [chance.random() < 0.6 for _ in range(2 * MESSAGES)]
    for receiver, numbers in ((bob, range(MESSAGES)), (alice, range(MESSAGES, 2 * MESSAGES))):
        recoverable = [number for number in numbers if kinds[number]]
        assert set(receiver.stored) == set(recoverable)
        assert set(receiver.express) == set(numbers) - set(recoverable)
        first_arrivals = list(dict.fromkeys(receiver.stored))
        assert first_arrivals == recoverable


@pytest.mark.parametrize("number", range(10))
def test_over_a_connection_that_holds_each_message_arrives_once(number: int) -> None:
    alice, bob = simulate(several(1000)[number], cut=False)
    for receiver in (alice, bob):
        assert len(receiver.stored) == len(set(receiver.stored))
        assert receiver.express == sorted(set(receiver.express))
