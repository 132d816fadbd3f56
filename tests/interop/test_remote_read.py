"""impacket as a remote reader: RemoteRead without protection and at PKT_PRIVACY, with an independent packet parser."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest
from impacket.dcerpc.v5.rpcrt import DCERPCException

from daemon import Daemon
from interop.impacket_client import (
    ACTION_PEEK_CURRENT,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_OK,
    NONE,
    PRIVACY,
    RECEIVE_ACCESS,
    connect,
    direct,
)
from interop.impacket_remote_read import REMOTE_READ, request

RR_NACK, RR_ACK = 1, 2
ACTION_RECEIVE = 0
_names = itertools.count()


@pytest.fixture(params=[NONE, PRIVACY], ids=["anonymous", "privacy"])
def reader(request: pytest.FixtureRequest, daemon: Daemon) -> Any:
    dce = connect(daemon.port, request.param)
    dce.bind(REMOTE_READ)
    yield dce
    dce.disconnect()


@pytest.fixture
def queue(daemon: Daemon) -> str:
    name = f"remote{next(_names)}"
    with daemon.connect() as manager:
        manager.create_queue(f".\\private$\\{name}")
        with manager.open(f".\\private$\\{name}", "send") as sender:
            for number in range(2):
                sender.send(f"body {number}", label=f"label {number}", recoverable=True, priority=4)
    return name


def call(dce: Any, name: str, **values: Any) -> Any:
    return dce.request(request(name, **values), checkError=False)


def opened(dce: Any, queue: str) -> bytes:
    response = call(
        dce, "R_OpenQueue", pQueueFormat=direct(queue), dwAccess=RECEIVE_ACCESS, dwShareMode=0, pClientId=bytes(16),
        fNonRoutingServer=1, Major=6, Minor=3, BuildNumber=9600, fWorkgroup=1,
    )  # fmt: skip
    handle: bytes = response["pphContext"]
    return handle


def start(dce: Any, handle: bytes, action: int = ACTION_RECEIVE, room: int = 1024) -> Any:
    return call(
        dce, "R_StartReceive", phContext=handle, LookupId=0, hCursor=0, ulAction=action, ulTimeout=0, dwRequestId=1,
        dwMaxBodySize=room, dwMaxCompoundMessageSize=0,
    )  # fmt: skip


def parsed(response: Any) -> tuple[str, bytes]:
    """Return label and body by the layouts of [MS-MQMQ] 2.2.19: consecutive headers, each padded to four bytes."""
    assert response["result"] == MQ_OK
    packet = b"".join(section["pSectionBuffer"] for section in response["ppPacketSections"])
    assert packet[4:8] == b"LIOR"
    flags = struct.unpack_from("<I", packet, 16 + 44)[0]
    position = 16 + 48
    assert flags >> 10 & 7 == 7, "a direct destination"
    length = struct.unpack_from("<H", packet, position)[0]
    position += -(-(2 + length) // 4) * 4
    if flags >> 20 & 1:  # TransactionHeader
        position += 20 + 16 * (packet[position] & 1)
    if flags >> 19 & 1:  # SecurityHeader
        sizes = struct.unpack_from("<2xHHHII", packet, position)
        position += 16 + sum(-(-size // 4) * 4 for size in sizes)
    label_length = packet[position + 1]
    body_size = struct.unpack_from("<I", packet, position + 32)[0]
    extension_size = struct.unpack_from("<I", packet, position + 52)[0]
    text = packet[position + 56 : position + 56 + 2 * label_length].decode("utf-16-le").rstrip("\0")
    start_of_body = position + 56 + 2 * label_length + extension_size
    return text, packet[start_of_body : start_of_body + body_size]


def test_a_message_is_received_put_back_and_acknowledged(reader: Any, queue: str) -> None:
    handle = opened(reader, queue)
    first = ("label 0", "body 0".encode("utf-16-le"))
    assert parsed(start(reader, handle, ACTION_PEEK_CURRENT)) == first
    assert parsed(start(reader, handle)) == first
    assert call(reader, "R_EndReceive", phContext=handle, dwAck=RR_NACK, dwRequestId=1)["result"] == MQ_OK
    for number in range(2):
        response = start(reader, handle)
        assert parsed(response) == (f"label {number}", f"body {number}".encode("utf-16-le"))
        assert call(reader, "R_EndReceive", phContext=handle, dwAck=RR_ACK, dwRequestId=1)["result"] == MQ_OK
    assert start(reader, handle)["result"] == MQ_ERROR_IO_TIMEOUT
    closed = call(reader, "R_CloseQueue", pphContext=handle)
    assert (closed["result"], closed["pphContext"]) == (MQ_OK, bytes(20))


def test_a_long_body_arrives_in_two_sections(reader: Any, queue: str) -> None:
    response = start(reader, opened(reader, queue), ACTION_PEEK_CURRENT, room=4)
    first, second = response["ppPacketSections"]
    assert (first["SectionBufferType"], second["SectionBufferType"]) == (1, 2)
    assert first["SectionSizeAlloc"] - first["SectionSize"] == len("body 0".encode("utf-16-le")) - 4
    assert second["SectionSizeAlloc"] == second["SectionSize"]


def test_a_message_locked_by_a_killed_client_goes_to_the_next(daemon: Daemon, reader: Any, queue: str) -> None:
    other = connect(daemon.port)
    other.bind(REMOTE_READ)
    taken = parsed(start(other, opened(other, queue)))
    handle = opened(reader, queue)
    assert parsed(start(reader, handle, ACTION_PEEK_CURRENT)) == ("label 1", "body 1".encode("utf-16-le"))
    other.disconnect()
    with daemon.connect() as manager, manager.open(f".\\private$\\{queue}") as ours:
        seen = [message.label for message in ours]
        while taken[0] not in seen:
            seen = [message.label for message in ours]
    assert parsed(start(reader, handle)) == taken


def test_a_missing_queue_is_a_fault(reader: Any) -> None:
    with pytest.raises(DCERPCException) as fault:
        opened(reader, "missing")
    assert f"{MQ_ERROR_QUEUE_NOT_FOUND:x}" in str(fault.value)


def test_the_port_is_returned(daemon: Daemon, reader: Any) -> None:
    assert call(reader, "R_GetServerPort")["result"] == daemon.port
