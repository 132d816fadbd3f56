"""CACTransferBufferV2 of a read, member by member ([MS-MQMP] 3.1.5.3)."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from msrpc.ndr import NULL
from openmsmq.conversion.receive_buffer import BufferSizes, check_sizes, fill, message_from_receive, receive_buffer
from openmsmq.conversion.send_buffer import message_from_send, send_buffer
from openmsmq.interfaces import ms_mqmp
from openmsmq.interfaces.ms_mqmp import CACTransferBufferV1, CACTransferBufferV1_Receive, CACTransferBufferV2
from openmsmq.interfaces.ms_mqmq import OBJECTID
from openmsmq.model.constants import INFINITE, ReceiveAction
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from openmsmq.model.security import sid_bytes

NOW = 1_700_000_100
MESSAGE = Message(
    body=b"the body", label="label", body_type=8, priority=5, delivery_guarantee=1, acknowledgements_requested=14,
    journaling_requested=3, message_class=0x4000, application_tag=77, correlation_identifier=b"c" * 20,
    extension=b"extension", time_to_reach_queue=500, time_to_be_received=1000,
    administration_queue_format_name="DIRECT=OS:h\\admin", response_queue_format_name="DIRECT=OS:h\\resp",
    destination_queue_format_name="DIRECT=OS:h\\dest", transaction_status_queue_format_name="DIRECT=OS:h\\order",
    tracing_requested=1, privacy_level=3, authentication_level=1, hash_algorithm=0x8003, encryption_algorithm=0x6602,
    sender_identifier_type=1, sender_identifier=b"sender", sender_certificate=b"certificate", symmetric_key=b"key",
    signature=b"signature", authentication_provider_type=1, authentication_provider_name="provider",
    connector_type_identifier=b"k" * 16, identifier=b"m" * 16 + b"\5\0\0\0", source_machine_identifier=b"s" * 16,
    sent_time=NOW - 100, arrival_time=NOW - 50, transaction_identifier=b"t" * 16 + b"\6\0\0\0",
    first_in_transaction=True, last_in_transaction=False,
)  # fmt: skip
EMPTY = Message(sent_time=NOW, arrival_time=NOW)


def buffer(**receive: Any) -> CACTransferBufferV2:
    """Return a buffer that requests no properties except those given."""
    return CACTransferBufferV2(old=CACTransferBufferV1(uTransferType=1, Receive=CACTransferBufferV1_Receive(**receive)))


def owner(ptb: CACTransferBufferV2, name: str) -> Any:
    return next(o for o in (ptb.old.Receive, ptb.old, ptb) if hasattr(o, name))


SCALARS = [  # member, initial value, returned value, returned value for an empty message
    ("pClass", 0, 0x4000, 0),
    ("ppMessageID", OBJECTID(bytes(16), 0), OBJECTID(b"m" * 16, 5), OBJECTID(bytes(16), 0)),
    ("ppCorrelationID", bytes(20), b"c" * 20, bytes(20)),
    ("pSentTime", 0, NOW - 100, NOW),
    ("pArrivedTime", 0, NOW - 50, NOW),
    ("pPriority", 0, 5, 3),
    ("pDelivery", 0, 1, 0),
    ("pAcknowledge", 0, 14, 0),
    ("pAuditing", 0, 3, 0),
    ("pApplicationTag", 0, 77, 0),
    ("pulRelativeTimeToQueue", 0, 400, INFINITE),
    ("pulRelativeTimeToLive", 0, 900, INFINITE),
    ("pTrace", 0, 1, 0),
    ("pulSenderIDType", 0, 1, 0),
    ("pulPrivLevel", 0, 3, 0),
    ("pAuthenticated", 0, 1, 0),
    ("pulHashAlg", 0, 0x8003, 0),
    ("pulEncryptAlg", 0, 0x6602, 0),
    ("pulProvType", 0, 1, 0),
    ("ppSrcQMID", bytes(16), b"s" * 16, bytes(16)),
    ("ppConnectorType", bytes(16), b"k" * 16, bytes(16)),
    ("pulBodyType", 0, 8, 0),
    ("pulVersion", 0, 0x10, 0x10),
    ("pbFirstInXact", 7, 1, 0),
    ("pbLastInXact", 7, 0, 0),
    ("ppXactID", OBJECTID(bytes(16), 0), OBJECTID(b"t" * 16, 6), OBJECTID(bytes(16), 0)),
]  # fmt: skip
# Buffer, size member, length property, error, returned value, minimum size.
NAME_ERROR = HResult.MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL
TEXTS = [
    ("ppResponseFormatName", "ulResponseFormatNameLen", "pulResponseFormatNameLenProp", NAME_ERROR,
     "DIRECT=OS:h\\resp"),
    ("ppAdminFormatName", "ulAdminFormatNameLen", "pulAdminFormatNameLenProp", NAME_ERROR, "DIRECT=OS:h\\admin"),
    ("ppDestFormatName", "ulDestFormatNameLen", "pulDestFormatNameLenProp", NAME_ERROR, "DIRECT=OS:h\\dest"),
    ("ppOrderingFormatName", "ulOrderingFormatNameLen", "pulOrderingFormatNameLenProp", NAME_ERROR,
     "DIRECT=OS:h\\order"),
    ("ppTitle", "ulTitleBufferSizeInWCHARs", "pulTitleBufferSizeInWCHARs", HResult.MQ_ERROR_LABEL_BUFFER_TOO_SMALL,
     "label"),
    ("ppwcsProvName", "ulProvNameLen", "pulAuthProvNameLenProp", HResult.MQ_ERROR_PROV_NAME_BUFFER_TOO_SMALL,
     "provider"),
]  # fmt: skip
BYTES = [
    ("ppBody", "ulBodyBufferSizeInBytes", "pBodySize", HResult.MQ_ERROR_BUFFER_OVERFLOW, b"the body"),
    ("ppMsgExtension", "ulMsgExtensionBufferInBytes", "pMsgExtensionSize", HResult.MQ_ERROR_BUFFER_OVERFLOW,
     b"extension"),
    ("ppSenderID", "uSenderIDLen", "pulSenderIDLenProp", HResult.MQ_ERROR_SENDERID_BUFFER_TOO_SMALL, b"sender"),
    ("ppSenderCert", "ulSenderCertLen", "pulSenderCertLenProp", HResult.MQ_ERROR_SENDER_CERT_BUFFER_TOO_SMALL,
     b"certificate"),
    ("ppSymmKeys", "ulSymmKeysSize", "pulSymmKeysSizeProp", HResult.MQ_ERROR_SYMM_KEY_BUFFER_TOO_SMALL, b"key"),
    ("ppSignature", "ulSignatureSize", "pulSignatureSizeProp", HResult.MQ_ERROR_SIGNATURE_BUFFER_TOO_SMALL,
     b"signature"),
]  # fmt: skip
IGNORED = {
    "Send", "CreateCursor", "Asynchronous", "ulAbsoluteTimeToQueue", "ulRelativeTimeToLive", "ulAuthLevel",
    "bEncrypted", "bAuthenticated", "fDefaultProvider",
}  # fmt: skip
REQUEST = {"uTransferType", "Receive", "RequestTimeout", "Action", "Cursor", "pUow", "ulAllocBodyBufferInBytes", "old"}


def test_the_tables_cover_every_member() -> None:
    classes = (CACTransferBufferV1, CACTransferBufferV1_Receive, CACTransferBufferV2)
    members = {name for cls in classes for name in cls.__slots__}
    covered = {row[0] for row in SCALARS} | {name for row in (*TEXTS, *BYTES) for name in row[:3]}
    assert members == covered | IGNORED | REQUEST


@pytest.mark.parametrize(("name", "given", "filled", "blank"), SCALARS, ids=[row[0] for row in SCALARS])
def test_a_member_is_filled_where_a_pointer_was_given_and_only_there(
    name: str, given: Any, filled: Any, blank: Any
) -> None:
    for message, expected in ((MESSAGE, filled), (EMPTY, blank)):
        ptb = buffer()
        setattr(owner(ptb, name), name, given)
        assert fill(ptb, message, NOW) == HResult.MQ_OK
        assert getattr(owner(ptb, name), name) == expected
        others = buffer()
        setattr(owner(others, name), name, expected)
        assert ptb == others, "nothing else changed"


def test_a_buffer_that_asks_for_nothing_gets_nothing() -> None:
    ptb = buffer()
    assert fill(ptb, MESSAGE, NOW) == HResult.MQ_OK
    assert ptb == buffer()


def test_expired_times_are_returned_as_zero() -> None:
    ptb = buffer()
    ptb.old.pulRelativeTimeToQueue = ptb.old.pulRelativeTimeToLive = 1
    fill(ptb, MESSAGE, NOW + 5000)
    assert (ptb.old.pulRelativeTimeToQueue, ptb.old.pulRelativeTimeToLive) == (0, 0)


def test_times_that_exceed_32_bits_are_returned_as_infinite() -> None:
    """The clock of the sender may be ahead."""
    ptb = buffer()
    ptb.old.pulRelativeTimeToQueue = ptb.old.pulRelativeTimeToLive = 1
    long = Message(sent_time=NOW + 5, time_to_reach_queue=INFINITE - 4, time_to_be_received=INFINITE - 5)
    fill(ptb, long, NOW)
    assert (ptb.old.pulRelativeTimeToQueue, ptb.old.pulRelativeTimeToLive) == (INFINITE, INFINITE)
    fill(ptb, long, NOW + 6)
    assert (ptb.old.pulRelativeTimeToQueue, ptb.old.pulRelativeTimeToLive) == (INFINITE - 5, INFINITE - 6)


def _with_text(name: str, size: str, length: str, capacity: int) -> CACTransferBufferV2:
    ptb = buffer()
    holder = owner(ptb, name)
    setattr(holder, name, "\0" * capacity)
    setattr(holder, size, capacity)
    setattr(holder, length, capacity)
    return ptb


@pytest.mark.parametrize(("name", "size", "length", "error", "text"), TEXTS, ids=[row[0] for row in TEXTS])
def test_a_text_fits_with_its_terminator_or_its_length_is_reported(
    name: str, size: str, length: str, error: HResult, text: str
) -> None:
    needed = len(text) + 1
    for capacity in (needed, needed + 10):
        ptb = _with_text(name, size, length, capacity)
        holder = owner(ptb, name)
        assert fill(ptb, MESSAGE, NOW) == HResult.MQ_OK
        assert getattr(holder, name).partition("\0")[0] == text
        assert getattr(holder, length) == needed
        assert len(getattr(holder, name)) == getattr(holder, size)
    for capacity in (needed - 1, 0):
        ptb = _with_text(name, size, length, capacity)
        holder = owner(ptb, name)
        assert fill(ptb, MESSAGE, NOW) == error
        assert getattr(holder, name) == "\0" * capacity
        assert getattr(holder, length) == needed


@pytest.mark.parametrize(("name", "size", "length", "error", "text"), TEXTS, ids=[row[0] for row in TEXTS])
@pytest.mark.parametrize("absent", [None, NULL])
def test_a_text_without_buffer_reports_its_length_without_error(
    name: str, size: str, length: str, error: HResult, text: str, absent: Any
) -> None:
    ptb = buffer()
    holder = owner(ptb, name)
    setattr(holder, name, absent)
    setattr(holder, length, 0)
    assert fill(ptb, MESSAGE, NOW) == HResult.MQ_OK
    assert getattr(holder, name) is absent
    assert getattr(holder, length) == len(text) + 1


@pytest.mark.parametrize(("name", "size", "length", "error", "text"), TEXTS, ids=[row[0] for row in TEXTS])
def test_a_text_that_the_message_does_not_have(name: str, size: str, length: str, error: HResult, text: str) -> None:
    ptb = _with_text(name, size, length, 30)
    holder = owner(ptb, name)
    assert fill(ptb, EMPTY, NOW) == HResult.MQ_OK
    assert getattr(holder, length) == (1 if name == "ppTitle" else 0)
    assert not (getattr(holder, name) or "").strip("\0")
    assert len(getattr(holder, name) or "") == getattr(holder, size)


def test_a_character_outside_the_basic_plane_counts_twice() -> None:
    row = next(row for row in TEXTS if row[0] == "ppTitle")
    message = Message(label="\U0001f600")
    assert fill(_with_text(*row[:3], 2), message, NOW) == HResult.MQ_ERROR_LABEL_BUFFER_TOO_SMALL
    ptb = _with_text(*row[:3], 3)
    assert fill(ptb, message, NOW) == HResult.MQ_OK
    assert ptb.old.pulTitleBufferSizeInWCHARs == 3


def _with_bytes(name: str, size: str, length: str, capacity: int) -> CACTransferBufferV2:
    ptb = buffer()
    setattr(ptb.old, name, bytes(capacity))
    setattr(ptb.old, size, capacity)
    setattr(ptb.old, length, 0)
    return ptb


@pytest.mark.parametrize(("name", "size", "length", "error", "data"), BYTES, ids=[row[0] for row in BYTES])
def test_bytes_fit_or_their_length_is_reported(name: str, size: str, length: str, error: HResult, data: bytes) -> None:
    for capacity in (len(data), len(data) + 9):
        ptb = _with_bytes(name, size, length, capacity)
        assert fill(ptb, MESSAGE, NOW) == HResult.MQ_OK
        assert getattr(ptb.old, name) == data.ljust(capacity, b"\0")
        assert (getattr(ptb.old, length), getattr(ptb.old, size)) == (len(data), capacity)
    for capacity in (len(data) - 1, 0):
        ptb = _with_bytes(name, size, length, capacity)
        assert fill(ptb, MESSAGE, NOW) == error
        assert getattr(ptb.old, name) == bytes(capacity)
        assert (getattr(ptb.old, length), getattr(ptb.old, size)) == (len(data), capacity)
    for absent in (None, NULL):
        ptb = _with_bytes(name, size, length, 0)
        setattr(ptb.old, name, absent)
        assert fill(ptb, MESSAGE, NOW) == HResult.MQ_OK
        assert getattr(ptb.old, name) is absent
        assert getattr(ptb.old, length) == len(data)
    ptb = _with_bytes(name, size, length, 5)
    assert fill(ptb, EMPTY, NOW) == HResult.MQ_OK
    assert (getattr(ptb.old, name), getattr(ptb.old, length)) == (bytes(5), 0)


def test_a_too_small_buffer_reports_all_lengths_and_fills_nothing() -> None:
    ptb = receive_buffer(ReceiveAction.RECEIVE, 0, sizes=BufferSizes(body=3, provider=9))
    before = receive_buffer(ReceiveAction.RECEIVE, 0, sizes=BufferSizes(body=3, provider=9))
    assert fill(ptb, MESSAGE, NOW) == HResult.MQ_ERROR_BUFFER_OVERFLOW
    for name, _, length, _, value in (*TEXTS, *BYTES):
        holder = owner(ptb, name)
        assert getattr(holder, name) == getattr(owner(before, name), name)
        if getattr(owner(before, name), length) is not None:
            assert getattr(holder, length) == len(value) + isinstance(value, str)
    assert all(getattr(owner(ptb, row[0]), row[0]) == getattr(owner(before, row[0]), row[0]) for row in SCALARS)


def test_members_that_are_to_be_ignored_come_back_as_they_were() -> None:
    sizes = BufferSizes(1024, 20, 68, 64, 20, 20, 20, 20)
    ptb = receive_buffer(ReceiveAction.RECEIVE, 5, cursor=9, uow=b"u" * 16, sizes=sizes)
    ptb.old.ulAbsoluteTimeToQueue, ptb.old.ulRelativeTimeToLive, ptb.old.ulAuthLevel = 1, 2, 3
    ptb.old.bEncrypted, ptb.old.bAuthenticated, ptb.old.fDefaultProvider = 4, 5, 6
    assert fill(ptb, MESSAGE, NOW) == HResult.MQ_OK
    old = ptb.old
    assert (old.ulAbsoluteTimeToQueue, old.ulRelativeTimeToLive, old.ulAuthLevel) == (1, 2, 3)
    assert (old.bEncrypted, old.bAuthenticated, old.fDefaultProvider) == (4, 5, 6)
    assert old.pUow is not None and old.pUow.rgb == b"u" * 16
    assert old.Receive is not None and (old.Receive.Cursor, old.Receive.RequestTimeout) == (9, 5)


def _over_the_wire(ptb: CACTransferBufferV2) -> CACTransferBufferV2:
    operation = ms_mqmp.qmcomm2.operation("rpc_ACReceiveMessageEx")
    sent = ms_mqmp.rpc_ACReceiveMessageEx_Response(ptb=ptb)
    decoded = operation.decode_response(operation.encode_response(sent))
    assert isinstance(decoded.ptb, CACTransferBufferV2)
    return decoded.ptb


def test_what_a_client_asks_for_comes_back_as_the_message() -> None:
    sizes = BufferSizes(100, 100, 50, certificate=50, key=50, signature=50, provider=50)
    for message in (MESSAGE, EMPTY):
        ptb = receive_buffer(ReceiveAction.RECEIVE, 0, sizes=sizes)
        assert fill(ptb, message, NOW) == HResult.MQ_OK
        back = message_from_receive(_over_the_wire(ptb))
        for f in fields(Message):
            if f.name not in ("time_to_reach_queue", "time_to_be_received", "lookup_identifier"):
                assert getattr(back, f.name) == getattr(message, f.name), f.name


def test_a_client_enlarges_its_buffers_until_the_message_fits() -> None:
    big = Message(body=bytes(100_000), extension=bytes(5000), label="l" * 249, sender_identifier=bytes(60),
                  response_queue_format_name="DIRECT=OS:" + "h" * 200 + "\\" + "q" * 124,
                  sender_certificate=bytes(9000), symmetric_key=b"key", signature=b"signature",
                  authentication_provider_name="p" * 99)  # fmt: skip
    sizes = BufferSizes(body=1, extension=0, sender=1)
    for _ in range(3):
        ptb = receive_buffer(ReceiveAction.RECEIVE, 0, sizes=sizes)
        status = fill(ptb, big, NOW)
        if status == HResult.MQ_OK:
            break
        sizes.enlarge(status, _over_the_wire(ptb))
    assert status == HResult.MQ_OK
    back = message_from_receive(ptb)
    assert back.body == big.body and back.authentication_provider_name == big.authentication_provider_name


def test_what_would_have_fitted_is_told_from_what_would_not() -> None:
    for message, fits in ((Message(), True), (Message(body=b"x"), False), (Message(extension=b"x"), False),
                          (Message(sender_identifier=b"x"), False), (Message(sender_certificate=b"x"), False),
                          (Message(response_queue_format_name=MESSAGE.response_queue_format_name), False)):  # fmt: skip
        ptb = receive_buffer(ReceiveAction.RECEIVE, 0, sizes=BufferSizes(10, 10, 50, certificate=10))
        assert fill(ptb, message, NOW) == HResult.MQ_OK
        assert BufferSizes(body=0, extension=0, sender=0, format_name=0).suffice(ptb) is fits, message


def test_a_message_survives_from_client_to_server_to_client() -> None:
    signed = replace(MESSAGE, sender_identifier=sid_bytes("S-1-5-21-1-2-3-1001"))
    for message in (signed, Message(), Message(label="x" * 249, body=bytes(1000), message_class=0)):
        ptb = send_buffer(message)
        operation = ms_mqmp.qmcomm2.operation("rpc_ACSendMessageEx")
        assert operation.request is not None
        request = operation.request(hQueue=bytes(20), ptb=ptb, pMessageID=None)
        decoded = operation.decode_request(operation.encode_request(request))
        received = message_from_send(decoded.ptb, b"")
        for name in ("body", "label", "body_type", "priority", "delivery_guarantee", "application_tag", "extension",
                     "acknowledgements_requested", "journaling_requested", "message_class", "correlation_identifier",
                     "time_to_reach_queue", "time_to_be_received", "administration_queue_format_name", "signature",
                     "response_queue_format_name", "tracing_requested", "privacy_level", "sender_identifier",
                     "sender_identifier_type", "sender_certificate", "connector_type_identifier"):  # fmt: skip
            assert getattr(received, name) == getattr(message, name), name


@pytest.mark.parametrize(
    ("member", "size"),
    [
        ("ppTitle", "ulTitleBufferSizeInWCHARs"),
        ("ppBody", "ulBodyBufferSizeInBytes"),
        ("ppMsgExtension", "ulMsgExtensionBufferInBytes"),
    ],
)
def test_a_size_without_its_buffer_is_refused(member: str, size: str) -> None:
    ptb = buffer()
    setattr(ptb.old, size, 1)
    with pytest.raises(MsmqError, match=member):
        check_sizes(ptb)


def test_the_size_of_the_name_of_a_provider_says_nothing_about_its_buffer() -> None:
    ptb = buffer()
    ptb.old.ulProvNameLen = ptb.old.uSenderIDLen = 1
    check_sizes(ptb)
