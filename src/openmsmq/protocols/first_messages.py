"""Read the first messages of queues for a batch of calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from openmsmq.protocols.environment import Environment
from openmsmq.queueing.queue import Queue, locations_of
from openmsmq.queueing.storage import UNREADABLE

try:
    from msrpc.rpc import requests
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        requests = None


class FirstMessages:
    """First messages of queues: positions, locations in the store (None for an express message), and records. There is
    a record for each position, or none at all."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.locations: list[int | None] = []
        self.records: list[bytes] = []


def first_messages(environment: Environment, queues: list[Queue]) -> FirstMessages:
    """Return the next message of each queue, up to the first queue that has none left or an uncommitted one. Returns no
    records if one cannot be read; `ReadOperations.read` then reports which one."""
    found = FirstMessages()
    held: list[bytes] = []
    if queues and queues.count(queues[0]) == len(queues):
        positions = queues[0].heads(len(queues))
    else:
        positions = _heads(queues)
    locations = locations_of(queues, positions)
    for index, location in enumerate(locations):
        if location is None:
            record = queues[index].held_record(positions[index])
            if record is None:
                del positions[index:], locations[index:]
                break
            held.append(record)
    found.positions, found.locations = positions, locations
    found.records = _records(environment, found.locations, held)
    return found


def _heads(queues: list[Queue]) -> list[int]:
    """Return the position of the next message of each queue, up to the first queue that has none left."""
    positions: list[int] = []
    left: dict[int, list[int]] = {}  # by queue number, in descending order
    for queue in queues:
        heads = left.get(queue.number)
        if heads is None:
            heads = left[queue.number] = queue.heads(len(queues))
            heads.reverse()
        if not heads:
            break
        positions.append(heads.pop())
    return positions


def _records(environment: Environment, locations: list[int | None], held: list[bytes]) -> list[bytes]:
    """Return the records of messages in order; none if one cannot be read."""
    stored = [location for location in locations if location is not None]
    if not stored:
        return held
    try:
        read = environment.manager.store.read_all(stored)
    except UNREADABLE:
        return []
    if not held:
        return read
    from_store, from_memory = iter(read), iter(held)
    return [next(from_memory if location is None else from_store) for location in locations]


def answer_all(
    environment: Environment, calls: list[Any], answers: list[bytes], waits: list[bool],
    answer: Callable[[list[Any], list[bytes]], object] | None = None,
) -> None:  # fmt: skip
    """Answer calls: those that wait, once everything written so far is on disk; the others immediately. `answer` is
    `requests.answer`, or a function that calls it."""
    answer, waiting = answer or requests.answer, sum(waits)
    if waiting == len(calls):
        environment.when_durable(partial(answer, calls, answers), waiting)
        return
    if not waiting:
        answer(calls, answers)
        return
    answer(*_those(calls, answers, waits, False))
    environment.when_durable(partial(answer, *_those(calls, answers, waits, True)), waiting)


def _those(calls: list[Any], answers: list[bytes], waits: list[bool], waiting: bool) -> tuple[list[Any], list[bytes]]:
    """Return the calls that wait (or those that do not), and their answers."""
    chosen = [index for index, each in enumerate(waits) if each is waiting]
    return [calls[index] for index in chosen], [answers[index] for index in chosen]
