"""Positions and claims of consumer groups: docs/bulk.md."""

from __future__ import annotations

import pytest

from openmsmq.model.constants import Access, Acknowledge, ReceiveAction
from openmsmq.model.errors import HResult, IllegalPropertyValue, QueueDeleted
from openmsmq.model.lookup_id import lookup_id, sequence_of
from openmsmq.model.security import SecurityDescriptor
from openmsmq.queueing.consumer_group import BatchLimits
from openmsmq.queueing.records import deadline_word
from openmsmq.store import Insert, Put
from queueing.pipeline import claim, claimed, commit, crashed, done, finalize, source, stage
from queueing.world import ALICE, BOB, World, refused

SEQUENCE = HResult.MQ_ERROR_TRANSACTION_SEQUENCE


def fill(world: World, labels: str, name: str = "q", **values: int) -> list[int]:
    """Send messages; return their sequences."""
    sequences = []
    for label in labels:
        world.send(name, label, **{"delivery_guarantee": 1, **values})
        sequences.append(world.manager.changes.sequence)
    return sequences


# -- the last stable sequence ----------------------------------------------------------------------------------


def test_without_pending_work_all_numbers_given_out_are_stable(world: World) -> None:
    fill(world, "abc")
    assert world.manager.consumer_groups.last_stable(world.queue()) == world.manager.changes.sequence


def test_an_uncommitted_send_holds_back_its_queue_only(world: World) -> None:
    world.create("x", TRANSACTION=1)
    transaction = world.begin()
    (before,) = fill(world, "a")
    world.send("x", "late", transaction)
    fill(world, "b")
    assert world.manager.consumer_groups.last_stable(world.queue("x")) == before
    assert world.manager.consumer_groups.last_stable(world.queue()) == world.manager.changes.sequence
    world.manager.transactions.commit(transaction)
    assert world.manager.consumer_groups.last_stable(world.queue("x")) == world.manager.changes.sequence


@pytest.mark.parametrize("how", ["transaction", "two phases", "claim", "prepared"])
def test_locked_messages_are_not_stable(world: World, how: str) -> None:
    world.create("x", TRANSACTION=1)
    transaction = world.begin(5)
    for label in "ab":
        world.send("x", label, transaction)
    world.manager.transactions.commit(transaction)
    queue = world.queue("x")
    first = sequence_of(next(iter(queue.available)))
    if how == "claim":
        claim(world, 0, queue="x")
    elif how == "two phases":
        world.read(world.open("x"), two_phase=True)
    else:
        reader = world.begin()
        world.read(world.open("x"), transaction=reader)
        if how == "prepared":
            world.manager.transactions.prepare(reader)
            world.restart()
    assert world.manager.consumer_groups.last_stable(world.queue("x")) == first - 1


def test_a_staged_message_is_not_stable_before_its_batch_is_finalized(world: World) -> None:
    (before,) = fill(world, "a")
    made = stage(world, 0, "b")
    fill(world, "c")
    assert before <= world.manager.consumer_groups.last_stable(world.queue()) < world.manager.changes.sequence - 1
    assert claimed(claim(world, 0)) == ["a"]
    finalize(world, 0, made)
    assert claimed(claim(world, before)) == ["b", "c"]


# -- claims ----------------------------------------------------------------------------------------------------


def test_a_claim_takes_all_priorities_in_the_order_of_arrival_and_hides_them(world: World) -> None:
    for index, label in enumerate("abcd"):
        fill(world, label, priority=index * 2)
    group = claim(world, 0)
    assert claimed(group) == list("abcd")
    assert world.labels() == []
    assert world.read(world.open()).status == HResult.MQ_ERROR_IO_TIMEOUT


def test_limits_of_messages_and_bytes_end_a_claim_and_one_message_is_always_taken(world: World) -> None:
    sequences = fill(world, "abcde")
    group = claim(world, 0, 2)
    assert (claimed(group), group.end) == (["a", "b"], sequences[1])
    commit(world, group.end)
    group = done(world.manager.consumer_groups.claim(world.queue(), "g", group.end, BatchLimits(bytes=1)))
    assert claimed(group) == ["c"]


