"""Random programs of clients whose connections die at random, with all protocols at once, checked by a ledger."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from command_line import add_user
from daemon import Daemon, partner_daemons
from interop.dying_clients import ASIDE, DISTRIBUTED, IN_TRANSACTIONS, OPERATIONS, PLAIN, QUEUES, DyingClient
from interop.dying_connections import KINDS
from interop.impacket_client import PASSWORD, USER
from interop.ledger import Certainty, Ledger, MessageState, Span
from openmsmq import ReceiveTimeout, aio
from seeds import several

THREADS = 32  # for all threaded clients, each with some waiting receives


async def drain(manager: aio.QueueManager, name: str) -> list[str]:
    texts = []
    async with await manager.open(name) as queue:
        try:
            while True:
                texts.append(str((await queue.receive(0)).decode()))
        except ReceiveTimeout:
            return texts


LIMIT = 600  # tenths of a second


async def unlocked(manager: aio.QueueManager, name: str) -> None:
    """Wait until no distributed transaction locks messages any more: the server asks for their outcomes."""
    for _ in range(100):
        seen = 0
        for place in (name, name + ASIDE):
            async with await manager.open(place, "peek") as queue:
                seen += len([message async for message in queue])
        if (await manager.counts(name))["message_count"] <= seen:
            return
        await asyncio.sleep(0.1)


async def run(daemon: Daemon, coordinator: Daemon, seed: int, seconds: float, kills: int) -> list[str]:
    """Run one program on its own queues and empty them at the end. Returns the contradictions."""
    ledger, stop = Ledger(), asyncio.Event()
    async with await aio.connect("127.0.0.1", daemon.port) as manager:
        for queue in QUEUES:
            await manager.create_queue(queue, transactional=queue in IN_TRANSACTIONS)
    threads = ThreadPoolExecutor(THREADS)
    ports = daemon.port, coordinator.port
    clients = [
        DyingClient(f"{seed}.{number}", kind, threads, ports, ledger, seed * 100 + number)
        for number, kind in enumerate(KINDS)
    ]
    working = [asyncio.create_task(client.work(stop, OPERATIONS)) for client in clients]
    moments = random.Random(seed)
    for _ in range(kills):
        await asyncio.sleep(moments.uniform(0.3, 1.7) * seconds / (kills + 1))
        ledger.crashed()
        daemon.kill()
        ledger.crashed()
        await asyncio.to_thread(daemon.start)
    await asyncio.sleep(seconds / (kills + 1))
    for _ in range(LIMIT):  # a slow machine needs longer until each operation has succeeded
        cuts = sum(client.cuts for client in clients)
        if cuts > len(clients) and all(ledger.counts[operation.__name__] for operation in OPERATIONS):
            break
        await asyncio.sleep(0.1)
    stop.set()
    await asyncio.gather(*working)
    threads.shutdown()
    async with await aio.connect("127.0.0.1", daemon.port) as manager:
        await unlocked(manager, DISTRIBUTED)
        left = {queue: await drain(manager, queue) for queue in QUEUES}
        aside = {queue: await drain(manager, queue + ASIDE) for queue in QUEUES}
        for queue in QUEUES:
            counts = await manager.counts(queue)
            if counts["message_count"]:
                ledger.wrong.append(f"{queue}: {counts['message_count']} messages that nobody gets")
            await manager.delete_queue(queue)
    ledger.counts["may be lost"] = sum(ledger.unknown_takes.values())
    print(f"seed {seed}: {sum(client.cuts for client in clients)} cuts, {dict(sorted(ledger.counts.items()))}")
    for operation in OPERATIONS:
        assert ledger.counts[operation.__name__], f"{operation.__name__} never succeeded"
    assert sum(client.cuts for client in clients) > len(clients)
    return ledger.contradictions(left, aside)


def check(directory: Path, seeds: range, seconds: float, kills: int = 0) -> None:
    daemons = partner_daemons(directory, "data", "coordinator", options=("--log-level", "warning"))
    with daemons[0] as daemon, daemons[1] as coordinator:
        add_user(daemon.directory, USER, PASSWORD)
        for seed in seeds:
            found = asyncio.run(run(daemon, coordinator, seed, seconds, kills))
            assert found == [], f"with seed {seed}"
    for daemon in daemons:
        assert "Traceback" not in daemon.log, daemon.log


def test_nothing_is_lost_duplicated_or_reordered_when_connections_die(tmp_path: Path) -> None:
    check(tmp_path, several(2), seconds=2.5)


@pytest.mark.slow
def test_nothing_is_lost_duplicated_or_reordered_in_many_programs(tmp_path: Path) -> None:
    check(tmp_path, several(25), seconds=6)


@pytest.mark.slow
def test_what_is_recoverable_survives_the_death_of_connections_and_of_the_daemon(tmp_path: Path) -> None:
    check(tmp_path, several(12), seconds=8, kills=6)


# -- the ledger detects contradictions ---------------------------------------------------------------------------------


def sent(ledger: Ledger, text: str, *, priority: int = 3) -> MessageState:
    fate = ledger.sending(text, PLAIN, priority, True)
    fate.send.end = ledger.now()
    ledger.sent([fate])
    return fate


def wrong(ledger: Ledger, *texts: str) -> list[str]:
    return ledger.contradictions({PLAIN: list(texts)}, {PLAIN: []})


@pytest.mark.parametrize("left", ["", "a", "b", "ba", "aab", "abz"])
def test_the_ledger_detects_lost_duplicated_reordered_or_unknown_messages(left: str) -> None:
    ledger = Ledger()
    for text in "ab":
        sent(ledger, text)
    assert wrong(ledger, *left)


def test_the_ledger_accepts_both_outcomes_of_an_uncertain_call() -> None:
    for left in ("b", "ab", "bc", "abc"):
        ledger = Ledger()
        a = sent(ledger, "a")
        sent(ledger, "b")
        ledger.took(a, Span(ledger.now(), ledger.now()), Certainty.MAYBE)
        ledger.sending("c", PLAIN, 3, True)
        assert wrong(ledger, *left) == []


def test_the_ledger_checks_that_a_commit_is_atomic() -> None:
    for left in ("a", "b"):
        ledger = Ledger()
        group = [sent(ledger, text) for text in "ab"]
        span = Span(ledger.now(), ledger.now())
        for fate in group:
            ledger.took(fate, span, Certainty.MAYBE, group)
        assert wrong(ledger, *left)


def test_the_ledger_detects_a_read_that_skips_a_message() -> None:
    for held in (False, True):
        ledger = Ledger()
        fates = [sent(ledger, text) for text in "ab"]
        span = Span(ledger.now(), ledger.now())
        if held:
            ledger.unknown_holds[PLAIN].append(span)
        ledger.looked(PLAIN, span, fates[1])
        assert bool(wrong(ledger, "a", "b")) is not held


def test_the_ledger_detects_a_message_that_reappears() -> None:
    ledger = Ledger()
    fate = sent(ledger, "a")
    ledger.took(fate, Span(ledger.now(), ledger.now()), Certainty.YES)
    assert wrong(ledger) == []
    assert wrong(ledger, "a")


def test_the_ledger_detects_messages_that_a_purge_left() -> None:
    ledger = Ledger()
    sent(ledger, "a")
    ledger.purges[PLAIN].append(Span(ledger.now(), ledger.now()))
    assert wrong(ledger) == []
    assert wrong(ledger, "a")
