"""Arguments of the client: what is allowed, and errors that name the argument with the allowed values."""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

import pytest

import openmsmq
from msrpc.rpc.credentials import Credentials
from openmsmq.client.arguments import as_message, credentials_of
from openmsmq.client.calls import milliseconds
from openmsmq.client.operations import _variants, get_security
from openmsmq.client.qmcomm import QmcommQueue
from openmsmq.conversion.receive_buffer import MAXIMUM_BODY, BufferSizes, fill
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.model.constants import INFINITE, Access, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message


def test_a_user_may_be_given_with_the_domain() -> None:
    assert credentials_of("h", "EXAMPLE\\alice", "x", "", False) == Credentials("alice", "x", "EXAMPLE")
    assert credentials_of("h", "alice", "x", "EXAMPLE", False) == Credentials("alice", "x", "EXAMPLE")
    assert credentials_of("h", None, "", "", False) is None


@pytest.mark.parametrize(("user", "password"), [("", "x"), ("EXAMPLE\\", "x"), ("alice", None)])
def test_a_user_without_a_name_or_password_is_refused(user: str, password: Any) -> None:
    with pytest.raises(ValueError, match="allowed: a name and a password, or user=None to be anonymous"):
        credentials_of("h", user, password, "", False)


def test_timeouts() -> None:
    assert [milliseconds(given) for given in (None, math.inf, 0, 1.5, 1e300)] == [
        INFINITE, INFINITE, 0, 1500, INFINITE - 1
    ]  # fmt: skip
    for wrong in (-1, math.nan):
        with pytest.raises(ValueError, match="allowed: 0 or more, or None to wait forever"):
            milliseconds(wrong)


def test_a_correlation_identifier_may_be_the_text_that_send_returns() -> None:
    text = "{00000000-0000-0000-0000-000000000001}\\7"
    message = as_message("x", {"correlation_identifier": text})
    assert message.correlation_identifier == UUID(int=1).bytes_le + b"\7\0\0\0"
    with pytest.raises(ValueError, match="'7' is not a message identifier"):
        as_message("x", {"correlation_identifier": "7"})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("quota", -1, "quota is -1, allowed: 0 to 4294967295"), ("quota", "x", "quota is 'x', allowed: 0 to"),
        ("base_priority", 40000, "allowed: -32768 to 32767"), ("label", 5, "label is 5, allowed: text"),
        ("type", b"short", "allowed: a UUID"),
    ],
)  # fmt: skip
def test_a_property_of_a_wrong_type_or_range_is_named(name: str, value: Any, said: str) -> None:
    with pytest.raises(openmsmq.MsmqError, match=said) as refused:
        _variants({name: value})
    assert refused.value.hresult == HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def test_an_operation_that_the_access_does_not_allow_names_both(qm: Any, queue: str) -> None:
    for access, operation, said in (
        ("receive", lambda opened: opened.send("x"), "access 'receive'; sending requires 'send'"),
        ("receive", lambda opened: opened.send_many(["x"]), "access 'receive'; sending requires 'send'"),
        ("peek", lambda opened: opened.receive(0), "access 'peek'; receiving requires 'receive'"),
        ("peek", lambda opened: opened.cursor().receive(0), "access 'peek'; receiving requires 'receive'"),
        ("send", lambda opened: opened.receive(0), "access 'send'; receiving requires 'receive'"),
    ):
        with qm.open(queue, access) as opened, pytest.raises(openmsmq.AccessDenied, match=said):
            operation(opened)


def test_a_transaction_of_another_connection_to_the_same_server_is_named(service: Any, qm: Any) -> None:
    qm.create_queue("other-tx", transactional=True)
    with service.connect() as other, other.open("other-tx", "send") as sending, qm.transaction() as transaction:
        with pytest.raises(openmsmq.TransactionUsage, match="through another connection to this queue manager"):
            sending.send("x", transaction=transaction)
        transaction.abort()


# -- what a server answers ---------------------------------------------------------------------------------------------


def received(queue: QmcommQueue, message: Message) -> tuple[Message, list[int]]:
    """Receive a message from a scripted server; also return the bytes of body and extension in each request."""
    steps, asked = queue.peek(ReceiveAction.PEEK_CURRENT, 0), []
    call = next(steps)
    try:
        while True:
            ptb = call.request.ptb
            asked.append(len(ptb.old.ppBody) + len(ptb.old.ppMsgExtension))
            call = steps.send(m.rpc_ACReceiveMessageEx_Response(ptb, fill(ptb, message, 0)))
    except StopIteration as stop:
        return stop.value, asked


def test_one_large_message_does_not_make_later_reads_large() -> None:
    queue = QmcommQueue("q", Access.PEEK, False, bytes(20), 1)
    small, large, extended = Message(b"x"), Message(bytes(4_000_000)), Message(b"x", extension=bytes(100_000))
    for message, most in ((small, 1024), (large, 4_000_000), (small, 1 << 16), (extended, 170_000), (small, 1 << 17)):
        found, asked = received(queue, message)
        assert (found.body, found.extension) == (message.body, message.extension)
        assert max(asked) <= most


def test_lengths_that_a_server_makes_up_are_not_allocated() -> None:
    sizes = BufferSizes()
    ptb = m.CACTransferBufferV2(old=m.CACTransferBufferV1(pBodySize=500_000_000, pMsgExtensionSize=500_000_000))
    sizes.enlarge(HResult.MQ_ERROR_BUFFER_OVERFLOW, ptb)
    assert (sizes.body, sizes.extension) == (MAXIMUM_BODY, MAXIMUM_BODY)
    asking = QmcommQueue("q", Access.PEEK, False, bytes(20), 1).format_name()
    next(asking)
    answer = m.rpc_ACHandleToFormatName_Response(pdwLength=300_000_000)
    answer.result = HResult.MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL
    with pytest.raises(openmsmq.MsmqError, match="FORMATNAME_BUFFER_TOO_SMALL"):
        asking.send(answer)


@pytest.mark.parametrize("length", [512, 100, 1 << 30])
def test_a_server_that_always_asks_for_a_larger_buffer_is_not_asked_forever(length: int) -> None:
    asking = get_security("q", 7)
    next(asking)
    answer = m.R_QMGetObjectSecurityInternal_Response(pSecurityDescriptor=bytes(512), lpnLengthNeeded=length)
    answer.result = HResult.MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL
    with pytest.raises(openmsmq.MsmqError, match="SECURITY_DESCRIPTOR_TOO_SMALL"):
        asking.send(answer)
