"""The table of connection states agrees with its two conditions in any order of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msrpc.rpc.connection_states import (
    LOGIN_ANSWERED,
    LOGIN_ASKED,
    LOGIN_PENDING,
    PAUSED,
    READING,
    REPLIES_BLOCKED,
    RESUMED,
    RESUMING,
    TRANSITIONS,
    WRITE_BLOCKED,
    WRITE_UNBLOCKED,
)

EVENTS = (WRITE_BLOCKED, WRITE_UNBLOCKED, LOGIN_ASKED, LOGIN_ANSWERED, RESUMED)


@given(st.lists(st.sampled_from(EVENTS)))
def test_a_connection_is_paused_while_replies_are_blocked_or_a_login_is_pending(events: list[int]) -> None:
    state, blocked, pending = READING, False, False
    for event in events:
        state = TRANSITIONS[state][event]
        blocked = event == WRITE_BLOCKED or (blocked and event != WRITE_UNBLOCKED)
        pending = event == LOGIN_ASKED or (pending and event != LOGIN_ANSWERED)
        found = bool(state & REPLIES_BLOCKED), bool(state & LOGIN_PENDING), bool(state & PAUSED)
        assert found == (blocked, pending, blocked or pending)


@given(st.lists(st.sampled_from(EVENTS)))
def test_delayed_calls_are_served_before_more_bytes_are_read(events: list[int]) -> None:
    state = READING
    for event in events:
        before, state = state, TRANSITIONS[state][event]
        if before & PAUSED and not state & PAUSED:
            assert state == RESUMING
        if before == RESUMING and state == READING:
            assert event == RESUMED
