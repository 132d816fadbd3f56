"""Referrals of a directory server to the controller of another domain of the forest, which accepts our tickets."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from command_line import add_user
from daemon import Daemon
from interop import domain_forest
from interop.domain_controller import PASSWORD, SERVICE_NAME, DomainController, SambaServer, login
from interop.domain_forest import child_domain, name_forest, referrer
from interop.name_server import NameServer
from openmsmq.com import Dispatch, close_all
from openmsmq.model.errors import HResult, MsmqError
from requirements import missing

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("domain")]
CHILD = "DC=child,DC=rig,DC=test"
GUEST = f"CN=Guest,CN=Users,{CHILD}"

_CLIENT = """
import json, logging, sys, time
from openmsmq.directory.active.locating import DnsControllers, dns_services
from openmsmq.directory.active.session import LdapCredentials, Scope, ping
from openmsmq.directory.provider import DirectoryError
from openmsmq.server.controllers import controllers

logging.basicConfig(stream=sys.stderr)
asked, _ = controllers(DnsControllers("rig.test", dns_services(), ping, time.monotonic), LdapCredentials())
started = time.monotonic()
try:
    found = asked.{kind}_now(lambda session: {question})
    said = [entry.name for entry in found or ()]
except DirectoryError as error:
    said = [type(error).__name__, str(error)]
print(json.dumps([said, time.monotonic() - started]))
"""


@pytest.fixture(scope="module")
def child(directory: DomainController) -> Iterator[SambaServer]:
    with child_domain(directory) as running:
        directory.stop()
        directory.start()
        yield running


@pytest.fixture(scope="module")
def foreign(directory: DomainController) -> Iterator[socket.socket]:
    """An external host that referrals name."""
    with socket.create_server((directory.address.rpartition(".")[0] + ".254", 389)) as listening:
        listening.settimeout(0.2)
        yield listening


@pytest.fixture(scope="module")
def refers(
    directory: DomainController, child: SambaServer, foreign: socket.socket, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if shutil.which("slapd") is None:
        missing("slapd is not installed: make domain")
    with referrer(directory, tmp_path_factory.mktemp("slapd"), foreign.getsockname()[0]) as address:
        yield address


@pytest.fixture(scope="module")
def ticket(directory: DomainController, child: SambaServer) -> Path:
    return directory.ticket("alice", name="of-the-forest")


@pytest.fixture
def names(directory: DomainController, refers: str, tmp_path: Path) -> Iterator[NameServer]:
    server = NameServer(tmp_path)
    name_forest(server, directory, refers)
    yield server
    server.close()


class Client:
    """A separate process that uses the test's resolver."""

    def __init__(self, names: NameServer, ticket: Path) -> None:
        self._names, self._ticket = names, ticket
        self.log = ""
        self.took = 0.0

    def ask(self, question: str, kind: str = "read") -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", _CLIENT.format(question=question, kind=kind)], preexec_fn=self._names.enter(),
            env={**os.environ, "KRB5CCNAME": f"FILE:{self._ticket}"}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said: Any
        said, self.took = json.loads(done.stdout)
        self.log = done.stderr
        return list(said)


@pytest.fixture
def client(names: NameServer, ticket: Path) -> Client:
    return Client(names, ticket)


def test_a_search_continues_at_the_controller_of_the_other_domain_with_a_ticket_for_it(
    client: Client, ticket: Path
) -> None:
    search = "session.search('DC=rig,DC=test', '(cn=krbtgt)', ['cn'], everywhere=True)"
    assert client.ask(search) == [f"CN=krbtgt,CN=Users,{CHILD}"], client.log
    assert client.ask(search.replace(", everywhere=True", "")) == []
    held = subprocess.run(["klist", f"FILE:{ticket}"], capture_output=True, text=True, check=True).stdout
    assert f"ldap/{domain_forest.CHILD_HOST}@{domain_forest.CHILD_REALM}" in held


