"""LDAP with a real controller: protection, paging, referrals, errors, and data stored for users."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from interop import domain_controller as domain
from interop.domain_controller import DomainController
from openmsmq.directory.active.accounts import DomainAccounts
from openmsmq.directory.active.controllers import Controllers
from openmsmq.directory.active.locating import Named
from openmsmq.directory.active.objects import format_names_of_members, identifier_of
from openmsmq.directory.active.provider import ActiveDirectory
from openmsmq.directory.active.session import LdapCredentials, LdapSession
from openmsmq.directory.provider import DirectoryDenied, DirectoryError, ObjectNotFound
from openmsmq.protection.certificates import UserCertificate, pack_certificates
from openmsmq.protocols.certificates import certificates_in, certificates_to

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("domain")]
DOMAIN = "DC=rig,DC=test"
ALICE = f"CN=alice,CN=Users,{DOMAIN}"


@pytest.fixture
def session(
    directory: DomainController, tickets: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[LdapSession]:
    """A session with alice's ticket, as on the command line."""
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tickets['alice']}")
    made = LdapSession(directory.address, LdapCredentials())
    yield made
    made.close()


def test_ldap_traffic_is_encrypted(session: LdapSession) -> None:
    import ldap

    assert session._connection.get_option(ldap.OPT_X_SASL_SSF) >= 56


def test_pages_are_joined_and_referrals_skipped(session: LdapSession) -> None:
    names = [entry.name for entry in session.search(f"CN=Configuration,{DOMAIN}", "(objectClass=*)", ["cn"])]
    assert len(names) == len(set(names)) > 1000
    assert all(entry.name for entry in session.search(DOMAIN, "(objectClass=*)", ["cn"]))
    assert len(session.search(f"CN=Configuration,{DOMAIN}", "(objectClass=*)", ["cn"], limit=7)) == 7


def test_ldap_errors_become_directory_errors(session: LdapSession) -> None:
    with pytest.raises(ObjectNotFound):
        session.search(f"CN=none,{DOMAIN}", "(objectClass=*)", ["cn"])
    with pytest.raises(DirectoryError, match="filter"):
        session.search(DOMAIN, "(((", ["cn"])
    with pytest.raises(DirectoryDenied):
        session.modify(f"CN=bob,CN=Users,{DOMAIN}", {"description": [b"mine"]})
    with pytest.raises(DirectoryDenied):
        session.add(f"CN=new,CN=Users,{DOMAIN}", {"objectClass": [b"container"]})


def test_certificates_that_a_user_registered_herself_are_found(
    session: LdapSession, directory: DomainController
) -> None:
    entry = UserCertificate(uuid4().bytes_le, os.urandom(700))
    values = {"mSMQSignCertificates": [pack_certificates([entry])], "mSMQDigests": [entry.digest]}
    session.modify(ALICE, values)
    provider = ActiveDirectory(
        Controllers(Named([directory.address]), partial(LdapSession, login=LdapCredentials())),
        "MQ1$",
        certificates_in,
        certificates_to,
    )

    async def run() -> None:
        sid = directory.sid("alice")
        found = await provider.user(sid)
        assert (found.sid, [c.encoded for c in found.certificates]) == (sid, [entry.certificate])
        session.modify(ALICE, {name: [] for name in values})
        assert (await provider.user(sid)).certificates == ()
        await provider.close()

    asyncio.run(run())


def test_members_of_a_group_are_found_by_one_search(session: LdapSession) -> None:
    (group,) = session.search(DOMAIN, f"(sAMAccountName={domain.GROUP})", ["member"])
    (inner,) = session.search(DOMAIN, f"(sAMAccountName={domain.INNER_GROUP})", ["objectGUID"])
    assert [entry.name for entry in session.search(DOMAIN, f"(memberOf={group.name})", ["cn"])] == [inner.name]
    assert format_names_of_members(session, DOMAIN, group) == (f"DL={identifier_of(inner)}",)


def test_names_and_groups_are_those_of_the_domain(session: LdapSession, directory: DomainController) -> None:
    accounts = DomainAccounts(
        Controllers(Named([directory.address]), partial(LdapSession, login=LdapCredentials())), lambda: 0.0
    )
    group, inner = directory.sid(domain.GROUP), directory.sid(domain.INNER_GROUP)
    for name in ("RIG\\orders", "rig.test\\ORDERS", "orders@rig.test"):
        assert accounts.sid_of(name) == group
    assert accounts.name_of(inner) == "RIG\\order-clerks"
    assert {group, inner} < set(accounts.groups_of(directory.sid("alice")))
    assert accounts.name_of(directory.sid("MQ1$")) == "RIG\\MQ1$"
    for name in ("RIG\\*", "RIG\\a*", "*@rig.test", "RIG\\)(cn=*", "RIG\\x\0"):
        with pytest.raises(ObjectNotFound):
            accounts.sid_of(name)
