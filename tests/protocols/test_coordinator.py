"""Two queue managers with real stores in one transaction, on a simulated network: all or nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from uuid import UUID

import pytest

from oletx.simulated import Network, Site
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.oletx.structures import PropagationToken, encode_stx_info, encode_token
from openmsmq.protocols.coordinator import Coordinator, OldTransactions
from openmsmq.protocols.transaction_security import TransactionSecurity
from openmsmq.store import Put
from queueing.world import World, refused

UOW = b"unit of work 16b"
DONE, NOT_DONE = (["old", "new"], []), (["old"], ["old"])


class QueueManagerSite(Site):
    """A machine with a queue manager: its queue "q" holds a message."""

    coordinator: Coordinator

    def _first_start(self) -> None:
        self.world = World()
        self.world.create("q", TRANSACTION=1)
        transaction = self.world.begin(99)
        self.world.send("q", "old", transaction)
        self.world.manager.transactions.commit(transaction)
        self._start()
        self.world.store.sync()

    def _start(self) -> None:
        self.coordinator = Coordinator(
            self.world.manager, self, self.name, TransactionSecurity.NONE, self._when_durable
        )
        self.manager = self.coordinator.transaction_manager
        self.partner = self.manager.local
        self.coordinator.start()

    def _load(self) -> None:
        self.world.vfs = self.world.vfs.crash(lambda index, count: False, 0)
        self.world._open()

    def _when_durable(self, action: Callable[[], object]) -> None:
        def synced() -> None:
            self.network.step()
            self.world.store.sync()
            self.network.step()
            action()

        self.later(self.network.latency(), synced)


class Pair:
    """One transaction that sends at one machine and receives at the other."""

    def __init__(self, seed: int = 0) -> None:
        self.network = Network(seed)
        for name in ("NEAR", "FAR"):
            self.network.sites[name] = QueueManagerSite(self.network, name, UUID(int=0))
        self.near, self.far = self.network.sites.values()
        self.outcome = ""

    def labels(self) -> tuple[list[str], list[str]]:
        return self.near.world.labels("q"), self.far.world.labels("q")

    def begin(self) -> None:
        self.transaction = self.near.world.manager.transactions.create(UOW)
        self.transaction.owner = self
        self.near.world.send("q", "new", self.transaction)
        self.far.manager.pull(UOW, PropagationToken(UOW, self.near.partner), self._joined)

    def _joined(self, error: MsmqError | None) -> None:
        if error is not None:
            self.give_up()
            return
        branch = self.far.world.manager.transactions.find(UOW)
        assert self.far.world.read(self.far.world.open("q"), transaction=branch).label == "old"
        try:
            self.near.manager.commit(UOW, self._ended)
        except (MsmqError, KeyError):
            self.give_up()

    def _ended(self, error: MsmqError | None) -> None:
        self.outcome = "committed" if error is None else "aborted"

    def give_up(self) -> None:
        """Abort as for a disconnected client."""
        self.outcome = "given up"
        transaction = self.near.world.manager.transactions.get(UOW)
        if transaction is not None and transaction.is_open:
            self.near.coordinator.abort_everywhere(transaction)

    def settle(self) -> None:
        self.network.run(lambda: bool(self.outcome), 100)
        if not self.outcome:
            self.give_up()
        self.network.run(lambda: self.near.is_up and self.far.is_up, 200)
        self.network.run(lambda: not (self.near.manager.rows() or self.far.manager.rows()), 3600)
        for site in (self.near, self.far):
            site.world.store.sync()


def run(seed: int, crashes: dict[int, str]) -> Pair:
    pair = Pair(seed)
    pair.network.crash_at.update(crashes)
    pair.begin()
    pair.settle()
    for site in (pair.near, pair.far):
        assert not site.world.manager.transactions.enlisted()
        assert not [name for name in site.world.store.definitions if name.startswith(b"decision/")]
        assert not site.manager.rows()
    return pair


def test_a_commit_leaves_no_state_behind() -> None:
    pair = run(0, {})
    assert pair.outcome == "committed" and pair.labels() == DONE


@pytest.mark.parametrize("seed", range(60))
def test_a_crash_at_any_step_leaves_all_or_nothing(seed: int) -> None:
    choice = random.Random(seed)
    crashes = {choice.randrange(1, 50): choice.choice(("NEAR", "FAR")) for _ in range(choice.choice((1, 1, 2)))}
    pair = run(seed, crashes)
    assert pair.labels() == DONE if pair.outcome == "committed" else pair.labels() in (DONE, NOT_DONE)
    if pair.outcome == "aborted":
        assert pair.labels() == NOT_DONE


def test_a_full_disk_at_the_first_phase_aborts_everywhere() -> None:
    """T14."""
    for name in ("NEAR", "FAR"):
        pair = Pair()
        pair.begin()
        site = pair.network.sites[name]
        pair.network.run(lambda pair=pair: pair.far.world.manager.transactions.get(UOW) is not None)  # type: ignore[misc]
        site.world.store.full = True
        pair.network.run(lambda pair=pair: bool(pair.outcome))  # type: ignore[misc]
        site.world.store.full = False
        pair.settle()
        assert pair.outcome == "aborted" and pair.labels() == NOT_DONE


def test_a_message_whose_receipt_is_not_acknowledged_yet_aborts_it() -> None:
    pair = Pair()
    pair.begin()
    pair.network.run(lambda: pair.far.world.manager.transactions.get(UOW) is not None)
    pair.far.world.manager.transactions.find(UOW).unacknowledged = 1
    pair.settle()
    assert pair.outcome == "aborted" and pair.labels() == NOT_DONE


def test_a_message_that_the_client_rejects_while_votes_are_collected_stays_in_its_queue() -> None:
    pair = Pair()
    pair.transaction = pair.near.world.manager.transactions.create(UOW)
    opened = pair.near.world.open("q")
    assert pair.near.world.read(opened, transaction=pair.transaction).label == "old"
    pair.near.coordinator.close(UOW)
    queue = pair.near.world.queue("q")
    (position,) = queue.locked
    pair.near.world.manager.transactions.withdraw(pair.transaction, queue, position)
    pair.near.coordinator.commit_here(UOW, None)
    assert pair.near.world.labels("q") == ["old"]


def test_a_unit_of_work_cannot_be_used_again_before_it_has_ended_everywhere() -> None:
    """`resolve` of a program tries it, and must not be told that the transaction has been aborted everywhere."""
    pair = Pair()
    pair.near.coordinator.check_new(UOW)
    transaction = pair.near.world.manager.transactions.create(UOW)
    joined: list[MsmqError | None] = []
    pair.far.manager.pull(UOW, PropagationToken(UOW, pair.near.partner), joined.append)
    pair.network.run(lambda: bool(joined))
    pair.network.lost = lambda site, call: site is pair.near
    pair.near.coordinator.abort_everywhere(transaction)
    assert pair.near.world.manager.transactions.get(UOW) is None
    with refused(HResult.MQ_ERROR_TRANSACTION_SEQUENCE):
        pair.near.coordinator.check_new(UOW)
    pair.settle()
    pair.near.coordinator.check_new(UOW)


def test_the_contact_identifier_stays_and_a_copy_of_the_store_gets_its_own() -> None:
    pair = Pair()
    cid = pair.near.partner.cid
    pair.near.crash(0.1)
    pair.network.run(seconds=1)
    assert pair.near.partner.cid == cid != pair.far.partner.cid
    pair.near.world.store.append([Put(b"tm/identity", cid.bytes + bytes(16))])  # generated for another queue manager
    pair.near._start()
    assert pair.near.partner.cid != cid


@pytest.mark.parametrize(
    ("name", "value"), [(b"decision/" + UOW, b'["00", [{"name": "far", "addresses": [], "port": 2103}]]')]
)
def test_decisions_of_the_old_protocol_are_refused_at_the_start(name: bytes, value: bytes) -> None:
    pair = Pair()
    pair.near.world.store.append([Put(name, value)])
    with pytest.raises(OldTransactions, match="an earlier version"):
        pair.near._start()


def test_notes_of_the_old_protocol_are_refused_at_the_start() -> None:
    pair = Pair()
    transaction = pair.near.world.begin(7)
    transaction.superior = b"openmsmq transaction 1 " + bytes(16) + b"{}"
    pair.near.world.manager.transactions.prepare(transaction)
    with pytest.raises(OldTransactions, match="an earlier version"):
        pair.near._start()


def coordinator(level: TransactionSecurity | None = TransactionSecurity.NONE) -> Coordinator:
    network = Network()
    site = QueueManagerSite(network, "NEAR", UUID(int=0))
    return Coordinator(site.world.manager, site, "NEAR", level, lambda action: None)


def test_nothing_is_offered_while_distributed_transactions_are_off() -> None:
    off = coordinator(None)
    with refused(HResult.MQ_ERROR_DTC_CONNECT):
        off.whereabouts()
    with refused(HResult.MQ_ERROR_DTC_CONNECT):
        off.check_enlisted(UOW, encode_stx_info(UOW))
    with refused(HResult.MQ_ERROR_DTC_CONNECT):
        asyncio.run(off.pull(UOW, b""))


def test_cookies_and_tokens_are_for_the_transaction_that_the_call_names() -> None:
    on = coordinator()
    for cookie in (b"", encode_stx_info(UOW)[:39], encode_stx_info(b"another unit 16b")):
        with refused(HResult.MQ_ERROR_INVALID_PARAMETER):
            on.check_enlisted(UOW, cookie)
    with refused(HResult.MQ_ERROR_TRANSACTION_IMPORT):
        on.check_enlisted(UOW, encode_stx_info(UOW))
    token = encode_token(PropagationToken(b"another unit 16b", on.partners.local))
    for wrong in (b"", token[:80], token):
        with refused(HResult.MQ_ERROR_INVALID_PARAMETER):
            asyncio.run(on.pull(UOW, wrong))


def test_a_token_of_this_transaction_manager_refers_to_an_ended_transaction() -> None:
    on = coordinator()
    with refused(HResult.MQ_ERROR_TRANSACTION_IMPORT):
        asyncio.run(on.pull(UOW, encode_token(PropagationToken(UOW, on.partners.local))))
