"""MS-MQBR: the next hop for every kind of queue manager."""

from __future__ import annotations

import pytest

from openmsmq.transport.routing import Manager, Routing, RoutingFailed, RoutingLink, Site


def guid(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def manager(name: str, *sites: str, **values: object) -> Manager:
    return Manager(guid(name), f"{name}.example", sites, **values)  # type: ignore[arg-type]


# Site A: plain a1, a2 (reached through ar only), router ar, gate ag. B between A and C; A to D directly at a high cost.
MANAGERS = (
    manager("a1", "A"), manager("a2", "A", in_routing_servers=(guid("ar"),)),
    manager("ar", "A", routing_server=True), manager("ag", "A", routing_server=True),
    manager("out", "A", out_routing_servers=(guid("ar"), guid("ag"))),
    manager("bg", "B", routing_server=True), manager("b1", "B"),
    manager("cg", "C", routing_server=True), manager("c1", "C"), manager("dg", "D", routing_server=True),
    manager("d1", "D"), manager("island", "I"), manager("lonely", "L"),
)  # fmt: skip
SITES = (
    Site("A", (guid("ag"),)), Site("B", (guid("bg"),)), Site("C", (guid("cg"),)), Site("D", (guid("dg"),)), Site("I"),
)  # fmt: skip
LINKS = (RoutingLink("A", "B", 1), RoutingLink("B", "C", 1), RoutingLink("C", "D", 1), RoutingLink("A", "D", 9))


@pytest.mark.parametrize(
    ("own", "destination", "hops"),
    [
        ("a1", "ag", ["ag"]),  # same site: directly
        ("a1", "a2", ["ar"]),  # unless it is reached only through routers
        ("ar", "a2", ["a2"]),  # a router reaches it directly
        ("a1", "c1", ["ar"]),  # another site: the first router of the own site
        ("out", "a1", ["ar", "ag"]),  # out-routing servers, for any destination
        ("ar", "c1", ["ag"]),  # a router: the gate of the own site
        ("ag", "c1", ["bg"]),  # a gate: the gate of the next site on the cheapest path
        ("ag", "d1", ["bg"]),  # three links of 1 are cheaper than one of 9
        ("ag", "a2", ["ar"]),
        ("bg", "a1", ["ag"]),
        ("stranger", "c1", ["c1"]),
    ],
)
def test_the_next_hop(own: str, destination: str, hops: list[str]) -> None:
    assert Routing(guid(own), MANAGERS, SITES, LINKS).next_hops(guid(destination)) == tuple(map(guid, hops))


@pytest.mark.parametrize(
    ("own", "destination", "why"),
    [
        ("a1", "nobody", "not in the routing table"), ("island", "a1", "no site of this queue manager"),
        ("ag", "lonely", "no routing link"),
    ],
)  # fmt: skip
def test_no_next_hop(own: str, destination: str, why: str) -> None:
    with pytest.raises(RoutingFailed, match=why):
        Routing(guid(own), MANAGERS, SITES, LINKS).next_hops(guid(destination))


def test_a_message_that_follows_the_hops_arrives() -> None:
    """From every machine to every reachable one, in fewer hops than a packet may make."""
    names = [one for one in MANAGERS if one.sites[0] not in ("I", "L")]
    for start in names:
        for end in names:
            at, steps = start.identifier, 0
            while at != end.identifier:
                at = Routing(at, MANAGERS, SITES, LINKS).next_hops(end.identifier)[0]
                steps += 1
                assert steps < 15, (start, end)


def test_routers_and_addresses_are_read_from_the_table() -> None:
    routing = Routing(guid("ar"), MANAGERS, SITES, LINKS)
    assert routing.is_router and not Routing(guid("a1"), MANAGERS).is_router and not Routing(guid("x")).is_router
    assert routing.host(guid("c1")) == "c1.example" and routing.host(guid("x")) is None
