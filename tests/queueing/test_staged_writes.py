"""Stages and their finalization: docs/bulk.md."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import replace

import pytest

from openmsmq.model.constants import MAXIMUM_MESSAGE_SIZE, Acknowledge, Journal, PropId
from openmsmq.model.errors import HResult, IllegalPropertyValue
from openmsmq.queueing.staged_writes import LAST_BATCH
from openmsmq.queueing.stages import Stage, parse_note
from openmsmq.store import Put
from queueing.pipeline import claim, commit, crashed, draft, finalize, stage
from queueing.world import ALICE, BOB, MACHINE, World, next_to_transfer, refused

SEQUENCE = HResult.MQ_ERROR_TRANSACTION_SEQUENCE


@pytest.mark.parametrize("restart", [False, True])
def test_a_stage_is_invisible_until_it_is_finalized_once(world: World, restart: bool) -> None:
    first, second = stage(world, 0, "abc"), stage(world, 0, "de")
    abandoned = stage(world, 0, "x")
    assert world.labels() == [] and len(world.queue()) == 0
    if restart:
        world.restart(checkpoint=True)
    finalize(world, 0, first, second)
    finalize(world, 0, first, second, abandoned)
    assert world.labels() == list("abcde")
    assert not world.manager.staged_writes.stages()
    world.restart()
    assert world.labels() == list("abcde") and not world.manager.staged_writes.stages()
    assert world.manager.sinks.last_batch("s") == 0


def test_an_older_batch_and_a_stage_that_is_not_there_are_refused(world: World) -> None:
    finalize(world, 5, stage(world, 5, "a"))
    with refused(SEQUENCE):
        finalize(world, 4)
    with refused(SEQUENCE):
        stage(world, 4, "b")
    wrong = stage(world, 7, "c")
    with refused(SEQUENCE):
        finalize(world, 6, wrong)
    assert world.labels() == ["a"] and world.manager.sinks.last_batch("s") == 5


def test_stages_of_earlier_batches_are_dropped_when_a_later_one_is_finalized(world: World) -> None:
    stage(world, 0, "a")
    later = stage(world, 2, "z")
    finalize(world, 1)
    assert [one.handle for one in world.manager.staged_writes.stages()] == [later.handle]
    world.restart()
    assert [one.handle for one in world.manager.staged_writes.stages()] == [later.handle]


def test_stages_are_forgotten_on_demand(world: World) -> None:
    kept, gone = stage(world, 0, "a"), stage(world, 1, "b")
    assert world.manager.staged_writes.forget("s", 1, None, ALICE) == 1
    world.restart()
    assert [one.handle for one in world.manager.staged_writes.stages()] == [kept.handle]
    assert world.manager.staged_writes.forget("s", None, [gone.handle], ALICE) == 0
    assert world.manager.staged_writes.forget("s", None, None, ALICE) == 1
    assert not world.manager.staged_writes.stages()


def test_a_stage_that_was_not_sealed_does_not_survive(world: World) -> None:
    made = world.manager.staged_writes.begin("s", 0, 0, "0", ALICE)
    world.restart()
    assert made not in world.manager.staged_writes.stages()


def test_messages_of_a_transactional_queue_are_those_of_one_transaction(world: World) -> None:
    world.create("x", TRANSACTION=1)
    finalize(world, 0, stage(world, 0, "abc", "x", priority=7, delivery_guarantee=0))
    messages = world.messages(world.queue("x"))
    assert [(m.first_in_transaction, m.last_in_transaction) for m in messages] == [
        (True, False), (False, False), (False, True),
    ]  # fmt: skip
    assert len({m.transaction_identifier for m in messages}) == 1
    assert all(m.is_transactional and m.priority == 0 and m.recoverable for m in messages)


def test_a_finalized_message_has_identity_arrives_and_lives_as_any_other(world: World) -> None:
    world.create("admin")
    made = stage(
        world, 0, "a", priority=5, time_to_be_received=10,
        journaling_requested=int(Journal.JOURNAL | Journal.DEADLETTER),
        acknowledgements_requested=int(Acknowledge.POS_ARRIVAL),
        administration_queue_format_name="DIRECT=OS:.\\private$\\admin",
    )  # fmt: skip
    assert world.labels(world.registry.system_journal) == []
    world.restart()
    finalize(world, 0, made)
    (message,) = world.messages(world.queue())
    assert message.id.endswith(f"\\{message.sequence}") and message.sent_time == world.now // 1000
    assert message.lookup_identifier >> 56 == 2
    assert world.labels(world.registry.system_journal) == ["a"] == world.labels("admin")
    world.advance(11_000)
    assert world.labels() == [] and world.labels(world.registry.dead_letters) == ["a"]


@pytest.mark.parametrize("transactional", [0, 1])
def test_the_receipt_of_a_finalized_message_is_acknowledged(world: World, transactional: int) -> None:
    world.create("to", TRANSACTION=transactional)
    world.create("admin")
    made = stage(
        world, 0, "ab", ["to"], acknowledgements_requested=int(Acknowledge.POS_RECEIVE),
        administration_queue_format_name="DIRECT=OS:.\\private$\\admin",
    )  # fmt: skip
    finalize(world, 0, made)
    commit(world, claim(world, 0, queue="to").end, queue="to")
    world.turn()
    assert world.labels("to") == [] and world.labels("admin") == ["a", "b"]


def test_a_waiting_reader_gets_what_is_finalized(world: World) -> None:
    made = stage(world, 0, "a")
    reader = world.wait(world.open())
    finalize(world, 0, made)
    assert reader.label == "a"


def test_a_row_that_does_not_fit_is_refused_and_the_quota_counts_what_is_staged(world: World) -> None:
    world.create("small", QUOTA=1)
    stage(world, 0, "a", ["small"], body=bytes(600))
    with refused(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES):
        stage(world, 0, "b", ["small"], body=bytes(600))


FULL, LARGE = HResult.MQ_ERROR_INSUFFICIENT_RESOURCES, MAXIMUM_MESSAGE_SIZE


def offer(
    world: World, made: Stage, queues: str, sizes: Sequence[int], *, last: bool = False, collect: bool = True
) -> list[tuple[int, int]]:
    """Stage rows with bodies of these sizes, for the queues in turn. Return positions and HRESULTs of refused rows."""
    targets = [world.manager.staged_writes.target(queue, False, ALICE) for queue in queues]
    drafts = []
    for place, size in enumerate(sizes):
        target = targets[place % len(targets)]
        drafts.append(draft(target, label=f"{size}", body=bytes(size)))
    told = world.manager.staged_writes.stage(made, drafts, last=last, collect=collect)
    return [(refusal.place, refusal.error.hresult) for refusal in told]


@pytest.mark.parametrize("quota", ["of the queue", "of the machine"])
def test_refused_rows_are_reported_and_the_others_are_staged_in_order(quota: str) -> None:
    world = World(replace(MACHINE, quota=4) if quota == "of the machine" else MACHINE)
    world.create(**({"QUOTA": 4} if quota == "of the queue" else {}))
    made = world.manager.staged_writes.begin("s", 0, 0, "0", ALICE)
    assert offer(world, made, "q", [1, LARGE, 2, 4000, 3]) == [(1, FULL), (3, FULL)]
    assert offer(world, made, "q", [1000, 4, 3000, 5], last=True) == [(2, FULL)]
    world.manager.staged_writes.seal(made)
    assert made.rows == 6
    finalize(world, 0, made)
    assert world.labels() == ["1", "2", "3", "1000", "4", "5"]


def test_without_collecting_the_first_refusal_is_reported_and_no_row_is_stored(world: World) -> None:
    made = world.manager.staged_writes.begin("s", 0, 0, "0", ALICE)
    assert offer(world, made, "q", [1, LARGE, LARGE], collect=False) == [(1, FULL)]
    assert made.rows == 0 and not made.messages and not made.volume


def test_rows_for_a_queue_that_was_deleted_meanwhile_are_refused(world: World) -> None:
    world.create("r")
    made = world.manager.staged_writes.begin("s", 0, 0, "0", ALICE)
    target = world.manager.staged_writes.target("r", False, ALICE)
    world.manager.administration.delete_queue(world.queue("r"), ALICE)
    (told,) = world.manager.staged_writes.stage(made, [draft(target)], last=True, collect=True)
    assert told.error.hresult == HResult.MQ_ERROR_QUEUE_DELETED


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"PROPID_Q_AUTHENTICATE": 1}, HResult.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED),
        ({"PROPID_Q_PRIV_LEVEL": 2}, HResult.MQ_ERROR_ILLEGAL_OPERATION),
    ],
)
def test_rows_for_a_queue_that_demands_more_meanwhile_are_refused(
    world: World, changed: dict[str, int], why: HResult
) -> None:
    """A message that is sent with a handle opened before is refused, too."""
    made = world.manager.staged_writes.begin("s", 0, 0, "0", ALICE)
    target = world.manager.staged_writes.target("q", False, ALICE)
    values = {PropId[name]: value for name, value in changed.items()}
    world.manager.administration.set_properties(world.queue(), values, ALICE)
    record = draft(target, label="a").record
    told = world.manager.staged_writes.stage_rows(
        made, target, bytearray(record), 0, array("I", [len(record)]), last=True, collect=True
    )
    assert [refusal.error.hresult for refusal in told] == [why] and made.rows == 0


@pytest.mark.parametrize("queues", ["q", "qr"])
def test_no_rows_are_accepted_while_the_disk_is_nearly_full(world: World, queues: str) -> None:
    """[MS-MQDMPR] 3.1.7.2.5: the space is for receives."""
    world.create("r")
    world.manager.changes.throttled = True
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        stage(world, 0, "ab", queues)
    world.manager.changes.throttled = False
    finalize(world, 1, stage(world, 1, "ab", queues))
    assert world.labels()


@pytest.mark.parametrize("restart", [False, True])
def test_the_last_row_that_is_not_refused_ends_the_transaction(world: World, restart: bool) -> None:
    world.create("x", TRANSACTION=1)
    made = world.manager.staged_writes.begin("s", 0, 0, "0", ALICE)
    offer(world, made, "qx", [1, 2, 3, 4])
    offer(world, made, "x", [5])
    assert offer(world, made, "qx", [6, LARGE], last=True) == [(1, FULL)]
    world.manager.staged_writes.seal(made)
    if restart:
        world.restart()
    finalize(world, 0, made)
    assert world.labels() == ["1", "3", "6"]
    messages = world.messages(world.queue("x"))
    assert [(m.label, m.first_in_transaction, m.last_in_transaction) for m in messages] == [
        ("2", True, False), ("4", False, False), ("5", False, True),
    ]  # fmt: skip


def test_a_row_that_is_held_back_counts_against_the_quota(world: World) -> None:
    world.create("x", TRANSACTION=1, QUOTA=2)
    made = world.manager.staged_writes.begin("s", 0, 0, "0", ALICE)
    assert offer(world, made, "x", [1500]) == [] and made.rows == 0
    assert offer(world, made, "x", [1500], last=True) == [(0, FULL)]
    assert made.rows == 1


@pytest.mark.parametrize("restart", [False, True])
def test_a_stage_counts_the_bytes_that_its_messages_take(world: World, restart: bool) -> None:
    """Also those of a row that was held back in an earlier call: its record is smaller in the store than in memory."""
    world.create("x", TRANSACTION=1)
    made = world.manager.staged_writes.begin("s", 0, 0, "0", ALICE)
    offer(world, made, "qx", [1, 2, 3, 4])
    offer(world, made, "x", [5], last=True)
    world.manager.staged_writes.seal(made)
    volume = dict(made.volume)
    if restart:
        world.restart()
    (stage,) = world.manager.staged_writes.stages()
    assert stage.volume == volume
    finalize(world, 0, stage)
    for name in "qx":
        queue = world.queue(name)
        assert queue.total_bytes == volume[queue.number] == queue.volume_of(queue.heads(9)) > 0
    assert not world.manager.changes._staged_bytes


def test_rows_for_a_deleted_queue_vanish_and_the_others_arrive(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.create("r")
    made = stage(world, 0, "abcd", "qr")
    world.manager.administration.delete_queue(world.queue("r"), ALICE)
    finalize(world, 0, made)
    assert world.labels() == ["a", "c"] and "batch 0: 2 rows are discarded" in caplog.text
    world.restart()
    assert world.labels() == ["a", "c"]


def test_rows_may_go_to_other_machines(world: World) -> None:
    name = "DIRECT=OS:elsewhere\\private$\\far"
    finalize(world, 0, stage(world, 0, "ab", [name]))
    (queue,) = world.registry.outgoing.values()
    assert world.labels(queue) == ["a", "b"]
    assert world.messages(queue)[0].time_to_reach_queue == 345600
    assert next_to_transfer(world) is not None


def test_a_sink_and_its_stages_belong_to_the_user_who_created_them(world: World) -> None:
    made = stage(world, 0, "a")
    with refused(HResult.MQ_ERROR_ACCESS_DENIED):
        finalize(world, 0, made, caller=BOB)
    finalize(world, 0, made)
    with refused(HResult.MQ_ERROR_ACCESS_DENIED):
        stage(world, 1, "b", caller=BOB)
    finalize(world, 1, caller=BOB.as_administrator())


def test_a_full_disk_leaves_the_batch_to_be_finalized_later(world: World) -> None:
    made = stage(world, 0, "a")
    world.store.full = True
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        finalize(world, 0, made)
    world.store.full = False
    assert world.labels() == []
    finalize(world, 0, made)
    assert world.labels() == ["a"]


def test_a_crash_at_any_point_of_finalizing_shows_all_or_nothing(world: World) -> None:
    world.create("r")
    finalize(world, 0, stage(world, 0, "!"))
    first, second, abandoned = stage(world, 1, "abcdef", "qr"), stage(world, 1, "gh", "rq"), stage(world, 1, "x")
    world.store.sync()
    finalize(world, 1, first, second)
    seen = set()
    for other in crashed(world, 20):
        batch = other.manager.sinks.last_batch("s")
        seen.add(batch)
        everything = {0: ("!", ""), 1: ("!aceh", "bdfg")}
        assert ("".join(other.labels()), "".join(other.labels("r"))) == everything[batch or 0]
        assert len(other.manager.staged_writes.stages()) == (3 if batch == 0 else 0)
        finalize(other, 1, first, second)
        assert ("".join(other.labels()), "".join(other.labels("r"))) == everything[1]
        assert not other.manager.staged_writes.stages() and abandoned not in other.manager.staged_writes.stages()
    assert seen == {0, 1}


def test_staged_messages_move_with_compaction(world: World) -> None:
    made = stage(world, 0, "abc", body=bytes(1000))
    for _ in range(40):
        for _ in range(60):
            world.send(label="garbage", delivery_guarantee=1, body=bytes(2000))
        world.manager.reading.purge(world.open())
        world.store.sync()
    places = dict(made.messages[world.queue().number])
    while world.store.compact_step(world.manager.is_live, world.manager.relocated, thorough=True):
        world.store.sync()
    assert made.messages[world.queue().number] != places
    finalize(world, 0, made)
    assert world.labels() == ["a", "b", "c"]


# -- owners of sinks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_no_batch_of_another_query_is_taken_for_one_that_was_sent(world: World, restart: bool) -> None:
    """Two streams with one sinkId, or a stream with a new checkpoint, whose batch numbers restart."""
    finalize(world, 0, stage(world, 0, "a", query="first"), query="first")
    if restart:
        world.restart()
    for batch in (0, 1):
        with refused(SEQUENCE) as caught:
            stage(world, batch, "b", query="second")
        assert "query first" in caught.value.detail and "pipeline forget --sink 's'" in caught.value.detail
        with refused(SEQUENCE):
            finalize(world, batch, query="second")
        with refused(SEQUENCE):
            finalize(world, batch)
    finalize(world, 0, query="first")
    assert world.labels() == ["a"]


def test_two_queries_that_stage_at_once_are_told_apart_when_they_finalize(world: World) -> None:
    first, second = (stage(world, 0, label, query=label) for label in "ab")
    finalize(world, 0, first, query="a")
    with refused(SEQUENCE):
        finalize(world, 0, second, query="b")
    assert world.labels() == ["a"]


def test_a_sink_that_was_forgotten_is_free_for_another_query(world: World) -> None:
    finalize(world, 7, stage(world, 7, "a", query="first"), query="first")
    with refused(HResult.MQ_ERROR_ACCESS_DENIED):
        world.manager.sinks.forget("s", BOB)
    assert world.manager.sinks.forget("s", ALICE)
    assert not world.manager.sinks.forget("s", ALICE)
    world.restart()
    finalize(world, 0, stage(world, 0, "b", query="second"), query="second")
    assert world.labels() == ["a", "b"]


def test_what_an_earlier_version_remembers_of_a_sink_is_adopted_with_the_next_batch(world: World) -> None:
    world.manager.store.append([Put(b"sink/s", json.dumps({"batch": 3, "owner": ALICE.sid}).encode())])
    world.restart()
    assert world.manager.sinks.last_batch("s") == 3
    finalize(world, 3, query="first")  # its answer was lost
    finalize(world, 4, stage(world, 4, "a", query="first"), query="first")
    with refused(SEQUENCE):
        stage(world, 5, "b", query="second")
    assert world.labels() == ["a"]


# -- vanished writers ------------------------------------------------------------------------------------------

HOUR = 3_600_000


@pytest.mark.parametrize("restart", [False, True])
def test_stages_whose_writer_shows_no_sign_of_life_are_dropped(
    world: World, restart: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stage(world, 0, "ab", sink="gone")
    alive = stage(world, 0, "c", sink="alive")
    world.send(label="d", delivery_guarantee=1)
    if restart:
        world.restart()
    assert world.manager.staged_writes.drop_abandoned(HOUR) == 0
    world.advance(HOUR)
    world.manager.sinks.saw_writer("alive")
    assert world.manager.staged_writes.drop_abandoned(HOUR) == 1
    assert [one.handle for one in world.manager.staged_writes.stages()] == [alive.handle]
    assert "sink gone: dropped 1 stages with 2 rows" in caplog.text and "stage_time_limit" in caplog.text
    world.restart()
    assert [one.handle for one in world.manager.staged_writes.stages()] == [alive.handle]
    finalize(world, 0, stage(world, 0, "e", sink="alive"), sink="alive")
    assert world.manager.consumer_groups.last_stable(world.queue()) == world.manager.changes.sequence


def test_a_sink_whose_stages_cannot_be_dropped_does_not_block_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for sink in "abc":
        stage(world, 0, "x", sink=sink)
    world.manager.staged_writes.drop_abandoned(HOUR)
    world.advance(HOUR)
    world.manager.sinks._writers_seen["b"] = "a defect"  # type: ignore[assignment]
    assert world.manager.staged_writes.drop_abandoned(HOUR) == 2
    assert [one.sink for one in world.manager.staged_writes.stages()] == ["b"]
    assert "abandoned stages: sink b is left out" in caplog.text


def test_a_stalled_upload_is_dropped_too(world: World) -> None:
    made = world.manager.staged_writes.begin("s", 0, 0, "0", ALICE)
    target = world.manager.staged_writes.target("q", False, ALICE)
    world.manager.staged_writes.drop_abandoned(HOUR)
    world.advance(HOUR)
    assert world.manager.staged_writes.drop_abandoned(HOUR) == 1
    with refused(HResult.MQ_ERROR_OPERATION_CANCELLED):
        world.manager.staged_writes.stage(made, [draft(target)], last=True)


def test_batch_writes_leave_nothing_behind(world: World) -> None:
    former = b"sink/batch/0b8d9e0c-6f5e-4a9b-9d2a-0123456789ab"
    world.manager.store.append([Put(former, json.dumps({"batch": 0, "owner": ALICE.sid}).encode())])
    for number in range(3):
        sink = f"batch/{number}"
        finalize(world, 0, stage(world, 0, "a", sink=sink), sink=sink, once=True)
        finalize(world, 0, sink=sink, once=True)  # its answer was lost
    finalize(world, 0, stage(world, 0, "b"))
    assert len(world.labels()) == 4
    world.advance(HOUR + 1000)
    world.manager.staged_writes.drop_abandoned(HOUR)
    world.restart()
    assert [name for name in world.manager.store.definitions if name.startswith(b"sink/")] == [b"sink/s"]


def test_a_stage_of_an_earlier_version_is_taken_up(world: World) -> None:
    made = stage(world, 0, "a")
    note = json.loads(made.note)
    del note["stage"]["query"]
    fields = parse_note(json.dumps(note).encode())
    assert fields is not None
    found = Stage(**fields, transaction=made.transaction)
    assert (found.query, found.handle) == ("", made.handle)


@pytest.mark.parametrize(("batch", "partition"), [(-1, 0), (0, -1), (LAST_BATCH + 1, 0)])
def test_numbers_of_a_stage_that_are_out_of_range_are_refused(world: World, batch: int, partition: int) -> None:
    with pytest.raises(IllegalPropertyValue, match="allowed: 0 or more"):
        world.manager.staged_writes.begin("sink", batch, partition, "a", ALICE)
    assert world.manager.staged_writes.begin("sink", LAST_BATCH, 0, "a", ALICE).batch == LAST_BATCH


def test_rows_of_a_stage_that_was_dropped_are_refused(world: World) -> None:
    manager = world.manager.staged_writes
    made = manager.begin("s", 0, 0, "0", ALICE)
    target = manager.target("q", False, ALICE)
    row = draft(target, label="a").record
    assert manager.stage_rows(made, target, bytearray(row), 0, array("I", [len(row)]), last=False) == []
    manager.drop(made)
    with refused(HResult.MQ_ERROR_OPERATION_CANCELLED):
        manager.stage_rows(made, target, bytearray(row), 0, array("I", [len(row)]), last=False)