def test_the_same_claim_gives_the_same_range_and_a_new_token_fences_the_old(world: World) -> None:
    fill(world, "ab")
    token = claim(world, 0, 1).token
    fill(world, "c")
    again = claim(world, 0, 5)
    assert claimed(again) == ["a"] and again.token != token
    with refused(SEQUENCE):
        world.manager.consumer_groups.group(world.queue(), "g", token)
    assert world.manager.consumer_groups.group(world.queue(), "g", again.token) is again


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_claim_survives_a_restart(world: World, checkpoint: bool) -> None:
    fill(world, "a")
    fill(world, "E", delivery_guarantee=0)
    fill(world, "bc")
    before = claim(world, 0, 9)
    world.restart(checkpoint)
    group = world.manager.consumer_groups.group(world.queue(), "g", before.token)
    assert group is not None
    assert claimed(group) == ["a", "b", "c"] and group.end == before.end
    assert world.labels() == []
    commit(world, group.end)
    world.restart(checkpoint)
    assert not world.queue().entries
    found = world.manager.consumer_groups.group(world.queue(), "g")
    assert found is not None and found.cursor == group.end


def test_a_claim_after_the_previous_one_commits_it(world: World) -> None:
    world.manager.administration.set_properties(world.queue(), {104: 1}, ALICE)  # PROPID_Q_JOURNAL
    fill(world, "abcd")
    first = claim(world, 0, 2)
    second = claim(world, first.end)
    assert claimed(second) == ["c", "d"]
    journal = world.queue().journal
    assert journal is not None and world.labels(journal) == ["a", "b"]


def test_a_claim_from_within_the_previous_one_commits_a_part_and_reclaims_the_rest(world: World) -> None:
    sequences = fill(world, "abc")
    claim(world, 0)
    group = claim(world, sequences[0], 1)
    assert claimed(group) == ["b"] and world.labels() == ["c"]


def test_a_claim_before_the_cursor_is_refused(world: World) -> None:
    group = claim(world, fill(world, "ab")[1])
    with refused(SEQUENCE):
        claim(world, group.cursor - 1)


def test_nothing_to_claim_is_an_empty_range_that_writes_nothing_twice(world: World) -> None:
    group = claim(world, 0)
    assert (group.keys, group.end) == ([], 0)
    position = world.store.end
    claim(world, 0)
    assert world.store.end == position


def test_two_groups_do_not_get_the_same_message(world: World) -> None:
    sequences = fill(world, "ab")
    claim(world, 0, 1)
    assert claimed(claim(world, 0, name="h")) == []
    commit(world, sequences[0])
    assert claimed(claim(world, sequences[0], name="h")) == ["b"]


def test_commit_acknowledges_and_is_idempotent(world: World) -> None:
    world.create("admin")
    world.send(
        label="a", delivery_guarantee=1, acknowledgements_requested=int(Acknowledge.POS_RECEIVE),
        administration_queue_format_name="DIRECT=OS:.\\private$\\admin",
    )  # fmt: skip
    group = claim(world, 0)
    end = group.end
    commit(world, end)
    commit(world, end)
    commit(world, 0)
    assert world.labels("admin") == ["a"]
    with refused(SEQUENCE):
        commit(world, end + 1)


@pytest.mark.parametrize("restart", [None, "log", "checkpoint"])
@pytest.mark.parametrize("how", ["send", "transaction", "stage", "sealed stage"])
def test_requested_receipts_are_sent_for_claimed_messages_of_every_kind(
    world: World, how: str, restart: str | None
) -> None:
    world.create("admin")
    world.create("x", TRANSACTION=1)
    name = "x" if how == "transaction" else "q"
    asking = {
        "acknowledgements_requested": int(Acknowledge.POS_RECEIVE),
        "administration_queue_format_name": "DIRECT=OS:.\\private$\\admin",
    }
    transaction = world.begin() if how == "transaction" else None
    staged = []
    for label, values in (("a", {}), ("b", asking), ("c", {})):
        if "stage" in how:
            staged.append(stage(world, 0, label, name, **values))
        else:
            world.send(name, label, transaction, delivery_guarantee=1, **values)
    if transaction is not None:
        world.manager.transactions.commit(transaction)
    if how == "sealed stage":
        world.restart()
    if staged:
        finalize(world, 0, *staged)
    if restart:
        world.restart(checkpoint=restart == "checkpoint")
    end = claim(world, 0, queue=name).end
    commit(world, end, queue=name)
    assert world.labels("admin") == ["b"] and not world.queue(name).entries and not world.queue(name).asking


