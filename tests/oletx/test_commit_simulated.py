"""Two-phase commit on simulated networks: after crashes at any time, all partners commit or none, and no transaction
remains."""

from __future__ import annotations

import random

import pytest

from oletx.simulated import Network, Site
from openmsmq.model.errors import MsmqError
from openmsmq.oletx.structures import PropagationToken
from tallies import tally

NAMES = ("ALPHA", "BRAVO", "CHARLIE")
CIDS = (7 << 120, 5, 9 << 120)


def world(seed: int = 0) -> tuple[Network, list[Site]]:
    network = Network(seed)
    return network, [network.site(name, cid) for name, cid in zip(NAMES, CIDS, strict=True)]


class Program:
    """A program that begins a transaction at the first site, extends it to others by pull or push, works at these
    sites except idle ones, and commits."""

    def __init__(self, network: Network, sites: list[Site], uow: bytes, ways: list[str], idle: set[str]) -> None:
        self.network, self.sites, self.uow, self.idle = network, sites, uow, idle
        self.ways = list(zip(sites[1:], ways, strict=True))
        self.outcome = ""
        self.root = sites[0]
        self.epoch = self.root.epoch
        self.root.work.state[uow] = "active"
        self._work_at(self.root)
        self._next(None)

    def _work_at(self, site: Site) -> None:
        if site.name not in self.idle and site.work.is_open(self.uow):
            site.work.worked.add(self.uow)

    def _next(self, error: MsmqError | None) -> None:
        if error is not None or self.root.epoch != self.epoch:
            self.give_up()
            return
        if self.ways:
            site, way = self.ways.pop(0)
            parent = self.root if way != "chain" else self.sites[1]

            def joined(failure: MsmqError | None) -> None:
                if failure is None:
                    self._work_at(site)
                self._next(failure)

            if way == "push":
                self.root.manager.push(self.uow, site.partner, joined)
            elif site.is_up:
                site.manager.pull(self.uow, PropagationToken(self.uow, parent.partner), joined)
            else:
                self._next(MsmqError(1, "down"))
            return
        try:
            self.root.manager.commit(self.uow, self._ended)
        except (MsmqError, KeyError):
            self.outcome = "given up"

    def give_up(self) -> None:
        """Abort, or disconnect."""
        self.outcome = "given up"
        if self.root.epoch == self.epoch and self.root.work.is_open(self.uow):
            if self.root.manager.is_distributed(self.uow):
                self.root.manager.ended(self.uow)
            else:
                self.root.work.abort(self.uow)

    def _ended(self, error: MsmqError | None) -> None:
        self.outcome = "committed" if error is None else "aborted"


def settle(network: Network, program: Program) -> None:
    """Wait until all work is complete."""
    network.run(lambda: bool(program.outcome), 100)
    if not program.outcome:  # a call of the program got no reply
        program.give_up()
    network.run(lambda: all(site.is_up for site in network.sites.values()), 200)
    network.run(lambda: not any(site.manager.rows() for site in network.sites.values()), 3600)


def check(network: Network, program: Program) -> None:
    sites = list(network.sites.values())
    committed = [site.name for site in sites if program.uow in site.work.commits()]
    working = [site.name for site in program.sites if site.name not in program.idle]
    if program.outcome == "committed":
        assert committed == [site.name for site in sites if site.name in working]
    elif program.outcome in ("aborted", "given up"):
        assert committed == [] or (program.outcome == "given up" and committed == sorted(working))
    else:  # the root crashed meanwhile
        assert committed in ([], [site.name for site in sites if site.name in working])
    for site in sites:
        assert site.work.commits().count(program.uow) <= 1, f"{site.name} committed twice"
        assert not site.manager.rows(), f"{site.name} still has {site.manager.rows()}"
        assert not site.work.decisions() and not site.work.notes(), site.name
        assert not site.work.state, f"{site.name} holds {site.work.state}"


@pytest.mark.parametrize("ways", [["pull"], ["push"], ["pull", "pull"], ["push", "chain"], ["pull", "chain"]])
def test_a_commit_leaves_no_state_behind(ways: list[str]) -> None:
    network, sites = world()
    program = Program(network, sites[: len(ways) + 1], bytes(15) + b"\1", ways, set())
    settle(network, program)
    assert program.outcome == "committed"
    check(network, program)


def run_seed(seed: int) -> Network:
    choice = random.Random(seed)
    network, sites = world(seed)
    choice.shuffle(sites)
    count = choice.choice((2, 2, 3))
    ways = [choice.choice(("pull", "push"))] + [choice.choice(("pull", "push", "chain"))] * (count - 2)
    for _ in range(choice.choice((1, 1, 2, 3))):
        network.crash_at[choice.randrange(1, 75)] = choice.choice(NAMES)
    idle = {choice.choice(NAMES)} if choice.random() < 0.2 else set()
    program = Program(network, sites[:count], seed.to_bytes(16, "big"), ways, idle)
    settle(network, program)
    check(network, program)
    return network


def run_seeds(seeds: range) -> None:
    for seed in seeds:
        tally("simulated networks")
        try:
            run_seed(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("block", range(8))
def test_crashes_at_any_step_leave_all_or_nothing(block: int) -> None:
    run_seeds(range(250 * block, 250 * (block + 1)))


def test_a_seed_repeats_a_run() -> None:
    for seed in range(50):
        one, other = run_seed(seed), run_seed(seed)
        assert (one.now, one.steps) == (other.now, other.steps)
        assert one.random.getstate() == other.random.getstate()


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_crashes_in_many_more_networks(block: int) -> None:
    run_seeds(range(2000 + 12_000 * block, 2000 + 12_000 * (block + 1)))
