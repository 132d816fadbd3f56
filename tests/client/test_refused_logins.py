"""The error for a refused login names the user and the server, whichever protocol was used."""

from __future__ import annotations

import asyncio
import re

import pytest

import openmsmq
import openmsmq.aio
from command_line import at, invoke
from daemon import Daemon
from msrpc.rpc.pdu import AuthLevel
from openmsmq.accounts.users import UsersFile
from openmsmq.com import Dispatch

GOOD, WRONG = ({"user": "night", "password": password} for password in ("Passw0rd!", "wrong"))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("logins") / "data") as running:
        UsersFile(running.directory / "users.json").add("night", "Passw0rd!")
        yield running


def says_who_and_where(service):
    refused = rf"127\.0\.0\.1:{service.port} refused the login of user (X\\)?(night|nobody): check the user name"
    return re.compile(refused)


@pytest.mark.parametrize("spnego", [False, True], ids=["ntlm", "spnego"])
@pytest.mark.parametrize("given", [WRONG, {"user": "nobody", "password": "x"}, WRONG | {"domain": "X"}])
def test_a_wrong_login_names_the_user_and_the_server(service, given, spnego):
    with pytest.raises(openmsmq.LoginRefused, match=says_who_and_where(service)) as refused:
        service.connect(**given, spnego=spnego)
    assert "R_QM" not in str(refused.value)

    async def program():
        with pytest.raises(openmsmq.LoginRefused, match=says_who_and_where(service)):
            await openmsmq.aio.connect("127.0.0.1", service.port, **given, spnego=spnego)

    asyncio.run(program())


def test_only_the_error_of_a_login_below_privacy_suggests_higher_levels(service):
    for level, hint in ((AuthLevel.PKT_INTEGRITY, True), (AuthLevel.PKT_PRIVACY, False)):
        with pytest.raises(openmsmq.LoginRefused) as refused:
            service.connect(**WRONG, level=level)
        assert ("higher level" in str(refused.value)) is hint


def test_a_refused_call_after_a_login_that_works_is_no_refused_login(tmp_path):
    with Daemon(tmp_path / "data", "--interface-levels", "qmmgmt=privacy") as strict:
        UsersFile(strict.directory / "users.json").add("night", "Passw0rd!")
        with (
            strict.connect(**GOOD) as manager,
            pytest.raises(openmsmq.CallerRefused, match="higher authentication level"),
        ):
            manager.queues()
        with strict.connect() as manager, pytest.raises(openmsmq.CallerRefused, match="log in with a user"):
            manager.queues()


def test_after_a_restart_a_changed_password_is_reported(tmp_path):
    with Daemon(tmp_path / "data") as running:
        users = UsersFile(running.directory / "users.json")
        users.add("night", "Passw0rd!")
        with running.connect(**GOOD) as manager:
            users.set_password("night", "Another1!")
            running.stop()
            running.start()
            with pytest.raises(openmsmq.LoginRefused, match=says_who_and_where(running)):
                manager.queues()
            users.set_password("night", "Passw0rd!")
            assert manager.queues() == []


def test_commands_and_automation_objects_report_refused_logins_too(service):
    ended = invoke("queue", "list", "--user", "night", **at(service), OPENMSMQ_PASSWORD="wrong")
    assert ended.code == 5
    assert says_who_and_where(service).search(ended.stderr.replace("localhost", "127.0.0.1"))
    with pytest.raises(openmsmq.LoginRefused, match="refused the login of user night"):
        Dispatch("MSMQ.MSMQApplication", host="127.0.0.1", port=service.mapper_port, **WRONG)
