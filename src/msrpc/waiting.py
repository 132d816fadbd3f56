"""Waiting for work that others may wait for too, and for answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def outcome_of(work: asyncio.Future[T]) -> T:
    """Return the result of `work`, or raise its error. If the caller is canceled, `work` continues.

    Unlike `asyncio.shield`, an error that comes after the caller has gone is not logged with a traceback.
    """
    try:
        await asyncio.wait([work])
    except asyncio.CancelledError:
        work.add_done_callback(_retrieve)
        raise
    return work.result()


@asynccontextmanager
async def answered_within(seconds: float | None) -> AsyncIterator[None]:
    """Limit what is done inside, as `asyncio.timeout` does, whose TimeoutError has no text; this one can be shown."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        raise


def _retrieve(work: asyncio.Future[T]) -> None:
    if not work.cancelled() and (error := work.exception()) is not None:
        logger.debug("failed after its caller was canceled: %s", error)
