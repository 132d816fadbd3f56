"""Account names and SIDs of a domain, and cached ones while the domain is unavailable."""

from __future__ import annotations

import pytest

from directory.active.ldap_tree import LdapTree
from openmsmq.directory.active.accounts import FRESH, KEPT, MOST, DomainAccounts
from openmsmq.directory.active.controllers import Controllers
from openmsmq.directory.active.locating import Named
from openmsmq.directory.active.session import DirectorySession
from openmsmq.directory.provider import DirectoryError, DirectoryNotConnected, ObjectNotFound
from openmsmq.model.security import sid_bytes

DOMAIN, CONFIGURATION = "DC=rig,DC=test", "CN=Configuration,DC=rig,DC=test"
DAVE = "S-1-5-21-7-7-7-1103"
ALICE, ORDERS, INNER = (f"S-1-5-21-1-2-3-{number}" for number in (1102, 1105, 1106))


def account(name: str, sid: str, **more: list[bytes]) -> dict[str, list[bytes]]:
    return {"objectclass": [b"top"], "samaccountname": [name.encode()], "objectsid": [sid_bytes(sid)], **more}


class Domain:
    """Accounts in a directory that can become unavailable, and a clock."""

    def __init__(self) -> None:
        everyone = {f"cn=u{number},{DOMAIN}": account(f"user{number}", f"S-1-5-21-1-2-3-{2000 + number}") for number in
                    range(3)}  # fmt: skip
        self.tree = LdapTree({
            "": {"defaultnamingcontext": [DOMAIN.encode()], "configurationnamingcontext": [CONFIGURATION.encode()],
                 "objectclass": [b"top"]},
            DOMAIN: {"objectclass": [b"domain"]},
            f"CN=Partitions,{CONFIGURATION}": {"objectclass": [b"top"]},
            f"CN=RIG,CN=Partitions,{CONFIGURATION}": {
                "objectclass": [b"crossRef"], "netbiosname": [b"RIG"], "dnsroot": [b"rig.test"],
                "ncname": [DOMAIN.encode()],
            },
            f"CN=alice,{DOMAIN}": account("alice", ALICE, userprincipalname=[b"alice@sales.test"],
                                          tokengroups=[sid_bytes(s) for s in (ORDERS, INNER, "S-1-5-32-545")]),
            f"CN=orders,{DOMAIN}": account("orders (all)", ORDERS),
            f"CN=Administrators,{DOMAIN}": account("Administrators", "S-1-5-32-544"),
            **everyone,
        })  # fmt: skip
        self.away, self.now = False, 0.0
        self.accounts = DomainAccounts(Controllers(Named(["dc1"]), self.connect), lambda: self.now)

    def with_forest(self) -> DomainAccounts:
        """Add a child domain. Returns accounts that also use the global catalog, which covers both domains."""
        child = f"DC=sub,{DOMAIN}"
        self.tree.objects[f"CN=SUB,CN=Partitions,{CONFIGURATION}"] = {
            "objectclass": [b"crossRef"], "netbiosname": [b"SUB"], "dnsroot": [b"sub.rig.test"],
            "ncname": [child.encode()],
        }  # fmt: skip
        catalog = LdapTree({
            "": {}, DOMAIN: {}, child: {},
            f"CN=alice,{DOMAIN}": self.tree.objects[f"CN=alice,{DOMAIN}"],
            f"CN=dave,CN=Users,{child}": account("dave", DAVE, userprincipalname=[b"dave@far.test"]),
        })  # fmt: skip
        controllers = Controllers(Named(["dc1"]), self.connect)
        return DomainAccounts(controllers, lambda: self.now, Controllers(Named(["dc1:3268"]), lambda _: catalog))

    def connect(self, _: str) -> DirectorySession:
        if self.away:
            raise DirectoryNotConnected("pulled")
        return self.tree

    def pull(self) -> None:
        """Make the controller and the open session fail."""
        self.away = True
        self.tree.search = self._fail  # type: ignore[method-assign]

    def _fail(self, *_: object, **__: object) -> list:
        raise DirectoryNotConnected("pulled")


@pytest.fixture
def domain() -> Domain:
    return Domain()


@pytest.mark.parametrize(
    ("name", "sid"),
    [
        ("RIG\\alice", ALICE), ("rig.test\\ALICE", ALICE), ("alice@rig.test", ALICE), ("Alice@sales.test", ALICE),
        ("RIG\\orders (all)", ORDERS), ("nt authority\\system", "S-1-5-18"),
        ("BUILTIN\\Administrators", "S-1-5-32-544"),
    ],
)  # fmt: skip
def test_users_groups_and_well_known_names_have_sids(domain: Domain, name: str, sid: str) -> None:
    assert domain.accounts.sid_of(name) == sid


