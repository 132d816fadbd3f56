"""Checks of what a machine needs in the domain."""

from __future__ import annotations

import pytest

from directory.active.ldap_tree import LdapTree
from openmsmq.directory.active.examining import ExaminationFinding, examine

DOMAIN = "DC=rig,DC=test"
COMPUTER = f"CN=MQ1,CN=Computers,{DOMAIN}"
NOON = 1795348800.0  # 2026-11-22 12:00


def tree(**changes: list[bytes]) -> LdapTree:
    computer = {
        "objectclass": [b"computer"], "samaccountname": [b"MQ1$"], "cn": [b"MQ1"],
        "serviceprincipalname": [b"HOST/mq1.rig.test"], "msds-supportedencryptiontypes": [b"24"],
        "allowedchildclasseseffective": [b"mSMQConfiguration"], **changes,
    }  # fmt: skip
    return LdapTree({
        "": {"currenttime": [b"20261122120010.0Z"], "defaultnamingcontext": [DOMAIN.encode()], "objectclass": [b"top"]},
        DOMAIN: {"objectclass": [b"domain"]},
        COMPUTER: computer,
    })  # fmt: skip


def found(tree: LdapTree, name: str = "mq1", now: float = NOON) -> dict[str, ExaminationFinding]:
    return {finding.thing: finding for finding in examine(tree, "MQ1$", name, now)}


def advised(findings: dict[str, ExaminationFinding]) -> set[str]:
    return {finding.thing for finding in findings.values() if finding.advice}


def test_a_machine_that_has_all_needs_nothing() -> None:
    here = tree()
    findings = found(here)
    assert advised(findings) == set()
    assert findings["clock"].said == "10 s from the controller's"
    assert "the daemon makes it" in findings["object"].said
    here.objects[f"CN=msmq,{COMPUTER}"] = {
        "objectclass": [b"mSMQConfiguration"], "allowedchildclasseseffective": [b"mSMQQueue"],
    }  # fmt: skip
    assert advised(found(here)) == set()


@pytest.mark.parametrize(
    ("thing", "advice", "changes"),
    [
        ("encryption of tickets", "net ads enctypes set 'MQ1$' 24", {"msds-supportedencryptiontypes": [b"4"]}),
        ("encryption of tickets", "net ads enctypes set", {"msds-supportedencryptiontypes": []}),
        ("services", "samba-tool spn add host/NAME 'MQ1$'", {"serviceprincipalname": [b"MSMQ/mq1"]}),
        ("object", "an administrator has to make CN=msmq", {"allowedchildclasseseffective": []}),
    ],
)
def test_missing_prerequisites_name_the_remedy(thing: str, advice: str, changes: dict[str, list[bytes]]) -> None:
    findings = found(tree(**changes))
    assert advised(findings) == {thing}
    assert advice in findings[thing].advice


def test_clocks_names_and_accounts_that_are_wrong_are_named() -> None:
    assert advised(found(tree(), now=NOON - 400)) == {"clock"}
    assert "set computer_name to MQ1" in found(tree(), name="ELSE")["account"].advice
    assert advised(found(tree(samaccountname=[b"X$"]))) == {"account"}


def test_an_object_below_which_it_may_make_no_queues_is_named() -> None:
    here = tree()
    here.objects[f"CN=msmq,{COMPUTER}"] = {"objectclass": [b"mSMQConfiguration"]}
    assert found(here)["object"].advice == f"grant MQ1$ full control of CN=msmq,{COMPUTER}"
