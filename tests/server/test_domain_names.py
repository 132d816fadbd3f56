"""Names of domain accounts in settings, with a domain in memory."""

from __future__ import annotations

import asyncio

import pytest

from openmsmq.model.errors import HResult, MsmqError
from openmsmq.server import domain_names


class Domain:
    """A domain in which one name is unknown, and other names cannot be looked up at the first attempt."""

    def __init__(self) -> None:
        self.rounds = 0

    async def sid_of(self, name: str) -> str | None:
        if name == "RIG\\first":
            self.rounds += 1
        if name == "RIG\\known" and self.rounds > 2:
            return "S-1-5-21-1-2-3-1102"
        if name == "RIG\\known":
            raise MsmqError(HResult.MQ_ERROR_NO_DS, "no controller")
        return None


def test_each_name_that_cannot_be_resolved_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(domain_names, "AGAIN", 0.0)
    found: list[str] = []

    async def run() -> None:
        names = ["RIG\\first", "RIG\\second", "RIG\\known"]
        domain = Domain()
        task = asyncio.create_task(domain_names.resolve("readers", names, domain, found.append))  # type: ignore[arg-type]
        while domain.rounds < 5:
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(run())
    assert found == ["S-1-5-21-1-2-3-1102"]
    reported = [record.getMessage().partition("account ")[2].partition(" could")[0] for record in caplog.records]
    assert reported == ["RIG\\first", "RIG\\second", "RIG\\known"]
