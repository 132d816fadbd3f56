"""Which messages have come before."""

from hypothesis import given
from hypothesis import strategies as st

from openmsmq.transport.history import History
from transport.peers import ALICE, BOB, CAROL


def test_a_message_is_known_after_it_has_come() -> None:
    history = History()
    assert not history.seen(ALICE, 7, 0)
    history.add(ALICE, 7, 0)
    assert history.seen(ALICE, 7, 1)


def test_one_message_id_of_two_sources_is_two_messages() -> None:
    """T13."""
    history = History()
    history.add(ALICE, 7, 0)
    assert not history.seen(BOB, 7, 1)


def test_entries_are_forgotten_after_30_minutes_and_a_duplicate_renews_them() -> None:
    history = History()
    history.add(ALICE, 1, 0)
    history.add(ALICE, 2, 0)
    assert history.seen(ALICE, 1, 1_000_000)
    assert history.next_deadline == 1_800_000
    history.tick(1_800_000)
    assert len(history) == 1 and history.next_deadline == 2_800_000
    assert not history.seen(ALICE, 2, 1_800_001) and history.seen(ALICE, 1, 1_800_001)


def test_a_source_that_floods_displaces_its_own_entries() -> None:
    history = History(maximum=10)
    for number in range(4):
        history.add(ALICE, number, 0)
    for number in range(1000):
        history.add(BOB, number, 1)
    assert all(history.seen(ALICE, number, 2) for number in range(4))
    assert history.seen(BOB, 999, 2) and not history.seen(BOB, 993, 2)
    history.add(CAROL, 1, 2)
    assert len(history) == 10


sources = st.sampled_from([ALICE, BOB, CAROL])


@given(st.lists(st.tuples(sources, st.integers(0, 9), st.integers(0, 50)), max_size=60))
def test_the_table_has_a_bound_and_only_what_came_within_the_lifetime(steps: list[tuple[bytes, int, int]]) -> None:
    history = History(maximum=8, lifetime=100)
    last: dict[tuple[bytes, int], int] = {}
    now = 0
    for source, message_id, passed in steps:
        now += passed
        if history.seen(source, message_id, now):
            assert now - last[source, message_id] < 100
        else:
            history.add(source, message_id, now)
        last[source, message_id] = now
        assert history.seen(source, message_id, now) and len(history) <= 8
