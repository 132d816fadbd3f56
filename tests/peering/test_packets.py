"""Exceptions for packets of the simulated network must still be needed; obsolete ones are removed from `EXCUSED`."""

from __future__ import annotations

import asyncio

import pytest

from openmsmq.model.message import Message
from packets.checker import Kind
from packets.conversation import Watch
from packets.known_deviations import EXCUSED, LIFE_OF_ACKNOWLEDGMENTS
from packets.reading import Excused, Violation
from peering.conftest import Pair


def watch_a_transaction(pair: Pair, excused: Excused) -> Watch:
    """Send a transactional message and its OrderAck; then the network stops checking packets."""
    watch = pair.network.watch = Watch(excused)

    async def story() -> None:
        name = f"DIRECT=TCP:{pair.beta.address}\\private$\\tx"
        assert await pair.alpha.send(name, [Message(label="one")], transactional=True)
        while any(len(queue) for queue in pair.alpha.manager.registry.outgoing.values()):
            await asyncio.sleep(1)

    pair.run(story)
    pair.network.watch = Watch(EXCUSED)
    return watch


def test_acknowledgments_have_no_bit_in_their_flags_and_break_no_other_rule(pair: Pair) -> None:
    watch = watch_a_transaction(pair, EXCUSED)
    watch.hold()
    assert watch.seen[Kind.ORDER_ACK] == 1


def test_acknowledgments_expire(pair: Pair) -> None:
    """Deviation D-104."""
    with pytest.raises(Violation, match="TimeToReachQueue at offset 12 is 345600"):
        watch_a_transaction(pair, EXCUSED - {LIFE_OF_ACKNOWLEDGMENTS}).hold()
