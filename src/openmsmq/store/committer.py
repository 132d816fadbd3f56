"""Group commit: one sync for all requests since the last one.

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
# Seconds. A synchronous sync that takes longer indicates a slow disk, or that it had to wait for a busy processor.
SLOW_SYNC: Final = 0.001
# Number of syncs off the event loop after a slow one. It doubles with each slow synchronous sync, so that a slow disk
# seldom delays the loop, and halves with each fast one, so that a single slow sync has no lasting effect.
LEAST_OFF_LOOP: Final = 4
MOST_OFF_LOOP: Final = 256


class Syncer(Protocol):
    """Syncs off the event loop; see `uring_sync.UringSync`."""

    def submit(self, handles: list[int], done: Callable[[OSError | None], None]) -> None:
        """Sync files and then call `done` in the event loop; raises OSError if the sync cannot be started."""


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
        took: Callable[[float], object] = lambda seconds: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            store: what to sync.
            loop: event loop of all calls and callbacks.
            on_failure: called once if a sync fails; nothing is acknowledged afterwards.
            syncer: syncs off the event loop.
            gather: called before a deferred flush, so that calls that have arrived meanwhile share the sync.
            before: called before a batch is taken, so that their writes share the sync.
            answering, answered: called before and after the callbacks of waiting calls.
            calls: returns the number of calls received so far, whether they wait for a sync or not.
            took: called with the duration in seconds of each write and sync of a batch.
            clock: returns seconds; a sync whose duration by it exceeds `SLOW_SYNC` counts as slow. Not that of the
                event loop, which has a resolution of milliseconds.
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
        self._calls_before = 0  # value of `calls` at the last flush
        self._took = took
        self._clock = clock
        self._off_loop_left = 0  # number of syncs still to be done off the event loop
        self._off_loop_next = LEAST_OFF_LOOP  # the same after the next slow sync
        self._waiting: list[Callback] = []
        self._waiting_calls = 0
        self._answered_calls = 0  # number of calls answered by the last sync
        self._scheduled = False
        self._is_held = self._is_wanted = False  # see `hold`; whether a flush was requested since
        self._failed = False
        self._drains: set[asyncio.Future[None]] = set()

    def when_durable(self, callback: Callback, calls: int = 1) -> None:
        """Call `callback`, which answers `calls` calls, once everything appended so far is durable. It is never called
        if a sync fails before."""
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
        """Defer flushes until `release`, which must follow in the same event-loop iteration, while calls are being
        served."""
        self._is_held = True

    def release(self) -> None:
        """End `hold`: all calls of this event-loop iteration have been served."""
        self._is_held = False
        if self._is_wanted:
            self._is_wanted = False
            if self._waiting_calls >= self._answered_calls:
                self._flush()
            else:
                self._loop.call_soon(self._flush_later)

    def may_hold_up(self, calls: int) -> None:
        """Count calls that do not wait for a sync, but whose clients a synchronous sync may delay, because their next
        calls will wait."""
        self._waiting_calls += calls

    def request(self) -> None:
        """Request a sync of the appended data without waiting for it."""
        self.when_durable(_nothing, 0)

    async def drain(self) -> None:
        """Return when everything appended so far is durable.

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
                off_loop = self._should_sync_off_loop()
                if self._syncer is not None and off_loop:
                    self._start(self._syncer, batch, waiting)
                    return
                self._sync(batch)
        except (StoreError, OSError) as error:
            self._fail(error)
            return
        self._scheduled = False
        self._call(waiting)

    def _should_sync_off_loop(self) -> bool:
        """Whether to sync off the event loop: calls have arrived since the last flush that do not wait for a sync, or a
        recent sync was slow."""
        calls, waiting = self._calls(), self._waiting_calls
        came, self._calls_before, self._waiting_calls = calls - self._calls_before, calls, 0
        self._answered_calls = waiting
        if self._off_loop_left > 0:
            self._off_loop_left -= 1
            return True
        return came > waiting

    def _sync(self, batch: LogBatch) -> None:
        started = self._clock()
        try:
            batch.write()
            batch.sync()
        except OSError as error:
            self._store.not_written(batch, error)
        seconds = self._clock() - started
        self._took(seconds)
        if seconds > SLOW_SYNC:
            self._off_loop_left = self._off_loop_next
            self._off_loop_next = min(2 * self._off_loop_next, MOST_OFF_LOOP)
        else:
            self._off_loop_next = max(self._off_loop_next // 2, LEAST_OFF_LOOP)
        self._store.finish_batch(batch)

    def _start(self, syncer: Syncer, batch: LogBatch, waiting: list[Callback]) -> None:
        """Write a batch, and sync it off the event loop. `_scheduled` stays set, so that there is no other flush
        meanwhile."""
        started = self._clock()
        try:
            batch.write()
            syncer.submit(batch.handles, lambda error: self._synced(batch, waiting, started, error))
        except OSError as error:
            self._store.not_written(batch, error)

    def _synced(self, batch: LogBatch, callbacks: list[Callback], started: float, error: OSError | None) -> None:
        self._took(self._clock() - started)
        try:
            if error is not None:
                self._store.not_written(batch, error)
            self._store.finish_batch(batch)
        except (StoreError, OSError) as failure:
            self._fail(failure)
            return
        # `_scheduled` is still set: requests of callbacks are flushed here, not again in the next iteration.
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
                # A failing callback must not prevent the other replies.
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