def test_sids_have_names(domain: Domain) -> None:
    assert domain.accounts.name_of(ORDERS) == "RIG\\orders (all)"
    assert domain.accounts.name_of("S-1-5-11") == "NT AUTHORITY\\Authenticated Users"
    with pytest.raises(ObjectNotFound):
        domain.accounts.name_of("S-1-5-21-9-9-9-9")
    assert domain.accounts.groups_of(ALICE) == (ORDERS, INNER)


@pytest.mark.parametrize(
    "name", ["RIG\\nobody", "RIG\\*", "RIG\\a*", "RIG\\alice)(cn=*", "RIG\\\0", "*@rig.test", "RIG\\"]
)
def test_special_characters_in_a_name_match_no_other_account(domain: Domain, name: str) -> None:
    with pytest.raises(ObjectNotFound):
        domain.accounts.sid_of(name)


def test_another_domain_and_a_group_of_the_controllers_are_explained(domain: Domain) -> None:
    with pytest.raises(ObjectNotFound, match="the controllers are of the domain RIG"):
        domain.accounts.sid_of("OTHER\\alice")
    with pytest.raises(DirectoryError, match="is a group of the domain controllers alone"):
        domain.accounts.sid_of("RIG\\Administrators")


def test_what_was_known_continues_while_the_domain_is_away_and_what_was_not_is_refused(domain: Domain) -> None:
    assert domain.accounts.sid_of("RIG\\alice") == ALICE
    asked = len(domain.tree.asked)
    domain.now = FRESH - 1
    assert domain.accounts.sid_of("rig\\Alice") == ALICE
    assert len(domain.tree.asked) == asked, "the domain was asked again"
    domain.pull()
    domain.now = KEPT - 1
    assert domain.accounts.sid_of("RIG\\alice") == ALICE
    with pytest.raises(
        DirectoryNotConnected, match=r"RIG\\orders was not asked for before, and the domain does not answer"
    ):
        domain.accounts.sid_of("RIG\\orders")
    domain.now = KEPT
    with pytest.raises(DirectoryNotConnected):
        domain.accounts.sid_of("RIG\\alice")


def test_a_deleted_name_is_not_remembered(domain: Domain) -> None:
    assert domain.accounts.sid_of("RIG\\alice") == ALICE
    del domain.tree.objects[f"CN=alice,{DOMAIN}"]
    domain.now = FRESH
    with pytest.raises(ObjectNotFound):
        domain.accounts.sid_of("RIG\\alice")
    domain.pull()
    with pytest.raises(DirectoryNotConnected):
        domain.accounts.sid_of("RIG\\alice")


def test_no_more_answers_are_kept_than_allowed(domain: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openmsmq.directory.active.accounts.MOST", 2)
    assert MOST > 100
    for number in range(3):
        domain.accounts.sid_of(f"RIG\\user{number}")
    domain.pull()
    assert domain.accounts.sid_of("RIG\\user2")
    with pytest.raises(DirectoryNotConnected):
        domain.accounts.sid_of("RIG\\user0")


def test_accounts_of_other_domains_of_the_forest_are_in_the_global_catalog() -> None:
    domain = Domain()
    accounts = domain.with_forest()
    for name in (r"SUB\dave", r"sub.rig.test\DAVE", "dave@sub.rig.test", "dave@far.test"):
        assert accounts.sid_of(name) == DAVE, name
    assert accounts.name_of(DAVE) == r"SUB\dave"
    assert (accounts.sid_of(r"RIG\alice"), accounts.name_of(ALICE)) == (ALICE, r"RIG\alice")
    for name in (r"SUB\alice", r"SUB\*", "nobody@far.test", r"ELSE\dave"):
        with pytest.raises(ObjectNotFound):
            accounts.sid_of(name)
    with pytest.raises(ObjectNotFound):
        accounts.name_of("S-1-5-21-7-7-7-1")
    domain.pull()
    domain.now = FRESH
    assert accounts.sid_of(r"SUB\dave") == DAVE  # cached results remain valid


def test_a_global_catalog_that_does_not_answer_is_no_failure_of_the_domain_controller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    domain, asked = Domain(), []
    domain.with_forest()

    def no_catalog(host: str) -> DirectorySession:
        asked.append(host)
        raise DirectoryNotConnected("port 3268 is closed")

    accounts = DomainAccounts(
        Controllers(Named(["dc1", "dc2"]), domain.connect), lambda: domain.now,
        Controllers(Named(["dc1:3268"]), no_catalog),
    )  # fmt: skip
    for look_up in (lambda: accounts.sid_of("SUB\\dave"), lambda: accounts.name_of(DAVE)):
        with pytest.raises(DirectoryError, match="and no global catalog answers: dc1:3268: port 3268") as caught:
            look_up()
        assert not isinstance(caught.value, DirectoryNotConnected), "names of the own domain can be looked up"
    assert asked == ["dc1:3268"] * 2
    assert "does not answer" not in caplog.text
    assert accounts.sid_of("RIG\\alice") == ALICE
