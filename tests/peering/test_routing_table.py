"""The routing table as a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmsmq.peering.routing_table import RoutingTableError, load

OWN = bytes([1]) * 16
TABLE = """
[[queue_manager]]
name = "here"
identifier = "01010101-0101-0101-0101-010101010101"
sites = ["a"]
routing_server = true

[[queue_manager]]
name = "there"
identifier = "02020202-0202-0202-0202-020202020202"
host = "192.0.2.1"
sites = ["b"]
in_routing_servers = ["here"]

[[site]]
name = "a"
gates = ["here"]

[[site]]
name = "b"

[[routing_link]]
sites = ["a", "b"]
cost = 3
"""


def test_a_table_has_routers_and_addresses(tmp_path: Path) -> None:
    (tmp_path / "routes").write_text(TABLE)
    routing = load(tmp_path / "routes", OWN)
    assert routing.is_router and routing.host(bytes([2]) * 16) == "192.0.2.1" and routing.host(OWN) == "here"
    assert routing.next_hops(bytes([2]) * 16) == (bytes([2]) * 16,)
    assert not load(None, OWN).is_router


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("[[site]]", "[[sites]]"), "unknown table 'sites'; allowed:"),
        (("host =", "hosts ="), "has no 'hosts'; it has name, identifier"),
        (('"02020202-', '"0x020202-'), "queue_manager there: identifier is .*allowed: a GUID"),
        (("cost = 3", 'cost = "3"'), "cost is '3', allowed: int"),
        (("cost = 3", "cost = -3"), "a cost of 0 or more"),
        (('gates = ["here"]', 'gates = ["nowhere"]'), "names 'nowhere', which is no"),
        (('sites = ["b"]', 'sites = ["z"]'), "names the site 'z'"),
        (('["a", "b"]', '["a"]'), "must have two sites"),
        (('name = "there"', 'name = "here"'), "queue_manager.* the same name"),
        (('"02020202-0202-0202-0202-020202020202"', '"01010101-0101-0101-0101-010101010101"'), "the same identifier"),
        (('name = "b"', 'name = "a"'), "site.* the same name"),
        (('name = "there"\n', ""), "has no name"),
        (("routing_server = true", "routing_server = 1"), "allowed: bool"),
        (("[[", "[["), None),
        (("[[site]]", "[[site"), "routes: "),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, change: tuple[str, str], said: str | None) -> None:
    (tmp_path / "routes").write_text(TABLE.replace(*change))
    if said is None:
        load(tmp_path / "routes", OWN)
        return
    with pytest.raises(RoutingTableError, match=said):
        load(tmp_path / "routes", OWN)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RoutingTableError, match="nowhere"):
        load(tmp_path / "nowhere", OWN)
