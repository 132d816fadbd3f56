"""Names of domain accounts in settings, with a domain in memory."""

from __future__ import annotations

import asyncio

import pytest

from openmsmq.directory.provider import DirectoryError, DirectoryNotConnected
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.server import domain_names
from waiting import until


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
        await until(lambda: domain.rounds >= 5)
        task.cancel()

    asyncio.run(run())
    assert found == ["S-1-5-21-1-2-3-1102"]
    reported = [record.getMessage().partition("account ")[2].partition(" could")[0] for record in caplog.records]
    assert reported == ["RIG\\first", "RIG\\second", "RIG\\known"]


class Accounts:
    """See `accounts.DomainAccounts`; the name of one account cannot be looked up."""

    def __init__(self, failure: DirectoryError) -> None:
        self.failure = failure

    def name_of(self, sid: str) -> str:
        if sid == "S-1-5-21-7":
            raise self.failure
        return f"RIG\\{sid}"


@pytest.mark.parametrize(
    ("failure", "known"),
    [
        (DirectoryError("no global catalog answers"), ["S-1-5-21-1", "S-1-5-21-2"]),
        (DirectoryNotConnected("no controller"), ["S-1-5-21-1"]),
    ],
)
def test_a_name_that_cannot_be_looked_up_hides_no_other_while_the_domain_answers(
    failure: DirectoryError, known: list[str]
) -> None:
    names = domain_names.DomainNames(Accounts(failure))  # type: ignore[arg-type]
    assert list(asyncio.run(names.names_of(["S-1-5-21-1", "S-1-5-21-7", "S-1-5-21-2"]))) == known
