"""Two-phase commit between two queue managers: whatever crashes and whatever call is lost, it is all or nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.protocols.coordinator import PATIENCE, Coordinator, PropagationToken, TransactionOutcome, Whereabouts
from openmsmq.store import Put
from queueing.world import World, refused

UOW = b"unit of work 16b"


class Crash(BaseException):
    """A machine goes down in the middle of what it is doing."""


class Site:
    """A queue manager with its coordinator. What is not durable is lost when it crashes."""

    def __init__(self, net: Net, name: str) -> None:
        self.net, self.world = net, World()
        self.where = Whereabouts(name, ("192.0.2.1",), 2103)
        self.up = True
        self._connect()
        self.world.create("q", TRANSACTION=1)
        transaction = self.world.begin(99)
        self.world.send("q", "old", transaction)
        self.world.manager.transactions.commit(transaction)
        self.world.store.sync()

    def _connect(self) -> None:
        self.coordinator = Coordinator(self.world.manager, self.net, lambda: self.where, self._when_durable)

    def _when_durable(self, action: Callable[[], object]) -> None:
        self.net.step(f"{self.where.name} before sync")
        self.world.store.sync()
        self.net.step(f"{self.where.name} after sync")
        action()

    def crash(self) -> None:
        self.world.vfs = self.world.vfs.crash(lambda index, count: False, 0)
        self.world._open()
        self._connect()

    def labels(self) -> list[str]:
        return self.world.labels("q")


class Net:
    """Counts the steps of a programme; at one of them machines go down, and are started again at once."""

    def __init__(self, wrong_at: int = 0, victims: tuple[str, ...] = ()) -> None:
        self.steps: list[str] = []
        self.wrong_at, self.victims = wrong_at, victims
        self.sites = {name: Site(self, name) for name in ("near", "far")}

    def step(self, what: str) -> None:
        """Where the coordinator goes down, or a participant while it enlists, the programme ends; where a participant
        is called, the caller gets no answer; else it goes on."""
        self.steps.append(what)
        if len(self.steps) != self.wrong_at:
            return
        for victim in self.victims:
            self.sites[victim].crash()
        if "near" in self.victims or "enlist" in what:
            raise Crash(what)
        if "far" in what:
            raise MsmqError(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, what)

    async def _ask(self, where: Whereabouts, what: str, act: Callable[[Coordinator], Any]) -> Any:
        """A call whose request, or whose answer, may be lost with the machine that sends it."""
        self.step(f"request {what} to {where.name}")
        site = self.sites[where.name]
        if not site.up:
            raise MsmqError(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, where.name)
        answer = act(site.coordinator)
        self.step(f"{where.name} has done {what}")
        site.world.store.sync()  # the interface answers when it is durable
        self.step(f"answer to {what} from {where.name}")
        return answer

    async def enlist(self, where: Whereabouts, uow: bytes, secret: bytes, participant: bytes) -> None:
        await self._ask(where, "enlist", lambda c: c.add_participant(uow, secret, participant))

    async def prepare(self, where: Whereabouts, uow: bytes, secret: bytes) -> None:
        await self._ask(where, "prepare", lambda c: c.prepare_branch(uow, secret))

    async def commit(self, where: Whereabouts, uow: bytes, secret: bytes) -> None:
        await self._ask(where, "commit", lambda c: c.commit_branch(uow, secret))

    async def abort(self, where: Whereabouts, uow: bytes, secret: bytes) -> None:
        await self._ask(where, "abort", lambda c: c.abort_branch(uow, secret))

    async def outcome(self, where: Whereabouts, uow: bytes, secret: bytes) -> int:
        outcome: int = await self._ask(where, "outcome", lambda c: c.outcome(uow, secret))
        return outcome


async def programme(net: Net) -> None:
    """Send at one, receive at the other, commit."""
    near, far = net.sites["near"], net.sites["far"]
    transaction = near.world.manager.transactions.create(UOW)
    transaction.owner = near
    await far.coordinator.enlist(UOW, near.coordinator.token(transaction))
    near.world.send("q", "new", transaction)
    branch = far.world.manager.transactions.find(UOW)
    assert far.world.read(far.world.open("q"), transaction=branch).label == "old"
    await near.coordinator.commit(transaction)


DONE, NOT_DONE = (["old", "new"], []), (["old"], ["old"])


def state(net: Net) -> tuple[list[str], list[str]]:
    return net.sites["near"].labels(), net.sites["far"].labels()


def settle(net: Net, now: float = 0) -> None:
    for _ in range(3):
        for site in net.sites.values():
            asyncio.run(site.coordinator.resolve(now))
            site.world.store.sync()


def steps_of_the_programme() -> list[str]:
    net = Net()
    asyncio.run(programme(net))
    assert state(net) == DONE
    return net.steps


def test_it_commits_and_nothing_is_left_of_it() -> None:
    net = Net()
    asyncio.run(programme(net))
    assert state(net) == DONE
    for site in net.sites.values():
        assert not site.world.manager.transactions.enlisted()
        assert not [name for name in site.world.store.definitions if name.startswith(b"decision/")]


@pytest.mark.parametrize("victims", [("near",), ("far",), ("near", "far")])
@pytest.mark.parametrize("at", range(1, len(steps_of_the_programme()) + 1))
def test_a_crash_at_any_step_leaves_all_or_nothing(at: int, victims: tuple[str, ...]) -> None:
    net = Net(at, victims)
    near, far = net.sites["near"], net.sites["far"]
    committed = True
    try:
        asyncio.run(programme(net))
    except (Crash, MsmqError):
        committed = False
        for transaction in [t for t in near.world.manager.transactions.enlisted() if t.is_open]:
            near.world.manager.transactions.abort(transaction)  # the client is gone, and its handle is run down
            asyncio.run(near.coordinator.ended(transaction))
    settle(net)
    assert state(net) == DONE if committed else state(net) in (DONE, NOT_DONE), net.steps
    assert not near.world.manager.transactions.enlisted() and not far.world.manager.transactions.enlisted()
    assert not [name for name in near.world.store.definitions if name.startswith(b"decision/")]


@pytest.mark.parametrize("lost", ["request prepare to far", "answer to prepare from far"])
def test_a_participant_that_cannot_be_reached_makes_it_abort(lost: str) -> None:
    net = Net()

    async def prepare(where: Whereabouts, uow: bytes, secret: bytes) -> None:
        if lost.startswith("answer"):
            net.sites["far"].coordinator.prepare_branch(uow, secret)
        raise MsmqError(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, "far")

    net.prepare = prepare  # type: ignore[method-assign]
    with refused(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE):
        asyncio.run(programme(net))
    assert state(net) == NOT_DONE


def test_a_commit_that_could_not_be_told_is_told_later() -> None:
    net = Net()
    tell = net.commit

    async def commit(where: Whereabouts, uow: bytes, secret: bytes) -> None:
        raise MsmqError(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, "far")

    net.commit = commit  # type: ignore[method-assign]
    asyncio.run(programme(net))
    near, far = net.sites["near"], net.sites["far"]
    assert state(net) == (["old", "new"], []) and far.world.manager.transactions.enlisted()
    near.crash()
    far.crash()
    net.commit = tell  # type: ignore[method-assign]
    settle(net)
    assert state(net) == DONE and not far.world.manager.transactions.enlisted()
    assert not [name for name in near.world.store.definitions if name.startswith(b"decision/")]


def test_a_participant_asks_for_the_outcome_it_was_not_told() -> None:
    net = Net()
    near, far = net.sites["near"], net.sites["far"]

    async def begin() -> None:
        transaction = near.world.manager.transactions.create(UOW)
        await far.coordinator.enlist(UOW, near.coordinator.token(transaction))
        far.world.read(far.world.open("q"), transaction=far.world.manager.transactions.find(UOW))

    asyncio.run(begin())
    asyncio.run(far.coordinator.resolve(0))
    assert far.labels() == [], "in progress: nothing happens"
    near.crash()
    asyncio.run(far.coordinator.resolve(1))
    assert far.labels() == ["old"], "what the coordinator does not know was aborted"


def test_a_participant_that_is_not_prepared_gives_up_and_one_that_is_does_not() -> None:
    for prepared in (False, True):
        net = Net()
        near, far = net.sites["near"], net.sites["far"]
        transaction = near.world.manager.transactions.create(UOW)
        token = near.coordinator.token(transaction)
        asyncio.run(_await(far.coordinator.enlist(UOW, token)))
        far.world.read(far.world.open("q"), transaction=far.world.manager.transactions.find(UOW))
        if prepared:
            far.coordinator.prepare_branch(UOW, PropagationToken.decode(token).secret)
        near.up = False
        for now in (0, PATIENCE - 1, PATIENCE + 1):
            asyncio.run(far.coordinator.resolve(now))
            expected = ["old"] if now > PATIENCE and not prepared else []
            assert far.labels() == expected


async def _await(work: Coroutine[Any, Any, None]) -> None:
    await work


def test_who_does_not_know_the_secret_is_refused() -> None:
    net = Net()
    near, far = net.sites["near"], net.sites["far"]
    transaction = near.world.manager.transactions.create(UOW)
    token = near.coordinator.token(transaction)
    asyncio.run(_await(far.coordinator.enlist(UOW, token)))
    wrong = bytes(16)
    for act in (far.coordinator.prepare_branch, far.coordinator.commit_branch, far.coordinator.abort_branch):
        with refused(HResult.MQ_ERROR_ACCESS_DENIED):
            act(UOW, wrong)
    with refused(HResult.MQ_ERROR_TRANSACTION_SEQUENCE):
        near.coordinator.add_participant(UOW, wrong, far.where.encode())
    with refused(HResult.MQ_ERROR_TRANSACTION_SEQUENCE):
        far.coordinator.commit_branch(UOW, PropagationToken.decode(token).secret)
    assert near.coordinator.outcome(b"?" * 16, wrong) == TransactionOutcome.ABORTED


MAGIC = b"openmsmq transaction 1 "


@pytest.mark.parametrize("token", [b"", b"x", MAGIC, MAGIC + bytes(16) + b"[1]"])
def test_tokens_that_are_none_are_refused(token: bytes) -> None:
    with pytest.raises(MsmqError) as error:
        Net().sites["far"].coordinator.enlist(UOW, token)
    assert error.value.hresult in (HResult.MQ_ERROR_DTC_CONNECT, HResult.MQ_ERROR_INVALID_PARAMETER)


def test_a_unit_of_work_is_enlisted_once_however_often_it_is_said_and_with_one_token_only() -> None:
    net = Net()
    near, far = net.sites["near"], net.sites["far"]
    token = near.coordinator.token(near.world.manager.transactions.create(UOW))
    asyncio.run(_await(far.coordinator.enlist(UOW, token)))
    asyncio.run(_await(far.coordinator.enlist(UOW, token)))
    another = near.coordinator.token(near.world.manager.transactions.create(bytes(reversed(UOW))))
    with refused(HResult.MQ_ERROR_TRANSACTION_SEQUENCE):
        far.coordinator.enlist(UOW, another)
    assert [step for step in net.steps if "enlist" in step and "request" in step] == ["request enlist to near"]


def test_one_decision_or_transaction_that_cannot_be_read_keeps_no_other_waiting() -> None:
    near, far = (net := Net()).sites["near"], net.sites["far"]
    told: list[bytes] = []

    async def commit(where: Whereabouts, uow: bytes, secret: bytes) -> None:
        told.append(uow)

    net.commit = commit  # type: ignore[method-assign]
    good = json.dumps([b"s".hex(), [{"name": "far", "addresses": ["192.0.2.1"], "port": 1}]]).encode()
    for uow, decision in ((b"a", good), (b"b", b"poison"), (b"c", good)):
        near.world.store.append([Put(b"decision/" + uow, decision)])
    LEFT_OUT.counts.clear()
    asyncio.run(near.coordinator.resolve(0))
    assert told == [b"a", b"c"] and LEFT_OUT.counts["decisions of transactions"] == 1
    assert far.up
