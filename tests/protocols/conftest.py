"""A queue manager with a directory, for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from protocols.with_directory import Run, ServerWithDirectory


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def start(test: Callable[[ServerWithDirectory], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            here = await ServerWithDirectory(tmp_path / "directory.sqlite").ready()
            try:
                await test(here)
            finally:
                await here.connection.close()

        asyncio.run(whole())

    return start
