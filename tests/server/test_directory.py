"""The daemon's directory: its choice, and reconnection after it was unavailable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from openmsmq.directory.provider import MachineRecord
from openmsmq.server.config import ConfigurationError
from openmsmq.server.directory import connect_to_directory, synchronize
from openmsmq.server.loading import load
from protocols.with_directory import OWN, ServerWithDirectory
from queueing.world import ALICE
from waiting import until


def test_the_default_is_a_file_in_the_data_directory(tmp_path: Path) -> None:
    configuration = load(environment={}, options={"data_dir": tmp_path})
    assert configuration.directory_file == tmp_path / "directory.sqlite"
    assert connect_to_directory(configuration).exists
    assert list(tmp_path.iterdir()) == []
    elsewhere = load(environment={"OPENMSMQ_DIRECTORY_PATH": str(tmp_path / "shared")})
    assert elsewhere.directory_file == tmp_path / "shared"
    assert not connect_to_directory(load(environment={}, options={"directory_provider": "none"})).exists


def test_an_unknown_provider_is_refused_with_a_list_of_providers() -> None:
    with pytest.raises(ConfigurationError, match="directory_provider is 'ldap'; allowed: one of sqlite"):
        load(environment={}, options={"directory_provider": "ldap"})


@pytest.mark.parametrize(
    ("missing", "options"),
    [
        ("directory_controllers", {"kerberos_keytab": Path("keytab")}),
        ("kerberos_keytab", {"directory_controllers": "dc1"}),
    ],
)
def test_active_directory_requires_controllers_and_a_keytab(missing: str, options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=f"{missing} is .* because directory_provider is active-directory"):
        load(environment={}, options={"directory_provider": "active-directory", **options})


def test_active_directory_names_a_missing_library_or_file(tmp_path: Path) -> None:
    options = {"directory_provider": "active-directory", "directory_controllers": "dc1, dc2,"}
    configuration = load(environment={}, options={**options, "kerberos_keytab": tmp_path / "none"})
    assert configuration.controllers == ("dc1", "dc2")
    with pytest.raises(ConfigurationError, match=r"directory_provider: .*(openmsmq\[domain\]|can't be read)"):
        connect_to_directory(configuration)


def test_the_account_is_that_of_the_computer_unless_it_is_given() -> None:
    assert load(environment={}, options={"computer_name": "mq1"}).account_name == "MQ1$"
    given = {"computer_name": "mq1", "directory_account": "MQ1$@RIG.TEST"}
    assert load(environment={}, options=given).account_name == "MQ1$@RIG.TEST"


def test_a_directory_that_is_away_at_the_start_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        here = ServerWithDirectory(tmp_path / "directory.sqlite")
        here.provider.away = True
        following = asyncio.create_task(synchronize(here.public, period=0.01))
        await until(lambda: here.connection.offline)
        await asyncio.sleep(0.05)
        here.provider.away = False
        await until(lambda: not here.connection.offline)
        record = await here.public.create(".\\q", {}, ALICE)
        assert record.machine == OWN
        following.cancel()
        await here.connection.close()

    asyncio.run(test())
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "cannot synchronize public queues with the directory; next" in line]) == 1
    assert any(line == "directory available again" for line in lines)


def test_a_registration_that_fails_for_another_reason_is_reported_and_queries_are_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        here = ServerWithDirectory(tmp_path / "directory.sqlite")
        here.provider.away = True
        attempts, synchronize_once = 0, here.public.synchronize

        async def counted() -> None:
            nonlocal attempts
            attempts += 1
            await synchronize_once()

        here.public.synchronize = counted  # type: ignore[method-assign]
        following = asyncio.create_task(synchronize(here.public, period=0.01))
        await until(lambda: here.connection.offline)
        here.provider.away = False
        await here.provider.register_machine(MachineRecord(UUID(int=5), here.world.manager.machine.computer_name))
        await until(lambda: "belongs to another queue manager" in caplog.text)
        before = attempts
        await until(lambda: attempts > before + 2)
        assert (await here.public.machine(UUID(int=5))).identifier == UUID(int=5)
        following.cancel()
        await here.connection.close()

    asyncio.run(test())
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "cannot synchronize public queues with the directory; next" in line]) == 2


def test_an_unexpected_error_of_the_directory_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        here = await ServerWithDirectory(tmp_path / "directory.sqlite").ready()

        async def broken() -> None:
            raise RuntimeError("odd")

        working, here.public.synchronize = here.public.synchronize, broken  # type: ignore[method-assign]
        following = asyncio.create_task(synchronize(here.public, period=0.01))
        await until(lambda: "odd" in caplog.text)
        here.public.synchronize = working  # type: ignore[method-assign]
        await asyncio.sleep(0.05)
        assert not following.done()
        following.cancel()
        await here.connection.close()

    asyncio.run(test())
