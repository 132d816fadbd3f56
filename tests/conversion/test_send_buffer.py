"""CACTransferBufferV2 of a send: each constraint of [MS-MQMP] 3.1.5.2."""

from __future__ import annotations

from typing import Any

import pytest

from msrpc.ndr import NULL
from openmsmq.conversion.send_buffer import is_encrypted, message_from_send, send_buffer
from openmsmq.interfaces.ms_mqmp import CACTransferBufferV1, CACTransferBufferV1_Send, CACTransferBufferV2
from openmsmq.interfaces.ms_mqmq import QUEUE_FORMAT
from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from openmsmq.model.security import sid_bytes

SID = sid_bytes("S-1-5-21-1-2-3-1001")


def buffer(**members: Any) -> CACTransferBufferV2:
    members.setdefault("Send", CACTransferBufferV1_Send())
    return CACTransferBufferV2(old=CACTransferBufferV1(uTransferType=0, **members))


def test_an_empty_buffer_is_a_message_with_the_defaults() -> None:
    message = message_from_send(buffer(), b"")
    assert (message.priority, message.delivery_guarantee, message.acknowledgements_requested) == (3, 0, 0)
    assert (message.journaling_requested, message.tracing_requested, message.message_class) == (0, 0, 0)
    assert (message.time_to_reach_queue, message.time_to_be_received) == (INFINITE, INFINITE)
    assert (message.body, message.label, message.extension, message.privacy_level) == (b"", "", b"", 0)


@pytest.mark.parametrize(
    ("member", "attribute", "allowed", "refused"),
    [
        ("pPriority", "priority", range(8), [8, 255]),
        ("pTrace", "tracing_requested", range(2), [2, 255]),
        ("pDelivery", "delivery_guarantee", range(2), [2, 255]),
        ("pAuditing", "journaling_requested", range(4), [4, 255]),
        ("pAcknowledge", "acknowledgements_requested", range(16), [16, 255]),
    ],
)
def test_a_small_number_has_its_range(member: str, attribute: str, allowed: range, refused: list[int]) -> None:
    for value in allowed:
        assert getattr(message_from_send(buffer(**{member: value}), b""), attribute) == value
    for value in refused:
        with pytest.raises(MsmqError, match=member) as error:
            message_from_send(buffer(**{member: value}), b"")
        assert error.value.hresult == HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


