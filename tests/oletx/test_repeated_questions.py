"""Partners that ask again on the same connection, or too early or too late."""

from __future__ import annotations

from oletx.simulated import Network, Site
from oletx.test_manager import UOW, Group
from openmsmq.model.errors import MsmqError
from openmsmq.oletx.connections import PartnerConnection
from openmsmq.oletx.messages import ConnectionType, MessageType
from openmsmq.oletx.session import Status
from openmsmq.oletx.structures import PropagationToken


class Asking:
    """A partner that repeats its question on one connection, as [MS-DTCO] 3.7.6.1 and 3.8.6.1 say."""

    def __init__(self, site: Site, question: MessageType, retry: MessageType) -> None:
        self._site, self._question, self._retry = site, question, retry
        self.answers: list[MessageType] = []

    def listen(self, connection: PartnerConnection) -> Asking:
        self.connection = connection
        return self

    def received(self, message: MessageType, data: bytes) -> None:
        self.answers.append(message)
        if message is self._retry:
            self._site.later(1.0, lambda: self.connection.send(self._question, UOW))

    def invalid(self, reason: str) -> None:
        raise AssertionError(reason)

    def lost(self, reason: str) -> None:
        pass


def test_a_subordinate_in_doubt_asks_on_one_connection_until_there_is_an_outcome() -> None:
    """[MS-DTCO] 3.7.5.2.1.1: after PARTNERTM_CHECKABORT_MTAG_RETRY, the connection is idle again."""
    network = Network(1)
    root, subordinate = network.site("ROOT", 1 << 100), network.site("SUB", 5)
    root.work.state[UOW] = "active"
    asking = Asking(subordinate, MessageType.CHECK, MessageType.CHECK_RETRY)
    subordinate.manager.open(root.partner, ConnectionType.CHECKABORT, asking.listen, MessageType.CHECK, UOW)
    network.run(lambda: len(asking.answers) > 3)
    assert set(asking.answers) == {MessageType.CHECK_RETRY}
    del root.work.state[UOW]
    network.run(seconds=10)
    assert asking.answers[-1] is MessageType.ABORTED


def test_a_superior_delivers_its_decision_on_one_connection_until_it_is_carried_out() -> None:
    """[MS-DTCO] 3.8.5.2.2.1."""
    group = Group("A")
    [branch] = group.others
    group.root.work.is_held = True
    group.commit()
    group.network.run(seconds=3)
    for site in (branch, group.root):
        for session in site.manager.partners.sessions():
            session.lost("cut")
    branch.work.is_full = True
    asking = Asking(group.root, MessageType.REDELIVER_COMMITREQ, MessageType.REDELIVER_RETRY)
    group.root.manager.open(
        branch.partner, ConnectionType.REDELIVERCOMMIT, asking.listen, MessageType.REDELIVER_COMMITREQ, UOW
    )
    group.network.run(seconds=3)
    assert MessageType.REDELIVER_COMMITREQDONE not in asking.answers
    for _ in range(3):  # before an answer, too
        asking.connection.send(MessageType.REDELIVER_COMMITREQ, UOW)
    branch.work.is_full = False
    group.network.run(seconds=60)
    assert asking.answers[-1] is MessageType.REDELIVER_COMMITREQDONE and branch.work.commits() == [UOW]


def test_a_transaction_is_joined_only_when_its_own_pull_has_succeeded() -> None:
    """[MS-DTCO] 3.2.7.9: only then is it in the transaction table."""
    network = Network(1)
    silent, middle, last = network.site("X", 1 << 100), network.site("A", 50), network.site("B", 5)
    network.lost = lambda sender, call: sender is silent and bool(call.boxcar)
    results: list[MsmqError | None] = []
    middle.manager.pull(UOW, PropagationToken(UOW, silent.partner), lambda error: None)
    network.run(seconds=0.5)
    last.manager.pull(UOW, PropagationToken(UOW, middle.partner), results.append)
    network.run(seconds=100)
    assert len(results) == 1 and results[0] is not None
    assert not middle.manager.rows() and not last.manager.rows()
    network.lost = lambda sender, call: False
    silent.work.state[UOW] = "active"
    for site, superior in ((middle, silent), (last, middle)):
        site.manager.pull(UOW, PropagationToken(UOW, superior.partner), results.append)
        network.run(seconds=30)
    assert results[1:] == [None, None]


def test_a_session_that_has_ended_grants_no_connections() -> None:
    """[MS-CMPO] 3.3.4.3. What it granted before was given back when it ended."""
    network = Network(1)
    one, other = network.site("A", 1 << 100), network.site("B", 5)
    asking = Asking(one, MessageType.CHECK, MessageType.CHECK_RETRY)
    before = one.manager.partners._budget.left
    one.manager.open(other.partner, ConnectionType.CHECKABORT, asking.listen, MessageType.CHECK, UOW)
    network.run(lambda: bool(asking.answers))
    [session] = one.manager.partners.sessions()
    assert session.grant(10) == (Status.OK, 10)
    session.lost("cut")
    assert session.grant(999) == (Status.SERVER_NOT_READY, 0)
    assert session.send_receive(0, b"") == Status.SESSION_DOWN
    assert one.manager.partners._budget.left == before
