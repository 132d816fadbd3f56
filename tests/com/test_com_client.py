"""The Python client of the automation objects: attributes, named arguments, events."""

from __future__ import annotations

import asyncio
import gc
import pydoc
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import openmsmq
from com_client import Connection
from daemon import Daemon
from msrpc.dcom.activation import interface_pointer
from msrpc.dcom.persistence import SavedObject
from msrpc.hresults import ComResult
from msrpc.interfaces import com
from msrpc.interfaces.ms_dcom import IUnknown
from msrpc.interfaces.ms_oaut import IDispatch
from openmsmq.com import VT, CastTo, ComError, Dispatch, ObjectState, Variant, WithEvents, close_all
from openmsmq.com.client import _Sink
from openmsmq.model.errors import MessageNotFound, QueueExists, ReceiveTimeout, SharingViolation

PATIENCE = 20.0  # seconds to wait for an event


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon") / "data") as running:
        yield running
    assert "Traceback" not in running.log, running.log


@pytest.fixture
def new(daemon: Daemon) -> Iterator[Callable[[str], Any]]:
    yield partial(Dispatch, host="127.0.0.1", port=daemon.mapper_port)
    close_all()


@pytest.fixture
def queue(new: Callable[[str], Any], request: pytest.FixtureRequest) -> Any:
    info = new("MSMQ.MSMQQueueInfo")
    info.PathName = f".\\private$\\{request.node.name[:100].partition('[')[0]}"
    info.Create()
    return info


CLASS = UUID("7d9ccd72-3f1b-4a3c-9d51-0f8a2a5f1e90")
BODIES = [
    "text", "", b"bytes", b"", 5, -5, 1 << 30, True, 2.5, Decimal("12.3456"), datetime(2026, 11, 22, 12, tzinfo=UTC),
    Variant(VT.UI1, 7), Variant(VT.I2, -7), Variant(VT.R4, 0.5),
    ObjectState(CLASS, b"what Save has written"), ObjectState(CLASS, b""), ObjectState(CLASS, bytes(1 << 20)),
]  # fmt: skip


def test_bodies_of_all_types_come_back(new: Callable[[str], Any], queue: Any) -> None:
    out, back = queue.Open(2, 0), queue.Open(1, 0)
    for body in BODIES:
        message = new("MSMQMessage")
        message.Body = body
        message.Send(out)
        expected = body.value if isinstance(body, Variant) else body
        assert back.Receive(ReceiveTimeout=1000).Body == expected


def test_an_object_as_body_has_the_type_that_every_reader_sees(
    new: Callable[[str], Any], queue: Any, daemon: Daemon
) -> None:
    message = new("MSMQMessage")
    message.Body = ObjectState(CLASS, b"state")
    message.Send(queue.Open(2, 0))
    with openmsmq.connect("127.0.0.1", daemon.port) as manager, manager.open(queue.FormatName, "receive") as reader:
        received = reader.receive(5)
    assert (received.body, received.body_type) == (CLASS.bytes_le + b"state", 68)


class UnsavableObject:
    """A client object that cannot be saved."""

    def __init__(self, size: int = 0, patience: float = 0, interface: Any = com.IPersistStream) -> None:
        self.size, self.patience, self.interface = size, patience, interface

    def query(self, iid: UUID) -> bool:
        return iid in (IUnknown.uuid, self.interface.uuid)

    def released(self) -> None:
        pass

    def call(self, context: Any, operation: Any, request: Any) -> Any:
        if operation.name == "GetClassID":
            return operation.response(pClassID=CLASS.bytes_le)
        return self.save(context, operation, request)

    async def save(self, context: Any, operation: Any, request: Any) -> Any:
        await asyncio.sleep(self.patience)
        saved = SavedObject(ObjectState(CLASS, bytes(self.size)))
        await saved.Save(context, request)
        return operation.response()


@pytest.mark.parametrize(
    ("target", "hresult"),
    [
        (UnsavableObject(interface=com.IPersistStream, size=(4 << 20) + 1), ComResult.STG_E_MEDIUMFULL),
        (UnsavableObject(interface=IDispatch), ComResult.E_INVALIDARG),
        pytest.param(
            UnsavableObject(patience=3600), ComResult.RPC_E_DISCONNECTED, marks=pytest.mark.slow
        ),  # takes 10 s
    ],
    ids=["too large", "without state", "slow"],
)
def test_an_object_that_cannot_be_saved_is_an_error_and_the_message_stays(
    new: Callable[[str], Any], target: UnsavableObject, hresult: int
) -> None:
    message, before = new("MSMQMessage"), new("MSMQMessage")
    message.Body = "before"
    apartment = message._apartment
    exported = apartment.run(apartment.export(target, message._oleobj_.exporter))
    with pytest.raises(ComError) as failure:
        message.Body = Variant(VT.UNKNOWN, interface_pointer(exported))
    assert failure.value.hresult == hresult
    assert message.Body == "before"
    before.Body = "others go on"


