"""Simple receives in two phases, as the fast paths of several interfaces lock, answer and end them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msrpc.rpc.call import Call
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.first_messages import FirstMessages, answer_all
from openmsmq.queueing.descriptors import OpenQueueDescriptor
from openmsmq.queueing.queue import Queue, locations_of

try:
    from msrpc.rpc import requests
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        requests = None


def start_all(
    environment: Environment, calls: list[Any], descriptors: list[OpenQueueDescriptor], queues: list[Queue],
    found: FirstMessages, answers: list[bytes], put_back: Callable[[int], None],
) -> int:  # fmt: skip
    """Lock the messages for which there are answers, and send these. Returns their number. `put_back` is called with
    the index of a call that its client no longer awaits when it is answered."""
    count = len(answers)
    if not count:
        return 0
    environment.manager.reading.start_batch(descriptors[:count], queues[:count], found.positions[:count])
    durable = environment.store.durable_end  # seen messages must survive a crash
    waits = [location is not None and location >= durable for location in found.locations[:count]]
    environment.may_hold_up(count - sum(waits))  # their clients will acknowledge soon
    started = calls[:count]

    def answer(those: list[Any], stubs: list[bytes]) -> None:
        missed = [call for call in those if isinstance(call, Call) and not call.connection.awaits(call)]
        for call in missed + requests.answer(those, stubs):
            put_back(started.index(call))

    answer_all(environment, started, answers, waits, answer)
    return count


class EndBatch:
    """Receives that are ended together: their messages are removed."""

    def __init__(self, environment: Environment) -> None:
        self._environment: Final = environment
        self._descriptors: Final[list[OpenQueueDescriptor]] = []
        self._queues: Final[list[Queue]] = []
        self._positions: Final[list[int]] = []

    def add(self, descriptor: OpenQueueDescriptor, position: int) -> bool:
        """Add a receive. Returns False if its message needs `ReadOperations.end_two_phase`."""
        queue = self._environment.manager.reading.fast_path_queue_of(descriptor, position)
        if queue is None:
            return False
        self._descriptors.append(descriptor)
        self._queues.append(queue)
        self._positions.append(position)
        return True

    def carry_out(self) -> list[bool]:
        """Remove the messages up to the first that was added before, all or none. Returns for each whether its reply
        must wait for a sync; an empty list if nothing was removed."""
        if len(set(self._positions)) < len(self._positions):
            self._drop_repetitions()
        locations = locations_of(self._queues, self._positions)
        reading = self._environment.manager.reading
        if not locations or not reading.end_batch(self._descriptors, self._queues, self._positions, locations):
            return []
        return [location is not None for location in locations]

    def _drop_repetitions(self) -> None:
        seen: set[int] = set()
        for index, position in enumerate(self._positions):
            if position in seen:
                del self._descriptors[index:], self._queues[index:], self._positions[index:]
                return
            seen.add(position)