def test_a_released_claim_is_available_again_and_its_token_fenced(world: World) -> None:
    fill(world, "ab")
    token = claim(world, 0).token
    group = world.manager.consumer_groups.group(world.queue(), "g")
    assert group is not None
    waiting = world.wait(world.open(), ReceiveAction.PEEK_CURRENT)
    assert done(world.manager.consumer_groups.release_claim(group)) == 2
    assert world.labels() == ["a", "b"] and waiting.label == "a"
    with refused(SEQUENCE):
        world.manager.consumer_groups.group(world.queue(), "g", token)
    world.restart()
    assert world.labels() == ["a", "b"]


def test_a_forgotten_group_no_longer_exists(world: World) -> None:
    group = claim(world, 0)
    done(world.manager.consumer_groups.release_claim(group, forget=True))
    world.restart()
    assert world.manager.consumer_groups.group(world.queue(), "g") is None


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("end", ["commit", "release"])
def test_a_claimed_message_that_expires_is_received_or_expires_when_put_back(
    world: World, end: str, restart: bool
) -> None:
    fill(world, "a", time_to_be_received=1, journaling_requested=1)
    group = claim(world, 0)
    world.advance(5000)
    world.restart(checkpoint=restart)
    world.advance(1)
    found = world.manager.consumer_groups.group(world.queue(), "g")
    assert found is not None and claimed(found) == ["a"]
    if end == "commit":
        commit(world, group.end)
    else:
        done(world.manager.consumer_groups.release_claim(found))
        assert world.labels(world.registry.dead_letters) == ["a"]
    assert not world.queue().entries


def test_a_purge_reaches_what_is_claimed_when_it_is_put_back(world: World) -> None:
    fill(world, "a")
    group = claim(world, 0)
    world.manager.reading.purge(world.open())
    assert claimed(group) == ["a"]
    done(world.manager.consumer_groups.release_claim(group))
    assert not world.queue().entries


def test_a_deleted_queue_takes_its_groups_along(world: World) -> None:
    fill(world, "a")
    group = claim(world, 0)
    world.manager.administration.delete_queue(world.queue(), ALICE)
    with pytest.raises(QueueDeleted):
        done(world.manager.consumer_groups.commit_claim(group, group.end))
    world.restart()
    assert not list(world.manager.consumer_groups.by_queue())


def test_a_full_disk_changes_nothing(world: World) -> None:
    fill(world, "ab")
    world.store.full = True
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        claim(world, 0)
    assert world.labels() == ["a", "b"]
    world.store.full = False
    group = claim(world, 0)
    world.store.full = True
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        commit(world, group.end)
    assert claimed(group) == ["a", "b"] and group.cursor == 0


def test_a_message_moved_into_the_range_of_a_claim_stays_out_of_it(world: World) -> None:
    *_, last = fill(world, "abc")
    source, target = world.open(), world.open("q;s", Access.MOVE)
    world.manager.subqueues.move(source, target, list(world.queue().available)[1])
    group = claim(world, 0)
    back, into = world.open("q;s"), world.open("q", Access.MOVE)
    world.manager.subqueues.move(back, into, next(iter(world.queue("q;s").available)))
    assert claimed(group) == ["a", "c"] and group.end == last
    world.restart()
    commit(world, last)
    assert world.labels() == ["b"]


@pytest.mark.parametrize("start", [-1, 1 << 56])
def test_invalid_positions_are_refused(world: World, start: int) -> None:
    with pytest.raises(IllegalPropertyValue):
        claim(world, start)


def test_claiming_needs_the_right_to_receive(world: World) -> None:
    world.create("closed")
    world.manager.administration.set_security(world.queue("closed"), 4, _nobody(), ALICE)
    with refused(HResult.MQ_ERROR_ACCESS_DENIED):
        source(world, "closed", "queue", BOB, Access.RECEIVE)


def _nobody() -> bytes:
    return SecurityDescriptor(owner=ALICE.sid, group=ALICE.sid, dacl=()).pack()