TAKEN: list[tuple[dict[str, Any], str, Any]] = [
    ({"pApplicationTag": 9}, "application_tag", 9),
    ({"pulBodyType": 8}, "body_type", 8),
    ({"ppBody": b"body"}, "body", b"body"),
    ({"ppBody": NULL}, "body", b""),
    ({"ppMsgExtension": b"ext"}, "extension", b"ext"),
    ({"ppCorrelationID": b"c" * 20}, "correlation_identifier", b"c" * 20),
    ({"ppTitle": "abc\0", "ulTitleBufferSizeInWCHARs": 4}, "label", "abc"),
    ({"ppTitle": "abc", "ulTitleBufferSizeInWCHARs": 3}, "label", "abc"),
    ({"ppTitle": "a\0bc", "ulTitleBufferSizeInWCHARs": 4}, "label", "a"),
    ({"ppTitle": "x" * 300, "ulTitleBufferSizeInWCHARs": 300}, "label", "x" * 249),
    ({"ppTitle": NULL}, "label", ""),
    ({"ulAbsoluteTimeToQueue": 60}, "time_to_reach_queue", 60),
    ({"ulRelativeTimeToLive": 60}, "time_to_be_received", 60),
    ({"ulRelativeTimeToLive": 0}, "time_to_be_received", INFINITE),
    ({"pulPrivLevel": 1}, "privacy_level", 1),
    ({"pulPrivLevel": 2}, "privacy_level", 3),
    ({"pulPrivLevel": 5}, "privacy_level", 5),
    ({"ppSymmKeys": b"key", "ulSymmKeysSize": 3}, "symmetric_key", b"key"),
    ({"ppSenderCert": b"cert"}, "sender_certificate", b"cert"),
    ({"pClass": 0x8000, "ppConnectorType": b"k" * 16}, "message_class", 0x8000),
    ({"pulSenderIDType": None}, "sender_identifier", SID),
    ({"pulSenderIDType": None}, "sender_identifier_type", 1),
    ({"pulSenderIDType": 0}, "sender_identifier", b""),
    ({"pulSenderIDType": 1}, "sender_identifier", SID),
    ({"pulSenderIDType": 1, "ppSenderID": SID, "uSenderIDLen": len(SID)}, "sender_identifier", SID),
    ({"pulSenderIDType": 2, "ppSenderID": b"q" * 16, "uSenderIDLen": 16}, "sender_identifier_type", 2),
    ({"ulSignatureSize": 3, "ppSignature": b"sig", "pulHashAlg": 0x8004, "fDefaultProvider": 1, "pulProvType": 1},
     "signature", b"sig"),
    ({"ulSignatureSize": 3, "ppSignature": b"sig", "pulHashAlg": 0x8004, "fDefaultProvider": 1, "pulProvType": 1},
     "default_provider", True),
    ({"ulSignatureSize": 3, "ppSignature": b"sig", "pulHashAlg": 0x8004, "ppwcsProvName": "prov\0"},
     "authentication_provider_name", "prov"),
    ({"ulSignatureSize": 5, "ppSignature": b"12345", "pulHashAlg": 0x8004, "ppwcsProvName": "p\0", "ulProvNameLen": 2,
      "pulAuthProvNameLenProp": 5}, "signature", b"345"),
    ({"ulSignatureSize": 5, "ppSignature": b"12345", "pulHashAlg": 0x8004, "ppwcsProvName": "p\0", "ulProvNameLen": 2,
      "pulAuthProvNameLenProp": 2}, "signature", b"12345"),
    ({"Send": CACTransferBufferV1_Send(pAdminQueueFormat=QUEUE_FORMAT(m_qft=3, m_pDirectID="OS:h\\a"))},
     "administration_queue_format_name", "DIRECT=OS:h\\a"),
    ({"Send": CACTransferBufferV1_Send(pResponseQueueFormat=QUEUE_FORMAT(m_qft=3, m_pDirectID="OS:h\\r"))},
     "response_queue_format_name", "DIRECT=OS:h\\r"),
    ({"Send": CACTransferBufferV1_Send(pResponseQueueFormat=QUEUE_FORMAT(m_qft=0))}, "response_queue_format_name", ""),
]  # fmt: skip


@pytest.mark.parametrize(("members", "attribute", "expected"), TAKEN)
def test_a_member_becomes_its_attribute(members: dict[str, Any], attribute: str, expected: Any) -> None:
    assert getattr(message_from_send(buffer(**members), SID), attribute) == expected


INVALID = HResult.MQ_ERROR_INVALID_PARAMETER
SIGNED = {"ulSignatureSize": 5, "ppSignature": b"12345", "pulHashAlg": 0x8004}
REFUSED: list[tuple[dict[str, Any], HResult]] = [
    ({"Send": None}, INVALID),
    ({"pClass": 0x8000}, HResult.MQ_ERROR_MISSING_CONNECTOR_TYPE),
    ({"ppCorrelationID": b"short"}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_SIZE),
    ({"uSenderIDLen": 4}, INVALID),
    ({"pulSenderIDType": 3}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"pulSenderIDType": 1, "ppSenderID": b"mine", "uSenderIDLen": 4}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"pulSenderIDType": 2, "ppSenderID": b"qm", "uSenderIDLen": 2}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_SIZE),
    ({"pulSenderIDType": 2}, INVALID),
    ({"pulPrivLevel": 77}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"pulHashAlg": 5}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"pulEncryptAlg": 5}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"pulBodyType": 0xFFFFFFFF}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"ulSenderCertLen": 3}, INVALID),
    ({"ulSymmKeysSize": 3}, INVALID),
    ({**SIGNED, "pulHashAlg": None}, INVALID),
    ({**SIGNED, "fDefaultProvider": 1, "pulProvType": 2}, INVALID),
    ({**SIGNED, "fDefaultProvider": 1}, INVALID),
    ({**SIGNED}, INVALID),
    ({**SIGNED, "ppwcsProvName": "p\0", "ulProvNameLen": 2, "pulAuthProvNameLenProp": 1}, INVALID),
    ({**SIGNED, "ppwcsProvName": "p\0", "ulProvNameLen": 2, "pulAuthProvNameLenProp": 8}, INVALID),
    ({"Send": CACTransferBufferV1_Send(pResponseQueueFormat=QUEUE_FORMAT(m_qft=3, m_pDirectID="nonsense"))},
     HResult.MQ_ERROR_ILLEGAL_FORMATNAME),
    ({"Send": CACTransferBufferV1_Send(pAdminQueueFormat=QUEUE_FORMAT(m_qft=3))},
     HResult.MQ_ERROR_ILLEGAL_FORMATNAME),
    ({"Send": CACTransferBufferV1_Send(pAdminQueueFormat=QUEUE_FORMAT(m_qft=9))}, HResult.MQ_ERROR_ILLEGAL_FORMATNAME),
]  # fmt: skip


