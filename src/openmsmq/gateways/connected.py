"""Connected clients, as rows for lists: one for each address and user of RPC calls and of sessions with other queue
managers, and for objects opened through other entry points."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msrpc.rpc.server import RpcServer

#: Returns address, identifier of the queue manager (or empty) and age in seconds of each session.
OpenSessions = Callable[[], list[tuple[str, str, float]]]
_LOCAL: Final = "local"


def rows(
    rpc: RpcServer, sessions: Iterable[tuple[str, str, float]], handles: Iterable[dict[str, Any]], now: float
) -> list[dict[str, Any]]:
    """Return a row for each entry point, address and user. `handles` are rows of `Openings`, `now` is in seconds since
    1970."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}

    def row(door: str, address: str, user: str, since: float) -> dict[str, Any]:
        known = found.setdefault(
            (door, address, user),
            {"door": door, "address": address, "user": user, "interfaces": [], "connections": 0, "handles": 0,
             "since": int(since)},
        )  # fmt: skip
        known["since"] = min(known["since"], int(since))
        return known

    for each in rpc.open_connections():
        known = row("rpc", each.host or _LOCAL, ", ".join(each.users), now - each.seconds)
        known["connections"] += 1
        known["interfaces"] = sorted({*known["interfaces"], *each.interfaces})
    for address, identifier, seconds in sessions:
        row("mqqb", address, identifier, now - seconds)["connections"] += 1
    for handle in handles:
        door, _, address = handle["origin"].partition(" ")
        row(door or _LOCAL, address or _LOCAL, handle["user"], handle["since"])["handles"] += 1
    return sorted(found.values(), key=lambda each: (-each["handles"], -each["connections"], each["address"]))