# -- dividing ----------------------------------------------------------------------------------------------------


def test_a_range_divides_into_parts_of_equal_count_without_gaps(world: World) -> None:
    sequences = fill(world, "abcdefg")
    end, ranges = done(
        world.manager.consumer_groups.divide(world.queue(), 0, world.manager.changes.sequence, 3, BatchLimits())
    )
    assert [count for _, _, count, _ in ranges] == [3, 3, 1]
    assert [start for start, *_ in ranges] == [0, sequences[2], sequences[5]]
    assert end == ranges[-1][1] == world.manager.changes.sequence
    assert all(volume > 0 for *_, volume in ranges)


def test_a_limit_ends_the_range_at_the_last_message_within_it(world: World) -> None:
    sequences = fill(world, "abcdefg")
    end, ranges = done(
        world.manager.consumer_groups.divide(world.queue(), sequences[0], sequences[-1], 2, BatchLimits(4))
    )
    assert (end, [count for _, _, count, _ in ranges]) == (sequences[4], [2, 2])
    end, ranges = done(world.manager.consumer_groups.divide(world.queue(), 0, sequences[-1], 2, BatchLimits(bytes=1)))
    assert (end, len(ranges)) == (sequences[0], 1)


@pytest.mark.parametrize(("messages", "spare", "taken"), [(9, 0, 3), (9, -1, 2), (9, 1, 3), (2, 0, 2), (3, 0, 3)])
def test_claims_and_ranges_end_where_the_first_limit_is_reached(
    world: World, messages: int, spare: int, taken: int
) -> None:
    sequences = fill(world, "abcdefg")
    queue = world.queue()
    each = queue.volume_of(queue.heads(1))
    limits = BatchLimits(messages, 3 * each + spare)
    end, ranges = done(world.manager.consumer_groups.divide(queue, 0, sequences[-1], 1, limits))
    assert (end, ranges) == (sequences[taken - 1], [(0, end, taken, taken * each)])
    group = done(world.manager.consumer_groups.claim(queue, "g", 0, limits))
    assert (claimed(group), group.end) == (list("abcdefg"[:taken]), end)


def test_claims_and_queues_are_divided_alike_regardless_of_priorities(world: World) -> None:
    for number in range(40):
        world.send(label=str(number), priority=number % 8)
    keys = sorted(world.queue().entries, key=sequence_of)
    sequences = [sequence_of(key) for key in keys]
    for start, end in ((0, 39), (0, 20), (7, 8), (13, 39), (39, 39)):
        low, high = (sequences[start] - 1, sequences[end]) if start < 39 else (sequences[end], sequences[end])
        expected = sum(low < sequence <= high for sequence in sequences)
        assert world.queue().count_within(low, high) == expected
        _, ranges = done(world.manager.consumer_groups.divide(world.queue(), low, high, 3, BatchLimits()))
        assert sum(count for _, _, count, _ in ranges) == expected
    whole = done(world.manager.consumer_groups.divide(world.queue(), 0, sequences[-1], 3, BatchLimits()))
    claim(world, 0)
    group = world.manager.consumer_groups.group(world.queue(), "g")
    assert done(world.manager.consumer_groups.divide(world.queue(), 0, sequences[-1], 3, BatchLimits(), group)) == whole


# -- crashes -----------------------------------------------------------------------------------------------------


def test_a_crash_in_the_middle_of_a_commit_leaves_the_rest_of_the_claim(world: World) -> None:
    count = 1300  # three steps
    for number in range(count):
        world.send(label=str(number), delivery_guarantee=1)
    end = claim(world, 0).end
    world.store.sync()
    (group,) = world.manager.consumer_groups.groups(world.queue())
    steps = world.manager.consumer_groups.commit_claim(group, end)
    going, seen = True, set()
    while going:
        going = next(steps, "over") is None
        for other in crashed(world):
            found = other.manager.consumer_groups.group(other.queue(), "g")
            assert found is not None
            rest = list(map(int, claimed(found)))
            assert rest == list(range(count - len(rest), count))
            assert not rest or found.cursor == 0
            seen.add(len(rest))
            commit(other, end)
            assert not other.queue().entries and found.cursor == end
    assert {count, 0} < seen


