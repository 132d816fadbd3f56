"""Requests for relays that are refused before anything changes."""

from __future__ import annotations

from unittest import mock

import pytest

from openmsmq.gateways.relays import RelayRequests
from openmsmq.model.errors import MsmqError
from openmsmq.queueing.auditing import Actor
from queueing.world import World


def test_messages_are_not_sent_to_the_machine_where_they_are() -> None:
    world, relays = World(), mock.Mock()
    queue = world.create()
    requests = RelayRequests(relays, lambda name: queue, world.manager.machine.is_local, mock.Mock())
    for host in ("here", "localhost", "127.0.0.1"):
        with pytest.raises(MsmqError, match=f"{host} is this machine"):
            requests.begin(".\\private$\\q", host, "private$\\q", "sending", Actor("S-1-5-21-1", "alice", ""))
    relays.add.assert_not_called()
