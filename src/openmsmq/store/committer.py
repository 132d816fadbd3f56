"""Group commit: one sync for everything that was requested in the meantime.

Invariants (docs/architecture.md):

- I1: a reply passed to `when_durable` is called only after everything appended before it is durable.
- I4: after a failed sync no reply is called, and no sync is tried again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from openmsmq.store.batch import LogBatch
from openmsmq.store.errors import StoreError, StoreFailed
from openmsmq.store.log import Store

Callback: TypeAlias = Callable[[], object]
OnFailure: TypeAlias = Callable[[BaseException], object]
# Seconds. A sync in place that takes longer has a slow disk, or had to wait for a processor that others keep busy.
SLOW_SYNC: Final = 0.001
STAY_BESIDE: Final = 256  # syncs, after a slow one


class Syncer(Protocol):
    """Syncs off the event loop; see `uring_sync.UringSync`."""

    def submit(self, handles: list[int], done: Callable[[OSError | None], None]) -> None:
        """Sync files and call `done` in the loop; raises OSError when that can't be begun."""


class Committer:
    """Syncs a store on behalf of an event loop.

    The flush runs at the beginning of the next event-loop iteration, so that all requests of the current iteration
    share one sync. It runs immediately if as many calls wait as the last sync answered, because then there is nothing
    left to wait for. While all clients wait for the disk, the loop itself syncs: requests that arrive meanwhile wait in
    the sockets and share the next sync, which avoids a handover. While calls arrive that a sync must not delay, and for
    a while after a slow sync, a syncer does it off the event loop, if there is one.
    """

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        *,
        on_failure: OnFailure,
        syncer: Syncer | None = None,
        gather: Callback = lambda: None,
        before: Sequence[Callback] = (),
        answering: Callback = lambda: None,
        answered: Callback = lambda: None,
        calls: Callable[[], int] = lambda: 0,
        slow: float = SLOW_SYNC,
        took: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        """
        Args:
            store: what to sync.
            loop: calls everything here.
            on_failure: called once when a sync has failed; nothing is acknowledged afterwards.
            syncer: syncs off the event loop.
            gather: called before a flush that was not at once, so that what has come meanwhile shares the sync.
            before: called before a batch is taken, so that what they still write shares the sync.
            answering, answered: called before the callbacks of those who waited, and after them.
            calls: how many calls have come in so far, whether they wait for the disk or not.
            slow: seconds; a sync in place that takes longer is a slow one.
            took: called with the seconds that each write and sync of a batch took.
        """
        self._store = store
        self._loop = loop
        self._on_failure = on_failure
        self._syncer = syncer
        self._gather = gather
        self._before = before
        self._answering = answering
        self._answered = answered
        self._calls = calls
        self._calls_before = 0  # what that was at the last flush
        self._slow = slow
        self._took = took
        self._left_beside = 0  # how many syncs are not to be in place
        self._waiting: list[Callback] = []
        self._waiting_calls = 0
        self._answered_calls = 0  # by the last sync
        self._scheduled = False
        self._is_held = self._is_wanted = False  # see `hold`; whether a flush was asked for meanwhile
        self._failed = False
        self._drains: set[asyncio.Future[None]] = set()

    def when_durable(self, callback: Callback, calls: int = 1) -> None:
        """Call `callback`, which answers `calls` calls, once everything appended up to now is durable; never, if a sync
        fails before."""
        if self._failed:
            return
        self._waiting.append(callback)
        self._waiting_calls += calls
        if not self._scheduled:
            self._scheduled = True
            if self._is_held:
                self._is_wanted = True
            else:
                self._loop.call_soon(self._flush_later)

    def hold(self) -> None:
        """Calls are being served: nothing is flushed before `release`, which follows in the same turn of the loop."""
        self._is_held = True

    def release(self) -> None:
        """All calls that came in this turn of the loop have been served."""
        self._is_held = False
        if self._is_wanted:
            self._is_wanted = False
            if self._waiting_calls >= self._answered_calls:
                self._flush()
            else:
                self._loop.call_soon(self._flush_later)

    def may_hold_up(self, calls: int) -> None:
        """A sync in place may delay the clients of this many calls, which do not wait for the disk: their next calls
        will."""
        self._waiting_calls += calls

    def request(self) -> None:
        """Have what was appended synced soon, with nobody waiting for it."""
        self.when_durable(_nothing, 0)

    async def drain(self) -> None:
        """Return when everything appended up to now is durable.

        Raises:
            StoreFailed: a sync failed.
        """
        if self._failed:
            raise StoreFailed("the store has failed")
        done: asyncio.Future[None] = self._loop.create_future()
        self._drains.add(done)
        done.add_done_callback(self._drains.discard)
        self.when_durable(lambda: None if done.done() else done.set_result(None))
        await done

    def _flush_later(self) -> None:
        if not self._failed:
            self._gather()
            self._flush()

    def _flush(self) -> None:
        if self._failed:
            return
        for step in self._before:
            step()
        waiting, self._waiting = self._waiting, []
        try:
            batch = self._store.take_batch()
            if batch is not None:
                belongs_beside = self._belongs_beside()
                if self._syncer is not None and belongs_beside:
                    self._start(self._syncer, batch, waiting)
                    return
                self._sync(batch)
        except (StoreError, OSError) as error:
            self._fail(error)
            return
        self._scheduled = False
        self._call(waiting)

    def _belongs_beside(self) -> bool:
        """Whether calls have come since the last flush that do not wait for the disk, or a sync was slow lately."""
        calls, waiting = self._calls(), self._waiting_calls
        came, self._calls_before, self._waiting_calls = calls - self._calls_before, calls, 0
        self._answered_calls = waiting
        self._left_beside -= self._left_beside > 0
        return came > waiting or self._left_beside > 0

    def _sync(self, batch: LogBatch) -> None:
        started = time.monotonic()  # the loop's own time goes by milliseconds
        try:
            batch.write()
            batch.sync()
        except OSError as error:
            self._store.not_written(batch, error)
        seconds = time.monotonic() - started
        self._took(seconds)
        if seconds > self._slow:
            self._left_beside = STAY_BESIDE
        self._store.finish_batch(batch)

    def _start(self, syncer: Syncer, batch: LogBatch, waiting: list[Callback]) -> None:
        """Write, and sync off the event loop; `_scheduled` stays set, so that nothing else is flushed meanwhile."""
        started = time.monotonic()
        try:
            batch.write()
            syncer.submit(batch.handles, lambda error: self._synced(batch, waiting, started, error))
        except OSError as error:
            self._store.not_written(batch, error)

    def _synced(self, batch: LogBatch, callbacks: list[Callback], started: float, error: OSError | None) -> None:
        self._took(time.monotonic() - started)
        try:
            if error is not None:
                self._store.not_written(batch, error)
            self._store.finish_batch(batch)
        except (StoreError, OSError) as failure:
            self._fail(failure)
            return
        # Still scheduled meanwhile: what a callback asks for is flushed here, and not once more in the next turn.
        self._call(callbacks)
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            self._flush_later()

    def _call(self, callbacks: list[Callback]) -> None:
        self._answering()
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                # One caller's mistake must not keep the others from their replies.
                self._loop.call_exception_handler({"message": "callback of a durable write failed", "exception": error})
        self._answered()

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        self._waiting.clear()
        for future in list(self._drains):
            if not future.done():
                future.set_exception(StoreFailed(str(error)))
        self._on_failure(error)


def _nothing() -> None:
    return None
