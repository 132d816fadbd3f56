"""Waiting for work that others may wait for too."""

from __future__ import annotations

import asyncio
import logging
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


def _retrieve(work: asyncio.Future[T]) -> None:
    if not work.cancelled() and (error := work.exception()) is not None:
        logger.debug("failed after its caller was canceled: %s", error)
