"""Signed messages of automation objects ([MC-MQAC] 3.17.4.1.48)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from command_line import checked
from daemon import Daemon
from openmsmq.com import ComError, Dispatch, close_all
from openmsmq.conversion.packets import user_message_of
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from openmsmq.protection import algorithms
from openmsmq.protection.sign import Version, sign, signed_bytes
from protection.material import ALICE, certificate_of, key_of

SID = "S-1-5-21-1-2-3-1001"
CONNECTOR = UUID("6a2c1f00-0000-0000-0000-00000000000a")
QUEUE = "DIRECT=OS:.\\private$\\q"
SIGNED = "DIRECT=OS:.\\private$\\signed"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory: Path = tmp_path_factory.mktemp("daemon")
    file = directory / "certificate"
    file.write_bytes(certificate_of())
    checked("certificates", "--data-dir", str(directory / "data"), "register", SID, str(file))
    with Daemon(directory / "data") as running:
        with running.connect() as manager:
            manager.create_queue(".\\private$\\q")
            manager.create_queue(".\\private$\\signed", authenticate=True)
        yield running
    assert "Traceback" not in running.log, running.log


@pytest.fixture
def new(daemon: Daemon) -> Iterator[Callable[[str], Any]]:
    yield partial(Dispatch, host="127.0.0.1", port=daemon.mapper_port)
    close_all()


def opened(new: Callable[[str], Any], name: str, access: int) -> Any:
    info = new("MSMQ.MSMQQueueInfo")
    info.FormatName = name
    return info.Open(access, 0)


def signed(new: Callable[[str], Any], daemon: Daemon, name: str) -> Any:
    """Return a message that Alice signed and a connector application sends to a queue."""
    with daemon.connect() as manager:
        source = UUID(str(manager.machine_id)).bytes_le
    twin = Message(
        "hello".encode("utf-16-le"), "L", 8, hash_algorithm=algorithms.SHA512, destination_queue_format_name=name,
        source_machine_identifier=source, connector_type_identifier=CONNECTOR.bytes_le,
    )  # fmt: skip
    data = signed_bytes(user_message_of(twin), Version.MSMQ_2, twin.body)
    message = new("MSMQMessage")
    message.Body, message.Label, message.HashAlgorithm = "hello", "L", algorithms.SHA512
    message.ConnectorTypeGuid = f"{{{CONNECTOR}}}"
    message.SenderIdType, message.SenderId, message.SenderCertificate = 1, ALICE, certificate_of()
    message.Signature = sign(data, algorithms.SHA512, key_of())
    return message


def refused(hresult: HResult) -> Any:
    return pytest.raises((MsmqError, ComError), check=lambda error: error.hresult & 0xFFFFFFFF == hresult)


def test_c1_a_signed_message_is_authentic(new: Callable[[str], Any], daemon: Daemon) -> None:
    message = signed(new, daemon, SIGNED)
    message.Send(opened(new, SIGNED, 2))
    got = opened(new, SIGNED, 1).Receive(ReceiveTimeout=0)
    assert (got.Body, got.ReceivedAuthenticationLevel, got.IsAuthenticated2) == ("hello", 3, True)


def test_c4_a_changed_message_is_refused(new: Callable[[str], Any], daemon: Daemon) -> None:
    message = signed(new, daemon, SIGNED)
    message.Label = "M"
    with refused(HResult.MQ_ERROR_FAIL_VERIFY_SIGNATURE_EX):
        message.Send(opened(new, SIGNED, 2))


def test_c8_an_unsigned_message_is_refused_where_a_queue_asks(new: Callable[[str], Any]) -> None:
    message = new("MSMQMessage")
    message.Body = "hello"
    with refused(HResult.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED):
        message.Send(opened(new, SIGNED, 2))


def test_c13_encryption_with_a_direct_format_name_is_refused(new: Callable[[str], Any]) -> None:
    message = new("MSMQMessage")
    message.Body, message.PrivLevel = "hello", 3
    with refused(HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION):
        message.Send(opened(new, QUEUE, 2))


@pytest.mark.parametrize("member", ["Signature", "SenderId", "DestinationSymmetricKey"])
def test_c14_connector_properties_need_a_connector_type(new: Callable[[str], Any], member: str) -> None:
    message = new("MSMQMessage")
    setattr(message, member, b"something")
    with refused(HResult.MQ_ERROR_MISSING_CONNECTOR_TYPE):
        message.Send(opened(new, QUEUE, 2))


def test_a_message_that_was_received_is_sent_on_without_its_signature(
    new: Callable[[str], Any], daemon: Daemon
) -> None:
    signed(new, daemon, SIGNED).Send(opened(new, SIGNED, 2))
    got = opened(new, SIGNED, 1).Receive(ReceiveTimeout=0)
    got.Send(opened(new, QUEUE, 2))
    again = opened(new, QUEUE, 1).Receive(ReceiveTimeout=0)
    assert (again.Body, again.ReceivedAuthenticationLevel) == ("hello", 0)