def test_a_crash_in_the_middle_of_a_commit_neither_loses_nor_duplicates_a_message(world: World) -> None:
    world.manager.administration.set_properties(world.queue(), {104: 1}, ALICE)
    count = 150  # five steps
    for number in range(count):
        world.send(label=str(number), delivery_guarantee=1)
    group = claim(world, 0)
    end = group.end
    world.store.sync()
    steps = world.manager.consumer_groups.commit_claim(group, end)
    going = True
    while going:
        going = next(steps, "over") is None
        for other in crashed(world):
            journal = other.queue().journal
            found = other.manager.consumer_groups.group(other.queue(), "g")
            assert journal is not None and found is not None
            everything = sorted(map(int, claimed(found) + other.labels(journal)))
            assert everything == list(range(count))
            commit(other, end)
            assert sorted(map(int, other.labels(journal))) == list(range(count))
            assert not other.queue().entries and found.cursor == end


# -- records that can't be decoded -----------------------------------------------------------------------------


def spoil(world: World, payload: bytes) -> int:
    """Store an undecodable record, as an older version may have done. Return its sequence."""
    sequence = world.manager.changes.next_sequence()
    key = 4 << 56 | sequence
    world.manager.store.append([Insert(world.queue().number, sequence, deadline_word(key, 0), payload)])
    world.restart()
    return sequence


@pytest.mark.parametrize("journal", [0, 1])
@pytest.mark.parametrize("payload", [b"", b"short", bytes(300), b"\x01" + b"\xff" * 299])
def test_a_record_that_cannot_be_decoded_is_claimed_and_committed_like_any_other(
    world: World, payload: bytes, journal: int, caplog: pytest.LogCaptureFixture
) -> None:
    world.manager.administration.set_properties(world.queue(), {104: journal}, ALICE)  # PROPID_Q_JOURNAL
    fill(world, "a")
    spoil(world, payload)
    (last,) = fill(world, "b")
    assert len(claim(world, 0).keys) == 3
    commit(world, last)
    assert len(world.queue()) == 0
    copies = world.queue().journal
    assert copies is not None and world.labels(copies) == (["a", "b"] if journal else [])
    assert not journal or "can't be decoded" in caplog.text
    world.restart()
    assert len(world.queue()) == 0


@pytest.mark.parametrize("payload", [b"short", bytes(300)])
def test_a_claim_with_a_record_that_cannot_be_decoded_can_be_released(world: World, payload: bytes) -> None:
    fill(world, "a")
    spoil(world, payload)
    group = claim(world, 0)
    assert done(world.manager.consumer_groups.release_claim(group)) == 2
    assert len(world.queue().available) == 2


# -- offsets and claims of others ------------------------------------------------------------------------------


def test_an_offset_beyond_every_number_that_was_given_is_an_error_that_names_both(world: World) -> None:
    """Such an offset is in a checkpoint newer than the backup from which the queue manager was restored."""
    fill(world, "ab")
    highest = world.manager.changes.sequence
    assert len(claim(world, highest, name="other").keys) == 0
    for ahead in (highest + 1, highest + 70_000):
        for operation in (
            lambda start=ahead: claim(world, start),
            lambda start=ahead: done(
                world.manager.consumer_groups.divide(world.queue(), start, start, 1, BatchLimits())
            ),
        ):
            with refused(SEQUENCE) as caught:
                operation()
            assert str(ahead) in caught.value.detail and str(highest) in caught.value.detail
    assert [one.name for one in world.manager.consumer_groups.groups(world.queue())] in ([], ["other"])


def test_a_claim_and_a_commit_with_a_fenced_token_are_refused(world: World) -> None:
    fill(world, "abc")
    first = claim(world, 0)
    token = first.token
    claim(world, 0)
    for operation in (
        lambda: done(world.manager.consumer_groups.claim(world.queue(), "g", 0, BatchLimits(), token)),
        lambda: world.manager.consumer_groups.group(world.queue(), "g", token),
    ):
        with refused(SEQUENCE):
            operation()
    assert done(world.manager.consumer_groups.claim(world.queue(), "g", 0, BatchLimits(), first.token)).keys


