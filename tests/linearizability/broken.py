"""The daemon with a defect: `python broken.py serve ...`; BREAK names it. The checker has to refuse its histories.

`slow` is not a defect: a disk that begins to write 60 ms later, so that kills find much that is not acknowledged yet.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))


def sometimes() -> bool:
    return random.random() < 0.2


def break_acknowledgments() -> None:
    """Changes are acknowledged before they are written, which happens 300 ms later."""
    from openmsmq.store.committer import Committer

    def when_durable(self: Any, callback: Callable[[], object], calls: int = 1) -> None:
        self._loop.call_soon(callback)
        self._loop.call_later(0.3, late, self, _nothing, 0)

    late = Committer.when_durable
    Committer.when_durable = when_durable  # type: ignore


def _nothing() -> None:
    return None


def break_slow() -> None:
    """Batches are written 60 ms later, and acknowledged then."""
    from openmsmq.store.committer import Committer

    flush = Committer._flush

    def later(self: Any) -> None:
        self._loop.call_later(float(os.environ.get("SLOW", "0.06")), flush, self)

    Committer._flush = later  # type: ignore


def break_removals() -> None:
    """One removal in five is not stored, so the message exists again after a restart."""
    from openmsmq.store.log import Store
    from openmsmq.store.operations import Remove

    append, commit = Store.append, Store.commit

    def kept(operations: Any) -> Any:
        return [o for o in operations if not (isinstance(o, Remove) and sometimes())]

    Store.append = lambda self, operations: append(self, kept(operations))  # type: ignore
    Store.commit = lambda self, number, operations=(): commit(  # type: ignore
        self, number, kept(operations)
    )


def break_locks() -> None:
    """One message in five that is received in a transaction, or in two phases, is not locked."""
    from openmsmq.queueing.queue import LockKind, Queue

    lock = Queue.lock

    def forget(self: Any, lookup_identifier: int, owner: Any) -> None:
        lock(self, lookup_identifier, owner)
        if owner.kind in (LockKind.DEQUEUE, LockKind.READ) and sometimes():
            self.unlock(lookup_identifier)

    Queue.lock = forget  # type: ignore


def break_aborts() -> None:
    """One abort in five removes what was received."""
    from openmsmq.queueing.message_locks import MessageLocks

    release = MessageLocks.release

    def lose(self: Any, queue: Any, lookup_identifier: int) -> None:
        if sometimes():
            queue.remove(lookup_identifier)
        else:
            release(self, queue, lookup_identifier)

    MessageLocks.release = lose  # type: ignore


def break_order() -> None:
    """One message in five is placed as if it had the highest priority."""
    from openmsmq.queueing.changes import Changes

    number, stamp = Changes.number, Changes.stamp

    def first(message: Any) -> None:
        if sometimes():
            message.lookup_identifier &= (1 << 56) - 1

    def numbered(self: Any, message: Any, now: int) -> None:
        number(self, message, now)
        first(message)

    def stamped(self: Any, message: Any) -> None:
        stamp(self, message)
        first(message)

    Changes.number = numbered  # type: ignore
    Changes.stamp = stamped  # type: ignore


def break_commits() -> None:
    """One commit in five loses its last send."""
    from openmsmq.queueing.transactions import Transactions
    from openmsmq.queueing.unit_of_work import Enqueued

    gather = Transactions._gather

    def skip(self: Any, change: Any, operation: Any) -> None:
        if isinstance(operation, Enqueued) and sometimes():
            return
        gather(self, change, operation)

    Transactions._gather = skip  # type: ignore


DEFECTS = ("acknowledgments", "removals", "locks", "aborts", "order", "commits")
NEED_KILLS = ("acknowledgments", "removals")  # the others show without
BROKEN = (__file__,)  # a program for `Daemon`

if __name__ == "__main__":
    import sources

    sources.prefer()
    globals()[f"break_{os.environ['BREAK']}"]()
    from openmsmq.cli import main

    main()
