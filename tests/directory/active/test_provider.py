"""The Active Directory provider with a directory in memory; tests with a real controller are in tests/interop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import fields, replace
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from directory.active.ldap_tree import LdapTree, parse
from openmsmq.directory.active import descriptors, schema
from openmsmq.directory.active.controllers import Controllers
from openmsmq.directory.active.filters import queue_filter
from openmsmq.directory.active.locating import Named
from openmsmq.directory.active.provider import ActiveDirectory
from openmsmq.directory.active.session import LdapEntry
from openmsmq.directory.lookup import Filter, Relation, matches
from openmsmq.directory.provider import (
    Certificate,
    DirectoryDenied,
    DirectoryError,
    DirectoryNotConnected,
    MachineRecord,
    ObjectExists,
    ObjectNotFound,
    QueueRecord,
)
from openmsmq.model.constants import INFINITE
from openmsmq.model.security import SecurityDescriptor, allow, sid_bytes
from openmsmq.protection.certificates import digest_of
from openmsmq.protocols.certificates import certificates_in, certificates_to

T = TypeVar("T")

DOMAIN = "DC=rig,DC=test"
COMPUTER = f"CN=MQ1,CN=Computers,{DOMAIN}"
SITE = f"CN=Default-First-Site-Name,CN=Sites,CN=Configuration,{DOMAIN}"
SID, USER = "S-1-5-21-1-2-3-1107", "S-1-5-21-1-2-3-1102"
RIGHTS = SecurityDescriptor(owner=USER, dacl=(allow("S-1-1-0", 0x24),)).pack()


def an_object(*classes: str, **values: bytes) -> dict[str, list[bytes]]:
    return {
        "objectclass": [name.encode() for name in classes], "objectguid": [uuid4().bytes_le], "usncreated": [b"1"],
        **{name: [value] for name, value in values.items()},
    }  # fmt: skip


def tree() -> LdapTree:
    server = f"CN=DC1,CN=Servers,{SITE}"
    computer = {"samaccountname": b"MQ1$", "cn": b"MQ1", "objectsid": sid_bytes(SID), "dnshostname": b"mq1.rig.test"}
    return LdapTree({
        "": {"defaultnamingcontext": [DOMAIN.encode()], "servername": [server.encode()], "usncreated": [b"0"],
             "objectclass": [b"top"]},
        DOMAIN: an_object("domain"),
        SITE: an_object("site"),
        COMPUTER: an_object("top", "person", "user", "computer", **computer),
    })  # fmt: skip


class Directory:
    """A provider that uses an LDAP tree in memory."""

    def __init__(self) -> None:
        self.tree = tree()
        self.provider = ActiveDirectory(
            Controllers(Named(["dc1"]), lambda _: self.tree), "MQ1$", lambda _: (), lambda _: b""
        )
        self.machine = self.provider.enrol("mq1")

    def wait(self, question: Awaitable[T]) -> T:
        async def run() -> T:
            return await question

        return asyncio.run(run())

    def create(self, name: str = "orders", **values: Any) -> QueueRecord:
        record = QueueRecord(uuid4(), self.machine, f"MQ1\\{name}", security=RIGHTS, **values)
        return self.wait(self.provider.create_queue(record))


@pytest.fixture
def here() -> Directory:
    return Directory()


def test_the_directory_determines_the_permanent_identity_of_a_queue_manager(here: Directory) -> None:
    assert here.provider.enrol("MQ1") == here.machine
    found = here.wait(here.provider.machine_named("mq1.RIG.test"))
    assert (found.identifier, found.computer_name, found.dns_names) == (here.machine, "MQ1", ("mq1.rig.test",))
    assert here.wait(here.provider.machine(here.machine)) == found
    assert here.wait(here.provider.machines()) == [found]
    made = here.tree.objects[f"CN=msmq,{COMPUTER}"]
    assert made["msmqsites"] == here.tree.objects[SITE]["objectguid"]
    assert SecurityDescriptor.parse(made["ntsecuritydescriptor"][0]).owner == SID


def test_another_data_directory_and_another_computer_name_are_refused(here: Directory) -> None:
    with pytest.raises(ObjectExists, match="`openmsmq domain join` moves it"):
        here.wait(here.provider.register_machine(MachineRecord(UUID(int=1), "MQ1")))
    with pytest.raises(DirectoryError, match="computer_name is MQ2"):
        here.provider.enrol("MQ2")
    other = ActiveDirectory(Controllers(Named(["dc1"]), lambda _: here.tree), "NONE$", lambda _: (), lambda _: b"")
    with pytest.raises(DirectoryError, match="no computer account NONE"):
        other.enrol("NONE")


def test_without_the_right_to_make_its_object_it_says_what_an_administrator_has_to_do() -> None:
    here = tree()

    def deny(*_: object) -> None:
        raise DirectoryDenied("insufficient access")

    here.add = deny  # type: ignore[method-assign]
    provider = ActiveDirectory(Controllers(Named(["dc1"]), lambda _: here), "MQ1$", lambda _: (), lambda _: b"")
    with pytest.raises(DirectoryDenied, match="An administrator of the domain has to create CN=msmq,CN=MQ1"):
        provider.enrol("MQ1")


def test_a_controller_that_does_not_know_the_queue_manager_yet_gets_no_second_object_of_it(here: Directory) -> None:
    del here.tree.objects[f"CN=msmq,{COMPUTER}"]
    with pytest.raises(DirectoryError, match=f"does not have CN=msmq,{COMPUTER}, the object of this queue manager"):
        here.wait(here.provider.register_machine(MachineRecord(here.machine, "MQ1")))
    assert f"CN=msmq,{COMPUTER}" not in here.tree.objects


def test_keys_are_written_and_empty_ones_keep_the_existing_keys(here: Directory) -> None:
    here.wait(here.provider.register_machine(MachineRecord(here.machine, "MQ1", public_keys=b"keys")))
    here.wait(here.provider.register_machine(MachineRecord(here.machine, "MQ1")))
    assert here.wait(here.provider.machine(here.machine)).public_keys == b"keys"


_values = st.fixed_dictionaries({
    "type": st.uuids(), "label": st.text(max_size=124), "journaling": st.booleans(),
    "quota": st.integers(0, INFINITE), "journal_quota": st.integers(0, INFINITE),
    "base_priority": st.integers(-32768, 32767), "authentication": st.booleans(), "privacy_level": st.integers(0, 2),
    "transactional": st.booleans(), "multicast_address": st.sampled_from(["", "234.1.1.1:8001"]),
})  # fmt: skip


@given(_values, _values)
@settings(max_examples=50)
def test_every_property_is_kept_and_can_be_changed(before: dict[str, Any], after: dict[str, Any]) -> None:
    here = Directory()
    made = here.create(**before)
    assert {name: getattr(made, name) for name in before} == before
    assert made.security == RIGHTS and made.path_name == "MQ1\\orders" and made.machine == here.machine
    changed = here.wait(here.provider.update_queue(made.identifier, {**after, "modify_time": 5, "security": RIGHTS}))
    assert changed == replace(made, **after)
    assert here.wait(here.provider.queue(made.identifier)) == changed
    quota = here.tree.objects[f"CN=orders,CN=msmq,{COMPUTER}"]["msmqqueuequota"][0]
    assert -(1 << 31) <= int(quota) < 1 << 31


def test_each_property_of_a_queue_has_an_attribute() -> None:
    elsewhere = {"machine", "path_name", "security"}
    assert {field.name for field in fields(QueueRecord)} == {*schema.OF_QUEUE, *elsewhere}


@pytest.mark.parametrize("name", ["a,b=c+d#e", "*()\\2a", "#1", 'q"<;>', "x" * 63, "é (ü)*"])
def test_names_with_special_characters_are_found_by_path(here: Directory, name: str) -> None:
    here.create("another")
    made = here.create(name)
    assert made.path_name == f"MQ1\\{name}"
    assert here.wait(here.provider.queue_at(f"mq1.rig.test\\{name.upper()}")) == made
    with pytest.raises(ObjectExists):
        here.create(name)
    here.wait(here.provider.delete_queue(made.identifier))
    for question in (
        here.provider.queue_at(made.path_name), here.provider.queue(made.identifier),
        here.provider.delete_queue(made.identifier), here.provider.queue_at(f"*\\{name}"),
    ):  # fmt: skip
        with pytest.raises(ObjectNotFound):
            here.wait(question)


@pytest.mark.parametrize("first", ["x" * 55, "x" * 39 + "=" + "#" * 7])  # 55 characters with their backslashes
def test_a_long_name_of_others_is_put_together_again(here: Directory, first: str) -> None:
    made = here.create(f"{first}-0a1b2c3d")
    identifier = [made.identifier.bytes_le]
    entry = next(values for values in here.tree.objects.values() if values.get("objectguid") == identifier)
    entry["msmqqueuenameext"] = [b"yz"]
    assert here.wait(here.provider.queue(made.identifier)).path_name == f"MQ1\\{first}yz"


def test_an_object_that_others_made_has_defaults_and_one_without_descriptor_is_an_error(here: Directory) -> None:
    here.tree.add(f"CN=theirs,CN=msmq,{COMPUTER}", {"objectClass": [b"mSMQQueue"]})
    with pytest.raises(DirectoryError, match="may not read the permissions"):
        here.wait(here.provider.queue_at("MQ1\\theirs"))
    entry = here.tree.objects[f"CN=theirs,CN=msmq,{COMPUTER}"]
    entry["ntsecuritydescriptor"] = [SecurityDescriptor(owner=USER, dacl=()).pack()]
    found = here.wait(here.provider.queue_at("MQ1\\theirs"))
    assert (found.label, found.quota, found.privacy_level, found.type) == ("", INFINITE, 1, UUID(int=0))
    entry["msmqqueuequota"] = [b"many"]
    with pytest.raises(DirectoryError, match="mSMQQueueQuota"):
        here.wait(here.provider.queue_at("MQ1\\theirs"))


_labels = st.sampled_from(["", "a", "A", "b", "Straße", "*", "(", ")", "\\", "\0", "a)(b", "x,y=z+#"])
_filters = st.one_of(
    st.builds(Filter, st.sampled_from(["label", "multicast_address"]), st.sampled_from(list(Relation)), _labels),
    st.builds(
        Filter, st.sampled_from(["create_time", "modify_time"]), st.sampled_from(list(Relation)),
        st.integers(0, 1 << 31),
    ),
    st.builds(Filter, st.just("type"), st.sampled_from(list(Relation)), st.uuids()),
)  # fmt: skip


@given(st.lists(_filters, max_size=3), _labels, st.uuids(), st.integers(0, 1 << 31))
@settings(max_examples=300)
def test_filters_match_like_the_comparisons_of_queries(
    filters: list[Filter], label: str, kind: UUID, created: int
) -> None:
    record = QueueRecord(
        uuid4(), uuid4(), "MQ1\\q", 5, kind, label, create_time=created, modify_time=created
    )  # fmt: skip
    values = {"objectclass": [b"mSMQQueue"]}
    for name, attribute in schema.OF_QUEUE.items():
        if getattr(record, name) != "":
            values[attribute.name.lower()] = [attribute.syntax.encode(getattr(record, name))]
    assert parse(queue_filter(filters, 4))(values) == matches(record, filters)
    assert not parse(queue_filter(filters, 5))(values)


def test_a_query_continues_behind_its_last_result_and_stays_at_a_machine(here: Directory) -> None:
    made = [here.create(f"q{number}") for number in range(5)]
    first = here.wait(here.provider.find_queues([], 0, 2))
    assert first == made[:2]
    assert here.wait(here.provider.find_queues([], first[-1].position, 10)) == made[2:]
    own = Filter("machine", Relation.EQUALS, here.machine)
    assert here.wait(here.provider.find_queues([own], 0, 10)) == made
    assert here.wait(here.provider.find_queues([replace(own, value=uuid4())], 0, 10)) == []
    for wrong in ([replace(own, relation=Relation.NOT_EQUALS)], [Filter("path_name", Relation.EQUALS, "MQ1\\q")]):
        with pytest.raises(DirectoryError):
            here.wait(here.provider.find_queues(wrong, 0, 10))


def test_a_query_skips_unreadable_objects_and_continues(here: Directory) -> None:
    for number in range(3):
        here.tree.add(f"CN=theirs{number},CN=msmq,{COMPUTER}", {"objectClass": [b"mSMQQueue"]})
    made = here.create("last")
    for limit in (1, 2, 10):
        assert here.wait(here.provider.find_queues([], 0, limit)) == [made]
    here.wait(here.provider.delete_queue(made.identifier))
    assert here.wait(here.provider.find_queues([], 0, 1)) == []


def test_certificates_of_a_user_are_read_and_written_with_their_digests_in_the_same_order(here: Directory) -> None:
    user = f"CN=alice,CN=Users,{DOMAIN}"
    here.tree.objects[user] = an_object("user", objectsid=sid_bytes(USER), msmqsigncertificates=b"certificates")
    assert here.wait(here.provider.user(USER)).sid == USER
    with pytest.raises(ObjectNotFound):
        here.wait(here.provider.user(f"{USER}0"))

    def unreadable(_: bytes) -> Any:
        raise ValueError("no certificates")

    provider = ActiveDirectory(Controllers(Named(["dc1"]), lambda _: here.tree), "MQ1$", unreadable, lambda _: b"")
    with pytest.raises(DirectoryError, match="can't be read: no certificates"):
        here.wait(provider.user(USER))
    here.tree.objects[user]["tokengroups"] = [sid_bytes("S-1-5-21-1-2-3-513"), sid_bytes("S-1-5-32-545")]
    written = ActiveDirectory(
        Controllers(Named(["dc1"]), lambda _: here.tree), "MQ1$", certificates_in, certificates_to
    )  # fmt: skip
    here.tree.objects[user] = {**here.tree.objects[user], "msmqsigncertificates": [], "msmqdigests": []}
    first, second = (Certificate(digest_of(octets), UUID(int=1), octets) for octets in (b"first", b"second"))
    for certificate in (first, second, first):
        here.wait(written.add_certificate(USER, certificate))
    values = here.tree.objects[user]
    assert values["msmqdigests"] == [second.digest, first.digest]
    record = here.wait(written.user(USER))
    assert (record.certificates, record.groups) == ((second, first), frozenset(["S-1-5-21-1-2-3-513"]))
    here.wait(written.remove_certificate(USER, second.digest))
    with pytest.raises(ObjectNotFound):
        here.wait(written.remove_certificate(USER, second.digest))
    here.wait(written.remove_certificate(USER, first.digest))
    assert "msmqdigests" not in values and "msmqsigncertificates" not in values

    def denied(*_: object) -> None:
        raise DirectoryDenied(user)

    here.tree.modify = denied  # type: ignore[method-assign]
    with pytest.raises(DirectoryDenied, match="register --domain"):
        here.wait(written.add_certificate(USER, first))


def test_a_group_is_a_distribution_list_of_queues_aliases_and_groups(here: Directory) -> None:
    queue = here.create()
    group, inner, alias = (f"CN={name},CN=Users,{DOMAIN}" for name in ("all", "inner", "alias"))
    here.tree.objects[inner] = an_object("group")
    here.tree.objects[alias] = an_object("mSMQ-Custom-Recipient")
    here.tree.objects[alias]["msmq-recipient-formatname"] = [b"DIRECT=OS:mq2\\q"]
    members = [f"CN=orders,CN=msmq,{COMPUTER}", inner, alias]
    here.tree.objects[group] = {**an_object("group", cn=b"all"), "member": [name.encode() for name in members]}
    identifier, within = (UUID(bytes_le=here.tree.objects[name]["objectguid"][0]) for name in (group, inner))
    found = here.wait(here.provider.distribution_list(identifier))
    assert found.members == (f"PUBLIC={queue.identifier}", f"DL={within}", "DIRECT=OS:mq2\\q")
    for name, format_name in ((members[0], found.members[0]), (group, f"DL={identifier}"), (alias, found.members[2])):
        for path in (name, f"LDAP://{name}", f"ldap://dc1.rig.test/{name}"):
            assert here.wait(here.provider.format_name_at(path)) == format_name
    assert here.wait(here.provider.directory_path(queue.identifier)) == f"LDAP://{members[0]}"
    for path in ("", "LDAP://", f"LDAP://CN=none,{COMPUTER}", COMPUTER, "x/y", "*"):
        with pytest.raises(ObjectNotFound):
            here.wait(here.provider.format_name_at(path))
    here.tree.objects[group]["member"].append(COMPUTER.encode())
    with pytest.raises(DirectoryError, match="neither a queue, an alias nor a group"):
        here.wait(here.provider.distribution_list(identifier))


def test_the_owner_of_a_queue_on_another_machine_stays_when_its_rights_are_changed_here(here: Directory) -> None:
    other_sid = f"{SID}9"
    here.tree.objects[COMPUTER.replace("MQ1", "MQ2")] = an_object(
        "computer", samaccountname=b"MQ2$", cn=b"MQ2", objectsid=sid_bytes(other_sid)
    )
    other = ActiveDirectory(Controllers(Named(["dc1"]), lambda _: here.tree), "MQ2$", lambda _: (), lambda _: b"")
    machine = other.enrol("MQ2")
    made = here.wait(other.create_queue(QueueRecord(uuid4(), machine, "MQ2\\orders", security=RIGHTS)))
    assert here.wait(here.provider.queue(made.identifier)).security == RIGHTS
    assert here.wait(here.provider.machine(machine)) == here.wait(other.machine(machine))
    changed = SecurityDescriptor(owner=USER, dacl=(allow("S-1-1-0", 0x4),)).pack()
    here.wait(here.provider.update_queue(made.identifier, {"security": changed}))
    assert here.wait(other.queue(made.identifier)).security == changed


def test_the_members_of_a_list_are_read_by_few_requests_and_too_many_are_named(here: Directory) -> None:
    group = f"CN=many,CN=Users,{DOMAIN}"
    here.tree.objects[group] = an_object("group", cn=b"many")
    aliases = [f"CN=alias{number},CN=Users,{DOMAIN}" for number in range(1000)]
    for number, alias in enumerate(aliases):
        here.tree.objects[alias] = an_object("mSMQ-Custom-Recipient", memberof=group.encode())
        here.tree.objects[alias]["msmq-recipient-formatname"] = [b"DIRECT=OS:mq%d\\q" % number]
    members = here.tree.objects[group]["member"] = [alias.encode() for alias in aliases]
    identifier = UUID(bytes_le=here.tree.objects[group]["objectguid"][0])
    asked = len(here.tree.asked)
    found = here.wait(here.provider.distribution_list(identifier)).members
    assert found == tuple(f"DIRECT=OS:mq{number}\\q" for number in range(1000))
    assert len(here.tree.asked) - asked <= 3
    members.append(COMPUTER.encode())
    with pytest.raises(DirectoryError, match=r"CN=many,.* has more than 1000 members"):
        here.wait(here.provider.distribution_list(identifier))


OTHER_DOMAIN = "DC=child,DC=rig,DC=test"
OTHER_SID = SID[: SID.rindex("-")] + "-77"


class Forest:
    """A queue manager with a queue in another domain of the forest, and the global catalog."""

    def __init__(self) -> None:
        self.here = Directory()
        partitions = f"CN=Partitions,CN=Configuration,{DOMAIN}"
        self.here.tree.objects[""]["configurationnamingcontext"] = [f"CN=Configuration,{DOMAIN}".encode()]
        self.here.tree.objects[partitions] = an_object("top")
        for context, dns in ((DOMAIN, b"rig.test"), (OTHER_DOMAIN, b"child.rig.test")):
            self.here.tree.objects[f"CN={dns.decode()},{partitions}"] = an_object(
                "crossRef", ncname=context.encode(), dnsroot=dns, netbiosname=dns[:3]
            )
        self.far = Directory()
        moved = {name.replace(DOMAIN, OTHER_DOMAIN): values for name, values in self.far.tree.objects.items() if name}
        computer = moved[COMPUTER.replace(DOMAIN, OTHER_DOMAIN)]
        computer.update(cn=[b"FAR"], samaccountname=[b"FAR$"], dnshostname=[b"far.child.rig.test"])
        computer["objectsid"] = [sid_bytes(OTHER_SID)]
        moved = {name.replace("CN=MQ1", "CN=FAR"): values for name, values in moved.items()}
        self.machine = self.far.machine
        self.far.tree.objects.clear()
        self.far.tree.objects.update({"": an_object("top", usncreated=b"0"), **moved})
        self.catalog = LdapTree({**self.here.tree.objects, **moved})
        self.catalogs_up = True

        def catalog(_: str) -> LdapTree:
            if not self.catalogs_up:
                raise DirectoryNotConnected("no catalog")
            self.catalog.objects.update(self.here.tree.objects)
            return self.catalog

        self.provider = ActiveDirectory(
            Controllers(Named(["dc1"]), lambda _: self.here.tree), "MQ1$", lambda _: (), lambda _: b"",
            Controllers(Named(["dc1:3268"]), catalog),
        )  # fmt: skip

    def create_far_queue(self, name: str = "distant", number: int = 900) -> UUID:
        computer = f"CN=FAR,CN=Computers,{OTHER_DOMAIN}"
        queue = f"CN={name},CN=msmq,{computer}"
        rights = descriptors.to_directory(RIGHTS, OTHER_SID)
        self.catalog.objects[queue] = an_object("mSMQQueue", ntsecuritydescriptor=rights, msmqlabelex=b"far away")
        self.catalog.objects[queue].update(
            cn=[name.encode()], usncreated=[b"%d" % number],
            whencreated=[b"20261122145708.0Z"], whenchanged=[b"20261122145708.0Z"],
        )  # fmt: skip
        return UUID(bytes_le=self.catalog.objects[queue]["objectguid"][0])


def test_queues_of_other_domains_of_the_forest_are_in_the_global_catalog() -> None:
    forest = Forest()
    wait, provider = forest.here.wait, forest.provider
    identifier, near = forest.create_far_queue(), forest.here.create()
    far = wait(provider.queue(identifier))
    assert (far.path_name, far.label, far.machine) == ("FAR\\distant", "far away", forest.machine)
    assert far.security == RIGHTS
    for path in ("FAR\\distant", "far.child.rig.test\\DISTANT"):
        assert wait(provider.queue_at(path)) == far
    assert wait(provider.machine_named("far.child.rig.test")).identifier == forest.machine
    assert wait(provider.machine(forest.machine)).computer_name == "FAR"
    path = wait(provider.directory_path(identifier))
    assert path.endswith(OTHER_DOMAIN) and wait(provider.format_name_at(path)) == f"PUBLIC={identifier}"
    found = wait(provider.find_queues([], 0, 10))
    assert {record.identifier for record in found} == {identifier, near.identifier}
    of_it = [Filter("machine", Relation.EQUALS, forest.machine)]
    assert [record.identifier for record in wait(provider.find_queues(of_it, 0, 10))] == [identifier]
    with pytest.raises(ObjectNotFound):
        wait(provider.queue(uuid4()))


def test_without_a_global_catalog_referrals_are_followed_and_queries_stay_in_the_domain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    forest = Forest()
    identifier, near = forest.create_far_queue(), forest.here.create()
    forest.catalogs_up = False
    assert [r.identifier for r in forest.here.wait(forest.provider.find_queues([], 0, 10))] == [near.identifier]
    assert "queues of other domains cannot be found" in caplog.text
    own, asked = forest.here.tree.search, []

    def search(*given: Any, everywhere: bool = False, **more: Any) -> list[LdapEntry]:
        asked.append(everywhere)
        try:
            return own(*given, **more) or (forest.catalog.search(*given, **more) if everywhere else [])
        except ObjectNotFound:  # a controller would refer to the other domain
            return forest.catalog.search(*given, **more)

    forest.here.tree.search = search  # type: ignore[method-assign]
    assert forest.here.wait(forest.provider.queue_at("FAR\\distant")).identifier == identifier
    assert any(asked), "no search was made that follows referrals"


def test_an_ambiguous_name_means_the_own_domain_or_is_an_error() -> None:
    forest = Forest()
    forest.create_far_queue()
    twin = dict(forest.catalog.objects[f"CN=FAR,CN=Computers,{OTHER_DOMAIN}"])
    forest.catalog.objects[f"CN=FAR,CN=Computers,DC=third,{DOMAIN}"] = twin
    with pytest.raises(DirectoryError, match="several computers FAR"):
        forest.here.wait(forest.provider.queue_at("FAR\\distant"))
    assert forest.here.wait(forest.provider.machine_named("MQ1")).identifier == forest.here.machine


class ClosedControllers:
    """Controllers that count how often they are closed."""

    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("has_catalog", [False, True])
def test_the_sessions_with_controllers_and_catalog_are_closed(has_catalog: bool) -> None:
    asked: Any = ClosedControllers()
    catalog: Any = ClosedControllers() if has_catalog else None
    asyncio.run(ActiveDirectory(asked, "MQ1$", lambda _: (), lambda _: b"", catalog).close())
    assert asked.closed == 1 and (catalog is None or catalog.closed == 1)
