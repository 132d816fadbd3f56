"""Individual rules of MC-MQAC with visible effects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dcom.world import ANONYMOUS, RESOLVER, ComWorld
from msrpc.dcom.activation import interface_pointer
from msrpc.dcom.server import CallContext
from msrpc.dcom.variant import VT, SafeArray, Variant, to_wire
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_oaut as o
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import ComError, HResult, IllegalPropertyValue, InvalidHandle, MessageNotFound, MsmqError
from openmsmq.model.message import Message
from openmsmq.model.names import parse_format_name
from openmsmq.protection.internal_certificates import InternalCertificate
from openmsmq.protocols.mqac import management
from openmsmq.protocols.mqac.message import MSMQMessage
from openmsmq.protocols.mqac.transactions import MSMQTransaction
from protection.material import certificate_of, key_of
from waiting import until

RECEIVE, SEND, PEEK = 1, 2, 0x20
NOT_NOW, YES = Variant(VT.I4, 0), Variant(VT.BOOL, True)
CONNECTOR = "{6A2C1F00-0000-0000-0000-00000000000C}"


class QueueObjects:
    """A queue `q` and its objects."""

    def __init__(self, *, transactional: bool = False) -> None:
        self.world = ComWorld()
        self.context: CallContext = self.world.context()
        self.info = self.world.new("QueueInfo")
        self.info.put_PathName(self.context, ".\\private$\\q")
        for name, value in {"Quota": 500, "JournalQuota": 600, "Journal": 1, "Authenticate": 0, "PrivLevel": 0}.items():
            getattr(self.info, f"put_{name}")(self.context, value)
        self.info.Create(self.context, Variant(VT.BOOL, transactional), None)

    def open(self, access: int) -> Any:
        return self.info.Open(self.context, access, 0)

    def send(self, body: str = "body", transaction: MSMQTransaction | None = None, **values: Any) -> Any:
        message = self.world.new("Message")
        message.put_Body(self.context, Variant(VT.BSTR, body))
        for name, value in values.items():
            getattr(message, f"put_{name}")(self.context, value)
        message.Send(self.context, self.open(SEND), transaction and Variant(VT.DISPATCH, transaction))
        return message


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_a_queue_that_was_created_has_its_properties_at_once() -> None:
    """3.10.4.1.26 sets IsApplicationQueue."""
    setup = QueueObjects()
    names = ("Quota", "JournalQuota", "Journal", "PrivLevel", "QueueGuid", "ModifyTime", "Authenticate")
    created = [getattr(setup.info, f"get_{name}")(setup.context) for name in names]
    setup.info.Refresh(setup.context)
    assert created == [getattr(setup.info, f"get_{name}")(setup.context) for name in names]
    assert created[:4] == [500, 600, 1, 0] and created[4] is not None


def test_the_path_name_of_a_missing_queue_is_an_error() -> None:
    """3.10.4.1.6."""
    world = ComWorld()
    with pytest.raises(MsmqError):
        world.new("QueueInfo").get_PathName(world.context())


@pytest.mark.parametrize("wanted", [None, Variant(VT.BOOL, False), YES])
def test_the_connector_type_is_returned_on_request(wanted: Variant | None) -> None:
    async def steps() -> None:
        setup = QueueObjects()
        setup.send(ConnectorTypeGuid=CONNECTOR)
        queue = setup.open(RECEIVE)
        nothing = "{00000000-0000-0000-0000-000000000000}"
        found = queue.Peek(setup.context, None, None, NOT_NOW, wanted)
        assert found.get_ConnectorTypeGuid(setup.context) == (CONNECTOR if wanted is YES else nothing)
        first = queue.ReceiveFirstByLookupId(setup.context, None, None, None, wanted)
        assert first.get_ConnectorTypeGuid(setup.context) == (CONNECTOR if wanted is YES else nothing)

    run(steps())


@pytest.mark.parametrize("text", [CONNECTOR[1:-1], "urn:uuid:" + CONNECTOR[1:-1], CONNECTOR.replace("-", ""), "", None])
def test_a_connector_type_has_braces_and_the_machine_has_none(text: str | None) -> None:
    """3.17.4.1.54, 3.17.4.1.19."""
    setup = QueueObjects()
    message = setup.send()
    with pytest.raises(IllegalPropertyValue, match="not a GUID in braces"):
        message.put_ConnectorTypeGuid(setup.context, text)
    message.put_ConnectorTypeGuid(setup.context, CONNECTOR.lower())
    assert message.get_ConnectorTypeGuid(setup.context) == CONNECTOR
    machine = message.get_SourceMachineGuid(setup.context)
    assert len(machine) == 36 and "{" not in machine


def test_notifications_check_the_cursor_first() -> None:
    """3.11.4.1.9."""
    setup = QueueObjects()
    for queue in (setup.open(PEEK), setup.world.new("Queue")):
        with pytest.raises(ComError) as refused:
            queue.EnableNotification(setup.context, None, Variant(VT.I4, 7), None)
        assert refused.value.hresult == ComResult.E_INVALIDARG and "allowed: 0, 1 and 2" in refused.value.detail
    closed = setup.open(PEEK)
    closed.close()
    with pytest.raises(InvalidHandle):
        closed.EnableNotification(setup.context, None, None, None)


@pytest.mark.parametrize(("kind", "name"), [(1, ""), (0, "of a connector"), (5, "")])
def test_a_received_message_is_sent_on_whatever_its_packet_says_of_the_provider(kind: int, name: str) -> None:
    """3.17.4.1.48 needs both type and name; a packet signed by the default provider names none ([MS-MQMQ] 2.2.20.6)."""
    setup = QueueObjects()
    received = Message(b"body", signature=b"s", authentication_provider_type=kind, authentication_provider_name=name)
    MSMQMessage(setup.world.protocols.environment, received).Send(setup.context, setup.open(SEND), None)
    (sent,) = setup.world.protocols.world.messages(setup.world.protocols.world.queue("q"))
    assert (sent.body, sent.signature) == (b"body", b"")


def test_a_received_message_that_was_encrypted_can_be_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is not sent on, so the body is plain; only the name of this queue is not suitable for encryption."""
    setup = QueueObjects()
    environment = setup.world.protocols.environment
    signer = InternalCertificate(certificate_of(), key_of())
    monkeypatch.setattr(environment.message_security, "internal_certificate", lambda sid: signer)
    message = MSMQMessage(environment, Message(b"body", privacy_level=5, symmetric_key=b"key"))
    message.put_AuthLevel(setup.context, 1)
    with pytest.raises(MsmqError) as refused:
        message.Send(setup.context, setup.open(SEND), None)
    assert refused.value.hresult == HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION


