"""Limits on sessions, in total and per host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from openmsmq.packet.internal import EstablishConnection
from openmsmq.peering.limits import SessionLimits
from openmsmq.peering.options import TransferOptions

OWN, PEER = b"o" * 16, b"p" * 16


@pytest.mark.parametrize(("others", "of_host", "admitted"), [(3, 1, True), (4, 0, False), (1, 2, False), (4, 2, False)])
def test_a_session_has_to_fit_into_both_limits(others: int, of_host: int, admitted: bool) -> None:
    connections: list[Any] = [SimpleNamespace(address=f"192.0.2.{n}") for n in range(others + 1)]
    limits = SessionLimits(TransferOptions(max_sessions=4, max_sessions_per_peer=2), connections, OWN)
    for _ in range(of_host + 1):
        limits.connected(connections[0].address)
    assert limits.admits(connections[0], EstablishConnection(PEER, bytes(16))) is admitted


def test_this_queue_manager_has_no_session_with_itself() -> None:
    connection: Any = SimpleNamespace(address="192.0.2.1")
    limits = SessionLimits(TransferOptions(), [connection], OWN)
    assert not limits.admits(connection, EstablishConnection(OWN, bytes(16)))


def test_incomplete_packets_of_all_sessions_take_256_mib() -> None:
    """docs/security.md names this limit."""
    connection: Any = SimpleNamespace(address="192.0.2.1")
    limits = SessionLimits(TransferOptions(), [connection], OWN)
    assert limits.buffers(connection, 256 << 20) and not limits.buffers(connection, 1)
    assert limits.buffers(connection, -1) and limits.buffers(connection, -1)
