"""Parts of the daemon start in order and stop in the reverse one."""

from __future__ import annotations

import asyncio

import pytest

from openmsmq.server.context import Parts


class RecordingPart:
    """A part that records its start and stop."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes

    async def start(self) -> None:
        self.notes.append(f"start {self.name}")
        if self.name == "broken":
            raise OSError("no port")

    async def stop(self, grace: float) -> None:
        self.notes.append(f"stop {self.name} within {grace:g} s")


def test_parts_stop_in_the_reverse_order_and_once() -> None:
    notes: list[str] = []

    async def run() -> None:
        parts = Parts()
        for name in ("calls", "messages"):
            await parts.start(RecordingPart(name, notes))
        await parts.stop(5)
        await parts.stop(5)

    asyncio.run(run())
    assert notes == ["start calls", "start messages", "stop messages within 5 s", "stop calls within 5 s"]


def test_a_part_that_could_not_start_is_stopped_too() -> None:
    notes: list[str] = []

    async def run() -> None:
        parts = Parts()
        await parts.start(RecordingPart("calls", notes))
        with pytest.raises(OSError, match="no port"):
            await parts.start(RecordingPart("broken", notes))
        await parts.stop(0)

    asyncio.run(run())
    assert notes == ["start calls", "start broken", "stop broken within 0 s", "stop calls within 0 s"]


def test_a_part_that_fails_to_stop_does_not_keep_others_from_it(caplog: pytest.LogCaptureFixture) -> None:
    notes: list[str] = []

    class Failing(RecordingPart):
        async def stop(self, grace: float) -> None:
            raise OSError(30, "Read-only file system", "/data/web-address.json")

    async def run() -> None:
        parts = Parts()
        await parts.start(RecordingPart("calls", notes))
        await parts.start(Failing("web", notes))
        await parts.stop(0)

    asyncio.run(run())
    assert notes[-1] == "stop calls within 0 s"
    assert "Failing" in caplog.text and "/data/web-address.json" in caplog.text
