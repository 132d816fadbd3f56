"""Fixtures: one daemon per test module, which must not log an unhandled exception."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import add_user
from daemon import Daemon
from interop import domain_controller as domain
from interop.domain_controller import DomainController, domain_controller
from interop.domain_member import Member, why_no_member
from interop.impacket_client import PASSWORD, USER
from requirements import library, missing


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon") / "data") as running:
        add_user(running.directory, USER, PASSWORD)
        yield running
        assert running.alive
    assert "Traceback" not in running.log, running.log


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DomainController]:
    library("gssapi", "make domain")
    if reason := domain.why_no_controller():
        missing(reason)
    with pytest.MonkeyPatch.context() as patch, domain_controller(tmp_path_factory.mktemp("domain")) as running:
        patch.setenv("KRB5_CONFIG", str(running.krb5_conf))
        yield running


@pytest.fixture(scope="module")
def keytab(controller: DomainController) -> Path:
    return controller.keytab()


@pytest.fixture(scope="module")
def tickets(controller: DomainController) -> dict[str, Path]:
    return {user: controller.ticket(user, domain.SERVICE_NAME, domain.OTHER_NAME) for user in domain.ACCOUNTS}


@pytest.fixture(scope="module")
def directory(controller: DomainController) -> DomainController:
    library("ldap", "make domain")
    if shutil.which("ldapsearch") is None:
        missing("ldapsearch is not installed: make domain")
    controller.serve_ldap_by_address()
    return controller


@pytest.fixture(scope="module")
def member(controller: DomainController, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    """The computer MQ3, a member of the domain through winbind."""
    if reason := why_no_member():
        missing(reason)
    running = Member(controller, "MQ3", tmp_path_factory.mktemp("member"))
    running.join()
    try:
        running.start()
        yield running
    finally:
        running.stop()
