"""Tests of compiled modules, which run only with TESTS=compiled."""

from __future__ import annotations

from openmsmq import compiled
from peering.conftest import pair

__all__ = ["pair"]  # a fixture

collect_ignore = (
    []
    if compiled.is_native()
    else [
        "test_arguments.py",
        "test_captures.py",
        "test_differential.py",
        "test_ended_calls.py",
        "test_fast_path.py",
        "test_outgoing_packets.py",
        "test_plain_arrival.py",
        "test_plain_departure.py",
        "test_plain_packets.py",
        "test_request_streams.py",
        "test_requests.py",
        "test_ring.py",
        "test_stubs.py",
    ]
)
