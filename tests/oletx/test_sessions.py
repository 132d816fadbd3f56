"""Sessions of [MS-CMPO] between two simulated partners: simultaneous starts, losses, false replies."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from oletx.simulated import Network, Site
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.oletx.boxcar import Packet, PacketTag
from openmsmq.oletx.connections import MOST_OUTGOING, QUOTA, ConnectionBudget, Connections, PartnerConnection
from openmsmq.oletx.manager import PULLS_OF_SOURCE
from openmsmq.oletx.messages import ConnectionType, MessageType
from openmsmq.oletx.session import (
    HIGHEST,
    LOWEST,
    BuildAnswer,
    CallAnswer,
    CallKind,
    PartnerCall,
    Rank,
    Session,
    Status,
)
from openmsmq.oletx.states import PartnerSessionState
from openmsmq.oletx.structures import Partner, PropagationToken

UOW = bytes(range(16))


def pair(seed: int = 0) -> tuple[Network, Site, Site]:
    network = Network(seed)
    return network, network.site("LOW", 1), network.site("HIGH", 1 << 127)


class RecordingListener:
    """Records received messages, and closes the connection after a reply."""

    connection: PartnerConnection | None = None

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def received(self, message: MessageType, data: bytes) -> None:
        self.heard.append(message)
        if self.connection is not None:
            self.connection.close()

    def invalid(self, reason: str) -> None:
        self.heard.append("invalid")

    def lost(self, reason: str) -> None:
        self.heard.append(reason)


def ask(site: Site, other: Site, uow: bytes = UOW) -> RecordingListener:
    """Send CHECK of an unknown transaction."""
    listening = RecordingListener()

    def listen(connection: PartnerConnection) -> RecordingListener:
        listening.connection = connection
        return listening

    site.manager.open(other.partner, ConnectionType.CHECKABORT, listen, MessageType.CHECK, uow)
    return listening


def meet(network: Network, site: Site, other: Site) -> None:
    """Establish a session."""
    listening = ask(site, other)
    network.run(lambda: bool(listening.heard))


def states(*sites: Site) -> list[PartnerSessionState]:
    return [session.state for site in sites for session in site.manager.partners.sessions()]


@pytest.mark.parametrize("begins", ["LOW", "HIGH"])
def test_either_partner_begins(begins: str) -> None:
    network, low, high = pair()
    site, other = (low, high) if begins == "LOW" else (high, low)
    listening = ask(site, other)
    network.run(lambda: bool(listening.heard))
    assert listening.heard == [MessageType.ABORTED]
    assert states(low, high) == [PartnerSessionState.ACTIVE] * 2
    kinds = [call.kind for call in low.calls]
    assert kinds[0] is (CallKind.POKE if begins == "LOW" else CallKind.BUILD)


def test_both_begin_at_once_and_have_one_session() -> None:
    """T15, deviation D-214: a thousand runs."""
    for seed in range(1000):
        network, low, high = pair(seed)
        heard = [ask(low, high), ask(high, low)]
        network.run(lambda heard=heard: all(one.heard for one in heard), 30)  # type: ignore[misc]
        assert [one.heard for one in heard] == [[MessageType.ABORTED]] * 2, seed
        assert states(low, high) == [PartnerSessionState.ACTIVE] * 2, seed
        sessions = [site.manager.partners.sessions()[0] for site in (low, high)]
        assert sessions[0].guid == sessions[1].guid, seed


def test_a_partner_that_reconnects_after_a_crash_gets_its_session() -> None:
    """T17: even if the other end has not noticed the crash."""
    for began in ("LOW", "HIGH"):
        network, low, high = pair()
        meet(network, low, high)
        site, other = (low, high) if began == "LOW" else (high, low)
        site.is_up, site.epoch = False, site.epoch + 1
        site.restart()
        listening = ask(site, other)
        network.run(lambda listening=listening: bool(listening.heard), 30)  # type: ignore[misc]
        assert listening.heard == [MessageType.ABORTED]


def test_an_unreachable_partner_fails_the_waiting_operations() -> None:
    network, low, high = pair()
    high.is_up = False
    listening = ask(low, high)
    network.run(seconds=7)
    assert len(listening.heard) == 1 and "no session within 6 s" in listening.heard[0]
    assert not low.manager.partners.sessions()


def test_a_boxcar_without_an_answer_ends_the_session_and_goes_out_once() -> None:
    """T18, deviation D-216."""
    network, low, high = pair()
    meet(network, low, high)
    network.run(seconds=1)
    network.lost = lambda site, call: site is low and call.kind is CallKind.SEND
    sends = sum(call.kind is CallKind.SEND for call in low.calls)
    listening = ask(low, high)
    network.run(lambda: bool(listening.heard), 20)
    assert "no answer in time" in listening.heard[0]
    assert sum(call.kind is CallKind.SEND for call in low.calls) == sends + 1
    assert not low.manager.partners.sessions()


def test_an_idle_session_is_torn_down_and_one_in_use_is_pinged() -> None:
    network, low, high = pair()
    meet(network, low, high)
    network.run(seconds=150)
    assert states(low, high) == []
    high.work.state[UOW] = "active"
    joined: list[MsmqError | None] = []
    low.manager.pull(UOW, PropagationToken(UOW, high.partner), joined.append)
    network.run(lambda: bool(joined))
    sent = len(low.calls)
    network.run(seconds=300)
    assert joined == [None] and states(low, high) == [PartnerSessionState.ACTIVE] * 2
    assert len(low.calls) - sent == 10, "a ping each 30 s"


def test_a_stop_tears_all_sessions_down() -> None:
    for site_stops in (0, 1):
        network, low, high = pair()
        meet(network, low, high)
        (low, high)[site_stops].manager.partners.stop()
        network.run(seconds=1)
        assert states(low, high) == []


def test_the_101st_connection_asks_for_more_first() -> None:
    """T19."""
    network, low, high = pair()
    for number in range(250):
        high.work.state[number.to_bytes(16, "big")] = "active"
    joined: list[MsmqError | None] = []
    for number in range(250):
        uow = number.to_bytes(16, "big")
        low.manager.pull(uow, PropagationToken(uow, high.partner), joined.append)
    network.run(lambda: len(joined) == 250)
    assert joined == [None] * 250
    assert sum(call.kind is CallKind.NEGOTIATE for call in low.calls) == 3


def test_a_pull_that_is_not_answered_fails_after_12_seconds() -> None:
    network, low, high = pair()
    high.manager.branching = lambda connection, uow: None  # type: ignore[method-assign]
    failed: list[MsmqError | None] = []
    low.manager.pull(UOW, PropagationToken(UOW, high.partner), failed.append)
    network.run(lambda: bool(failed), 60)
    assert (failed[0] is not None and failed[0].hresult == HResult.MQ_ERROR_DTC_CONNECT) or network.now <= 20
    assert not low.work.state


class RecordingCarrier:
    def __init__(self) -> None:
        self.negotiated: list[int] = []

    def wake(self) -> None:
        """Do nothing: messages are not sent automatically."""

    def negotiate(self, requested: int) -> None:
        self.negotiated.append(requested)


def test_a_partner_that_grants_no_connections_fails_the_waiting_operations() -> None:
    _, low, _ = pair()
    connections = Connections(RecordingCarrier(), low.manager, low.partner, ConnectionBudget())
    listening = RecordingListener()
    connections.open(ConnectionType.CHECKABORT, lambda one: listening, MessageType.CHECK, UOW)
    connections.granted(0, "0x8007000e")
    assert len(listening.heard) == 1 and "grants no connections: it answers 0x8007000e" in listening.heard[0]


def test_more_connections_than_requested_are_not_used() -> None:
    _, low, _ = pair()
    carrier = RecordingCarrier()
    connections = Connections(carrier, low.manager, low.partner, ConnectionBudget())
    for _ in range(MOST_OUTGOING + 1):
        connections.open(ConnectionType.CHECKABORT, lambda one: RecordingListener(), MessageType.CHECK, UOW)
    for round in range(1, MOST_OUTGOING // QUOTA + 1):
        assert carrier.negotiated == [QUOTA] * round
        connections.granted(0xFFFFFFFF, "")
        assert len(connections._outgoing) == QUOTA * round
    assert len(carrier.negotiated) == MOST_OUTGOING // QUOTA, "the last connection waits until another one is free"


def test_a_partner_that_does_not_answer_a_request_for_connections_is_named_with_the_reason() -> None:
    network, low, high = pair()
    network.lost = lambda site, call: site is low and call.kind is CallKind.NEGOTIATE
    listening = ask(low, high)
    network.run(lambda: bool(listening.heard), 60)
    assert "did not answer NegotiateResources: no answer in time" in listening.heard[0]
    assert not low.manager.partners.sessions()


def test_a_session_whose_caller_has_gone_when_it_is_established_leaves_nothing_behind() -> None:
    network, low, high = pair()
    network.lost = lambda site, call: site is high  # this test makes its calls
    answers: list[BuildAnswer] = []

    def answer(built: BuildAnswer) -> None:
        answers.append(built)
        if built.session is not None:
            built.session.lost("its connection is lost")

    low.manager.partners.build_context(
        high.partner, low.partner.cid, Rank.PRIMARY, UUID(int=7), (LOWEST, HIGHEST), "192.0.2.1", answer
    )
    (session,) = low.manager.partners.sessions()
    session.answered(PartnerCall(CallKind.BUILD, Rank.SECONDARY, UUID(int=7)), CallAnswer(Status.OK, UUID(int=7)))
    assert [built.status for built in answers] == [Status.OK] and session.is_down
    assert not low.manager.partners.sessions() and not session._timers


def test_the_pulls_of_one_host_do_not_prevent_those_of_another() -> None:
    network, low, _ = pair()
    refusals: list[MsmqError | None] = []

    def pull(number: int, source: str) -> None:
        uow, silent = number.to_bytes(16, "big"), Partner(UUID(int=1000 + number), "SILENT")
        low.manager.pull(uow, PropagationToken(uow, silent), refusals.append, source)

    for number in range(PULLS_OF_SOURCE + 1):
        pull(number, "192.0.2.1")
    assert [error.hresult for error in refusals if error is not None] == [HResult.MQ_ERROR_INSUFFICIENT_RESOURCES]
    pull(PULLS_OF_SOURCE + 1, "192.0.2.2")
    assert len(refusals) == 1
    network.run(seconds=60)
    assert len(refusals) == PULLS_OF_SOURCE + 2
    pull(PULLS_OF_SOURCE + 2, "192.0.2.1")
    assert len(refusals) == PULLS_OF_SOURCE + 2, "the share is given back"


def test_a_connection_that_the_partner_denies_is_lost_with_its_reason() -> None:
    """[MS-CMP] 2.2.5."""
    _, low, _ = pair()
    connections = Connections(RecordingCarrier(), low.manager, low.partner, ConnectionBudget())
    listening, other = RecordingListener(), RecordingListener()
    connections.granted(2, "")
    denied = connections.open(ConnectionType.CHECKABORT, lambda one: listening, MessageType.CHECK, UOW)
    connections.open(ConnectionType.CHECKABORT, lambda one: other, MessageType.CHECK, UOW)
    reason = (0x80070005).to_bytes(4, "little")
    for _ in range(2):  # the second one changes nothing
        connections.receive([Packet(PacketTag.CONNECTION_REQ_DENIED, False, denied.identifier, 0, reason)])
        assert not denied.is_open and len(listening.heard) == 1 and "0x80070005" in listening.heard[0]
    assert other.heard == []


def test_all_partners_share_a_budget_of_connections() -> None:
    _, low, _ = pair()
    budget = ConnectionBudget(2500)
    first, second = (Connections(RecordingCarrier(), low.manager, low.partner, budget) for _ in range(2))
    assert [first.grant(999), first.grant(999), first.grant(999), second.grant(999)] == [999, 999, 2, 500]
    assert second.grant(1) == 0
    first.down("gone")
    assert second.grant(999) == 999 and budget.left == 1001


def test_a_number_is_free_when_both_ends_have_closed() -> None:
    """Deviation D-219."""
    network, low, high = pair()
    opened: list[PartnerConnection] = []

    def listen(connection: PartnerConnection) -> RecordingListener:
        opened.append(connection)
        return RecordingListener()

    low.manager.open(high.partner, ConnectionType.CHECKABORT, listen, MessageType.CHECK, UOW)
    network.run(seconds=1)
    session = low.manager.partners.sessions()[0]
    assert len(session.connections) == 1
    opened[0].close()
    assert len(session.connections) == 1, "the other end has not confirmed it"
    network.run(seconds=1)
    assert len(session.connections) == 0


def test_replies_to_a_closed_session_are_ignored() -> None:
    network, low, high = pair()
    meet(network, low, high)
    session: Session = low.manager.partners.sessions()[0]
    session.lost("test")
    session.answered(PartnerCall(CallKind.SEND, session.rank), CallAnswer(0))
    session.stop()
    assert session.is_down and session.begin_tear_down() != 0


def test_a_partner_that_does_not_finish_a_teardown_is_left() -> None:
    network, low, high = pair()
    meet(network, low, high)
    network.lost = lambda site, call: call.kind is CallKind.TEAR_DOWN  # type: ignore[method-assign]
    network.run(seconds=600)
    assert states(low, high) == []
