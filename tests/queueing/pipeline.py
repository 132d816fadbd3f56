"""Data-pipeline operations on a queue manager, for tests."""

from __future__ import annotations

import copy
import random
from array import array
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

from openmsmq.gateways.context import Context
from openmsmq.model.constants import Access
from openmsmq.model.message import Message
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.consumer_group import BatchLimits, ConsumerGroup
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.stages import Draft, Stage, StageTarget
from openmsmq.record.message_record import encode_message
from queueing.world import ALICE, World
from store.memory_vfs import MemoryVfs

T = TypeVar("T")


def done(steps: Generator[None, None, T]) -> T:
    """Run all steps of an operation; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def claim(world: World, start: int, limit: int | None = None, name: str = "g", queue: str = "q") -> ConsumerGroup:
    limits = BatchLimits() if limit is None else BatchLimits(limit)
    return done(world.manager.consumer_groups.claim(world.queue(queue), name, start, limits))


def commit(world: World, end: int, name: str = "g", queue: str = "q") -> None:
    group = world.manager.consumer_groups.group(world.queue(queue), name)
    assert group is not None
    done(world.manager.consumer_groups.commit_claim(group, end))


def claimed(group: ConsumerGroup) -> list[str]:
    return [group.queue.message(key).label for key in group.keys]


def stage(
    world: World, batch: int, labels: str, queues: str = "q", sink: str = "s", caller: Caller = ALICE, query: str = "",
    **values: Any,
) -> Stage:  # fmt: skip
    """Stage one message per letter, for the queues in turn."""
    manager = world.manager
    made = manager.staged_writes.begin(sink, batch, 0, "0", caller, query)
    targets = [manager.staged_writes.target(name, False, caller) for name in queues]
    drafts: list[Draft] = []
    for index, label in enumerate(labels):
        target = targets[index % len(targets)]
        drafts.append(draft(target, label=label, **{"delivery_guarantee": 1, **values}))
    if len(targets) == 1:
        sizes = array("I", [len(row.record) for row in drafts])
        records = bytearray(b"head" + b"".join(row.record for row in drafts))
        refusals = manager.staged_writes.stage_rows(made, targets[0], records, 4, sizes, last=True)
    else:
        refusals = manager.staged_writes.stage(made, drafts, last=True)
    for refused in refusals:
        raise refused.error
    manager.staged_writes.seal(made)
    return made


def source(world: World, text: str, kind: str, caller: Caller, access: Access = Access.PEEK) -> Queue:
    """Return the queue that a pipeline names."""
    return Context(world.manager, world.store, lambda action: None).source(caller, text, kind, access)


def draft(target: StageTarget, **values: Any) -> Draft:
    """Return a row with these properties for a queue, sent by the user who requested its target."""
    sender = target.form.sender
    message = Message(
        destination_queue_format_name=target.name, sender_identifier=sender, sender_identifier_type=int(bool(sender)),
        **values,
    )  # fmt: skip
    return Draft(target, bytearray(encode_message(message)))


def finalize(
    world: World, batch: int, *stages: Stage, sink: str = "s", caller: Caller = ALICE, query: str = "",
    once: bool = False,
) -> None:  # fmt: skip
    world.manager.staged_writes.finalize(sink, batch, [one.handle for one in stages], caller, query, once)


def on(world: World, vfs: MemoryVfs) -> World:
    """Return a queue manager started on the disk that a crash left."""
    other = copy.copy(world)
    other.vfs = vfs
    other._entropy += 1000
    other._open()
    return other


def crashed(world: World, samples: int = 3) -> Iterator[World]:
    """Yield the queue manager after crashes now, between two writes, and during the next write."""
    yield on(world, world.vfs.crash(lambda index, total: False, 0))
    batch = world.store.take_batch()
    if batch is not None:
        before = world.vfs
        for chunk in batch.chunks:
            before.pwrite(chunk.handle, b"".join(chunk.parts), chunk.offset)
        for state in before.crashes(random.Random(1), samples):
            yield on(world, state)
        for chunk in batch.chunks:
            before.fdatasync(chunk.handle)
        world.store.finish_batch(batch)
        yield on(world, world.vfs.crash(lambda index, total: False, 0))
