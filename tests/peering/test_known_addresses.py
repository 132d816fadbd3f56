"""Messages for a queue manager named by its identifier go to its known address, not to any peer that claims it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

import pytest

from openmsmq.model.errors import MessageStorageFailed
from openmsmq.peering.known_addresses import DAY, LIFETIME, MOST_KNOWN, MOST_OF_ADDRESS, KnownAddresses
from openmsmq.store import Drop, Operation, Put
from peering.conftest import Pair
from peering.network import Node
from peering.test_answers import OUTSIDE, STRANGER, trio
from peering.test_outcomes import message, settled

__all__ = ["trio"]

FROM_ELSEWHERE = "DIRECT=TCP:127.0.0.11\\private$\\plain"  # a queue of ALPHA


def private(node: Node, queue: str = "plain") -> str:
    number = node.manager.registry.by_name[queue].number
    return f"PRIVATE={UUID(bytes_le=node.machine.identifier)}\\{number:08x}"


async def impostor(pair: Pair) -> Node:
    """BETA is stopped, and another peer connects under its identifier."""
    pair.beta.crash()
    await settled(5)
    node = Node(pair.network, "BETA", STRANGER, 2)
    await node.start()
    for name in ("admin", "plain"):
        node.create(name)
    for _ in range(3):  # the first identifiers are already known
        await node.send(FROM_ELSEWHERE, [message("I am BETA")])
    await settled(5)
    return node


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("handed", [False, True])
def test_messages_for_an_absent_queue_manager_wait_for_its_address(
    pair: Pair, caplog: pytest.LogCaptureFixture, restarts: bool, handed: bool
) -> None:
    """The address is known because messages were accepted from it, or delivered to it on its own session."""
    alpha, beta = pair.alpha, pair.beta

    async def story() -> None:
        name = private(beta)
        await beta.send(FROM_ELSEWHERE, [message("hello")])
        await settled(5)
        if handed:
            await alpha.send(name, [message("first")])
            await settled(5)
            assert beta.labels("plain") == ["first"]
        if restarts:
            alpha.crash()
            await settled(5)
            await alpha.start()
        other = await impostor(pair)
        assert alpha.labels("plain")[-1] == "I am BETA", "it has a session with ALPHA"
        await alpha.send(name, [message("secret")])
        await settled(60)
        assert other.labels("plain") == []
        (warning,) = [each.getMessage() for each in caplog.records if "which was at" in each.getMessage()]
        for part in (STRANGER, beta.address, "routing_file", "trust_queue_manager_identifiers"):
            assert part in warning
        await beta.start()
        await settled(60)
        assert beta.labels("plain")[-1] == "secret" and other.labels("plain") == []

    with caplog.at_level(logging.WARNING):
        pair.run(story)


def test_a_setting_lets_messages_follow_the_identifier(pair: Pair) -> None:
    alpha, beta = pair.alpha, pair.beta

    async def story() -> None:
        name = private(beta)
        await beta.send(FROM_ELSEWHERE, [message("hello")])
        await settled(5)
        alpha.crash()
        alpha.options["trust_queue_manager_identifiers"] = True
        await settled(5)
        await alpha.start()
        other = await impostor(pair)
        await alpha.send(name, [message("a")])
        await settled(60)
        assert other.labels("plain") == ["a"]
        alpha.crash()
        alpha.options.clear()
        await settled(5)
        await alpha.start()
        await alpha.send(name, [message("b")])
        await settled(60)
        assert other.labels("plain") == ["a", "b"], "the new address counts from then on"

    pair.run(story)


def test_without_a_known_address_the_first_session_counts(pair: Pair) -> None:
    alpha, beta = pair.alpha, pair.beta

    async def story() -> None:
        name = private(beta)
        await alpha.send(name, [message("a")])
        await settled(60)
        assert beta.labels("plain") == []
        await beta.send("DIRECT=TCP:127.0.0.11\\private$\\missing", [message("refused")])
        await settled(60)
        assert beta.labels("plain") == ["a"]
        other = await impostor(pair)
        await alpha.send(name, [message("b")])
        await settled(60)
        assert other.labels("plain") == []

    pair.run(story)


def test_queue_managers_behind_one_address_get_their_own_messages(pair: Pair, trio: tuple[Node, Node, Node]) -> None:
    alpha, gamma, beta = trio

    async def story() -> None:
        gamma.create("other")
        gamma.create("plain")
        for _ in range(2):
            for node in (alpha, gamma):
                await node.send("DIRECT=TCP:127.0.0.12\\private$\\plain", [message(node.name)])
                await settled(2)
            for node in (alpha, gamma):
                await beta.send(private(node), [message(node.name)])
            await settled(20)
        for node in (alpha, gamma):
            assert node.labels("plain") == [node.name] * 2
        known = beta.service._known
        assert {known.of(node.machine.identifier) for node in (alpha, gamma)} == {OUTSIDE}

    pair.run(story)


class FakeStore:
    """Definitions; `full` refuses every change."""

    def __init__(self) -> None:
        self.definitions: dict[bytes, bytes] = {}
        self.full = False
        self.now = 100 * DAY

    def note(self, operations: Sequence[Operation]) -> None:
        if self.full:
            raise MessageStorageFailed
        for each in operations:
            match each:
                case Put(name, value):
                    self.definitions[name] = value
                case Drop(name):
                    del self.definitions[name]

    def known(self) -> KnownAddresses:
        return KnownAddresses(self.definitions, self.note, lambda: self.now)


def identifier(number: int) -> bytes:
    return number.to_bytes(16, "little")


def test_100_000_unknown_peers_evict_no_known_peer(caplog: pytest.LogCaptureFixture) -> None:
    disk = FakeStore()
    known = disk.known()
    known.met(b"k" * 16, "10.0.0.1")
    for number in range(1, 100_001):  # from one address, then from one for each
        known.met(identifier(number), STRANGER if number <= 50_000 else f"2001:db8::{number:x}")
    assert known.of(b"k" * 16) == "10.0.0.1"
    assert len(known) == len(disk.definitions) == MOST_KNOWN
    assert sum(known.of(identifier(number)) == STRANGER for number in range(50_001)) == MOST_OF_ADDRESS
    assert len([each for each in caplog.records if "routing_file" in each.getMessage()]) == 1
    disk.now += 3 * DAY
    known.met(b"n" * 16, "10.0.0.2")
    assert known.of(b"n" * 16) == "10.0.0.2" and len(known) == MOST_KNOWN, "the one that was quiet for longest went"


def test_an_address_that_does_not_fit_in_the_store_is_remembered_once_it_fits(caplog: pytest.LogCaptureFixture) -> None:
    disk = FakeStore()
    known = disk.known()
    disk.full = True
    known.met(b"k" * 16, "10.0.0.1")
    assert known.of(b"k" * 16) is None and "10.0.0.1" in caplog.text
    disk.full = False
    known.met(b"k" * 16, "10.0.0.1")
    assert disk.known().of(b"k" * 16) == "10.0.0.1"


def test_an_address_is_forgotten_30_days_after_the_last_contact() -> None:
    disk = FakeStore()
    known = disk.known()
    known.met(b"k" * 16, "10.0.0.1")
    disk.now += 20 * DAY
    known.met(b"k" * 16, "10.0.0.9")
    known.met(b"k" * 16, "10.0.0.1")
    disk.now += 20 * DAY
    for each in (known, disk.known()):
        assert each.of(b"k" * 16) == "10.0.0.1"
    disk.now += LIFETIME
    assert known.of(b"k" * 16) is None
    known.met(b"k" * 16, "10.0.0.9")
    assert known.of(b"k" * 16) == disk.known().of(b"k" * 16) == "10.0.0.9"


def test_an_address_met_before_the_clock_was_set_back_is_forgotten_30_days_after_it() -> None:
    disk = FakeStore()
    disk.now += 5000 * DAY
    known = disk.known()
    known.met(b"k" * 16, "10.0.0.1")
    disk.now -= 5000 * DAY
    for each in (known, disk.known()):
        assert each.of(b"k" * 16) == "10.0.0.1"
    disk.now += LIFETIME + DAY
    known.met(b"k" * 16, "10.0.0.9")
    assert known.of(b"k" * 16) == "10.0.0.9"


def test_the_store_is_written_once_a_day() -> None:
    disk, written = FakeStore(), []
    known = KnownAddresses(disk.definitions, written.append, lambda: disk.now)
    for _ in range(100):
        disk.now += DAY // 100
        known.met(b"k" * 16, "10.0.0.1")
    assert len(written) == 1