def test_an_object_of_the_server_is_no_body(new: Callable[[str], Any], queue: Any) -> None:
    message = new("MSMQMessage")
    with pytest.raises(ComError) as failure:
        message.Body = queue
    assert failure.value.hresult == ComResult.E_INVALIDARG


def test_errors_are_those_of_the_other_clients(new: Callable[[str], Any], queue: Any) -> None:
    with pytest.raises(QueueExists):
        queue.Create()
    back = queue.Open(1, 0)
    with pytest.raises(MessageNotFound):
        back.Receive(ReceiveTimeout=0)
    with pytest.raises(ReceiveTimeout):
        back.Receive(ReceiveTimeout=50)
    with pytest.raises(AttributeError, match="IMSMQQueue4 has no Nonsense"):
        back.Nonsense  # noqa: B018
    with pytest.raises(AttributeError, match="no property Access that can be set"):
        back.Access = 1
    with pytest.raises(TypeError, match=r"Receive.*no Timeout"):
        back.Receive(Timeout=5)
    with pytest.raises(ComError, match="DISP_E_TYPEMISMATCH"):
        queue.Label = object()
    with pytest.raises(ValueError, match=r"unknown class 'MSMQ.Nonsense'; allowed: MSMQApplication"):
        new("MSMQ.Nonsense")


def test_help_and_completion_know_the_members(new: Callable[[str], Any], queue: Any) -> None:
    assert {"PathName", "Label", "Create", "Open"} <= set(dir(queue))
    text = pydoc.render_doc(type(queue), renderer=pydoc.plaintext)
    assert "Open(self, Access, ShareMode)" in text and "Label: BSTR" in text and "QueueGuid: BSTR (read only)" in text


def test_objects_in_properties_and_collections(new: Callable[[str], Any], queue: Any) -> None:
    message = new("MSMQMessage")
    message.ResponseQueueInfo = queue
    assert message.ResponseQueueInfo.FormatName == queue.FormatName
    assert message.AdminQueueInfo is None
    destination = new("MSMQDestination")
    destination.FormatName = queue.FormatName
    destination.Open()
    message.Body = "by a destination"
    message.Send(destination)
    assert queue.Open(1, 0).Receive(WantDestinationQueue=True).Destination.FormatName == queue.FormatName
    assert queue.PathName.rpartition("\\")[2] in " ".join(new("MSMQApplication").PrivateQueues)


def test_a_collection_is_iterated_called_and_subscripted(new: Callable[[str], Any], queue: Any) -> None:
    elsewhere, message = new("MSMQQueueInfo"), new("MSMQMessage")
    elsewhere.FormatName = "DIRECT=TCP:127.0.0.123\\private$\\q"
    message.Send(elsewhere.Open(2, 0), 3)
    management = new("MSMQManagement")
    management.Init(..., ..., elsewhere.FormatName)
    found = CastTo(management, "IMSMQOutgoingQueueManagement").EodGetSendInfo()
    assert len(found) == found.Count == 11
    count = found["EodNoAckCount"]
    assert count == found("EodNoAckCount") == found.Item("EodNoAckCount") == found(Index="eodnoackcount")
    values = list(found)
    assert len(values) == 11 and count in values
    sequence = found["EodNextSeq"]
    assert list(sequence) == [sequence["SeqID"], sequence["SeqNo"], sequence["PrevNo"]]
    for refused in (lambda: iter(queue), lambda: queue["x"], queue, lambda: len(queue)):
        with pytest.raises(TypeError, match="IMSMQQueueInfo4"):
            refused()


@pytest.mark.parametrize(
    "name",
    ["MSMQ.MSMQMessage", "MSMQ.MSMQMessage.1", "msmq.msmqmessage.3", "MSMQMessage", "MSMQMessage.2",
     "{D7D6E075-DCCD-11D0-AA4B-0060970DEBAE}", "d7d6e075-dccd-11d0-aa4b-0060970debae"],
)  # fmt: skip
def test_a_class_has_its_name_with_and_without_version_and_its_identifier(new: Callable[[str], Any], name: str) -> None:
    assert new(name).Priority == 3


@pytest.mark.parametrize("name", ["MSMQ.MSMQMessage.12", "Other.MSMQMessage", "MSMQMessage.x", "1", "MSMQ."])
def test_other_names_are_no_classes(new: Callable[[str], Any], name: str) -> None:
    with pytest.raises(ValueError, match=r"unknown class .*; allowed: MSMQApplication"):
        new(name)