class _Told:
    """A sink that records what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, list[int]]] = []

    async def invoke(self, context: Any, dispid: int, queue: Any, numbers: list[int]) -> None:
        self.told.append((dispid, numbers))


@pytest.mark.parametrize("cursor", [1, 2], ids=["current", "next"])
def test_a_notification_looks_beyond_a_message_that_another_reader_has_taken(cursor: int) -> None:
    """3.11.4.1.9: the cursor is advanced until it finds a suitable message; at the end, the call waits for one."""

    async def steps() -> None:
        setup, sink = QueueObjects(), _Told()
        setup.send("one")
        queue, event = setup.open(PEEK), setup.world.new("Event")
        event.sinks[1] = sink
        assert queue.PeekCurrent(setup.context, None, None, NOT_NOW).message.body == "one".encode("utf-16-le")
        setup.open(RECEIVE).Receive(setup.context, None, None, None, NOT_NOW)
        queue.EnableNotification(setup.context, event, Variant(VT.I4, cursor), None)
        await asyncio.sleep(0)
        assert not sink.told
        setup.send("two")
        setup.world.protocols.world.turn()
        await until(lambda: sink.told)
        assert sink.told == [(0, [cursor])]
        assert queue.PeekCurrent(setup.context, None, None, NOT_NOW).message.body == "two".encode("utf-16-le")

    run(steps())


def test_the_cursor_of_any_open_queue_can_be_reset() -> None:
    """3.11.4.1.10 has no check of the access."""
    setup = QueueObjects()
    for access in (SEND, PEEK, RECEIVE):
        setup.open(access).Reset(setup.context)


def test_a_locked_message_is_not_found_by_its_lookup_identifier() -> None:
    """3.11.4.1.26."""

    async def steps() -> None:
        setup = QueueObjects(transactional=True)
        transaction = setup.world.new("TransactionDispenser").BeginTransaction(setup.context)
        setup.send(transaction=transaction)
        transaction.Commit(setup.context, None, None, None)
        queue = setup.open(RECEIVE)
        key = queue.Peek(setup.context, None, None, NOT_NOW).get_LookupId(setup.context)
        other = setup.world.new("TransactionDispenser").BeginTransaction(setup.context)
        queue.Receive(setup.context, Variant(VT.DISPATCH, other), None, None, NOT_NOW)
        with pytest.raises(MsmqError) as refused:
            queue.PeekByLookupId(setup.context, key, None, None, None)
        assert refused.value.hresult == HResult.MQ_ERROR_MESSAGE_NOT_FOUND
        assert issubclass(MessageNotFound, MsmqError)

    run(steps())


def test_the_destination_of_a_message_to_several_queues_names_them_all() -> None:
    """3.17.4.1.82."""

    async def steps() -> None:
        setup = QueueObjects()
        other = setup.world.new("QueueInfo")
        other.put_PathName(setup.context, ".\\private$\\r")
        other.Create(setup.context, None, None)
        several = "DIRECT=OS:.\\private$\\q,DIRECT=OS:.\\private$\\r"
        target = setup.world.new("Destination")
        target.put_FormatName(setup.context, several)
        message = setup.world.new("Message")
        message.Send(setup.context, target, None)
        assert message.get_Destination(setup.context).format_name == several
        received = setup.open(RECEIVE).Receive(setup.context, None, YES, None, NOT_NOW)
        assert received.get_Destination(setup.context).format_name == several
        assert received.get_DestinationQueueInfo(setup.context).format_name == "DIRECT=OS:.\\private$\\q"

    run(steps())


def test_closing_a_handle_does_not_close_a_destination() -> None:
    """3.12.4.2.2."""
    setup = QueueObjects()
    for nothing in (Variant(VT.I8, 0), Variant(VT.I8, -1), Variant(VT.NULL, None)):
        target = setup.world.new("Destination")
        target.put_PathName(setup.context, ".\\private$\\q")
        target.Open(setup.context)
        target.put_Handle(setup.context, target.get_Handle(setup.context))
        assert target.get_IsOpen(setup.context) and target.get_PathName(setup.context) == ""
        target.put_Handle(setup.context, nothing)
        assert not target.get_IsOpen(setup.context)
        with pytest.raises(ComError):
            target.put_Handle(setup.context, Variant(VT.I8, 4711))


def test_success_codes_other_than_S_OK_are_returned_by_both_kinds_of_calls() -> None:
    async def steps() -> None:
        setup = QueueObjects()
        target = setup.world.new("Destination")
        ipid = setup.world.export(target, m.IMSMQDestination).ipid
        dispatch = setup.world.export(target, o.IDispatch).ipid
        assert (await setup.world.call(ipid, m.IMSMQDestination, "Close")).result == ComResult.S_FALSE
        close = next(member for member in m.IMSMQDestination.all_members if member.name == "Close")
        answer = await setup.world.call(
            dispatch, o.IDispatch, "Invoke", dispIdMember=close.dispid, dwFlags=1,
            pDispParams=o.DISPPARAMS(None, None, 0, 0),
        )  # fmt: skip
        assert answer.result == ComResult.S_FALSE and not answer.pExcepInfo.scode

    run(steps())


def test_collections_about_transfers_have_the_types_of_the_tables() -> None:
    """2.2.4.1, 2.2.4.2."""
    world = ComWorld()
    environment = world.protocols.environment
    made = {name: convert(environment, None).vt for name, (_, convert) in management._SEND_INFO.items()}
    counts = {"EodLastAckCount", "EodNoAckCount", "EodNoReadCount", "EodResendCount", "EodResendInterval"}
    times = {"EodLastAckTime", "EodResendTime"}
    for name, vt in made.items():
        assert vt == (VT.UI4 if name in counts else VT.I4 if name in times else VT.DISPATCH), name
    row = management._collection(environment, ("DIRECT=OS:x\\q", bytes(16), 5, 6, 1_700_000_000, 7)).value
    found = {key: value.vt for key, value in row._values.items()}
    assert found == {"queueformatname": VT.BSTR, "senderid": VT.BSTR, "seqid": VT.UI8, "seqno": VT.I4,
                     "lastaccesstime": VT.I4, "rejectcount": VT.I4}  # fmt: skip


def test_an_object_whose_last_references_come_with_a_call_serves_it_and_ends_then() -> None:
    """[MS-DCOM] 3.1.1.5.3: the call gets the object itself."""

    async def steps() -> None:
        setup = QueueObjects()
        queue, message = setup.open(SEND), setup.world.new("Message")
        message.put_Body(setup.context, Variant(VT.ARRAY | VT.UI1, SafeArray.of(VT.UI1, b"last")))
        given = setup.world.exporter.marshal(queue, o.IDispatch.uuid, RESOLVER, ANONYMOUS)
        ipid = setup.world.export(message, m.IMSMQMessage4).ipid
        missing = to_wire(Variant(VT.ERROR, 0x80020004), lambda target, by_dispatch: None)
        pointer = interface_pointer(given.pack())
        answer = await setup.world.call(ipid, m.IMSMQMessage4, "Send", a0=pointer, a1=missing)
        assert not answer.result
        with pytest.raises(InvalidHandle):
            queue.opened()
        assert setup.open(RECEIVE).Receive(setup.context, None, None, None, NOT_NOW).message.body == b"last"

    run(steps())


def test_a_certificate_is_not_given_together_with_the_wish_to_make_one_only_if_there_is_none() -> None:
    """3.2.4.2.1: also an empty certificate."""
    world = ComWorld()
    application, context = world.new("Application"), world.context()
    only_new = Variant(VT.I4, m.MQCERT_REGISTER_IF_NOT_EXIST)
    for certificate in (b"", b"x"):
        given = Variant(VT.ARRAY | VT.UI1, SafeArray.of(VT.UI1, certificate))
        with pytest.raises(MsmqError) as refused:
            run(application.RegisterCertificate(context, only_new, given))
        assert refused.value.hresult == HResult.MQ_ERROR_INVALID_PARAMETER
    for nothing in (None, Variant(VT.EMPTY, None), Variant(VT.NULL, None)):
        with pytest.raises(MsmqError) as refused:
            run(application.RegisterCertificate(context, only_new, nothing))
        assert refused.value.hresult != HResult.MQ_ERROR_INVALID_PARAMETER


@pytest.mark.parametrize("value", [-32768, 0, 32767])
def test_the_base_priority_of_a_public_queue_is_a_signed_word(value: int) -> None:
    info = ComWorld().new("QueueInfo")
    info.format_name = "PUBLIC=00000000-0000-0000-0000-000000000001"
    context = CallContext.__new__(CallContext)
    info.put_BasePriority(context, value)
    for wrong in (-32769, 32768):
        with pytest.raises(IllegalPropertyValue):
            info.put_BasePriority(context, wrong)


def test_an_administrator_takes_the_machine_offline_and_online() -> None:
    """3.2.4.3.8, 3.2.4.3.9."""
    world = ComWorld()
    application, outgoing = world.new("Application"), world.protocols.world.manager.outgoing
    with pytest.raises(MsmqError):
        application.Disconnect(world.context())
    assert outgoing.online
    world.protocols.administrators.add(None)
    application.Disconnect(world.context())
    assert not outgoing.online
    application.Connect(world.context())
    assert outgoing.online


def test_management_of_a_queue_elsewhere_remembers_which_one() -> None:
    """3.3."""
    world = ComWorld()
    target = world.new("Management")
    name = parse_format_name("DIRECT=OS:there\\private$\\q")

    class RemoteManager:
        async def derived(self, caller: object, asked: str, wanted: object, convert: Callable[[str], bool]) -> bool:
            assert asked == str(name)
            return convert("remote")

    elsewhere: Any = RemoteManager()
    run(target._init_remotely(world.context(), elsewhere, name))
    assert (target._initialized_name(), target._remote, target._is_outgoing) == (name, elsewhere, True)
