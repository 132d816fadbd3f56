"""Referrals: which ones are followed, how far, and their time limits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import pytest

from directory.active.ldap_tree import LdapTree
from openmsmq.directory.active.following import SECONDS, ForestSession
from openmsmq.directory.active.forest import ForestDomain, domain_of_host
from openmsmq.directory.active.referrals import MOST_PLACES, Referral
from openmsmq.directory.active.session import CALL_SECONDS, ControllerTimeout, LdapEntry, Referred, Scope, SearchResult
from openmsmq.directory.provider import DirectoryError, DirectoryNotConnected, ObjectNotFound

ROOT, CHILD, FAR = "DC=rig,DC=test", "DC=child,DC=rig,DC=test", "DC=far,DC=child,DC=rig,DC=test"
PARTITIONS = f"CN=Partitions,CN=Configuration,{ROOT}"
ANY = "(objectClass=*)"


class Controller(LdapTree):
    """A domain controller. `referrals`: the URLs that it answers with, by base in lower case; `references`: the URLs
    that it adds to search results."""

    def __init__(self, context: str) -> None:
        objects = {
            "": {"objectclass": [b"top"], "defaultnamingcontext": [context.encode()],
                 "configurationnamingcontext": [f"CN=Configuration,{ROOT}".encode()]},
            context: {"objectclass": [b"domain"], "cn": [context.encode()]},
            PARTITIONS: {"objectclass": [b"top"]},
        }  # fmt: skip
        for name, dns in ((ROOT, b"rig.test"), (CHILD, b"child.rig.test"), (FAR, b"far.child.rig.test")):
            objects[f"CN={dns.decode()},{PARTITIONS}"] = {
                "objectclass": [b"crossRef"], "ncname": [name.encode()], "dnsroot": [dns], "netbiosname": [dns[:3]],
            }  # fmt: skip
        super().__init__(objects)
        self.referrals: dict[str, list[str]] = {}
        self.references: list[str] = []
        self.written: list[str] = []
        self.scopes: list[Scope] = []

    def _check(self, base: str) -> None:
        if base.casefold() in self.referrals:
            raise Referred(base, self.referrals[base.casefold()])

    def look(
        self, base: str, condition: str, attributes: Sequence[str], scope: Scope, limit: int = 0, order: str = ""
    ) -> SearchResult:
        self._check(base)
        self.scopes.append(scope)
        return SearchResult(self.search(base, condition, attributes, scope, limit=limit, order=order), self.references)

    def modify(self, name: str, attributes: Mapping[str, Sequence[bytes]]) -> None:
        self._check(name)
        super().modify(name, attributes)
        self.written.append(name)


class Forest:
    """Controllers by host. The host `down` fails at the login, `dying` at the first request."""

    def __init__(self) -> None:
        self.now = 0.0
        self.logins: list[tuple[str, float]] = []
        self.own = Controller(ROOT)
        self.hosts = {"dc.child.rig.test": Controller(CHILD), "dc.far.child.rig.test": Controller(FAR)}
        self.names = {"child.rig.test": ["dc.child.rig.test"], "far.child.rig.test": ["dc.far.child.rig.test"]}
        self.takes = 0.0  # duration of each login in seconds
        self.session = ForestSession(self.own, self.connect, self.controllers_of, lambda: self.now)

    def connect(self, host: str, patience: float) -> Controller:
        self.logins.append((host, patience))
        self.now += self.takes
        if host not in self.hosts:
            raise DirectoryNotConnected(f"{host} is down")
        return self.hosts[host]

    def controllers_of(self, domain: str) -> Sequence[str]:
        return self.names[domain]

    def find(self, base: str = ROOT, everywhere: bool = True, limit: int = 0) -> list[str]:
        found: list[LdapEntry] = self.session.search(base, "(cn=*)", ["cn"], everywhere=everywhere, limit=limit)
        return [entry.name for entry in found]


@pytest.fixture
def forest() -> Forest:
    return Forest()


def test_a_search_continues_in_the_domains_that_it_is_referred_to(forest: Forest) -> None:
    forest.own.references = [f"ldap://child.rig.test/{CHILD}"]
    forest.hosts["dc.child.rig.test"].references = [f"ldap://far.child.rig.test/{FAR}??sub"]
    assert forest.find() == [ROOT, CHILD, FAR]
    assert all(session.closed for session in forest.hosts.values())
    assert forest.find(everywhere=False) == [ROOT]
    assert forest.find(limit=2) == [ROOT, CHILD]


def test_invalid_and_visited_domains_are_skipped(forest: Forest) -> None:
    forest.own.references = [
        f"ldap://rig.test/CN=Configuration,{ROOT}", f"ldap://DomainDnsZones.rig.test/DC=DomainDnsZones,{ROOT}",
        f"ldap://child.rig.test/{CHILD}", f"ldap://dc.child.rig.test/{CHILD.lower()}",
    ]  # fmt: skip
    forest.hosts["dc.child.rig.test"].references = [f"ldap://rig.test/{ROOT}", f"ldap://child.rig.test/{CHILD}"]
    assert forest.find() == [ROOT, CHILD]
    assert [host for host, _ in forest.logins] == ["dc.child.rig.test"]


@pytest.mark.parametrize(
    "url",
    [
        f"ldap://evil.example/{CHILD}", f"ldap://child.rig.test.evil.example/{CHILD}", f"ldap://evilrig.test/{CHILD}",
        "ldap://child.rig.test/DC=evil,DC=example", f"ldap://10.0.0.9/{CHILD}", f"ldap://child.rig.test:636/{CHILD}",
        f"ldaps://child.rig.test/{CHILD}", "http://child.rig.test/", "ldap://[::1/", "ldap:///DC=x", "", "ldap://a:b/",
        f"ldap://child.rig.test@evil.example/{CHILD}", f"ldap://child.rig.test/{CHILD}??everything",
    ],
)  # fmt: skip
def test_referrals_to_foreign_hosts_are_not_followed(
    forest: Forest, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    forest.own.references = [url]
    forest.own.referrals[CHILD.casefold()] = [url]
    assert forest.find() == [ROOT]
    with pytest.raises(DirectoryError):
        forest.find(CHILD)
    with pytest.raises(DirectoryError):
        forest.session.modify(CHILD, {"description": [b"x"]})
    assert forest.logins == []
    assert caplog.records[0].levelno == logging.WARNING
    if "evil" in url or "10.0" in url:
        assert "evil" in caplog.text or "10.0.0.9" in caplog.text


def test_an_object_of_another_domain_is_read_and_changed_where_it_is(forest: Forest) -> None:
    forest.own.referrals[CHILD.casefold()] = ["ldap://evil.example/", f"ldap://child.rig.test/{CHILD}"]
    assert [entry.name for entry in forest.session.search(CHILD, ANY, ["cn"], Scope.BASE)] == [CHILD]
    assert forest.hosts["dc.child.rig.test"].scopes == [Scope.BASE]
    forest.session.modify(CHILD, {"description": [b"x"]})
    assert forest.hosts["dc.child.rig.test"].written == [CHILD]
    assert forest.own.written == []


def test_a_referral_that_leads_in_a_circle_ends(forest: Forest) -> None:
    child = forest.hosts["dc.child.rig.test"]
    forest.own.referrals[FAR.casefold()] = [f"ldap://child.rig.test/{FAR}"]
    child.referrals[FAR.casefold()] = [f"ldap://child.rig.test/{FAR}"]
    with pytest.raises(DirectoryError, match="in a circle"):
        forest.find(FAR)
    assert len(forest.logins) == 1


def test_a_chain_of_referrals_has_an_end(forest: Forest) -> None:
    base = f"CN=x,{CHILD}"
    forest.own.referrals[base.casefold()] = [f"ldap://child.rig.test/CN=0,{CHILD}"]
    for step in range(100):
        child = forest.hosts["dc.child.rig.test"]
        child.referrals[f"CN={step},{CHILD}".casefold()] = [f"ldap://child.rig.test/CN={step + 1},{CHILD}"]
    with pytest.raises(DirectoryError, match=f"more than {MOST_PLACES} referrals"):
        forest.find(base)
    assert len(forest.logins) == MOST_PLACES


def test_the_time_limit_is_that_of_the_whole_operation(forest: Forest) -> None:
    forest.takes = 3.0
    forest.names["child.rig.test"] = [f"dc{number}.child.rig.test" for number in range(9)]
    forest.own.referrals[CHILD.casefold()] = [f"ldap://child.rig.test/{CHILD}"]
    with pytest.raises(DirectoryError, match=f"no answer in {SECONDS:g} s") as caught:
        forest.find(CHILD)
    assert not isinstance(caught.value, DirectoryNotConnected), "the own controller would be considered unreachable"
    assert [patience for _, patience in forest.logins] == [CALL_SECONDS, CALL_SECONDS, 2.0]


def test_an_unavailable_domain_is_named_and_the_rest_of_a_search_is_found(
    forest: Forest, caplog: pytest.LogCaptureFixture
) -> None:
    forest.own.references = [f"ldap://child.rig.test/{CHILD}", f"ldap://far.child.rig.test/{FAR}"]
    del forest.hosts["dc.child.rig.test"]
    assert forest.find() == [ROOT, FAR]
    assert "dc.child.rig.test is down" in caplog.text


def test_the_next_controller_of_a_domain_is_asked_but_a_change_is_made_once(forest: Forest) -> None:
    class FailingController(Controller):
        def _check(self, base: str) -> None:
            raise ControllerTimeout("gone")

    forest.hosts["dying"] = FailingController(CHILD)
    forest.names["child.rig.test"] = ["dying", "dc.child.rig.test"]
    forest.own.referrals[CHILD.casefold()] = [f"ldap://child.rig.test/{CHILD}"]
    assert forest.find(CHILD) == [CHILD]
    with pytest.raises(DirectoryError, match="gone"):
        forest.session.modify(CHILD, {"description": [b"x"]})
    assert forest.hosts["dc.child.rig.test"].written == []
    forest.names["child.rig.test"] = ["down", "dc.child.rig.test"]  # fails before any request
    forest.session.modify(CHILD, {"description": [b"x"]})
    assert forest.hosts["dc.child.rig.test"].written == [CHILD]


def test_a_missing_object_is_not_found(forest: Forest) -> None:
    forest.own.referrals[f"cn=none,{CHILD}".casefold()] = [f"ldap://child.rig.test/CN=none,{CHILD}"]
    with pytest.raises(ObjectNotFound):
        forest.find(f"CN=none,{CHILD}")


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("ldap://a.test", Referral("a.test")),
        ("LDAP://a.test:389/dc=a%2Cb", Referral("a.test", "dc=a,b")),
        ("ldap://a.test/DC=a?cn?one?(cn=*)", Referral("a.test", "DC=a", Scope.CHILDREN)),
    ],
)
def test_a_referral_is_an_ldap_url(url: str, read: Referral) -> None:
    assert Referral.parse(url) == read


def test_a_host_is_in_the_innermost_domain() -> None:
    domains = [ForestDomain(ROOT, "RIG", "rig.test"), ForestDomain(CHILD, "CHI", "child.rig.test")]
    lookup: Callable[[str], ForestDomain | None] = lambda host: domain_of_host(host, domains)  # noqa: E731
    assert lookup("RIG.test") is domains[0] and lookup("dc1.rig.test") is domains[0]
    assert lookup("dc.Child.rig.test") is domains[1]
    assert lookup("bigrig.test") is None and lookup("test") is None
