"""An exhausted resource harms no message; each resource has its own error, which names it and its limit."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Any

import pytest

from openmsmq.model.constants import Access, Delivery
from openmsmq.model.errors import HResult, MessageStorageFailed
from openmsmq.model.exhaustion import MEMORY, RESOURCES, OutOfResources, exhausted
from openmsmq.model.message import Message
from openmsmq.queueing.changes import RETRY
from openmsmq.store.errors import StoreFull
from protocols import test_remote_read as remote
from protocols.clients import Client, Server
from protocols.test_remote_read import client, end, label, opened, put, read, server

__all__ = ["client", "server"]

H = HResult
SHORTAGES = [*(OSError(number, "no more") for number in RESOURCES), MemoryError()]
OF_MEMORY = H.MQ_ERROR_INSUFFICIENT_RESOURCES
OF_DISK = H.MQ_ERROR_MESSAGE_STORAGE_FAILED


@pytest.mark.parametrize("error", SHORTAGES, ids=repr)
def test_each_resource_has_an_error_that_names_it_its_limit_and_the_remedy(error: Exception) -> None:
    shortage = exhausted(error)
    assert shortage is not None
    for part in (shortage.ran_out.name, shortage.ran_out.limit(), shortage.ran_out.remedy):
        assert part and part in str(shortage)
    disk = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    assert shortage.hresult == (OF_DISK if disk else OF_MEMORY)
    outer = StoreFull("no segment")
    outer.__cause__ = error
    again = exhausted(outer)
    assert again is not None and again.ran_out is shortage.ran_out


@pytest.mark.parametrize("error", [OSError(errno.EIO, "bad sector"), ValueError(), KeyError(), None])
def test_other_errors_are_not_reported_as_a_shortage(error: BaseException | None) -> None:
    assert exhausted(error) is None


def test_the_names_of_resources_differ() -> None:
    names = [each.name for each in {id(each): each for each in (MEMORY, *RESOURCES.values())}.values()]
    assert len(set(names)) == len(names) == 5


@pytest.fixture
def fails(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception | None], None]:
    """Make reads from the store fail with an error; None ends that."""
    queue = server.world.queue()
    now: list[Exception | None] = [None]
    really = queue.read

    def read_record(location: int) -> bytes:
        if now[0] is not None:
            raise now[0]
        return really(location)

    queue.read = read_record  # type: ignore[method-assign]
    return lambda error: now.__setitem__(0, error)


@pytest.mark.sources
@pytest.mark.parametrize("error", SHORTAGES[:3], ids=repr)
def test_a_message_that_cannot_be_read_for_want_of_a_resource_is_not_damaged(
    client: Client, server: Server, fails: Any, caplog: pytest.LogCaptureFixture, error: OSError
) -> None:
    put(client, "a", "b", delivery_guarantee=int(Delivery.RECOVERABLE))
    handle = opened(client)
    server.sync()
    fails(error)
    with caplog.at_level(logging.ERROR):
        assert read(client, handle).result == OF_MEMORY
    shortage = exhausted(error)
    assert shortage is not None and shortage.ran_out.name in caplog.text and "Traceback" not in caplog.text
    fails(None)
    assert label(read(client, handle, request=2)) == "a", "it was not hidden, and its request is over"
    assert end(client, handle, request=2) == H.MQ_OK
    assert label(read(client, handle, request=3)) == "b"


@pytest.mark.sources
def test_a_message_put_back_without_free_descriptors_is_available(client: Client, server: Server, fails: Any) -> None:
    put(client, "a", delivery_guarantee=int(Delivery.RECOVERABLE))
    handle = opened(client)
    assert label(read(client, handle)) == "a"
    fails(OSError(errno.EMFILE, "too many open files"))
    assert end(client, handle, remote.RR_NACK) == H.MQ_OK
    fails(None)
    assert label(read(client, handle, request=2)) == "a"


@pytest.mark.sources
def test_a_message_put_back_without_free_descriptors_still_expires(client: Client, server: Server, fails: Any) -> None:
    put(client, "a", delivery_guarantee=int(Delivery.RECOVERABLE), time_to_be_received=60)
    put(client, "b", delivery_guarantee=int(Delivery.RECOVERABLE), time_to_be_received=600)
    handle = opened(client)
    for request in (1, 2):
        read(client, handle, request=request)
    server.world.advance(100_000)
    fails(OSError(errno.EMFILE, "too many open files"))
    for request in (1, 2):
        assert end(client, handle, remote.RR_NACK, request=request) == H.MQ_OK
    fails(None)
    server.world.advance(RETRY)
    assert len(server.world.queue()) == 1
    server.world.advance(600_000)
    assert not len(server.world.queue())


@pytest.mark.sources
def test_without_memory_for_the_reply_a_remote_reader_gets_an_error_and_the_message_stays(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(client, "a")
    handle = opened(client)

    def no_memory(*_: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("openmsmq.protocols.remote_read.divide", no_memory)
        assert read(client, handle).result == OF_MEMORY
    assert "out of memory" in caplog.text and "Traceback" not in caplog.text
    assert label(read(client, handle)) == "a"


@pytest.mark.sources
@pytest.mark.parametrize("error", SHORTAGES[:-1], ids=repr)
def test_each_operation_that_meets_a_shortage_answers_with_its_error(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: OSError
) -> None:
    """One of each class: opening, sending, purging."""
    shortage = exhausted(error)
    assert shortage is not None
    sender = client.open(access=Access.SEND).phQueue
    handle = opened(client)
    manager = server.world.manager

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(manager.store, "append", fail)
    monkeypatch.setattr(manager.reading, "purge", fail)
    monkeypatch.setattr(manager.handles, "open_queue", fail)
    assert client.send(sender, Message(delivery_guarantee=int(Delivery.RECOVERABLE))).result == shortage.hresult
    assert client.call("R_PurgeQueue", phContext=handle).result == shortage.hresult
    assert client.open(access=Access.SEND).result == shortage.hresult
    assert caplog.text.count(shortage.ran_out.remedy) == 3


def test_a_full_disk_is_named_in_the_error_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    from openmsmq.queueing.storage import storing

    full = StoreFull("cannot prepare a segment")
    full.__cause__ = OSError(errno.EMFILE, "too many open files")
    with pytest.raises(MessageStorageFailed) as caught, storing():
        raise full
    assert isinstance(caught.value, OutOfResources) and caught.value.hresult == OF_MEMORY
