"""Connected clients, by entry point, address and time. For administrators."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from openmsmq.actions.fields import CommandText, EpochSeconds, doc
from openmsmq.actions.queues import daemon_of
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Empty, Output, Rows, action
from openmsmq.model.roles import Role
from openmsmq.model.text import time_text


class ConnectionView(Output, frozen=True):
    """Connections of one address, user and entry point."""

    door: Annotated[str, doc("Entry point: rpc, mqqb (another queue manager), http, flight.", "rpc")]
    address: Annotated[str, doc("Address of the peer; local on a Unix socket.", "10.0.0.7")]
    user: Annotated[str, doc("Name of the user, empty for anonymous callers; for mqqb, the queue manager.", "alice")]
    interfaces: Annotated[list[str], doc("RPC interfaces in use.", ["qmcomm"])]
    connections: Annotated[int, doc("Open connections; 0 if only open queues are known.")]
    handles: Annotated[int, doc("Queues that are open.")]
    since: Annotated[EpochSeconds, doc("When the oldest of them was opened, in seconds since 1970.")]


class ConnectionList(Output, frozen=True):
    """Connected clients."""

    connections: Annotated[list[ConnectionView], doc("Connections, those with the most open queues first.")]
    command: CommandText


@action(
    "connection.list", http="GET /connections", role=Role.MONITOR, place="daemon",
    commands=(
        ActionCommand(
            "connection list",
            show=Rows(
                lambda found: found.connections,
                ("by", "address", "user", "interfaces", "connections", "open queues", "since"),
                lambda each: [each.door, each.address, each.user, ", ".join(each.interfaces), each.connections,
                              each.handles, time_text(each.since)],
                empty="no clients are connected",
            ),
            more="For administrators of the queue manager; the role monitor is enough for the token.",
        ),
    ),
)  # fmt: skip
def list_connections(site: ActionSite, given: Empty) -> ConnectionList:
    """Show connected clients: entry point, address, user, time, and number of open queues."""
    found = msgspec.json.Decoder(ConnectionView).decode_lines(daemon_of(site).lines("connections"))
    return ConnectionList(found, site.command)


ACTIONS: Final = (list_connections,)
