"""The static routing table: queue managers, sites and routing links in a TOML file, in place of a directory.

[[queue_manager]] name = "HUB"                       # referenced by the other tables identifier =
"00112233-4455-6677-8899-aabbccddeeff" host = "hub.example.com"           # default: the name sites = ["east"]
routing_server = true in_routing_servers = []            # messages for it go to one of these out_routing_servers = []
# messages from it go to one of these

[[site]]
name = "east"
gates = ["HUB"]

[[routing_link]]
sites = ["east", "west"]
cost = 1
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from openmsmq.transport.routing import Manager, RoutingLink, Site
from openmsmq.transport.routing import Routing as Routing

_KEYS: Mapping[str, Mapping[str, type]] = {
    "queue_manager": {
        "name": str, "identifier": str, "host": str, "sites": list, "routing_server": bool, "in_routing_servers": list,
        "out_routing_servers": list,
    },
    "site": {"name": str, "gates": list},
    "routing_link": {"sites": list, "cost": int},
}  # fmt: skip


class RoutingTableError(Exception):
    """The file is invalid; the text names the file, the table and the key."""


def load(path: Path | None, own: bytes) -> Routing:
    """Load the routing table for the queue manager with the identifier `own`; without a file, it is empty. Raises
    RoutingTableError."""
    if path is None:
        return Routing(own)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RoutingTableError(f"{path}: {error}") from error
    try:
        return _routing(tables, own)
    except RoutingTableError as error:
        raise RoutingTableError(f"{path}: {error}") from error


def _routing(tables: dict[str, Any], own: bytes) -> Routing:
    for name, value in tables.items():
        if name not in _KEYS or not isinstance(value, list):
            raise RoutingTableError(f"unknown table {name!r}; allowed: [[{']], [['.join(_KEYS)}]]")
        for table in value:
            _check(name, table)
    managers = tables.get("queue_manager", [])
    identifiers = {_required("queue_manager", table, "name"): _identifier(table) for table in managers}
    if len(identifiers) != len(managers):
        raise RoutingTableError("two [[queue_manager]] tables have the same name")
    if len(set(identifiers.values())) != len(managers):
        raise RoutingTableError("two [[queue_manager]] tables have the same identifier")
    sites = [
        Site(_required("site", table, "name"), _named(table, "gates", identifiers)) for table in tables.get("site", [])
    ]
    known = {site.key for site in sites}
    if len(known) != len(sites):
        raise RoutingTableError("two [[site]] tables have the same name")
    return Routing(
        own,
        [_manager(table, identifiers, known) for table in managers],
        sites,
        [_link(table, known) for table in tables.get("routing_link", [])],
    )


def _manager(table: dict[str, Any], identifiers: Mapping[str, bytes], sites: set[str]) -> Manager:
    name = table["name"]
    return Manager(
        identifiers[name], table.get("host", name), _sites(table, f"queue_manager {name}", sites),
        table.get("routing_server", False), _named(table, "in_routing_servers", identifiers),
        _named(table, "out_routing_servers", identifiers),
    )  # fmt: skip


def _link(table: dict[str, Any], sites: set[str]) -> RoutingLink:
    pair, cost = _sites(table, "routing_link", sites), table.get("cost", 1)
    if len(pair) != 2 or cost < 0:
        raise RoutingTableError("a [[routing_link]] must have two sites, and a cost of 0 or more")
    return RoutingLink(pair[0], pair[1], cost)


def _check(kind: str, table: Any) -> None:
    keys = _KEYS[kind]
    if not isinstance(table, dict):
        raise RoutingTableError(f"{kind} must be a table: [[{kind}]]")
    for key, value in table.items():
        if key not in keys:
            raise RoutingTableError(f"[[{kind}]] has no {key!r}; it has {', '.join(keys)}")
        if not isinstance(value, keys[key]) or (
            isinstance(value, list) and not all(isinstance(one, str) for one in value)
        ):
            what = "a list of names" if keys[key] is list else keys[key].__name__
            raise RoutingTableError(f"[[{kind}]] {key} is {value!r}, allowed: {what}")


def _required(kind: str, table: dict[str, Any], key: str) -> str:
    if not table.get(key):
        raise RoutingTableError(f"a [[{kind}]] has no {key}")
    return str(table[key])


def _identifier(table: dict[str, Any]) -> bytes:
    text = _required("queue_manager", table, "identifier")
    if not re.fullmatch(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", text):
        raise RoutingTableError(f"queue_manager {table['name']}: identifier is {text!r}, allowed: a GUID")
    return UUID(text).bytes_le


def _named(table: dict[str, Any], key: str, identifiers: Mapping[str, bytes]) -> tuple[bytes, ...]:
    for name in table.get(key, []):
        if name not in identifiers:
            raise RoutingTableError(f"{key} of {table.get('name')} names {name!r}, which is not a [[queue_manager]]")
    return tuple(identifiers[name] for name in table.get(key, []))


def _sites(table: dict[str, Any], what: str, sites: set[str]) -> tuple[str, ...]:
    for name in table.get("sites", []):
        if name not in sites:
            raise RoutingTableError(f"{what} names the site {name!r}, which is not a [[site]]")
    return tuple(table.get("sites", []))
