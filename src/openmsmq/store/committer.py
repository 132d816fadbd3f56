"""Group commit: one sync for everything that was asked for in the meantime, without a timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeAlias

from openmsmq.store.batch import Batch
from openmsmq.store.errors import StoreError, StoreFailed
from openmsmq.store.log import Store

Callback: TypeAlias = Callable[[], object]
OnFailure: TypeAlias = Callable[[BaseException], object]


class Committer:
    """Syncs a store on behalf of an event loop.

    Inline, the flush runs at the beginning of the loop's next turn, so that whatever all sockets asked for in this turn
    shares one sync. With an executor, the loop goes on while the sync runs, and a batch is what was asked for while the
    previous one ran.
    """

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        *,
        on_failure: OnFailure,
        executor: Executor | None = None,
    ) -> None:
        """
        Args:
            store: what to sync.
            loop: calls everything here.
            on_failure: called once when a sync has failed; nothing is acknowledged afterwards.
            executor: runs the writes; one thread is enough.
        """
        self._store = store
        self._loop = loop
        self._on_failure = on_failure
        self._executor = executor
        self._waiting: list[Callback] = []
        self._scheduled = False
        self._failed = False
        self._drains: set[asyncio.Future[None]] = set()
        self._running: asyncio.Future[None] | None = None

    def when_durable(self, callback: Callback) -> None:
        """Call `callback` once everything appended up to now is durable; never, if a sync fails before."""
        if self._failed:
            return
        self._waiting.append(callback)
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
        waiting, self._waiting = self._waiting, []
        try:
            batch = self._store.take_batch()
            if batch is not None and self._executor is not None:
                self._start(batch, waiting)
                return
            if batch is not None:
                _write(self._store, batch)
                self._store.finish_batch(batch)
        except (StoreError, OSError) as error:
            self._fail(error)
            return
        self._scheduled = False
        self._call(waiting)

    def _start(self, batch: Batch, waiting: list[Callback]) -> None:
        """Write in the executor; `_scheduled` stays set, so that nothing else is flushed meanwhile."""
        self._running = self._loop.run_in_executor(self._executor, batch.write)
        self._running.add_done_callback(lambda future: self._written(future, batch, waiting))

    def _written(self, future: asyncio.Future[None], batch: Batch, waiting: list[Callback]) -> None:
        self._running = None
        try:
            error = future.exception()
            if error is not None:
                self._store.fail(error)
            self._store.finish_batch(batch)
        except (StoreError, OSError, asyncio.CancelledError) as failure:
            self._fail(failure)
            return
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            self._loop.call_soon(self._flush)
        self._call(waiting)

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


def _write(store: Store, batch: Batch) -> None:
    try:
        batch.write()
    except OSError as error:
        store.fail(error)


def _nothing() -> None:
    return None
