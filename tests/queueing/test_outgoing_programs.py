"""Random programs on outgoing queues: each message is either waiting, transferred or a dead letter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from openmsmq.model import names
from openmsmq.model.constants import Access
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.changes import UNUSED_PERIOD
from openmsmq.queueing.outgoing_queues import OutgoingQueue
from queueing.test_queue_programs import QUIET
from queueing.world import World, next_to_transfer

PLACES = [
    "DIRECT=OS:there\\private$\\q",
    "DIRECT=TCP:192.0.2.1\\q",
    "PRIVATE=" + "0" * 8 + "-0000" * 3 + "-" + "a" * 12 + "\\00000007",
]
places = st.sampled_from(PLACES)
seconds = st.sampled_from([None, 1, 5, 60, 600])
DEADLETTER = 1


@dataclass
class Entry:
    label: str
    priority: int
    recoverable: bool
    dies: int  # milliseconds
    in_transfer: bool = False
    purged: bool = False


class Program(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.number = 0
        self.waiting: dict[str, list[Entry]] = {place: [] for place in PLACES}
        self.dead: set[str] = set()
        self.express_dead: set[str] = set()
        self.transfers: list[tuple[OutgoingQueue, Any, str, Entry]] = []
        self.held: set[str] = set()

    def queue(self, place: str) -> OutgoingQueue | None:
        return self.world.registry.outgoing_queue(names.parse_format_name(place))

    def entry(self, place: str, priority: int, recoverable: bool, reach: int | None) -> dict[str, Any]:
        self.number += 1
        life = 345600 if reach is None else reach
        dies = self.world.now + life * 1000
        entry = Entry(str(self.number), priority, recoverable, dies)
        self.made = entry
        values = {"label": entry.label, "priority": priority, "delivery_guarantee": int(recoverable)}
        if reach is not None:
            values["time_to_reach_queue"] = reach
        return {"name": place, "journaling_requested": DEADLETTER, **values}

    def dies(self, entry: Entry) -> None:
        self.dead.add(entry.label)
        if not entry.recoverable:
            self.express_dead.add(entry.label)

    # -- applications ------------------------------------------------------------------------------------------

    @rule(place=places, priority=st.integers(0, 7), recoverable=st.booleans(), reach=seconds)
    def send(self, place: str, priority: int, recoverable: bool, reach: int | None) -> None:
        self.world.send(**self.entry(place, priority, recoverable, reach))
        self.waiting[place].append(self.made)

    @rule(there=st.lists(places, min_size=1, max_size=4), reach=seconds, commit=st.booleans())
    def send_in_a_transaction(self, there: list[str], reach: int | None, commit: bool) -> None:
        transaction = self.world.begin()
        sent = []
        for place in there:
            self.world.send(transaction=transaction, **self.entry(place, 0, True, reach))
            sent.append((place, self.made))
        (self.world.manager.transactions.commit if commit else self.world.manager.transactions.abort)(transaction)
        if commit:
            for place, entry in sent:
                self.waiting[place].append(entry)

    # -- transport ---------------------------------------------------------------------------------------------

    @rule()
    def take(self) -> None:
        taken = next_to_transfer(self.world)
        free = [
            (-entry.priority, int(entry.label), place, entry)
            for place, entries in self.waiting.items()
            if place not in self.held
            for entry in entries
            if not entry.in_transfer
        ]
        if not free:
            assert taken is None
            return
        _, _, place, entry = min(free, key=lambda item: item[:2])
        assert taken is not None
        assert (str(taken[0].destination), taken[1].label) == (place, entry.label)
        entry.in_transfer = True
        self.transfers.append((*taken, place, entry))

    @rule(data=st.data(), arrived=st.booleans())
    def finish(self, data: st.DataObject, arrived: bool) -> None:
        if not self.transfers:
            return
        queue, message, place, entry = self.transfers.pop(data.draw(st.integers(0, len(self.transfers) - 1)))
        if arrived:
            self.world.manager.outgoing.transferred(queue, [message])
            self.waiting[place].remove(entry)
            return
        self.world.manager.outgoing.put_back(queue, message.lookup_identifier)
        entry.in_transfer = False
        if entry.purged or entry.dies <= self.world.now:
            self.waiting[place].remove(entry)
            self.dies(entry)

    # -- administrators ----------------------------------------------------------------------------------------

    @rule(place=places, hold=st.booleans())
    def hold(self, place: str, hold: bool) -> None:
        queue = self.queue(place)
        if queue is None:
            return
        (self.world.manager.outgoing.pause if hold else self.world.manager.outgoing.resume)(queue)
        (self.held.add if hold else self.held.discard)(place)

    @rule(place=places)
    def purge(self, place: str) -> None:
        if self.queue(place) is None:
            return
        descriptor = self.world.open(place, Access.RECEIVE_ADMIN, caller=SYSTEM)
        self.world.manager.reading.purge(descriptor)
        self.world.manager.handles.close_queue(descriptor)
        for entry in list(self.waiting[place]):
            if entry.in_transfer:
                entry.purged = True
            else:
                self.waiting[place].remove(entry)
                self.dies(entry)

    # -- time and crashes --------------------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([1, 999, 5000, 60_000, UNUSED_PERIOD]))
    def wait(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)
        for entries in self.waiting.values():
            for entry in [e for e in entries if e.dies <= self.world.now and not e.in_transfer]:
                entries.remove(entry)
                self.dies(entry)

    @rule(checkpoint=st.booleans())
    def restart(self, checkpoint: bool) -> None:
        self.world.restart(checkpoint)
        self.transfers.clear()
        self.held.clear()
        self.dead -= self.express_dead
        self.express_dead.clear()
        for place, entries in self.waiting.items():
            self.waiting[place] = [entry for entry in entries if entry.recoverable]
            for entry in self.waiting[place]:
                entry.in_transfer = entry.purged = False
        self.wait(0)

    # -- invariants --------------------------------------------------------------------------------------------

    @invariant()
    def each_message_is_where_the_oracle_says(self) -> None:
        for place, entries in self.waiting.items():
            queue = self.queue(place)
            if queue is None:
                assert not entries
                continue
            order = sorted(entries, key=lambda entry: (-entry.priority, int(entry.label)))
            assert self.world.labels(queue) == [entry.label for entry in order if not entry.in_transfer]
            assert len(queue) == len(entries)
        registry = self.world.registry
        dead = [*self.world.labels(registry.dead_letters), *self.world.labels(registry.transactional_dead_letters)]
        assert sorted(dead) == sorted(self.dead)

    @invariant()
    def numbers_differ_and_definitions_match(self) -> None:
        outgoing = self.world.registry.outgoing.values()
        assert len({queue.number for queue in outgoing}) == len(outgoing)
        defined = [name for name in self.world.store.definitions if name.startswith(b"outgoing/")]
        assert sorted(defined) == sorted(b"outgoing/%d" % queue.number for queue in outgoing)


@pytest.mark.parametrize("examples", [40, pytest.param(120, marks=pytest.mark.slow)])
def test_random_programs_on_outgoing_queues_agree_with_the_oracle(examples: int) -> None:
    run_state_machine_as_test(
        Program,
        settings=settings(
            max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=QUIET, database=None
        ),
    )
