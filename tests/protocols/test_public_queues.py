"""Public queues in the queue manager: rights, and a slow or unavailable directory."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from openmsmq.directory.provider import MachineRecord, QueueRecord
from openmsmq.interfaces.ms_mqmp import OBJECT_FORMAT
from openmsmq.interfaces.ms_mqmq import tag_inner_PROPVARIANT as PROPVARIANT
from openmsmq.model import names, security
from openmsmq.model.constants import PropId, QueueAccessMask, Share, VarType
from openmsmq.model.default_descriptors import default_queue_security
from openmsmq.model.errors import HResult as H
from openmsmq.model.errors import MsmqError
from openmsmq.model.message import Message
from openmsmq.model.security import SecurityDescriptor
from openmsmq.protocols.public_queues import MOST_ELEMENTS, PublicQueues, properties_of, record_of
from openmsmq.queueing import locations
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.locations import QueueLocation
from openmsmq.queueing.machine import MachineLimits
from openmsmq.queueing.outgoing_queues import OutgoingState
from protocols.clients import Client, Server, queue_format, text_variant
from protocols.with_directory import (
    ELSEWHERE,
    OWN,
    RECEIVE,
    SEND,
    Run,
    ServerWithDirectory,
    answered,
    public,
)
from queueing.world import ALICE, BOB, MACHINE


async def refused(work: Coroutine[Any, Any, Any]) -> int:
    with pytest.raises(MsmqError) as caught:
        await work
    return caught.value.hresult


# -- creating, changing, deleting --------------------------------------------------------------------------------------


def test_a_created_queue_is_in_the_directory_and_in_the_log(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        record = await here.public.create(".\\q", {PropId.PROPID_Q_LABEL: "x"}, ALICE)
        queue = here.registry.public[record.identifier]
        assert record_of(queue.properties, OWN) == replace(record, position=0)
        assert here.registry.format_name(queue) == public(record)
        here.world.restart()
        assert here.world.registry.public[record.identifier].properties == queue.properties
        assert here.world.registry.local_queue(names.parse_format_name("DIRECT=OS:HERE\\Q")) is not None
        assert here.world.registry.local_queue(names.parse_format_name("DIRECT=OS:HERE\\private$\\q")) is None

    run(test)


def test_the_delivery_limit_is_stored_locally_and_survives_directory_updates(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        limit, label = PropId.PROPID_Q_OPENMSMQ_DELIVERY_LIMIT, PropId.PROPID_Q_LABEL
        record = await here.public.create(".\\q", {limit: 5}, ALICE)
        await here.public.change(record.identifier, {PropId.PROPID_Q_OPENMSMQ_POISON_TO_DEADLETTER: 1}, ALICE)
        record = await here.public.change(record.identifier, {label: "changed"}, ALICE)
        await here.public.synchronize()
        kept = here.registry.public[record.identifier].properties
        assert (kept.delivery_limit, kept.poison_to_deadletter, kept.label) == (5, True, "changed")
        assert here.public.properties(record).delivery_limit == 5
        here.world.restart()
        assert here.world.registry.public[record.identifier].properties.delivery_limit == 5
        far = await here.elsewhere()
        with pytest.raises(
            MsmqError, match="delivery_limit can only be set on the queue manager of the queue"
        ) as caught:
            await here.public.change(far.identifier, {limit: 5}, SYSTEM)
        assert caught.value.hresult == H.MQ_ERROR_PROPERTY_NOTALLOWED

    run(test)


def test_a_queue_can_be_created_before_the_queue_manager_has_been_in_step_once(tmp_path: Path) -> None:
    async def test() -> None:
        here = ServerWithDirectory(tmp_path / "directory.sqlite")
        record = await here.public.create(".\\early", {}, ALICE)
        assert record.identifier in here.registry.public
        await here.connection.close()

    asyncio.run(test())


def test_the_descriptor_of_a_queue_decides_who_changes_and_deletes_it(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        record = await here.public.create(".\\q", {}, ALICE)
        guarded = SecurityDescriptor(
            owner=ALICE.sid, group=ALICE.sid, dacl=(security.allow(ALICE.sid, QueueAccessMask.GENERIC_ALL),)
        ).pack()
        await here.provider.update_queue(record.identifier, {"security": guarded})
        label = {PropId.PROPID_Q_LABEL: "mine"}
        assert await refused(here.public.change(record.identifier, label, BOB)) == H.MQ_ERROR_ACCESS_DENIED
        assert await refused(here.public.delete(record.identifier, BOB)) == H.MQ_ERROR_ACCESS_DENIED
        assert (await here.public.change(record.identifier, label, ALICE)).label == "mine"
        assert here.registry.public[record.identifier].properties.label == "mine"
        await here.public.delete(record.identifier, ALICE)
        assert not here.registry.public
        far = await here.elsewhere(security=guarded)
        assert await refused(here.public.delete(far.identifier, BOB)) == H.MQ_ERROR_ACCESS_DENIED
        await here.public.delete(far.identifier, ALICE)

    run(test)


def test_a_queue_is_seen_by_those_who_may_get_its_properties(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        hidden = SecurityDescriptor(
            owner=ALICE.sid, group=ALICE.sid, dacl=(security.allow(ALICE.sid, QueueAccessMask.GENERIC_ALL),)
        ).pack()
        for n in range(3):
            await here.elsewhere(f"hidden{n}", security=hidden)
        seen = await here.elsewhere("seen", security=default_queue_security(ALICE.sid).pack())
        of_alice, of_bob = [await here.public.next([], 0, caller) for caller in (ALICE, BOB)]
        assert of_alice is not None
        assert of_alice.path_name == "ELSEWHERE\\hidden0"
        assert of_bob == seen
        assert await here.public.next([], seen.position, BOB) is None
        assert await refused(here.public.record(of_alice.identifier, BOB)) == H.MQ_ERROR_ACCESS_DENIED

    run(test)


def test_the_descriptor_of_a_machine_decides_who_creates_queues_on_it(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        here.world.manager.authorization.machine = SecurityDescriptor(owner=SYSTEM.sid, group=SYSTEM.sid, dacl=())
        assert await refused(here.public.create(".\\q", {}, ALICE)) == H.MQ_ERROR_ACCESS_DENIED
        record = await here.public.create("elsewhere.example.com\\q", {}, ALICE)
        assert (record.machine, record.path_name) == (ELSEWHERE.identifier, "ELSEWHERE\\q")
        assert record.identifier not in here.registry.public
        closed = replace(ELSEWHERE, security=here.world.manager.authorization.machine.pack())
        await here.provider.register_machine(closed)
        assert await refused(here.public.create("ELSEWHERE\\r", {}, ALICE)) == H.MQ_ERROR_ACCESS_DENIED
        assert await refused(here.public.create("NOWHERE\\q", {}, ALICE)) == H.MQ_ERROR_MACHINE_NOT_FOUND

    run(test)


def test_public_queues_count_for_the_limits_of_queues(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        here.registry.machine = replace(MACHINE, limits=MachineLimits(max_queues=100, max_queues_per_owner=2))
        await here.public.create(".\\a", {}, ALICE)
        await here.public.create(".\\b", {}, ALICE)
        assert await refused(here.public.create(".\\c", {}, ALICE)) == H.MQ_ERROR_INSUFFICIENT_RESOURCES
        await here.public.create(".\\c", {}, BOB)
        here.registry.machine = replace(MACHINE, limits=MachineLimits(max_queues=3))
        with pytest.raises(MsmqError, match="max_queues"):
            here.world.create("private")

    run(test)


def test_others_cannot_create_queues_above_the_limit(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        here.registry.machine = replace(MACHINE, limits=MachineLimits(max_queues=2))
        for n in range(5):
            await here.provider.create_queue(QueueRecord(uuid4(), OWN, f"HERE\\q{n}"))
        await here.public.synchronize()
        assert len(here.registry.public) == 2

    run(test)


def test_an_invalid_value_is_reported_and_nothing_is_created(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        for values, hresult in (
            ({PropId.PROPID_Q_LABEL: "x" * 125}, H.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
            ({PropId.PROPID_Q_LABEL: "\ud800"}, H.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
            ({PropId.PROPID_Q_INSTANCE: bytes(16)}, H.MQ_ERROR_PROPERTY_NOTALLOWED),
            ({PropId.PROPID_Q_MULTICAST_ADDRESS: "1.2.3.4:5"}, H.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        ):
            assert await refused(here.public.create(".\\q", values, ALICE)) == hresult
        for path in (".\\" + "x" * 64, ".\\private$\\q", ".\\q;sub", "q", ".\\system$;journal", ""):
            assert await refused(here.public.create(path, {}, ALICE)) == H.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME
        assert not here.registry.public
        assert await here.public.next([], 0, ALICE) is None

    run(test)


def test_parts_of_the_queue_manager_leave_objects_of_public_queues_to_the_directory(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        record = await here.public.create(".\\q", {}, ALICE)
        queue = here.registry.public[record.identifier]
        administration = here.world.manager.administration
        for work in (
            lambda: administration.delete_queue(queue, SYSTEM),
            lambda: administration.set_properties(queue, {PropId.PROPID_Q_LABEL: "x"}, SYSTEM),
        ):
            with pytest.raises(MsmqError) as caught:
                work()
            assert caught.value.hresult == H.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
        assert record.identifier in here.registry.public

    run(test)


def test_a_queue_with_an_impossible_name_blocks_no_other(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test(here: ServerWithDirectory) -> None:
        for name in ("a,b", "good"):
            await here.provider.create_queue(QueueRecord(uuid4(), OWN, f"{MACHINE.computer_name}\\{name}"))
        await here.public.synchronize()
        assert [queue.properties.path_name.partition("\\")[2] for queue in here.registry.public.values()] == ["good"]

    run(test)
    assert "a,b, which the directory has for this machine, is not made" in caplog.text


def test_without_the_directory_objects_are_read_locally_and_changes_are_refused(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        record = await here.public.create(".\\q", {PropId.PROPID_Q_LABEL: "known"}, ALICE)
        client, name = Client(here.server), OBJECT_FORMAT(1, queue_format(str(public(record))))
        here.provider.away = True

        async def answer(operation: str, **arguments: Any) -> Any:
            return await answered(here, client.start(operation, pObjectFormat=name, **arguments))

        label = {"cp": 1, "aProp": [PropId.PROPID_Q_LABEL]}
        read = await answer("R_QMGetObjectProperties", **label, apVar=[PROPVARIANT(vt=VarType.VT_NULL)])
        assert read.result == H.MQ_OK
        rights = await answer("R_QMGetObjectSecurityInternal", RequestedInformation=7, nLength=1000)
        assert rights.result == H.MQ_OK
        assert rights.pSecurityDescriptor.startswith(record.security[:4])
        descriptor = SecurityDescriptor(dacl=()).pack()
        for operation, arguments in (
            ("R_QMDeleteObject", {}),
            ("R_QMSetObjectProperties", {**label, "apVar": [text_variant("new")]}),
            (
                "R_QMSetObjectSecurityInternal",
                {"SecurityInformation": 4, "SDSize": len(descriptor), "pSecurityDescriptor": descriptor},
            ),
        ):
            assert (await answer(operation, **arguments)).result == H.MQ_ERROR_NO_DS
        here.provider.away = False
        assert record.identifier in here.registry.public

    run(test)


# -- opening -----------------------------------------------------------------------------------------------------------


def test_a_remote_queue_opens_for_sending_and_is_redirected_for_reading(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        record = await here.elsewhere(base_priority=5)
        client = here.server.client()
        opened = await answered(here, here.start_open(client, public(record), SEND))
        assert opened.result == H.MQ_OK
        outgoing = here.registry.outgoing_queue(public(record))
        assert outgoing is not None
        assert (outgoing.properties.path_name, outgoing.properties.base_priority) == ("ELSEWHERE\\far", 5)
        assert client.send(opened.phQueue, Message(body=b"x")).result == H.MQ_OK
        assert len(outgoing) == 1
        read = await answered(here, here.start_open(client, public(record), RECEIVE, lplpRemoteQueueName=""))
        assert (read.result, read.lplpRemoteQueueName) == (H.MQ_OK, "ELSEWHERE\\far")

    run(test)


@pytest.mark.parametrize(
    ("access", "hresult"),
    [(SEND, H.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION), (RECEIVE, H.MQ_ERROR_QUEUE_NOT_FOUND)],
)
def test_a_queue_that_the_directory_does_not_have_is_not_opened(run: Run, access: int, hresult: int) -> None:
    async def test(here: ServerWithDirectory) -> None:
        answer = await answered(here, here.start_open(here.server.client(), f"PUBLIC={uuid4()}", access))
        assert answer.result == hresult
        assert not here.registry.outgoing

    run(test)


def test_the_journal_of_a_public_queue_is_read_by_its_name(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        record = await here.public.create(".\\q", {PropId.PROPID_Q_JOURNAL: 1}, ALICE)
        client, handles = here.server.client(), here.world.manager.handles
        descriptor = handles.open_queue(public(record), SEND, Share.DENY_NONE, ALICE)
        here.world.manager.sending.enqueue(descriptor, Message(body=b"x"), None)
        opened = client.open(str(public(record)))
        assert client.receive(opened.pdwQMContext).result == H.MQ_OK
        journal = client.open(f"{public(record)};JOURNAL")
        assert client.receive(journal.pdwQMContext).result == H.MQ_OK

    run(test)


def test_a_list_is_expanded_without_duplicates_up_to_a_limit(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        directory = here.provider
        inner = await directory.create_list("inner", ["DIRECT=OS:B\\x", "DIRECT=OS:a\\x"])
        outer = await directory.create_list("outer", [f"DL={inner.identifier}", "direct=os:A\\x"])
        await directory.set_members(inner.identifier, [f"DL={outer.identifier}"], [])
        name = await here.public.resolve(names.DistributionListFormatName(outer.identifier), SEND)
        assert str(name).lower() == "direct=os:a\\x,direct=os:b\\x"
        mixed = names.parse_format_name(f"DIRECT=OS:c\\x,DL={inner.identifier}")
        assert here.public.needs(mixed)
        assert str(await here.public.resolve(mixed, SEND)).lower().count("direct") == 3
        one = await directory.create_list("one", ["DIRECT=OS:a\\x"])
        assert (
            str(await here.public.resolve(names.DistributionListFormatName(one.identifier), SEND)) == "DIRECT=OS:a\\x"
        )
        many = [f"DIRECT=OS:m{n}\\x" for n in range(MOST_ELEMENTS + 1)]
        large = names.DistributionListFormatName((await directory.create_list("large", many)).identifier)
        assert await refused(here.public.resolve(large, SEND)) == H.MQ_ERROR_INSUFFICIENT_RESOURCES
        for broken in ("no format name", "DIRECT=OS:a\\x,DIRECT=OS:b\\x"):
            made = await directory.create_list(broken, [broken])
            wrong = names.DistributionListFormatName(made.identifier)
            assert await refused(here.public.resolve(wrong, SEND)) == H.MQ_ERROR_ILLEGAL_FORMATNAME

    run(test)


def test_a_client_that_disconnects_during_a_lookup_leaves_nothing_open(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        record = await here.elsewhere()
        here.provider.seconds = 0.05
        client = here.server.client()
        pending = here.start_open(client, public(record), SEND)
        await asyncio.sleep(0.01)
        assert pending.call.on_cancel is not None
        pending.call.on_cancel()
        client.leave()
        await asyncio.sleep(0.1)
        assert not here.world.manager.handles.descriptors
        assert not here.registry.outgoing

    run(test)


def test_a_slow_directory_delays_only_calls_that_need_it(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        record = await here.elsewhere()
        here.provider.seconds = 0.3
        slow, quick = here.server.client(), here.server.client()
        pending = here.start_open(slow, public(record), SEND)
        here.world.create("q")
        assert quick.open("q").result == H.MQ_OK
        assert not pending.over
        assert (await answered(here, pending)).result == H.MQ_OK

    run(test)


# -- unavailable directory ---------------------------------------------------------------------------------------------


def test_without_the_directory_known_queues_can_be_used(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        near = await here.public.create(".\\near", {PropId.PROPID_Q_LABEL: "x"}, ALICE)
        far, unknown = await here.elsewhere(), await here.elsewhere("unknown")
        await here.public.resolve(public(far), SEND)
        here.provider.away = True
        client = here.server.client()
        assert client.open(str(public(near))).result == H.MQ_OK
        assert (await answered(here, here.start_open(client, public(far), SEND))).result == H.MQ_OK
        assert (await answered(here, here.start_open(client, public(unknown), SEND))).result == H.MQ_ERROR_NO_DS
        assert (await here.public.record(near.identifier, ALICE)).label == "x"
        path = names.parse_path_name("HERE\\near")
        assert await here.public.identifier_of(path) == near.identifier
        for work in (
            here.public.next([], 0, ALICE), here.public.create(".\\n", {}, ALICE),
            here.public.delete(near.identifier, ALICE), here.public.change(near.identifier, {}, ALICE),
            here.public.record(far.identifier, ALICE), here.public.machine_named("ELSEWHERE"),
        ):  # fmt: skip
            assert await refused(work) == H.MQ_ERROR_NO_DS
        assert near.identifier in here.registry.public
        here.provider.away = False
        await here.public.synchronize()
        assert not here.connection.offline
        await here.public.delete(near.identifier, ALICE)

    run(test)


# -- following directory changes ---------------------------------------------------------------------------------------


def test_changes_and_deletions_by_others_are_applied_here(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        kept, gone = [await here.public.create(f".\\{name}", {}, ALICE) for name in ("kept", "gone")]
        descriptor = here.world.manager.handles.open_queue(public(gone), RECEIVE, Share.DENY_NONE, ALICE)
        waiting = here.world.wait(descriptor)
        await here.provider.update_queue(kept.identifier, {"label": "new", "quota": 7})
        await here.provider.delete_queue(gone.identifier)
        made = await here.provider.create_queue(QueueRecord(uuid4(), OWN, "HERE\\made", label="by others"))
        await here.public.synchronize()
        properties = here.registry.public[kept.identifier].properties
        assert (properties.label, properties.quota) == ("new", 7)
        assert gone.identifier not in here.registry.public
        assert descriptor.queue is None
        assert waiting.status == H.MQ_ERROR_QUEUE_DELETED
        assert here.registry.public[made.identifier].properties == properties_of(made)
        assert await here.provider.deleted_queues(OWN) == []

    run(test)


async def rename(here: ServerWithDirectory, before: str, after: str) -> None:
    """Rename a queue of this machine as an administrator of a directory does."""
    statement = "UPDATE queue SET name = ?, name_key = ? WHERE name = ?"
    await here.provider._real._do(lambda db: db.execute(statement, [after, after, before]))


def test_a_queue_that_is_renamed_in_the_directory_has_only_its_new_name_here(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        record = await here.public.create(".\\old", {PropId.PROPID_Q_JOURNAL: 1}, ALICE)
        queue = here.registry.public[record.identifier]
        await rename(here, "old", "new")
        await here.public.synchronize()
        found = [here.registry.local_queue(names.parse_format_name(f"DIRECT=OS:HERE\\{n}")) for n in ("old", "new")]
        assert found == [None, queue]
        assert queue.journal is not None and queue.journal.properties.path_name == "HERE\\new;journal"
        again = await here.public.create(".\\old", {}, ALICE)
        await here.public.delete(record.identifier, ALICE)
        assert list(here.registry.public) == [again.identifier]

    run(test)


def test_names_that_queues_exchange_in_the_directory_stay_unique_here(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(here: ServerWithDirectory) -> None:
        one, other = [await here.public.create(f".\\{name}", {}, ALICE) for name in ("one", "other")]
        await rename(here, "one", "free")
        await rename(here, "other", "one")
        await rename(here, "free", "other")
        await here.public.synchronize()
        for record in (one, other):
            queue = here.registry.public[record.identifier]
            assert here.registry.local_queue(names.parse_format_name(f"DIRECT=OS:HERE\\{queue.name}")) is queue
            await here.public.delete(record.identifier, ALICE)
        assert not here.registry.public

    run(test)
    assert "HERE\\other" in caplog.text and "but that queue is here with another one" in caplog.text


def test_an_outgoing_queue_without_a_place_is_reported_once_and_only_if_its_messages_wait(
    run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations, "MOST_PLACES", 1)

    async def test(here: ServerWithDirectory) -> None:
        unused, routed, stuck = (names.PublicFormatName(uuid4()) for _ in range(3))
        for name, link in ((unused, None), (routed, OutgoingState.CONNECTED), (stuck, OutgoingState.NEED_VALIDATION)):
            here.registry.remember_place(name.guid, QueueLocation("ELSEWHERE\\q"))  # forgets the one before
            queue = here.world.manager.changes.outgoing_for(name)
            queue.link = link
            if link is not None:
                here.world.manager.arrivals.send_to(name, Message(body=b"x"))
        here.registry.remember_place(uuid4(), QueueLocation("ELSEWHERE\\q"))
        for _ in range(2):
            await here.public.synchronize()
        said = [entry.getMessage() for entry in caplog.records if "has messages that can't be sent" in entry.message]
        assert len(said) == 1 and str(stuck) in said[0]

    run(test)


def test_a_lost_record_costs_no_messages_and_is_reported_once(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test(here: ServerWithDirectory) -> None:
        record = await here.public.create(".\\q", {}, ALICE)
        await here.provider.delete_queue(record.identifier)
        await here.provider.confirm_deletion(record.identifier)
        again = await here.provider.create_queue(replace(record, identifier=uuid4()))
        for _ in range(3):
            await here.public.synchronize()
        assert record.identifier in here.registry.public
        assert again.identifier not in here.registry.public

    run(test)
    lines = [entry.getMessage() for entry in caplog.records]
    assert len([line for line in lines if "does not have the public queue HERE\\q" in line]) == 1


def test_a_queue_whose_record_is_lost_can_be_deleted_and_made_again(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        only_alice = SecurityDescriptor(owner=ALICE.sid, dacl=(security.allow(ALICE.sid, QueueAccessMask.GENERIC_ALL),))
        record = await here.public.create(".\\q", {}, ALICE, only_alice.pack())
        await here.provider.delete_queue(record.identifier)
        await here.provider.confirm_deletion(record.identifier)
        assert await refused(here.public.create(".\\q", {}, ALICE)) == H.MQ_ERROR_QUEUE_EXISTS
        assert await refused(here.public.delete(record.identifier, BOB)) == H.MQ_ERROR_ACCESS_DENIED
        await here.public.delete(record.identifier, ALICE)
        assert not here.registry.public
        assert await refused(here.public.delete(record.identifier, ALICE)) == H.MQ_ERROR_QUEUE_NOT_FOUND
        again = await here.public.create(".\\q", {}, ALICE)
        assert again.identifier in here.registry.public

    run(test)


def test_more_than_a_page_of_queues_are_synchronized(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        for n in range(1100):
            await here.provider.create_queue(QueueRecord(uuid4(), OWN, f"HERE\\q{n}"))
        await here.public.synchronize()
        assert len(here.registry.public) == 1100

    run(test)


def test_locations_of_remote_queues_use_bounded_memory(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locations, "MOST_PLACES", 3)

    async def test(here: ServerWithDirectory) -> None:
        guids = [uuid4() for _ in range(4)]
        for guid in guids:
            here.registry.remember_place(guid, QueueLocation("ELSEWHERE\\q"))
        known = [here.registry.place_of(names.PublicFormatName(guid)) is not None for guid in guids]
        assert known == [False, True, True, True]

    run(test)


@pytest.mark.parametrize("is_registered", [True, False])
def test_outgoing_queues_of_an_earlier_run_learn_where_their_destinations_are(run: Run, is_registered: bool) -> None:
    async def test(here: ServerWithDirectory) -> None:
        record = await here.elsewhere(base_priority=-5)
        await here.public.resolve(public(record), SEND)
        here.world.manager.handles.open_queue(public(record), SEND, Share.DENY_NONE, ALICE)
        here.world.restart()
        queue = here.world.registry.outgoing_queue(public(record))
        assert queue is not None
        assert queue.properties.path_name == str(public(record))
        again = PublicQueues(here.world.manager, here.connection)
        if is_registered:
            await again.synchronize()
        else:  # another queue manager has got the computer name
            await here.provider.remove_machine(OWN)
            await here.provider.register_machine(MachineRecord(uuid4(), "HERE"))
            assert await refused(again.synchronize()) == H.MQ_ERROR_QUEUE_EXISTS
        assert (queue.properties.path_name, queue.properties.base_priority) == ("ELSEWHERE\\far", -5)

    run(test)


def test_without_a_directory_nothing_is_looked_up() -> None:
    server = Server()
    public_queues = server.environment.public_queues
    for text in (f"PUBLIC={uuid4()}", f"DL={uuid4()}", "DIRECT=OS:a\\b"):
        assert not public_queues.needs(names.parse_format_name(text))
    client = server.client()
    assert client.open(f"DL={uuid4()}", SEND).result == H.MQ_ERROR_NO_DS
    assert client.open(f"PUBLIC={uuid4()}", SEND).result == H.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    assert client.open(f"PUBLIC={uuid4()}", RECEIVE).result == H.MQ_ERROR_QUEUE_NOT_FOUND
