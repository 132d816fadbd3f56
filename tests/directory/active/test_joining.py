"""Directory objects created by joining a domain and removed by leaving it."""

from __future__ import annotations

import pytest

from directory.active.ldap_tree import LdapTree
from openmsmq.directory.active import joining
from openmsmq.directory.active.joining import AccountExists, DomainMember, JoinStep
from openmsmq.directory.provider import DirectoryError, ObjectNotFound

DOMAIN = "DC=rig,DC=test"
COMPUTERS = f"CN=Computers,{DOMAIN}"
MEMBER = DomainMember("mq1", "mq1.rig.test", COMPUTERS)
NAME = f"CN=MQ1,{COMPUTERS}"


def tree() -> LdapTree:
    objects = {
        "": {"defaultnamingcontext": [DOMAIN.encode()], "objectclass": [b"top"]},
        DOMAIN: {"objectclass": [b"domain"]}, COMPUTERS: {"objectclass": [b"container"]},
    }  # fmt: skip
    return LdapTree({name: {"usncreated": [b"1"], **values} for name, values in objects.items()})


def run(steps: list[JoinStep]) -> list[str]:
    for step in steps:
        step.do()
    return [step.said for step in steps]


def joined() -> LdapTree:
    there = tree()
    run(joining.account_steps(there, MEMBER, "secret", reset=False))
    return there


def test_a_new_account_has_services_keys_and_a_password() -> None:
    there = joined()
    values = there.objects[NAME]
    assert values["samaccountname"] == [b"MQ1$"] and values["useraccountcontrol"] == [b"4096"]
    assert values["unicodepwd"] == ['"secret"'.encode("utf-16-le")]
    assert values["msds-supportedencryptiontypes"] == [b"24"]
    assert {b"host/mq1.rig.test", b"host/MQ1", b"MSMQ/mq1.rig.test"} < set(values["serviceprincipalname"])
    assert joining.service_steps(there, MEMBER) == []
    assert joining.realm_of(there) == "RIG.TEST"


def test_an_existing_account_gets_a_new_password_only_on_request() -> None:
    there = joined()
    with pytest.raises(AccountExists, match="--reset-password"):
        joining.account_steps(there, MEMBER, "other", reset=False)
    said = run(joining.account_steps(there, MEMBER, "other", reset=True))
    assert len(said) == 1 and "new password" in said[0]
    assert there.objects[NAME]["unicodepwd"] == ['"other"'.encode("utf-16-le")]


def test_what_an_account_lacks_is_added_and_what_it_has_stays() -> None:
    there = joined()
    values = there.objects[NAME]
    values["serviceprincipalname"] = [b"HOST/MQ1.rig.test", b"HTTP/mq1.rig.test"]
    del values["dnshostname"], values["msds-supportedencryptiontypes"]
    assert len(run(joining.service_steps(there, MEMBER))) == 3
    services = there.objects[NAME]["serviceprincipalname"]
    assert services[:2] == [b"HOST/MQ1.rig.test", b"HTTP/mq1.rig.test"] and b"host/mq1.rig.test" not in services
    assert b"MSMQ/MQ1" in services
    assert there.objects[NAME]["dnshostname"] == [b"mq1.rig.test"]
    with pytest.raises(ObjectNotFound):
        joining.service_steps(tree(), MEMBER)


def test_names_of_any_kind_are_values_and_nothing_else() -> None:
    there = joined()
    strange = DomainMember("mq,1)(cn=*", "x.rig.test", COMPUTERS)
    assert joining.find_account(there, "*") is None
    assert joining.find_account(there, strange.account) is None
    run(joining.account_steps(there, strange, "secret", reset=False))
    found = joining.find_account(there, strange.account)
    assert found is not None and found.name != NAME


def test_leaving_deletes_the_queues_before_the_object_and_the_account_only_if_it_was_made_for_it() -> None:
    there = joined()
    there.add(f"CN=msmq,{NAME}", {"objectClass": [b"mSMQConfiguration"]})
    there.add(f"CN=orders,CN=msmq,{NAME}", {"objectClass": [b"mSMQQueue"]})
    said = [step.said for step in joining.leaving_steps(there, "MQ1$", with_account=True)]
    assert [line.split()[1] for line in said] == ["the", "the", "the"]
    assert "orders" in said[0] and "queue manager" in said[1] and "account" in said[2]
    assert joining.identifier_of_object(there, "MQ1$") is not None
    run(joining.leaving_steps(there, "MQ1$", with_account=False))
    assert joining.identifier_of_object(there, "MQ1$") is joining.identifier_of_object(there, "OTHER$") is None
    assert [name for name in there.objects if "msmq" in name] == [] and NAME in there.objects
    assert joining.leaving_steps(there, "OTHER$", with_account=True) == []


def test_an_account_with_objects_of_others_is_not_deleted() -> None:
    there = joined()
    there.add(f"CN=printer,{NAME}", {"objectClass": [b"printQueue"]})
    with pytest.raises(DirectoryError, match="printer"):
        joining.leaving_steps(there, "MQ1$", with_account=True)
