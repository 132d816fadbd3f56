"""Connecting to a destination: resolving, pinging, connecting, waiting."""

from itertools import product

import pytest

from openmsmq.transport.connecting import Connect, ConnectMachine, ConnectPing, ConnectState, NextHop, Resolve
from transport.peers import ALICE, BOB

HOPS = [NextHop("192.0.2.1", "bob", BOB), NextHop("192.0.2.2", "alice", ALICE)]


def connecting(ping: bool = False) -> ConnectMachine:
    reaching = ConnectMachine(ping)
    assert reaching.messages_wait(0) == Resolve()
    reaching.resolved(HOPS, 0)
    if ping:
        reaching.pinged(True, 0)
    assert reaching.state is ConnectState.CONNECTING
    return reaching


def test_waiting_messages_cause_a_connection() -> None:
    reaching = ConnectMachine()
    assert reaching.messages_wait(0) == Resolve()
    assert reaching.messages_wait(1) is None
    assert reaching.resolved(HOPS, 2) == Connect(HOPS[0], without_ping=True)
    assert reaching.connected(3) is None
    assert (reaching.state, reaching.hop, reaching.next_deadline) == (ConnectState.CONNECTED, HOPS[0], None)


def test_hops_are_tried_in_turn_every_5_seconds_and_then_resolved_again() -> None:
    reaching = connecting()
    assert reaching.failed(1_000) is None and reaching.state is ConnectState.WAITING_RECONNECT
    assert reaching.tick(5_999) is None
    assert reaching.tick(6_000) == Connect(HOPS[1], without_ping=True)
    reaching.failed(7_000)
    assert reaching.tick(12_000) == Resolve()
    assert reaching.resolved(HOPS, 12_000) == Connect(HOPS[0], without_ping=True)


def test_a_destination_that_is_not_resolved_is_tried_again() -> None:
    reaching = ConnectMachine()
    reaching.messages_wait(0)
    assert reaching.resolved([], 100) is None and reaching.state is ConnectState.WAITING_RECONNECT
    assert reaching.tick(5_100) == Resolve()


def test_a_session_that_ends_is_opened_again_if_messages_wait() -> None:
    """T2, the second attempt."""
    reaching = connecting()
    reaching.connected(10)
    reaching.ended(True, 20)
    assert reaching.tick(5_020) == Connect(HOPS[1], without_ping=True)
    reaching.connected(5_030)
    reaching.ended(False, 6_000)
    assert reaching.state is ConnectState.IDLE and reaching.next_deadline is None
    assert reaching.messages_wait(7_000) == Resolve()


def test_a_ping_comes_before_the_first_attempt_only() -> None:
    reaching = ConnectMachine(ping=True)
    reaching.messages_wait(0)
    assert reaching.resolved(HOPS, 0) == ConnectPing(HOPS[0])
    assert reaching.pinged(True, 10) == Connect(HOPS[0], without_ping=False)
    reaching.failed(20)
    assert reaching.tick(5_020) == Connect(HOPS[1], without_ping=True)


def test_a_retry_is_never_pinged_and_messages_that_come_later_are_again() -> None:
    """3.1.5.2.2: no ping after the Session Retry Connect Timer, or a host that ignores pings would never be reached."""
    reaching = ConnectMachine(ping=True)
    reaching.messages_wait(0)
    reaching.resolved(HOPS[:1], 0)
    reaching.pinged(False, 1_000)
    assert reaching.tick(6_000) == Resolve()
    assert reaching.resolved(HOPS, 6_000) == Connect(HOPS[0], without_ping=True)
    reaching.connected(6_010)
    reaching.ended(False, 7_000)
    reaching.messages_wait(8_000)
    assert reaching.resolved(HOPS, 8_000) == ConnectPing(HOPS[0])


@pytest.mark.parametrize("answered", [True, False])
def test_a_ping_that_is_refused_or_not_answered_is_a_failed_attempt(answered: bool) -> None:
    reaching = ConnectMachine(ping=True)
    reaching.messages_wait(0)
    reaching.resolved(HOPS, 0)
    assert (reaching.pinged(False, 1_000) if answered else reaching.tick(1_000)) is None
    assert reaching.state is ConnectState.WAITING_RECONNECT and reaching.next_deadline == 6_000


def in_every_state() -> dict[ConnectState, ConnectMachine]:
    idle, resolving, pinging, waiting, connected = (
        ConnectMachine(),
        ConnectMachine(),
        ConnectMachine(True),
        connecting(),
        connecting(),
    )
    for reaching in (resolving, pinging):
        reaching.messages_wait(0)
    pinging.resolved(HOPS, 0)
    waiting.failed(0)
    connected.connected(0)
    found = {reaching.state: reaching for reaching in (idle, resolving, pinging, connecting(), connected, waiting)}
    assert set(found) == set(ConnectState)
    return found


@pytest.mark.parametrize("state", ConnectState, ids=lambda state: state.name)
def test_a_hold_ends_every_attempt(state: ConnectState) -> None:
    reaching = in_every_state()[state]
    reaching.nothing_waits(1)
    assert reaching.state is ConnectState.IDLE and reaching.next_deadline is None


LATE = {
    "resolved": (ConnectState.RESOLVING, lambda reaching: reaching.resolved(HOPS, 9)),
    "pinged": (ConnectState.PINGING, lambda reaching: reaching.pinged(True, 9)),
    "connected": (ConnectState.CONNECTING, lambda reaching: reaching.connected(9)),
    "failed": (ConnectState.CONNECTING, lambda reaching: reaching.failed(9)),
}


@pytest.mark.parametrize(("answer", "state"), list(product(LATE, ConnectState)))
def test_late_replies_change_nothing(answer: str, state: ConnectState) -> None:
    expected, call = LATE[answer]
    if state is not expected:
        reaching = in_every_state()[state]
        deadline, hop = reaching.next_deadline, reaching.hop
        assert call(reaching) is None
        assert (reaching.state, reaching.next_deadline, reaching.hop) == (state, deadline, hop)
