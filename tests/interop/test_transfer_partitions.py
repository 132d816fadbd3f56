"""Real queue managers on separate hosts, between which the network is cut, also in one direction only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemon import eventually
from interop.namespaces import Net, why_not
from interop.test_transfer_kills import QueueManagers, check, received, send
from seeds import chance

pytestmark = pytest.mark.slow
OPTIONS = ("--allow-anonymous", "--anonymous-is-administrator")  # for callers that are not on loopback
SESSION_TIMEOUT = 85.0  # seconds: a session of a direct format name ends after 40 to 80 without traffic (3.1.6.3)
HEALED = 240.0  # maximum seconds until all arrives after healing: TCP retries after at most two minutes


@contextmanager
def crowd_of(directory: Path, count: int) -> Iterator[tuple[Net, QueueManagers]]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    net = Net(count)
    try:
        crowd = QueueManagers(directory, net.hosts, *OPTIONS, port=1801, prepare=net.enter)
        try:
            yield net, crowd
        finally:
            crowd.stop()
    finally:
        net.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Net, QueueManagers]]:
    with crowd_of(tmp_path, 2) as made:
        yield made


class Traffic:
    """Transactions from some queue managers to others, until `stop`."""

    def __init__(self, crowd: QueueManagers, ways: list[tuple[int, int]]) -> None:
        self._crowd, self._over = crowd, threading.Event()
        self.told: dict[tuple[int, int], list[str]] = {}
        self._threads = [threading.Thread(target=self._send, args=way) for way in ways]
        for thread in self._threads:
            thread.start()

    def _send(self, source: int, target: int) -> None:
        self.told[source, target] = send(self._crowd, source, target, 20_000, self._over, pause=0.05)

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def check(self) -> None:
        """Check that messages arrived once and in order from each source, and that no confirmed message is lost."""
        for target in {target for _, target in self.told}:
            arrived = received(self._crowd, target, "tx")
            for source, other in self.told:
                if other == target:
                    assert self.told[source, target], "nothing was sent"
                    check(self.told[source, target], [one for one in arrived if one.startswith(f"{source}-")])


def waiting(crowd: QueueManagers, index: int) -> int:
    with crowd.connect(index) as qm:
        return sum(row["message_count"] for row in qm.outgoing())


CUTS: dict[str, Callable[[Net], None]] = {
    "both ways": lambda net: net.separate([0], [1]),
    "no messages": lambda net: net.cut(0, 1),
    "no acknowledgments": lambda net: net.cut(1, 0),
}


@pytest.mark.parametrize("seconds", [4.0, SESSION_TIMEOUT], ids=["short", "longer than a session"])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_messages_wait_while_the_network_is_cut_and_arrive_when_it_is_not(
    pair: tuple[Net, QueueManagers], cut: Callable[[Net], None], seconds: float
) -> None:
    net, crowd = pair
    traffic = Traffic(crowd, [(0, 1), (1, 0)])
    time.sleep(1.5)
    cut(net)
    time.sleep(seconds)
    assert waiting(crowd, 0) > 10, "the network is not cut"
    net.heal()
    time.sleep(1)
    traffic.stop()
    eventually(crowd.is_quiet, HEALED)
    traffic.check()
    assert "Traceback" not in "".join(daemon.log for daemon in crowd.daemons)


@pytest.mark.parametrize("killed", [0, 1], ids=["sender", "receiver"])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_kill_while_the_network_is_cut_duplicates_and_loses_nothing(
    pair: tuple[Net, QueueManagers], cut: Callable[[Net], None], killed: int
) -> None:
    net, crowd = pair
    traffic = Traffic(crowd, [(0, 1)])
    time.sleep(1.5)
    cut(net)
    time.sleep(1)
    crowd.restart(killed)
    time.sleep(1)
    net.heal()
    time.sleep(1)
    traffic.stop()
    eventually(crowd.is_quiet, HEALED)
    traffic.check()


def test_five_queue_managers_are_cut_apart_and_killed_again_and_again(tmp_path: Path) -> None:
    choose = chance("partitions of five")
    with crowd_of(tmp_path, 5) as (net, crowd):
        traffic = Traffic(crowd, [(n, (n + step) % 5) for n in range(5) for step in (1, 2)])
        for _ in range(10):
            time.sleep(choose.uniform(0.2, 2))
            fault = choose.choice(["separate", "one way", "kill", "kill while separate"])
            if fault == "one way":
                net.cut(*choose.sample(range(5), 2))
            elif fault != "kill":
                members = choose.sample(range(5), choose.randrange(1, 3))
                net.separate(members, set(range(5)) - set(members))
            time.sleep(choose.uniform(0.2, 6))
            if "kill" in fault:
                crowd.restart(choose.randrange(5))
            if choose.random() < 0.7:  # otherwise the next fault would overlap
                net.heal()
        net.heal()
        traffic.stop()
        eventually(crowd.is_quiet, HEALED)
        traffic.check()
        assert "Traceback" not in "".join(daemon.log for daemon in crowd.daemons)
