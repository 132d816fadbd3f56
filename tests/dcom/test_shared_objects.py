"""Automation objects that share a queue or a transaction: [MC-MQAC] 3.8 to 3.10, 3.17."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dcom.test_details import QueueObjects
from dcom.world import ComWorld
from msrpc.dcom.variant import VT, Variant
from openmsmq.directory.connection import DirectoryConnection
from openmsmq.directory.embedded import EmbeddedDirectory
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import ComError, IllegalFormatName, TransactionSequence
from openmsmq.protocols.public_queues import PublicQueues

ASYNCHRONOUS = Variant(VT.BOOL, True)


async def done(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


# -- transactions ------------------------------------------------------------------------------------------------------


@contextmanager
def begun(world: ComWorld, dispenser: str = "TransactionDispenser") -> Iterator[tuple[Any, Any]]:
    """Yield a new MSMQTransaction and its unit of work."""
    first = world.new(dispenser).BeginTransaction(world.context())
    yield first, first.inner.transaction


def test_a_transaction_lives_while_one_of_its_objects_does() -> None:
    """3.9.1: MSMQTransaction refers to the transaction object; InitNew gives another one the same."""
    world = ComWorld()
    context = world.context()
    with begun(world) as (first, work):
        second = world.new("Transaction")
        second.InitNew(context, first.get_ITransaction(context))
        first.released()
        assert work.is_open
        second.released()
        assert not work.is_open


def test_a_transaction_lives_while_a_client_holds_its_itransaction() -> None:
    world = ComWorld()
    with begun(world) as (first, work):
        inner = first.inner
        world.export(inner, m.ITransaction)
        first.released()
        assert work.is_open
        world.exporter.end_all()
        assert not work.is_open


@pytest.mark.parametrize("retaining", [None, Variant(VT.BOOL, True)])
def test_arguments_that_internal_transactions_refuse_end_external_ones(retaining: Variant | None) -> None:
    """3.8.4.1.1 and 3.8.4.1.2: only an internal transaction answers XACT_E_NOTSUPPORTED."""
    world = ComWorld()
    context = world.context()
    with begun(world, "TransactionDispenser") as (first, work):
        with pytest.raises(ComError, match="XACT_E_NOTSUPPORTED"):
            first.Abort(context, retaining, ASYNCHRONOUS)
        assert work.is_open
    for end in ("Commit", "Abort"):
        with begun(world, "CoordinatedTransactionDispenser") as (first, work):
            if end == "Abort":
                first.Abort(context, retaining, ASYNCHRONOUS)
            else:
                first.Commit(context, retaining, Variant(VT.I4, 1), Variant(VT.I4, 0))
            assert not work.is_open
            with pytest.raises(TransactionSequence):
                first.Commit(context, None, None, None)


# -- queues ------------------------------------------------------------------------------------------------------------


def test_each_queue_that_one_object_creates_has_its_properties() -> None:
    """3.10.4.1.26: the new queue gets the attributes of refQueue, also of one that was created or read before."""
    setup = QueueObjects()
    context, info = setup.context, setup.world.new("QueueInfo")
    info.put_Label(context, "lab")
    info.put_Journal(context, 1)
    info.put_Quota(context, 77)
    queues = setup.world.protocols.world.registry.by_name
    for name in ("a", "b"):
        info.put_PathName(context, f".\\private$\\{name}")
        info.Create(context, None, None)
    info.put_Label(context, "other")
    info.put_PathName(context, ".\\private$\\c")
    info.Create(context, None, None)
    made = [queues[name].properties for name in ("a", "b", "c")]
    assert [(each.label, each.journaling, each.quota) for each in made] == [
        ("lab", True, 77), ("lab", True, 77), ("other", True, 77),
    ]  # fmt: skip


def test_a_public_queue_is_the_same_by_its_direct_name(tmp_path: Path) -> None:
    """3.10.4.1.29: an application queue by any name."""

    async def story() -> None:
        world = ComWorld()
        context, environment = world.context(), world.protocols.environment
        environment.directory = connection = DirectoryConnection(EmbeddedDirectory(tmp_path / "directory.sqlite"))
        environment.public_queues = PublicQueues(world.protocols.world.manager, connection)
        await environment.public_queues.synchronize()
        info = world.new("QueueInfo")
        info.put_PathName(context, ".\\pub")
        info.put_Label(context, "lab")
        info.put_Quota(context, 77)
        await done(info.Create(context, Variant(VT.BOOL, True), None))
        other = world.new("QueueInfo")
        other.put_FormatName(context, "DIRECT=OS:.\\pub")
        members = ("Label", "Quota", "IsTransactional", "QueueGuid", "PathNameDNS", "CreateTime")
        for member in members:
            values = [await done(getattr(each, f"get_{member}")(context)) for each in (info, other)]
            assert values[0] == values[1], member
        assert await done(other.get_Label(context)) == "lab" and await done(other.get_IsTransactional(context)) == 1
        assert await done(other.get_FormatName(context)) == "DIRECT=OS:.\\pub"
        other.put_Label(context, "new")
        await done(other.Update(context))
        await done(info.Refresh(context))
        assert info.get_Label(context) == "new"
        await done(other.Delete(context))
        assert not world.protocols.world.registry.public

    asyncio.run(story())


def test_the_format_name_of_a_path_name_is_valid_elsewhere() -> None:
    """3.10.6.1: a computer "." becomes the name of this machine."""
    setup = QueueObjects()
    info = setup.world.new("QueueInfo")
    info.put_PathName(setup.context, ".\\private$\\q")
    assert info.get_FormatName(setup.context) == "DIRECT=OS:HERE\\private$\\q"


def test_a_message_without_destinations_has_empty_destination_objects() -> None:
    """3.17.4.1.80 and 3.17.4.1.82: zero or more queues."""
    setup = QueueObjects()
    message = setup.world.new("Message")
    for member in ("get_ResponseDestination", "get_Destination"):
        assert not getattr(message, member)(setup.context).get_FormatName(setup.context)


@pytest.mark.parametrize("name", ["DIRECT=OS:.\\private$\\a\0b", "nonsense"])
def test_a_response_queue_that_no_reader_could_parse_is_refused(name: str) -> None:
    setup = QueueObjects()
    message, destination = setup.world.new("Message"), setup.world.new("Destination")
    destination.put_FormatName(setup.context, name)
    with pytest.raises(IllegalFormatName):
        message.put_ResponseDestination(setup.context, destination)


def test_management_keeps_the_name_of_a_queue_that_was_deleted() -> None:
    """3.3.4.1.2; VT_NULL counts as missing (3.3.4.1.1)."""
    setup = QueueObjects()
    management, nothing = setup.world.new("Management"), Variant(VT.NULL, None)
    management.Init(setup.context, nothing, Variant(VT.BSTR, ".\\private$\\q"), nothing)
    world = setup.world.protocols.world
    world.manager.administration.delete_queue(world.queue(), world.owner)
    assert management.get_FormatName(setup.context) == "DIRECT=OS:HERE\\private$\\q"