@pytest.mark.parametrize(("members", "error"), REFUSED)
def test_a_buffer_that_breaks_a_constraint_is_refused(members: dict[str, Any], error: HResult) -> None:
    with pytest.raises(MsmqError, check=lambda raised: raised.hresult == error):
        message_from_send(buffer(**members), SID)


@pytest.mark.parametrize(
    ("members", "expected"),
    [({}, False), ({"bEncrypted": 1}, False), ({"ppSymmKeys": b"k", "ulSymmKeysSize": 1}, False),
     ({"bEncrypted": 1, "ppSymmKeys": NULL}, False),
     ({"bEncrypted": 1, "ppSymmKeys": b"k", "ulSymmKeysSize": 1}, True)],
)  # fmt: skip
def test_a_body_is_encrypted_if_its_key_is_there(members: dict[str, Any], expected: bool) -> None:
    assert is_encrypted(buffer(**members)) is expected


def test_a_client_sends_its_signature_as_msmq_2_0_and_its_key() -> None:
    for by_default, name in ((True, ""), (False, "a provider")):
        message = Message(
            signature=b"signature", hash_algorithm=0x800E, default_provider=by_default, privacy_level=5,
            authentication_provider_type=1, authentication_provider_name=name, symmetric_key=b"key",
            encryption_algorithm=0x6610,
        )  # fmt: skip
        ptb = send_buffer(message, encrypted=True)
        assert ptb.old.pulAuthProvNameLenProp == ptb.old.ulProvNameLen + len(b"signature")
        assert is_encrypted(ptb)
        back = message_from_send(ptb, b"")
        for attribute in ("signature", "hash_algorithm", "default_provider", "authentication_provider_type",
                          "authentication_provider_name", "symmetric_key", "encryption_algorithm"):  # fmt: skip
            assert getattr(back, attribute) == getattr(message, attribute), attribute
    assert not is_encrypted(send_buffer(message))


@pytest.mark.parametrize("kind", [1, 2])
def test_another_type_of_transfer_is_refused(kind: int) -> None:
    ptb = buffer()
    ptb.old.uTransferType = kind
    with pytest.raises(MsmqError, match="uTransferType"):
        message_from_send(ptb, b"")


def test_what_servers_ignore_is_ignored() -> None:
    ignored = {
        "ppMessageID": NULL,
        "pSentTime": 5,
        "pArrivedTime": 5,
        "pulRelativeTimeToQueue": 1,
        "pulVersion": 3,
        "pulRelativeTimeToLive": 1,
        "pAuthenticated": 1,
        "ppSrcQMID": b"s" * 16,
        "bAuthenticated": 1,
    }
    assert message_from_send(buffer(**ignored), b"") == message_from_send(buffer(), b"")


def test_a_sender_without_a_sid_sends_no_identifier() -> None:
    message = message_from_send(buffer(pulSenderIDType=1), b"")
    assert (message.sender_identifier_type, message.sender_identifier) == (0, b"")
    message = message_from_send(buffer(pulSenderIDType=1), SID)
    assert (message.sender_identifier_type, message.sender_identifier) == (1, SID)


def test_the_lengths_of_variable_parts_are_stated_twice() -> None:
    """[MS-MQMP] 2.2.3.2: a buffer's size, and the property with the size of the value."""
    old = send_buffer(Message(extension=b"ext", label="ab", sender_identifier=SID)).old
    assert old.ulMsgExtensionBufferInBytes == old.pMsgExtensionSize == 3
    assert old.ulTitleBufferSizeInWCHARs == old.pulTitleBufferSizeInWCHARs == 3
    assert old.uSenderIDLen == old.pulSenderIDLenProp == len(SID)
