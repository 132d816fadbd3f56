"""Group commit: one sync for everything that was asked for in the meantime."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

from openmsmq.store.batch import Batch
from openmsmq.store.errors import StoreError, StoreFailed
from openmsmq.store.log import Store

Callback: TypeAlias = Callable[[], object]
OnFailure: TypeAlias = Callable[[BaseException], object]


# Part of the time of a sync for which one is put off, so that clients who were answered a moment ago can share it.
_PATIENCE = 0.5
_LONGEST_WAIT = 0.002  # seconds
_FADING = 0.9  # per sync, of the number of clients that are believed to be busy


class Syncer(Protocol):
    """Syncs beside the loop; see `uring_sync.UringSync`."""

    def submit(self, handles: list[int], done: Callable[[OSError | None], None]) -> None:
        """Sync files and call `done` in the loop; raises OSError when that can't be begun."""


class Committer:
    """Syncs a store on behalf of an event loop.

    With a syncer the loop goes on while a sync runs, and a batch is what was asked for meanwhile.

    Without one, the flush runs at the beginning of the loop's next turn, so that whatever all sockets asked for in this
    turn shares one sync. Clients that wait for their answers would fall into two groups, each asking while the other
    one's sync runs, and each sync would carry half of what it could: so it is put off by some turns until as many have
    asked as were busy a moment ago, and for half the time of a sync at most.
    """

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        *,
        on_failure: OnFailure,
        syncer: Syncer | None = None,
        before: Callback = lambda: None,
    ) -> None:
        """
        Args:
            store: what to sync.
            loop: calls everything here.
            on_failure: called once when a sync has failed; nothing is acknowledged afterwards.
            syncer: syncs beside the loop.
            before: called before a batch is taken, so that what it still writes shares the sync.
        """
        self._store = store
        self._loop = loop
        self._on_failure = on_failure
        self._syncer = syncer
        self._before = before
        self._waiting: list[Callback] = []
        self._scheduled = False
        self._failed = False
        self._overlapping = 0  # requests that came while the last sync ran
        self._counts_overlapping = False
        self._busy = 0.0  # clients that are believed to ask again and again
        self._sync_time = 0.0  # seconds, on average
        self._put_off_until: float | None = None
        self._drains: set[asyncio.Future[None]] = set()

    def when_durable(self, callback: Callback) -> None:
        """Call `callback` once everything appended up to now is durable; never, if a sync fails before."""
        if self._failed:
            return
        self._waiting.append(callback)
        if self._counts_overlapping:
            self._overlapping += 1
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def request(self) -> None:
        """Have what was appended synced soon, with nobody waiting for it."""
        self.when_durable(_nothing)

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

    def _flush(self) -> None:
        if self._failed:
            return
        if self._syncer is None and self._more_will_come():
            self._loop.call_soon(self._flush)
            return
        self._before()
        waiting, self._waiting = self._waiting, []
        try:
            batch = self._store.take_batch()
            if batch is not None:
                if self._syncer is not None:
                    self._start(self._syncer, batch, waiting)
                    return
                self._sync(batch)
        except (StoreError, OSError) as error:
            self._fail(error)
            return
        self._scheduled = False
        self._busy = max(self._busy * _FADING, len(waiting))
        self._call(waiting)
        if self._syncer is None:
            self._overlapping, self._counts_overlapping = 0, True
            self._loop.call_soon(self._overlap_ends, len(waiting))

    def _sync(self, batch: Batch) -> None:
        started = time.monotonic()  # the loop's own time goes by milliseconds
        try:
            batch.write()
            batch.sync()
        except OSError as error:
            self._store.fail(error)
        self._sync_time += (time.monotonic() - started - self._sync_time) / 8
        self._store.finish_batch(batch)

    def _overlap_ends(self, answered: int) -> None:
        """What has been read by now was sent while the sync ran, by others than those answered after it.

        So it is with uvloop, which reads between the two; loops of the standard library read later, and put less off.
        """
        self._counts_overlapping = False
        self._busy = max(self._busy, answered + self._overlapping)

    def _more_will_come(self) -> bool:
        """Whether to put the sync off by one more turn of the loop."""
        now = time.monotonic()
        if self._put_off_until is None:
            self._put_off_until = now + min(self._sync_time * _PATIENCE, _LONGEST_WAIT)
        if len(self._waiting) < int(self._busy) and now < self._put_off_until:
            return True
        self._put_off_until = None
        return False

    def _start(self, syncer: Syncer, batch: Batch, waiting: list[Callback]) -> None:
        """Write, and sync beside the loop; `_scheduled` stays set, so that nothing else is flushed meanwhile."""
        try:
            batch.write()
            syncer.submit(batch.handles, lambda error: self._synced(batch, waiting, error))
        except OSError as error:
            self._store.fail(error)

    def _synced(self, batch: Batch, callbacks: list[Callback], error: OSError | None) -> None:
        try:
            if error is not None:
                self._store.fail(error)
            self._store.finish_batch(batch)
        except (StoreError, OSError) as failure:
            self._fail(failure)
            return
        self._call(
            callbacks
        )  # still as if scheduled: what a callback asks for is flushed here, and not once more later
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            self._flush()

    def _call(self, callbacks: list[Callback]) -> None:
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                # One caller's mistake must not keep the others from their replies.
                self._loop.call_exception_handler({"message": "callback of a durable write failed", "exception": error})

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        self._waiting.clear()
        for future in list(self._drains):
            if not future.done():
                future.set_exception(StoreFailed(str(error)))
        self._on_failure(error)


def _nothing() -> None:
    return None
