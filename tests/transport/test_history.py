"""Detection of messages that were received before."""

from hypothesis import given
from hypothesis import strategies as st

from openmsmq.transport.history import DuplicateHistory
from transport.peers import ALICE, BOB, CAROL


def test_a_received_message_is_remembered() -> None:
    history = DuplicateHistory()
    assert not history.seen(ALICE, 7, 0)
    history.add(ALICE, 7, 0)
    assert history.seen(ALICE, 7, 1)


def test_one_message_id_of_two_sources_is_two_messages() -> None:
    """T13."""
    history = DuplicateHistory()
    history.add(ALICE, 7, 0)
    assert not history.seen(BOB, 7, 1)


def test_entries_are_forgotten_after_30_minutes_and_a_duplicate_renews_them() -> None:
    history = DuplicateHistory()
    history.add(ALICE, 1, 0)
    history.add(BOB, 2, 0)
    assert history.seen(ALICE, 1, 1_000_000)
    history.tick(1_800_000)
    assert len(history) == 1
    assert not history.seen(BOB, 2, 1_800_001) and history.seen(ALICE, 1, 1_800_001)
    history.tick(3_600_001)
    assert len(history) == 0


def test_everything_that_many_sessions_may_have_under_way_is_known() -> None:
    """170 senders with 64 messages each, all of which are resent after a cut."""
    history = DuplicateHistory(maximum=170 * 64)
    everything = [(sender.to_bytes(16, "little"), number) for number in range(64) for sender in range(170)]
    for source, number in everything:
        assert not history.seen(source, number, 0)
        history.add(source, number, 0)
    assert all(history.seen(source, number, 1) for source, number in everything)


def test_a_source_that_floods_displaces_its_own_entries() -> None:
    history = DuplicateHistory(maximum=1000, of_source=100)
    for number in range(40):
        history.add(ALICE, number, 0)
    for number in range(10_000):
        history.add(BOB, number, 1)
    assert all(history.seen(ALICE, number, 2) for number in range(40))
    assert history.seen(BOB, 9_999, 2) and history.seen(BOB, 9_930, 2) and not history.seen(BOB, 9_800, 2)
    assert len(history) <= 140


def test_duplicates_without_end_take_no_memory() -> None:
    history = DuplicateHistory(maximum=1000, of_source=100)
    for number in range(30):
        history.add(ALICE, number, 0)
    for round_ in range(1000):
        assert all(history.seen(ALICE, number, round_) for number in range(30))
    assert sum(len(chunk.messages) for chunk in history._sources[ALICE].chunks) <= 200


def test_above_the_source_limit_the_longest_idle_source_is_evicted() -> None:
    history = DuplicateHistory(maximum=100)
    for sender in range(100):
        history.add(sender.to_bytes(16, "little"), 1, sender)
    assert history.seen(bytes(16), 1, 100)  # its use makes it the latest
    history.add(ALICE, 1, 101)
    assert len(history) == 100 and history.seen(bytes(16), 1, 102)
    assert not history.seen((1).to_bytes(16, "little"), 1, 102)


sources = st.sampled_from([ALICE, BOB, CAROL])


@given(st.lists(st.tuples(sources, st.integers(0, 9), st.integers(0, 50)), max_size=60))
def test_the_table_has_a_bound_and_only_what_came_within_the_lifetime(steps: list[tuple[bytes, int, int]]) -> None:
    history = DuplicateHistory(maximum=8, lifetime=100)
    last: dict[tuple[bytes, int], int] = {}
    now = 0
    for source, message_id, passed in steps:
        now += passed
        if history.seen(source, message_id, now):
            assert (source, message_id) in last
        else:
            history.add(source, message_id, now)
        last[source, message_id] = now
        assert history.seen(source, message_id, now) and len(history) <= 8
        assert len(history) == sum(len(known.chunk_of) for known in history._sources.values())


def test_forgotten_entries_no_longer_count() -> None:
    history = DuplicateHistory()
    for number in range(10):
        history.add(ALICE, number, 0)
    for number in (3, 3, 4, 99):
        history.forget(ALICE, number)
    assert len(history) == 8
