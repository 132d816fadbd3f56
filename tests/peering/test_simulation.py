"""Two queue managers under faults: the guarantees for each kind of message, for any seed.

Connections break, machines are cut off, processes are killed, power fails, the disk is slow; then the network heals,
and everything must arrive. `SIMULATIONS` in the environment sets the number of runs; at night it is higher.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import pytest

from openmsmq.model.constants import Delivery
from openmsmq.model.message import Message
from peering.network import Network, Node
from seeds import several
from tallies import tally

RUNS = int(os.environ.get("SIMULATIONS", "20"))
BLOCK = -(-RUNS // 256)  # runs of one test
BURSTS = [5, 5, 5, 80]  # messages sent at once: few runs fill windows, which takes most of the time
FAULTS = 60.0  # seconds of faults
SIZES = [0, 10, 5000] * 10 + [300_000]  # bytes of bodies: a window of the largest is more than is written at once
HEALING = 6 * 3600.0  # seconds after which everything must have arrived; the simulation needs little of it


class Traffic:
    """Messages sent from one node to the other, and the replies to the sender."""

    def __init__(self) -> None:
        self.told: dict[str, set[str]] = {"express": set(), "recoverable": set(), "transactional": set()}
        self.tried: dict[str, set[str]] = {kind: set() for kind in self.told}
        self.committed: list[str] = []


async def _keep_sending(network: Network, sender: Node, receiver: Node, story: Traffic) -> None:
    chance, number = network.chance, 0
    burst = chance.choice(BURSTS)
    while network.loop.time() < FAULTS:
        await asyncio.sleep(chance.uniform(0.001, 2))
        if not sender.life:
            continue
        kind = chance.choice(sorted(story.told))
        labels = [f"{sender.name}-{number + k}" for k in range(chance.choice([1, 1, 2, 5, burst]))]
        number += len(labels)
        story.tried[kind] |= set(labels)
        body = bytes(chance.choice(SIZES))
        messages = [
            Message(label=label, body=body, delivery_guarantee=Delivery.RECOVERABLE
                    if kind == "recoverable" else Delivery.EXPRESS)
            for label in labels
        ]  # fmt: skip
        queue = "tx" if kind == "transactional" else "plain"
        host = f"OS:{receiver.name}" if chance.random() < 0.5 else f"TCP:{receiver.address}"
        host = f"TCP:{receiver.address}" if kind == "transactional" else host
        name = f"DIRECT={host}\\private$\\{queue}"
        if kind == "transactional":
            story.committed += labels
        if await sender.send(name, messages, transactional=kind == "transactional"):
            story.told[kind] |= set(labels)


async def _make_trouble(network: Network, nodes: list[Node]) -> None:
    chance = network.chance
    while network.loop.time() < FAULTS:
        await asyncio.sleep(chance.uniform(0.5, 12))
        match chance.choice(["break", "break", "cut", "kill", "power", "slow", "clock"]):
            case "break":
                network.break_one()
            case "cut":
                network.partition = frozenset([chance.choice(nodes).address])
                await asyncio.sleep(chance.uniform(0.1, 20))
                network.partition = frozenset()
            case "clock":  # set the clock, in either direction
                chance.choice(nodes).drift += chance.choice([-7_200_000, -60_000, -1, 60_000, 7_200_000])
            case "slow":
                network.slowness = chance.choice([0.001, 0.05, 1.0])
            case fault:
                node = chance.choice(nodes)
                if node.life:
                    node.crash(power=fault == "power")
                    await asyncio.sleep(chance.uniform(0.01, 10))
                    await node.start()


async def _arrive(network: Network, nodes: list[Node]) -> None:
    """Wait until nothing is in transit."""
    network.partition, network.slowness = frozenset(), 0.01
    for node in nodes:
        if not node.life:
            await node.start()
    while network.loop.time() < FAULTS + HEALING:
        await asyncio.sleep(1)
        if not any(len(queue) for node in nodes for queue in node.manager.registry.outgoing.values()):
            return
    left = {
        f"{node.name} to {queue.destination}": (len(queue), str(queue.link), len(queue.locked))
        for node in nodes
        for queue in node.manager.registry.outgoing.values()
        if len(queue)
    }
    raise AssertionError(f"stuck after {HEALING} seconds: {left}")


async def _run(network: Network) -> tuple[list[Node], dict[str, Traffic]]:
    nodes = [Node(network, "ALPHA", "127.0.0.11", 1), Node(network, "BETA", "127.0.0.12", 2)]
    network.resolver = {node.name.lower(): node.address for node in nodes}
    for node in nodes:
        await node.start()
        node.create("plain")
        node.create("tx", transactional=True)
        await node.committer.drain()
    stories = {node.name: Traffic() for node in nodes}
    await asyncio.gather(
        _keep_sending(network, nodes[0], nodes[1], stories["ALPHA"]),
        _keep_sending(network, nodes[1], nodes[0], stories["BETA"]),
        _make_trouble(network, nodes),
    )
    await _arrive(network, nodes)
    return nodes, stories


def _check(receiver: Node, story: Traffic) -> None:
    plain, transactional = receiver.labels("plain"), receiver.labels("tx")
    twice = [label for label, count in Counter(plain + transactional).items() if count > 1]
    assert not twice, f"more than once: {twice[:5]}"
    assert set(plain) <= story.tried["express"] | story.tried["recoverable"]
    assert not story.told["recoverable"] - set(plain), "recoverable messages are lost"
    assert not story.told["transactional"] - set(transactional), "transactional messages are lost"
    order = {label: index for index, label in enumerate(story.committed)}
    places = [order[label] for label in transactional]
    assert places == sorted(places), "out of order"


def _simulate(network: Network) -> None:
    asyncio.set_event_loop(network.loop)
    try:
        nodes, stories = network.loop.run_until_complete(_run(network))
        _check(nodes[1], stories["ALPHA"])
        _check(nodes[0], stories["BETA"])
    finally:
        asyncio.set_event_loop(None)
        network.loop.close()


@pytest.mark.parametrize("block", several(RUNS)[::BLOCK])
def test_every_kind_of_message_arrives_as_guaranteed(block: int) -> None:
    for seed in range(block, block + BLOCK):
        print(f"simulation {seed}")  # the last one is the one that fails
        tally("simulated networks")
        _simulate(Network(seed))


def test_a_seed_repeats_a_run() -> None:
    for seed in several(3):
        runs = [Network(seed), Network(seed)]
        for network in runs:
            _simulate(network)
        assert runs[0].loop.time() == runs[1].loop.time()
        assert runs[0].chance.getstate() == runs[1].chance.getstate()
