"""Background tasks: failures are logged, and a failure does not end the maintenance of the store."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from msrpc.rpc.assembly import Account, ReassemblyBudget
from openmsmq.server import maintenance as module
from openmsmq.server.background import start_background_task
from openmsmq.server.maintenance import Maintenance, Thresholds


def test_the_log_names_the_stopped_task(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise RuntimeError("a bug")

    async def for_ever() -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        task = start_background_task("counting", fails())
        await asyncio.wait([task])
        waiting = start_background_task("waiting", for_ever())
        waiting.cancel()
        await asyncio.wait([waiting])

    asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        "counting has stopped until the daemon is restarted: a bug"
    ]
    assert caplog.records[0].exc_info


class FailingParts:
    """Stands for the queue manager, its store and its committer, with only the attributes used here."""

    end = durable_end = 1 << 30
    authorization: Any = None
    machine = None

    def rooms(self) -> Any:
        raise TypeError("a bug")


def test_a_failure_does_not_end_the_maintenance_of_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PERIOD", 0.01)
    anything: Any = FailingParts()
    anything.authorization = anything
    looks = 0

    def is_owner() -> bool:
        nonlocal looks
        looks += 1
        return looks < 5

    async def scenario() -> None:
        maintenance = Maintenance(
            anything,
            anything,
            anything,
            lambda: anything,
            ReassemblyBudget(1),
            asyncio.Event(),
            Thresholds(1, 0),
            tmp_path,
            is_owner,
        )
        maintenance._checkpointed = 0
        await maintenance.run()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert looks == 5
    assert [record.getMessage() for record in caplog.records] == [
        "checkpoint or compaction failed; next attempt in 60 s"
    ]


def test_memory_of_large_requests_is_returned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    returned = []
    monkeypatch.setattr(module, "PERIOD", 0)
    monkeypatch.setattr(module, "trim", lambda: returned.append(budget.peak))
    budget, anything = ReassemblyBudget(1 << 30), CheckpointParts()
    account = Account(1 << 30, budget)
    changes = iter([16 << 20, -(16 << 20), 17 << 20, -(17 << 20), 0, 0])

    def is_owner() -> bool:
        change = next(changes, None)
        account.book(change or 0)
        return change is not None

    parts: Any = anything
    parts.authorization, parts.wants_compaction, parts.durable_end = parts, False, 0
    maintenance = Maintenance(
        parts, parts, parts, lambda: parts, budget, asyncio.Event(), Thresholds(1, 0), tmp_path, is_owner
    )  # fmt: skip
    asyncio.run(maintenance.run())
    assert returned == [0]


class CheckpointParts:
    """Stands for the store, the queue manager, the committer and a checkpoint, with only the attributes used here."""

    end = size = position = 0

    def __init__(self) -> None:
        self.positions: list[int] = []

    def rooms(self) -> Any:
        return lambda: None

    def capture(self, rooms: None) -> None:
        return None

    def capture_checkpoint(self, captured: None) -> CheckpointParts:
        self.position = self.end
        return self

    def write(self) -> int:
        return self.size

    async def drain(self) -> None:
        return None

    def finish_checkpoint(self, job: CheckpointParts) -> None:
        self.positions.append(job.position)


@pytest.mark.parametrize(("size", "positions"), [(1, [50, 100, 150]), (10, [50, 210, 370])])
def test_the_distance_of_checkpoints_grows_with_their_size(
    size: int, positions: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "CHECKPOINTS_SHARE", float("inf"))
    anything: Any = CheckpointParts()
    anything.size = size
    maintenance = Maintenance(
        anything, anything, anything, lambda: anything, ReassemblyBudget(1), asyncio.Event(), Thresholds(50, 0),
        tmp_path, lambda: True,
    )  # fmt: skip

    async def scenario() -> None:
        while len(anything.positions) < 3:
            anything.end += 10
            await maintenance._checkpoint_if_due()

    asyncio.run(scenario())
    assert anything.positions == positions
