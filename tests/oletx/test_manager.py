"""Messages of the transaction manager before and after a write, and its reaction to votes in any order."""

from __future__ import annotations

import itertools

import pytest

from oletx.simulated import Network, Site
from openmsmq.model.errors import HResult, MsmqError, TransactionSequence
from openmsmq.oletx.messages import MessageType
from openmsmq.oletx.records import BadRecord, Note, decode_decision, decode_note, encode_decision, encode_note
from openmsmq.oletx.states import SUBORDINATE, SUPERIOR, EnlistmentState
from openmsmq.oletx.structures import PropagationToken

UOW = bytes(range(16))


class Group:
    """A root, and the branches that pull its transaction."""

    def __init__(self, *others: str, seed: int = 0, working: bool = True) -> None:
        self.network = Network(seed)
        self.root = self.network.site("ROOT", 1 << 100)
        self.others = [self.network.site(name, number + 1) for number, name in enumerate(others)]
        self.root.work.state[UOW] = "active"
        self.root.work.worked.add(UOW)
        self.outcomes: list[MsmqError | None] = []
        joined: list[MsmqError | None] = []
        for site in self.others:
            site.manager.pull(UOW, PropagationToken(UOW, self.root.partner), joined.append)
        self.network.run(lambda: len(joined) == len(others))
        assert joined == [None] * len(others)
        for site in self.others:
            if working:
                site.work.worked.add(UOW)

    def commit(self) -> None:
        self.root.manager.commit(UOW, self.outcomes.append)

    def said(self, site: Site) -> list[str]:
        """Return the messages in boxcars that a site has sent."""
        found = []
        for call in site.calls:
            for message in MessageType:
                if b"\xff\x0f\0\0" in call.boxcar and int(message).to_bytes(4, "little") in call.boxcar:
                    found.append(message.name)
        return found


def test_no_message_is_sent_before_its_promise_is_durable() -> None:
    """T4."""
    group = Group("A")
    branch = group.others[0]
    branch.work.is_held = True
    group.commit()
    group.network.run(seconds=20)
    assert "PREPAREREQDONE" not in group.said(branch) and not group.outcomes
    branch.work.is_held, group.root.work.is_held = False, True
    [action] = branch.work.dropped_syncs
    branch.work.durable = len(branch.work.log)
    action()
    group.network.run(seconds=20)
    assert "PREPAREREQDONE" in group.said(branch)
    assert "COMMITREQ" not in group.said(group.root) and not group.outcomes
    [action] = group.root.work.dropped_syncs
    group.root.work.is_held, branch.work.is_held = False, True
    action()
    group.network.run(seconds=20)
    assert group.outcomes == [None] and "COMMITREQ" in group.said(group.root)
    assert "COMMITREQDONE" not in group.said(branch)


def test_a_commit_that_comes_after_the_abort_is_refused() -> None:
    """A partner was lost in the previous event-loop iteration."""
    group = Group("A")
    group.root.manager.ended(UOW)
    group.network.run(seconds=20)
    with pytest.raises(MsmqError, match="was aborted") as refused:
        group.commit()
    assert refused.value.hresult == HResult.MQ_ERROR_TRANSACTION_SEQUENCE


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_one_vote_to_abort_in_any_order_aborts_everywhere(order: tuple[int, ...]) -> None:
    """T5, deviation D-202."""
    group = Group("A", "B", "C")
    group.others[2].work.is_full = True  # so it votes abort
    for place, number in enumerate(order):
        group.others[number].network.latency = lambda place=place: 0.01 * (place + 1)  # type: ignore[method-assign,misc]
    group.commit()
    group.network.run(lambda: bool(group.outcomes), 120)
    assert group.outcomes[0] is not None and "C (" in str(group.outcomes[0])
    group.network.run(lambda: not any(site.manager.rows() for site in group.others), 600)
    assert [site.work.commits() for site in (group.root, *group.others)] == [[], [], [], []]


def test_subordinates_without_work_leave_nothing_behind() -> None:
    group = Group("A", working=False)
    group.commit()
    group.network.run(lambda: bool(group.outcomes))
    assert group.outcomes == [None] and group.root.work.decisions() == []
    assert group.others[0].work.log == [] and not group.root.manager.rows()


def test_the_65th_subordinate_is_one_too_many() -> None:
    group = Group(*(f"S{number}" for number in range(64)))
    late = group.network.site("LATE", 999)
    failed: list[MsmqError | None] = []
    late.manager.pull(UOW, PropagationToken(UOW, group.root.partner), failed.append)
    group.network.run(lambda: bool(failed))
    assert failed[0] is not None and failed[0].hresult == HResult.MQ_ERROR_INSUFFICIENT_RESOURCES


def test_a_missing_vote_aborts_after_a_minute() -> None:
    group = Group("A")
    group.others[0].work.is_held = True
    group.commit()
    group.network.run(seconds=59)
    assert not group.outcomes
    group.network.run(seconds=2)
    assert group.outcomes[0] is not None and "no vote within 60 s from A" in str(group.outcomes[0])


def test_a_commit_that_the_disk_has_no_room_for_is_tried_again() -> None:
    """T14: the superior has decided, so the commit must not fail."""
    group = Group("A")
    branch = group.others[0]
    group.commit()
    group.network.run(lambda: branch.manager.rows()[0].enlistments[0].state is EnlistmentState.PREPARED)
    branch.work.is_full = True
    group.network.run(seconds=10)
    assert group.outcomes == [None] and branch.work.state == {UOW: "prepared"}
    assert "COMMITREQDONE" not in group.said(branch)
    branch.work.is_full = False
    group.network.run(lambda: not group.root.manager.rows(), 10)
    assert branch.work.commits() == [UOW] and not branch.manager.rows()