def test_an_object_of_the_other_domain_is_read_and_changed_if_permitted(
    client: Client, directory: DomainController, child: SambaServer
) -> None:
    assert client.ask(f"session.search('{GUEST}', '(objectClass=*)', ['cn'], Scope.BASE)") == [GUEST]
    change = f"session.modify('{GUEST}', {{'description': [b'changed']}})"
    assert client.ask(change, "change")[0] == "DirectoryDenied"
    sid = directory.sid("alice")
    grant = ["samba-tool", "dsacl", "set", f"--objectdn={GUEST}", f"--sddl=(A;;WP;;;{sid})", "-s", child.settings]
    subprocess.run(grant, check=True, capture_output=True)
    assert client.ask(change, "change") == []
    assert client.ask(f"session.search('{CHILD}', '(description=changed)', ['cn'])") == [GUEST]
    assert client.ask(f"session.search('CN=none,{CHILD}', '(cn=*)', ['cn'])")[0] == "ObjectNotFound"


def test_a_foreign_host_gets_no_connection_and_is_named(client: Client, foreign: socket.socket) -> None:
    kind, said = client.ask("session.search('DC=foreign,DC=rig,DC=test', '(cn=*)', ['cn'], Scope.BASE)")
    assert kind == "ReferredElsewhere" and foreign.getsockname()[0] in said
    kind, said = client.ask("session.modify('DC=foreign,DC=rig,DC=test', {'cn': [b'x']})", "change")
    assert kind == "ReferredElsewhere"
    client.ask("session.search('DC=rig,DC=test', '(cn=*)', ['cn'], everywhere=True)")
    assert foreign.getsockname()[0] in client.log
    with pytest.raises(TimeoutError):
        foreign.accept()


def test_a_silent_or_dead_controller_delays_one_operation_at_most_to_its_time_limit(
    client: Client, child: SambaServer
) -> None:
    search = f"session.search('{GUEST}', '(objectClass=*)', ['cn'], Scope.BASE)"
    client.ask(search)  # the cache has its ticket
    with child.silent():
        kind, said = client.ask(search)
        assert kind == "DirectoryError" and "child.rig.test" in said, said
        assert client.took < 9
    child.kill()
    try:
        kind, said = client.ask(search)
        assert kind == "DirectoryError" and "child.rig.test" in said, said
        assert client.took < 5
    finally:
        child.start()
    assert client.ask(search) == [GUEST]


def test_two_searches_run_concurrently(names: NameServer, ticket: Path) -> None:
    script = _CLIENT.format(kind="read", question=f"session.search('{CHILD}', '(cn=Guest)', ['cn'])")
    options = {"env": {**os.environ, "KRB5CCNAME": f"FILE:{ticket}"}, "stdout": subprocess.PIPE}
    running = [
        subprocess.Popen([sys.executable, "-c", script], preexec_fn=names.enter(), **options)  # noqa: PLW1509
        for _ in range(2)
    ]
    started = time.monotonic()
    for process in running:
        assert json.loads(process.communicate(timeout=30)[0])[0] == [GUEST]
    assert time.monotonic() - started < 20


def test_queries_of_a_forest_with_several_domains_go_to_a_real_global_catalog(
    directory: DomainController, child: SambaServer, keytab: Path, tmp_path: Path
) -> None:
    options = (
        "--directory-provider", "active-directory", "--directory-controllers", directory.address, "--kerberos-keytab",
        str(keytab), "--computer-name", "MQ1", "--logins", "kerberos,ntlm",
        "--domain-administrators", directory.sid("carol"),
    )  # fmt: skip
    carol = directory.ticket("carol", SERVICE_NAME)
    with Daemon(tmp_path / "data", *options) as daemon, daemon.connect(**login(carol)) as manager:
        add_user(daemon.directory, "local", PASSWORD)
        manager.create_queue(r".\of-the-forest", label="of the forest")
        query = Dispatch("MSMQ.MSMQQuery", "127.0.0.1", daemon.mapper_port, user="local", password=PASSWORD)

        def found() -> str:
            return str(query.LookupQueue(Label="of the forest").Next().PathName)

        assert found() == "MQ1\\of-the-forest"
        started = time.monotonic()
        with pytest.raises(MsmqError) as caught:
            manager.open(f"PUBLIC={uuid4()}", "send")
        assert caught.value.hresult == HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
        assert time.monotonic() - started < 5
        assert "no global catalog" not in daemon.log
        with directory.net.refused(0, 3268):
            assert found() == "MQ1\\of-the-forest"
            assert "no global catalog is available; queues of other domains cannot be found" in daemon.log
        close_all()
    assert "Traceback" not in daemon.log
