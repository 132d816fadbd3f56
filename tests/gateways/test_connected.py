"""Rows of connected clients."""

from __future__ import annotations

from typing import Any

from msrpc.rpc.server import OpenConnection, RpcServer
from openmsmq.gateways import connected

NOW = 1_000_000.9


class Server(RpcServer):
    """A server with given connections."""

    def __init__(self, *connections: OpenConnection) -> None:
        super().__init__()
        self._given = list(connections)

    def open_connections(self) -> list[OpenConnection]:
        return self._given


def row(door: str, address: str, user: str, **values: Any) -> dict[str, Any]:
    return {"door": door, "address": address, "user": user, "interfaces": [], "connections": 0, "handles": 0, **values}


def handle(origin: str, user: str, since: float) -> dict[str, Any]:
    return {"origin": origin, "user": user, "since": since}


def test_connections_of_an_address_and_user_are_one_row_since_the_oldest() -> None:
    server = Server(
        OpenConnection("10.0.0.7", ["alice"], ["qmcomm", "qmmgmt"], 5),
        OpenConnection("10.0.0.7", ["alice"], ["RemoteRead", "qmcomm"], 100),
        OpenConnection("10.0.0.7", ["alice"], [], 50),
        OpenConnection("10.0.0.7", ["alice", "bob"], ["qmcomm"], 0),
        OpenConnection("", [], [], 7),
    )
    assert connected.rows(server, [], [], NOW) == [
        row("rpc", "10.0.0.7", "alice", connections=3, since=999_900, interfaces=["RemoteRead", "qmcomm", "qmmgmt"]),
        row("rpc", "10.0.0.7", "alice, bob", connections=1, since=1_000_000, interfaces=["qmcomm"]),
        row("rpc", "local", "", connections=1, since=999_993),
    ]


def test_sessions_with_a_queue_manager_are_counted_by_address_and_identifier() -> None:
    sessions = [("10.0.0.9", "guid", 3.0), ("10.0.0.9", "guid", 1.0), ("10.0.0.9", "", 2.0), ("10.0.0.8", "", 0.0)]
    assert connected.rows(Server(), sessions, [], NOW) == [
        row("mqqb", "10.0.0.9", "guid", connections=2, since=999_997),
        row("mqqb", "10.0.0.8", "", connections=1, since=1_000_000),
        row("mqqb", "10.0.0.9", "", connections=1, since=999_998),
    ]


def test_open_queues_are_counted_with_their_connection_or_have_a_row_of_their_entry_point() -> None:
    server = Server(OpenConnection("10.0.0.7", ["alice"], ["qmcomm"], 10), OpenConnection("10.0.0.8", ["bob"], [], 10))
    handles = [
        handle("rpc 10.0.0.7", "alice", 999_995.5),
        handle("rpc 10.0.0.7", "alice", 999_980.5),
        handle("flight 10.0.0.7", "alice", 999_999.5),
        handle("", "", 999_998.5),
    ]
    assert connected.rows(server, [], handles, NOW) == [
        row("rpc", "10.0.0.7", "alice", connections=1, handles=2, since=999_980, interfaces=["qmcomm"]),
        row("flight", "10.0.0.7", "alice", handles=1, since=999_999),
        row("local", "local", "", handles=1, since=999_998),
        row("rpc", "10.0.0.8", "bob", connections=1, since=999_990),
    ]
