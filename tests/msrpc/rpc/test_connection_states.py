"""The table of connection states agrees with its two conditions in any order of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msrpc.rpc.connection_states import (
    ANSWERED,
    ASKED,
    ASKING,
    CATCHING_UP,
    CAUGHT_UP,
    DEAF,
    DEAFENED,
    HEARS,
    HELD,
    HOLDS,
    UNHELD,
)

EVENTS = (DEAFENED, HEARS, ASKED, ANSWERED, CAUGHT_UP)


@given(st.lists(st.sampled_from(EVENTS)))
def test_a_connection_is_held_while_its_peer_is_deaf_or_a_login_waits(events: list[int]) -> None:
    state, deaf, asking = UNHELD, False, False
    for event in events:
        state = HOLDS[state][event]
        deaf = event == DEAFENED or (deaf and event != HEARS)
        asking = event == ASKED or (asking and event != ANSWERED)
        assert (bool(state & DEAF), bool(state & ASKING), bool(state & HELD)) == (deaf, asking, deaf or asking)


@given(st.lists(st.sampled_from(EVENTS)))
def test_held_bytes_are_read_after_the_delayed_calls(events: list[int]) -> None:
    state = UNHELD
    for event in events:
        before, state = state, HOLDS[state][event]
        if before & HELD and not state & HELD:
            assert state == CATCHING_UP
        if before == CATCHING_UP and state == UNHELD:
            assert event == CAUGHT_UP
