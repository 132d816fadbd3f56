"""Manual resolution of a distributed transaction, and the data that operators get about one ([MS-DTCO] 3.2.7.30)."""

from __future__ import annotations

import pytest

from oletx.simulated import Network, Site
from openmsmq.model.distributed_states import RESOLUTIONS, Resolution
from openmsmq.model.errors import MsmqError
from openmsmq.oletx.manager import TransactionManager, TransactionRow
from openmsmq.oletx.structures import PropagationToken

UOW = bytes(15) + b"\1"
LONG = 10_000.0  # seconds that a machine stays down


class Pair:
    """A transaction that began at `root`, with work there and at `branch`, which has pulled it."""

    def __init__(self) -> None:
        self.network = Network()
        self.root, self.branch = self.network.site("ALPHA", 7 << 120), self.network.site("BRAVO", 5)
        for site in (self.root, self.branch):
            site.work.worked.add(UOW)
        self.root.work.state[UOW] = "active"
        joined: list[MsmqError | None] = []
        self.branch.manager.pull(UOW, PropagationToken(UOW, self.root.partner), joined.append)
        self.network.run(lambda: bool(joined))
        assert joined == [None]
        self.outcome: list[MsmqError | None] = []

    def commit(self) -> None:
        self.root.manager.commit(UOW, self.outcome.append)

    def until(self, site: Site, state: str) -> None:
        self.network.run(lambda: self.state(site) == state, 120)
        assert self.state(site) == state

    @staticmethod
    def row(site: Site) -> TransactionRow:
        [row] = site.manager.rows()
        return row

    @staticmethod
    def state(site: Site) -> str:
        rows = site.manager.rows()
        return rows[0].state if rows else "ended"

    def in_doubt(self) -> Pair:
        """Take the root down for a long time, just after the branch has voted."""
        self.commit()
        self.until(self.branch, "prepared")
        self.root.crash(down=LONG)
        self.until(self.branch, "in doubt")
        return self

    def unconfirmed(self) -> Pair:
        """Take the branch down for a long time, after the root has decided."""
        self.commit()
        self.until(self.branch, "prepared")
        self.branch.crash(down=LONG)
        self.until(self.root, "unconfirmed")
        self.network.run(lambda: bool(self.row(self.root).enlistments[0].trying), 60)
        return self


def test_each_state_on_the_way_to_a_commit_is_shown() -> None:
    pair = Pair()
    assert pair.state(pair.root) == pair.state(pair.branch) == "active"
    pair.commit()
    assert pair.state(pair.root) == "preparing"
    pair.until(pair.branch, "preparing")
    pair.until(pair.branch, "prepared")
    assert not pair.row(pair.branch).is_stuck
    pair.until(pair.root, "unconfirmed")
    pair.until(pair.branch, "ended")
    pair.until(pair.root, "ended")
    assert pair.outcome == [None]


def test_a_transaction_in_doubt_shows_the_attempts_and_their_failures() -> None:
    pair = Pair().in_doubt()
    pair.network.run(lambda: bool(pair.row(pair.branch).enlistments[0].failure), 60)
    row = pair.row(pair.branch)
    [superior] = row.enlistments
    assert row.is_in_doubt and row.is_stuck and superior.partner == pair.root.partner
    assert superior.trying == "asking it for the outcome" and superior.failure and not superior.is_answered


@pytest.mark.parametrize(("resolution", "commits"), [("commit", [UOW]), ("abort", [])])
def test_a_branch_in_doubt_ends_as_the_operator_decides(resolution: Resolution, commits: list[bytes]) -> None:
    pair = Pair().in_doubt()
    pair.branch.manager.resolve(UOW, resolution)
    pair.until(pair.branch, "ended")
    assert pair.branch.work.commits() == commits and not pair.branch.work.notes()
    calls = len(pair.branch.calls)
    pair.network.run(seconds=300)
    assert len(pair.branch.calls) == calls, "it asks no more"


def test_a_forgotten_commit_is_no_longer_announced() -> None:
    pair = Pair().unconfirmed()
    assert pair.row(pair.root).enlistments[0].trying == "telling it to commit"
    pair.root.manager.resolve(UOW, "forget")
    assert pair.state(pair.root) == "ended" and pair.root.work.commits() == [UOW] and not pair.root.work.decisions()
    pair.network.run(seconds=60)  # an attempt to establish a session ends
    calls = len(pair.root.calls)
    pair.network.run(seconds=300)
    assert len(pair.root.calls) == calls


def test_a_decision_that_a_restart_has_found_is_forgotten_too() -> None:
    pair = Pair().unconfirmed()
    pair.root.crash(down=1.0)
    pair.network.run(lambda: pair.root.is_up, 60)
    pair.until(pair.root, "unconfirmed")
    pair.root.manager.resolve(UOW, "forget")
    assert pair.state(pair.root) == "ended" and not pair.root.work.decisions()


def test_what_a_restart_has_found_has_its_state_before_partners_can_be_called() -> None:
    doubt, late = Pair().in_doubt(), Pair().unconfirmed()
    for site, state in ((doubt.branch, "in doubt"), (late.root, "unconfirmed")):
        site.work.durable = len(site.work.log)
        site.work.restart()
        manager = TransactionManager(site.partner, site, site.work, lambda: 0.0)
        manager.recover(site.work.notes(), site.work.decisions())
        assert [row.state for row in manager.rows()] == [state]
        manager.resolve(UOW, RESOLUTIONS[state][0])
        assert not site.work.decisions() and (state == "in doubt" or not manager.rows())


@pytest.mark.parametrize("resolution", ["commit", "abort", "forget"])
def test_only_what_its_state_allows_is_done(resolution: Resolution) -> None:
    active, doubt, late = Pair(), Pair().in_doubt(), Pair().unconfirmed()
    for pair, site in ((active, active.root), (active, active.branch), (doubt, doubt.branch), (late, late.root)):
        state = pair.state(site)
        if resolution not in RESOLUTIONS.get(state, ()):
            with pytest.raises(MsmqError, match=f"is {state}: {resolution} is not possible"):
                site.manager.resolve(UOW, resolution)
            assert pair.state(site) == state
    with pytest.raises(MsmqError, match="there is no distributed transaction"):
        active.root.manager.resolve(bytes(16), resolution)