def test_a_full_disk_leaves_no_group(world: World) -> None:
    fill(world, "ab")
    world.store.full = True
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        claim(world, 0)
    assert not world.manager.consumer_groups.groups(world.queue()) and not world.queue().pins
    assert len(world.queue().available) == 2


@pytest.mark.parametrize("restart", [False, True])
def test_a_subqueue_stays_as_long_as_it_has_a_consumer_group(world: World, restart: bool) -> None:
    (last,) = fill(world, "a")
    target = world.open("q;s", Access.MOVE)
    world.manager.subqueues.move(world.open(), target, next(iter(world.queue().entries)))
    world.manager.handles.close_queue(target)
    subqueue = world.queue().subqueues["s"]
    (group,) = [done(world.manager.consumer_groups.claim(subqueue, "g", 0, BatchLimits()))]
    done(world.manager.consumer_groups.commit_claim(group, last))
    assert source(world, ".\\private$\\q;s", "queue", ALICE) is subqueue
    if restart:
        world.restart()
    subqueue = world.queue().subqueues["s"]
    again = world.manager.consumer_groups.group(subqueue, "g")
    assert again is not None and again.cursor == last
    assert not done(world.manager.consumer_groups.claim(subqueue, "g", last, BatchLimits())).keys
    done(world.manager.consumer_groups.release_claim(again, forget=True))
    assert subqueue.number not in world.registry.queues and not world.queue().subqueues
    world.restart()
    assert not world.queue().subqueues


def test_a_group_whose_queue_is_gone_is_forgotten_at_the_start(world: World) -> None:
    fill(world, "a")
    group = claim(world, 0)
    world.manager.store.append([Put(b"group/4711/g", group.encode(0, [], 0))])
    world.restart()
    world.restart()
    assert [name for name in world.manager.store.definitions if name.startswith(b"group/")] == [group.definition]


def test_the_bytes_of_what_was_claimed_are_given_back(world: World) -> None:
    fill(world, "abc")
    queue = world.queue()
    before = queue.total_bytes
    claim(world, 0)
    assert queue.total_bytes == before > 0
    commit(world, world.manager.changes.sequence)
    assert queue.total_bytes == 0 and not queue.entries


def test_the_ends_of_a_queue_are_the_first_and_the_last_of_each_priority(world: World) -> None:
    queue = world.queue()
    assert queue.ends() == []
    for priority in (7, 3, 3, 3):
        world.send("q", "x", priority=priority)
    high, first, _, last = queue.available
    assert queue.ends() == [high, high, first, last]
    queue.available.add(lookup_id(7, 1))  # the first valid number
    assert queue.ends() == [lookup_id(7, 1), high, first, last]


def test_only_recovered_messages_without_effects_are_removed_together(world: World) -> None:
    world.create("x", TRANSACTION=1)
    for number, label in enumerate("ab", 10):
        transaction, asked = world.begin(number), int(Acknowledge.POS_RECEIVE) if label == "b" else 0
        world.send("x", label, transaction, acknowledgements_requested=asked)
        world.manager.transactions.commit(transaction)
    reader = world.begin()
    world.read(world.open("x"), transaction=reader)
    world.manager.transactions.abort(reader)
    world.send(label="plain", delivery_guarantee=1)
    world.restart()
    for name, plain in (("x", [False, False]), ("q", [True])):
        queue = world.queue(name)
        places = world.manager.consumer_groups._locations_without_effects(queue, list(queue.available))
        assert [place is not None for place in places] == plain, name


def test_claimed_messages_after_a_position_are_divided_evenly() -> None:
    world = World()
    world.create("q")
    for label in "abcdef":
        world.send("q", label)
    group = claim(world, 0)
    start, end = sequence_of(group.keys[1]), sequence_of(group.keys[-1])
    _, ranges = done(world.manager.consumer_groups.divide(world.queue(), start, end, 2, BatchLimits(), group))
    assert [count for _, _, count, _ in ranges] == [2, 2]


def test_a_claim_has_no_messages_that_expired_when_the_clock_stepped_forward(world: World) -> None:
    """[MS-MQDMPR] 3.1.7.2.7: their timer is late, because it waits for a duration."""
    fill(world, "a", time_to_be_received=5)
    fill(world, "b")
    world.step(6000)
    assert claimed(claim(world, 0)) == ["b"]
