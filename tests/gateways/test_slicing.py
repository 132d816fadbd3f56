"""Slices: record locations for a reader in another process."""

from __future__ import annotations

from openmsmq.gateways.slicing import Slice
from queueing.world import World


def test_a_slice_has_a_bounded_number_of_express_messages() -> None:
    world = World()
    world.create()
    for _ in range(300):
        world.send("q", "x", delivery_guarantee=0)
    queue, slice = world.queue(), Slice()
    keys = list(queue.available)
    slice.take(queue, keys)
    assert slice.is_full() and slice.keys == keys[:256]