class Collector:
    """A sink that records events and receives the message."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.came = threading.Event()

    def Arrived(self, queue: Any, cursor: int) -> None:
        self.told.append(("Arrived", cursor, queue.Receive(ReceiveTimeout=0).Body))
        self.came.set()

    def ArrivedError(self, queue: Any, error: int, cursor: int) -> None:
        self.told.append(("ArrivedError", cursor, error & 0xFFFFFFFF))
        self.came.set()


def test_T19_events_come_once_and_the_queue_can_be_used_in_them(new: Callable[[str], Any], queue: Any) -> None:
    out, back, sink, event = queue.Open(2, 0), queue.Open(1, 0), Collector(), new("MSMQEvent")
    message = new("MSMQMessage")
    with WithEvents(event, sink):
        back.EnableNotification(event)
        for body in ("first", "second"):
            message.Body = body
            message.Send(out)
        assert sink.came.wait(PATIENCE)
        back.EnableNotification(event, Cursor=0, ReceiveTimeout=1000)
        deadline = time.monotonic() + PATIENCE
        while len(sink.told) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        sink.came.clear()
        back.EnableNotification(event, ReceiveTimeout=100)
        assert sink.came.wait(PATIENCE)
    assert sink.told == [("Arrived", 0, "first"), ("Arrived", 0, "second"), ("ArrivedError", 0, 0xC00E001B)]
    message.Send(out)
    back.EnableNotification(event)
    assert not sink.told[3:]


def test_T19_a_sink_that_returns_an_error_is_told_the_next_event(
    new: Callable[[str], Any], queue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs return DISP_E_MEMBERNOTFOUND for events without a handler; [MC-MQAC] 3.16.4.4 has no return values."""
    answers = _Sink.Invoke

    def invoke(self: _Sink, context: Any, request: Any) -> Any:
        answer = answers(self, context, request)
        answer.result = ComResult.DISP_E_MEMBERNOTFOUND
        return answer

    monkeypatch.setattr(_Sink, "Invoke", invoke)
    back, sink, event = queue.Open(1, 0), Collector(), new("MSMQEvent")
    with WithEvents(event, sink):
        for count in (1, 2):
            sink.came.clear()
            back.EnableNotification(event, ReceiveTimeout=0)
            assert sink.came.wait(PATIENCE) and len(sink.told) == count


def test_T19_a_failing_or_missing_sink_affects_nobody(new: Callable[[str], Any], queue: Any, daemon: Daemon) -> None:
    out, back, sink, event = queue.Open(2, 0), queue.Open(1, 0), Collector(), new("MSMQEvent")
    WithEvents(event, Collector())
    apartment = event._apartment
    assert apartment._listener is not None
    apartment.run(apartment._listener.shut_down(0))
    back.EnableNotification(event)
    message = new("MSMQMessage")
    message.Body = "seen by others"
    message.Send(out)
    deadline = time.monotonic() + PATIENCE
    while "could not be called and is dropped" not in daemon.log:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert back.Receive(ReceiveTimeout=1000).Body == "seen by others" and not sink.told


def test_unreferenced_objects_are_released(new: Callable[[str], Any], queue: Any) -> None:
    owner = queue.Open(1, 1)
    del owner
    gc.collect()
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            queue.Open(1, 1)
            break
        except SharingViolation:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_held_objects_outlive_unpinged_ones(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", "--com-ping-seconds", "3") as daemon:
        _outlive(daemon)
        close_all()
    assert "Traceback" not in daemon.log, daemon.log


def _outlive(daemon: Daemon) -> None:
    queue = Dispatch("MSMQ.MSMQQueueInfo", host="127.0.0.1", port=daemon.mapper_port, ping_seconds=0.4)
    queue.PathName = ".\\private$\\pinged"
    queue.Create()
    held = queue.Open(1, 1)
    unpinged = Connection("127.0.0.1", daemon.mapper_port)  # impacket pings only every two minutes
    info, path = unpinged.new("QueueInfo"), ".\\private$\\unpinged"
    info.put("PathName", path)
    info.call("Create")
    opened = info.call("Open", 1, 1)
    assert opened.get("Access") == 1
    deadline = time.monotonic() + PATIENCE
    with daemon.connect() as manager:
        while True:
            try:
                manager.open(path, "receive").close()
                break
            except SharingViolation:
                assert time.monotonic() < deadline
                time.sleep(0.05)
    assert held.Access == 1
    unpinged.disconnect()


def test_many_threads_use_the_same_objects(new: Callable[[str], Any], queue: Any) -> None:
    out, back = queue.Open(2, 0), queue.Open(1, 0)
    found: list[str] = []

    def work(number: int) -> None:
        message = new("MSMQMessage")
        message.Label = str(number)
        message.Send(out)
        found.append(back.Receive(ReceiveTimeout=20_000).Label)

    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [str(number) for number in range(8)]
