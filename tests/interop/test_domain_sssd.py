"""A machine that is a member through adcli and sssd: the daemon uses its account and keys, and users with a ticket
can log in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon import Daemon
from interop.domain_controller import ADMINISTRATOR, CONTROLLER, PASSWORD, REALM, DomainController, login
from interop.domain_sssd import RealmMember, SssdMember, why_no_sssd
from interop.name_server import NameServer
from requirements import missing

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("domain")]
NAME = "MQ9"


@pytest.fixture(scope="module")
def sssd(directory: DomainController, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SssdMember]:
    if reason := why_no_sssd():
        missing(reason)
    member = SssdMember(directory, NAME, tmp_path_factory.mktemp("sssd"))
    member.join()
    try:
        member.start()
        yield member
    finally:
        member.stop()


def run(
    member: SssdMember, directory: DomainController, data: Path, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run `openmsmq domain …` on the member."""
    environment = {
        **os.environ, "OPENMSMQ_DATA_DIR": str(data), "OPENMSMQ_DIRECTORY_CONTROLLERS": directory.address,
        "OPENMSMQ_COMPUTER_NAME": NAME, "OPENMSMQ_KERBEROS_KEYTAB": str(member.keytab), "OPENMSMQ_PASSWORD": PASSWORD,
        **settings,
    }  # fmt: skip
    command = [sys.executable, "-m", "openmsmq.cli", "domain", *arguments]
    return subprocess.run(command, env=environment, preexec_fn=member.enter(), capture_output=True, text=True)


def account(directory: DomainController, *attributes: str) -> str:
    return directory.search("alice", f"(sAMAccountName={NAME}$)", *attributes)


def test_the_membership_is_used_as_it_is_and_users_with_tickets_log_in(
    directory: DomainController, sssd: SssdMember, tickets: dict[str, Path], tmp_path: Path
) -> None:
    keys, password = sssd.keytab.read_bytes(), account(directory, "pwdLastSet")
    joined = run(sssd, directory, tmp_path, "join", "--user", f"{ADMINISTRATOR}@{REALM}", "--host-name", sssd.host)
    assert joined.returncode == 0, joined.stderr
    assert f"{sssd.keytab} has the keys of {NAME}$: this machine is a member" in joined.stdout
    assert (sssd.keytab.read_bytes(), account(directory, "pwdLastSet")) == (keys, password)
    assert f"servicePrincipalName: MSMQ/{sssd.host}" in account(directory, "servicePrincipalName")

    said = run(sssd, directory, tmp_path, "status")
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"host/{sssd.host}" in said.stdout and "sssd has no NTLM" in said.stdout
    options = (
        "--directory-provider", "active-directory", "--directory-controllers", directory.address, "--kerberos-keytab",
        str(sssd.keytab), "--computer-name", NAME, "--logins", "kerberos",
    )  # fmt: skip
    service = f"host/{sssd.host}@{REALM}"
    with Daemon(tmp_path / "data", *options, prepare=sssd.enter()) as daemon:
        with daemon.connect(**login(directory.ticket("alice", service, name="of-sssd"), service)) as manager:
            assert manager.machine_id
        assert r"RIG\alice" in daemon.log
    assert sssd.knows("bob")
    left = run(sssd, directory, tmp_path, "leave", "--user", f"{ADMINISTRATOR}@{REALM}", "--yes")
    assert left.returncode == 0 and account(directory, "cn") and sssd.keytab.exists(), left.stderr


def test_domain_ntlm_is_unavailable_and_the_status_says_why(
    directory: DomainController, sssd: SssdMember, tmp_path: Path
) -> None:
    said = run(sssd, directory, tmp_path, "status", "--json", OPENMSMQ_LOGINS="kerberos,winbind")
    assert said.returncode == 1
    (row,) = [row for row in map(json.loads, said.stdout.splitlines()) if not row["ok"]]
    assert row["thing"] == "winbind" and "sssd has no NTLM" in row["advice"], row


def test_without_sssd_the_status_does_not_mention_it(
    directory: DomainController, sssd: SssdMember, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "openmsmq.cli", "domain", "status"]
    environment = {**os.environ, "OPENMSMQ_DATA_DIR": str(tmp_path), "OPENMSMQ_KERBEROS_KEYTAB": str(sssd.keytab)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "sssd" not in done.stdout.replace(str(sssd.keytab), "")


def test_a_machine_that_realm_has_joined_is_found_by_the_keytab_of_the_system(
    directory: DomainController, tickets: dict[str, Path], tmp_path: Path
) -> None:
    if shutil.which("realm") is None:
        missing("realmd is not installed: make domain")
    served, names = f"{CONTROLLER}.rig.test", NameServer(tmp_path, "127.0.0.54")
    names.records = {
        ("_ldap._tcp.rig.test", "SRV"): [f"0 100 389 {served}."], (served, "A"): [directory.address],
        ("_ldap._tcp.dc._msdcs.rig.test", "SRV"): [f"0 100 389 {served}."],
        ("_kerberos._tcp.rig.test", "SRV"): [f"0 100 88 {served}."], ("rig.test", "A"): [directory.address],
    }  # fmt: skip
    member = RealmMember(directory, "MQ8", tmp_path / "realm", "127.0.0.54")
    try:
        environment = {
            **os.environ, "OPENMSMQ_DATA_DIR": str(tmp_path), "OPENMSMQ_DIRECTORY_CONTROLLERS": directory.address,
            "OPENMSMQ_COMPUTER_NAME": "MQ8", "OPENMSMQ_PASSWORD": PASSWORD,
        }  # fmt: skip

        def domain(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "openmsmq.cli", "domain", *arguments]
            given = {**environment, **more}
            return subprocess.run(command, env=given, preexec_fn=member.enter(), capture_output=True, text=True)

        unset = domain("status")
        assert unset.returncode == 1 and "this machine has /etc/krb5.keytab" in " ".join(unset.stdout.split())
        joined = domain("join", "--user", f"{ADMINISTRATOR}@{REALM}", "--host-name", member.host)
        assert joined.returncode == 0, joined.stderr
        assert "/etc/krb5.keytab has the keys of MQ8$: this machine is a member" in joined.stdout
        said = domain("status", OPENMSMQ_KERBEROS_KEYTAB="/etc/krb5.keytab")
        assert said.returncode == 0, said.stdout + said.stderr
    finally:
        member.stop()
        names.close()
