"""Controllers found through DNS: Samba is the one that runs, with the name and site of the records."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from daemon import Daemon
from interop import domain_controller as domain
from interop.domain_controller import DomainController, login
from interop.name_server import NameServer
from openmsmq.directory.active.accounts import DomainAccounts
from openmsmq.directory.active.controllers import Controllers
from openmsmq.directory.active.locating import Catalog, Named, client_site
from openmsmq.directory.active.session import LdapCredentials, LdapSession, ping
from openmsmq.directory.provider import DirectoryNotConnected

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("domain")]
SITE = "default-first-site-name"
EVERYWHERE, NEAR = "_ldap._tcp.dc._msdcs.rig.test", f"_ldap._tcp.{SITE}._sites.dc._msdcs.rig.test"


@pytest.fixture
def names(directory: DomainController, tmp_path: Path) -> Iterator[NameServer]:
    server = NameServer(tmp_path)
    nobody = directory.address.rpartition(".")[0] + ".200"
    server.records = {
        (EVERYWHERE, "SRV"): ["0 100 389 gone.rig.test.", "0 100 389 dc1.rig.test."],
        (NEAR, "SRV"): ["0 100 389 gone.rig.test.", "10 0 389 dc1.rig.test."],
        ("gone.rig.test", "A"): [nobody], ("dc1.rig.test", "A"): [directory.address],
    }  # fmt: skip
    yield server
    server.close()


def options(keytab: Path) -> tuple[str, ...]:
    return (
        "--directory-provider", "active-directory", "--directory-domain", "rig.test", "--kerberos-keytab", str(keytab),
        "--computer-name", "MQ1", "--logins", "kerberos,ntlm", "--no-allow-anonymous",
    )  # fmt: skip


def test_controllers_of_the_site_are_used_and_the_next_one_if_one_is_down(
    keytab: Path, names: NameServer, tickets: dict[str, Path], tmp_path: Path
) -> None:
    with Daemon(tmp_path / "data", *options(keytab), prepare=names.enter()) as running:
        assert {EVERYWHERE, NEAR} <= set(names.asked)
        assert "this machine is in the site Default-First-Site-Name of rig.test" in running.log
        assert "the domain controller gone.rig.test does not answer" in running.log
        with running.connect(**login(tickets["carol"])) as manager:
            assert manager.machine_id
    assert "Traceback" not in running.log, running.log


def test_the_setting_that_names_controllers_takes_precedence(
    directory: DomainController, keytab: Path, names: NameServer, tmp_path: Path
) -> None:
    settings = (*options(keytab), "--directory-controllers", directory.address)
    with Daemon(tmp_path / "data", *settings, prepare=names.enter()) as running:
        assert running.alive
    assert not any("_msdcs" in name for name in names.asked)


def status(keytab: Path, names: NameServer, of: str = "rig.test") -> tuple[int, str]:
    environment = {
        **os.environ, "OPENMSMQ_DIRECTORY_DOMAIN": of, "OPENMSMQ_COMPUTER_NAME": "MQ1",
        "OPENMSMQ_KERBEROS_KEYTAB": str(keytab),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "openmsmq.cli", "domain", "status"], env=environment, preexec_fn=names.enter(),
        capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_status_lists_the_controllers_in_dns_and_those_that_are_down(keytab: Path, names: NameServer) -> None:
    names.records[EVERYWHERE, "SRV"] = names.records[NEAR, "SRV"] = ["0 0 389 dc1.rig.test."]
    code, said = status(keytab, names)
    assert code == 0 and "dc1.rig.test lets MQ1$ log in" in said, said
    names.records[EVERYWHERE, "SRV"] = ["0 0 389 dc1.rig.test.", "0 0 389 gone.rig.test."]
    code, said = status(keytab, names)
    assert code == 1 and "gone.rig.test" in said, said


def test_a_dns_server_that_is_silent_or_knows_no_controllers_is_named(keytab: Path, names: NameServer) -> None:
    code, said = status(keytab, names, "none.test")
    assert code == 1 and "DNS has no domain controllers of none.test" in said, said
    names.silent = True
    started = time.monotonic()
    code, said = status(keytab, names)
    assert code == 1 and "DNS does not answer" in said, said
    assert time.monotonic() - started < 8


def test_a_controller_reports_the_site_of_a_client_without_a_login(directory: DomainController) -> None:
    assert client_site(ping(directory.address, "rig.test")).lower() == SITE
    with pytest.raises(DirectoryNotConnected, match="not a controller of else"):
        ping(directory.address, "else.test")
    with pytest.raises(DirectoryNotConnected):
        ping("127.0.0.1:9", "rig.test")
    with directory.silent(), pytest.raises(DirectoryNotConnected):
        ping(directory.address, "rig.test")


def test_the_global_catalog_answers_for_the_whole_forest(
    directory: DomainController, tickets: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tickets['alice']}")
    connect = partial(LdapSession, login=LdapCredentials())
    locate = Named([directory.address])
    (place,) = Catalog(locate).hosts()
    session = connect(place)
    (found,) = session.search("", "(sAMAccountName=alice)", ["objectSid"])
    assert found.name.endswith("DC=rig,DC=test")
    session.close()
    accounts = DomainAccounts(Controllers(locate, connect), time.monotonic, Controllers(Catalog(locate), connect))
    assert accounts.sid_of(r"RIG\alice") == directory.sid("alice")
    assert accounts._in_catalog("alice", "DC=rig,DC=test", "(sAMAccountName=alice)") == directory.sid("alice")
    assert domain.GROUP in accounts.name_of(directory.sid(domain.GROUP))
