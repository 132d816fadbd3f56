"""Controllers found through DNS, their order, and caching while DNS is unavailable."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import pytest

from openmsmq.directory.active.locating import (
    FRESH,
    SOON,
    Catalog,
    DnsControllers,
    Named,
    Service,
    client_site,
    in_order,
)
from openmsmq.directory.provider import DirectoryNotConnected

# Reply of Samba 4.17 at ldap://…, (&(DnsDomain=rig.test)(NtVer=\06\00\00\00)).
NETLOGON = bytes.fromhex(
    "17000000fd13000025a8d5908efc9a4f98bda13ea36b6241037269670474657374 00c01803646331c0180352494700034443310000"
    "1744656661756c742d46697273742d536974652d4e616d6500c03505000000ffffffff".replace(" ", "")
)
EVERYWHERE, NEAR = "_ldap._tcp.dc._msdcs.rig.test", "_ldap._tcp.Default-First-Site-Name._sites.dc._msdcs.rig.test"


class Dns:
    def __init__(self, **records: list[Service]) -> None:
        self.records = {EVERYWHERE: [Service(0, 100, 389, "far"), Service(0, 0, 389, "near"), Service(5, 0, 390, "x")],
                        NEAR: [Service(0, 100, 389, "near")]} | records  # fmt: skip
        self.asked: list[str] = []
        self.pinged: list[str] = []
        self.away = False
        self.silent: set[str] = set()
        self.now = 0.0
        self.found = DnsControllers("rig.test", self.resolve, self.ping, lambda: self.now, random.Random(1))

    def resolve(self, name: str) -> list[Service]:
        self.asked.append(name)
        if self.away:
            raise DirectoryNotConnected("no DNS")
        return self.records.get(name, [])

    def ping(self, host: str, domain: str) -> bytes:
        assert domain == "rig.test"
        self.pinged.append(host)
        if host in self.silent:
            raise DirectoryNotConnected("silent")
        return NETLOGON


def test_controllers_of_the_site_come_before_all_others() -> None:
    dns = Dns()
    assert dns.found.hosts() == ("near", "far", "x:390")
    assert dns.asked == [EVERYWHERE, NEAR]
    assert tuple(Catalog(dns.found).hosts()) == ("near:3268", "far:3268", "x:3268")


def test_an_unknown_site_affects_only_the_order() -> None:
    dns = Dns()
    dns.silent = {"near", "far", "x:390"}
    assert sorted(dns.found.hosts()) == ["far", "near", "x:390"]
    assert dns.found.hosts()[-1] == "x:390"
    assert len(dns.pinged) == 3


def test_a_dns_response_is_cached_and_kept_longer_while_dns_is_unavailable() -> None:
    dns = Dns()
    before = dns.found.hosts()
    dns.away, dns.now = True, FRESH - 1
    assert dns.found.hosts() == before and len(dns.asked) == 2
    dns.now = FRESH
    assert dns.found.hosts() == before and len(dns.asked) == 3
    dns.now += SOON - 1
    assert dns.found.hosts() == before and len(dns.asked) == 3
    dns.away, dns.now = False, dns.now + 1
    dns.records[EVERYWHERE] = [Service(0, 0, 389, "new")]
    dns.records[NEAR] = []
    assert dns.found.hosts() == ("new",)


def test_dns_is_queried_again_soon_if_no_controller_answered() -> None:
    dns = Dns()
    dns.found.hosts()
    dns.found.failed()
    dns.found.failed()
    assert len(dns.asked) == 2
    dns.now = SOON
    dns.found.hosts()
    assert len(dns.asked) == 4


def test_a_domain_unknown_to_dns_is_unavailable() -> None:
    for records in ({EVERYWHERE: []}, {EVERYWHERE: [Service(0, 0, 0, "")]}):
        with pytest.raises(DirectoryNotConnected, match=r"no domain controllers of rig\.test"):
            Dns(**records).found.hosts()
    dns = Dns()
    dns.away = True
    with pytest.raises(DirectoryNotConnected, match="no DNS"):
        dns.found.hosts()
    assert Named(["a", "b"]).hosts() == ("a", "b")


def test_services_are_tried_by_priority_and_within_it_by_weight() -> None:
    services = [Service(1, 0, 389, "last"), Service(0, 90, 389, "heavy"), Service(0, 10, 389, "light")]
    draw = random.Random(7)
    orders = Counter(tuple(service.host for service in in_order(services, draw)) for _ in range(1000))
    assert set(orders) == {("heavy", "light", "last"), ("light", "heavy", "last")}
    assert 850 < orders["heavy", "light", "last"] < 950
    assert in_order([Service(0, 0, 389, "a"), Service(0, 0, 389, "b")], draw)


def test_the_site_of_the_client_is_in_the_response_of_a_controller() -> None:
    assert client_site(NETLOGON) == "Default-First-Site-Name"
    assert client_site(NETLOGON.replace(b"\xc0\x35\x05", b"\x00\x05")) == ""


def test_responses_that_are_cut_off_or_have_no_end_are_refused() -> None:
    for end in range(len(NETLOGON) - 9):
        with pytest.raises(ValueError):
            client_site(NETLOGON[:end])
    turned = NETLOGON[:24] + b"\xc0\x18"  # a compression pointer to itself
    with pytest.raises(ValueError, match="not terminated"):
        client_site(turned)
    for number in range(2000):
        draw = random.Random(number)
        spoilt = bytearray(NETLOGON)
        for _ in range(draw.randrange(1, 8)):
            spoilt[draw.randrange(len(spoilt))] = draw.randrange(256)
        with suppress(ValueError):
            assert len(client_site(bytes(spoilt))) < 20_000