def in_doubt() -> Group:
    group = Group("A")
    group.commit()
    group.network.run(lambda: group.others[0].manager.rows()[0].enlistments[0].state is EnlistmentState.PREPARED)
    group.root.is_up = False  # for a long time
    group.others[0].manager.partners.sessions()[0].lost("the root is gone")
    group.network.run(seconds=100)
    return group


@pytest.mark.parametrize(("resolution", "committed"), [("commit", [UOW]), ("abort", [])])
def test_an_operator_ends_a_transaction_in_doubt(resolution: str, committed: list[bytes]) -> None:
    group = in_doubt()
    branch = group.others[0]
    [row] = branch.manager.rows()
    assert row.is_in_doubt and row.enlistments[0].partner == group.root.partner
    assert "no session" in row.enlistments[0].failure
    with pytest.raises(TransactionSequence):
        branch.manager.resolve(UOW, "forget")
    branch.manager.resolve(UOW, resolution)  # type: ignore[arg-type]
    group.network.run(seconds=5)
    assert branch.work.commits() == committed and not branch.manager.rows() and not branch.work.state


def test_an_operator_forgets_a_decision_that_nobody_confirms() -> None:
    group = Group("A")
    group.commit()
    group.others[0].network.lost = lambda site, call: site.name == "ROOT" and b"\x05\x20\0\0" in call.boxcar
    group.network.run(lambda: bool(group.outcomes))
    group.others[0].is_up = False
    group.network.run(seconds=100)
    assert group.outcomes == [None] and [row.outcome for row in group.root.manager.rows()] == ["committed"]
    with pytest.raises(TransactionSequence):
        group.root.manager.resolve(UOW, "abort")
    group.root.manager.resolve(UOW, "forget")
    assert group.root.work.decisions() == [] and not group.root.manager.rows()


def test_another_superior_is_refused_and_the_same_one_is_not() -> None:
    group = Group("A", "B")
    branch = group.others[0]
    done: list[MsmqError | None] = []
    branch.manager.pull(UOW, PropagationToken(UOW, group.root.partner), done.append)
    branch.manager.pull(UOW, PropagationToken(UOW, group.others[1].partner), done.append)
    group.root.manager.pull(UOW, PropagationToken(UOW, branch.partner), done.append)
    assert (
        done[0] is None
        and [error and error.hresult for error in done[1:]] == [HResult.MQ_ERROR_TRANSACTION_SEQUENCE] * 2
    )


def test_records_are_read_as_they_were_written() -> None:
    network = Network()
    a, b = (network.site(name, number).partner for number, name in enumerate(("A", "B"), 1))
    assert decode_note(encode_note(Note(a, (b,)))) == Note(a, (b,))
    assert decode_decision(encode_decision([a, b])) == (a, b)
    for wrong in (b"", b"{}", b"[]", b'{"superior": [1], "subordinates": [1]}', b'{"subordinates": [["x"]]}'):
        with pytest.raises(BadRecord):
            decode_note(wrong)
        with pytest.raises(BadRecord):
            decode_decision(wrong)


@pytest.mark.parametrize("table", [SUPERIOR, SUBORDINATE], ids=["superior", "subordinate"])
def test_every_state_but_the_last_handles_a_lost_connection(table: dict[EnlistmentState, dict[str, object]]) -> None:
    without = {state for state in table if "lost" not in table[state]}
    assert without <= {EnlistmentState.IN_DOUBT}, "a state in doubt has no connection"


def test_a_branch_that_collects_votes_accepts_no_more_subordinates() -> None:
    group = Group("A")
    branch, below, late = group.others[0], group.network.site("BELOW", 77), group.network.site("LATE", 78)
    token = PropagationToken(UOW, branch.partner)
    joined: list[MsmqError | None] = []
    below.manager.pull(UOW, token, joined.append)
    group.network.run(lambda: bool(joined))
    below.work.worked.add(UOW)
    below.work.is_held = True  # so that it does not vote
    branch.manager.check_enlisted(UOW)
    group.commit()
    group.network.run(lambda: below.work.state[UOW] == "prepared")
    assert branch.work.is_open(UOW), "only its transaction manager knows that it is too late"
    late.manager.pull(UOW, token, joined.append)
    group.network.run(lambda: len(joined) == 2, 20)
    assert joined[0] is None and joined[1] is not None
    assert not late.work.is_known(UOW)
    for uow, result in ((UOW, HResult.MQ_ERROR_TRANSACTION_ENLIST), (bytes(16), HResult.MQ_ERROR_TRANSACTION_IMPORT)):
        with pytest.raises(MsmqError, check=lambda raised, result=result: raised.hresult == result):
            branch.manager.check_enlisted(uow)
    [row] = branch.manager.rows()
    assert [one.partner.host for one in row.enlistments] == ["ROOT", "BELOW"]
    below.work.is_held = False
    [action] = below.work.dropped_syncs
    below.work.durable = len(below.work.log)
    action()
    group.network.run(lambda: bool(group.outcomes))
    assert group.outcomes == [None], "the others commit"
