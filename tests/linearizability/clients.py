"""Clients of all entrances with one small interface.

| class | protocol | whose code |
|---|---|---|
| Qmcomm | MS-MQMP | impacket, calls written after the specification (interop.impacket_msmq) |
| RemoteRead | MS-MQRR, receives in two phases | impacket, calls and a packet parser written after the specification |
| Automation | MS-MQMQ's objects over DCOM | impacket's DCOM client |
| Transfer | MS-MQQB, sends only | interop.mqqb_peer, which shares no code with the product |
| Flight | Arrow Flight | pyarrow through our own BulkClient: no other client of these calls exists |

The value of an operation is the label of its message.

An operation that raises anything may have happened or not; the caller closes the client and makes a new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa
from impacket.dcerpc.v5 import transport

from com_client import Connection, Object, Refused
from interop import impacket_msmq, impacket_remote_read
from interop.impacket_client import (
    ACTION_PEEK_CURRENT,
    MQ_ERROR_IO_TIMEOUT,
    MQ_OK,
    RECEIVE_ACCESS,
    SEND_ACCESS,
    Client,
    direct,
    label,
)
from interop.mqqb_peer import Message, Peer
from interop.test_remote_read import parsed
from openmsmq.bulk.client import BulkClient, Claim
from openmsmq.bulk.row_stream import Staged
from openmsmq.model.errors import MsmqError
from waiting import eventually

MQ_ERROR_MESSAGE_NOT_FOUND = 0xC00E0088
PATIENCE = 8.0  # seconds until a client gives up
HOST = "127.0.0.1"


class Unexpected(Exception):
    """The server refused an operation. Nothing is known of its effect."""


class Addresses(Protocol):
    """Ports where clients find the server now."""

    flight: int

    @property
    def rpc(self) -> int: ...

    @property
    def messages(self) -> int: ...

    @property
    def mapper(self) -> int: ...


def _bound(port: int) -> Any:
    """Return a TCP connection for DCE/RPC with a time limit."""
    rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{HOST}[{port}]")
    rpc.set_connect_timeout(PATIENCE)
    dce = rpc.get_dce_rpc()
    dce.connect()
    return dce


def _need(result: int, what: str) -> None:
    if result != MQ_OK:
        raise Unexpected(f"{what}: {result:#x}")


class Qmcomm:
    """MS-MQMP: sends, receives, peeks, internal transactions."""

    def __init__(self, addresses: Addresses) -> None:
        self._client = Client.__new__(Client)
        self._client.dce = _bound(addresses.rpc)
        self._client.dce.bind(impacket_msmq.QMCOMM)
        self._client.second = self._client.dce.alter_ctx(impacket_msmq.QMCOMM2)
        self._opened: dict[tuple[str, int], tuple[bytes, int]] = {}
        self._uow: bytes | None = None
        self._transaction = b""

    def close(self) -> None:
        self._client.close()

    def prepare(self, queue: str) -> None:
        """Open the queue for both, so that later operations are one call each."""
        for access in (SEND_ACCESS, RECEIVE_ACCESS):
            if (queue, access) not in self._opened:
                self._opened[queue, access] = self._client.opened(queue, access)

    def send(self, queue: str, value: str, priority: int) -> None:
        handle, _ = self._opened[queue, SEND_ACCESS]
        members: dict[str, Any] = {"pDelivery": 1} if self._uow else {"pDelivery": 1, "pPriority": priority}
        _need(self._client.send(handle, b"body", value, self._uow, **members)["result"], "send")

    def receive(self, queue: str, timeout: int = 0) -> str | None:
        return self._read(queue, 0, timeout, self._uow)

    def peek(self, queue: str) -> str | None:
        return self._read(queue, ACTION_PEEK_CURRENT, 0, None)

    def _read(self, queue: str, action: int, timeout: int, uow: bytes | None) -> str | None:
        _, context = self._opened[queue, RECEIVE_ACCESS]
        response = self._client.read(context, action, timeout, room=64, uow=uow)
        if response["result"] == MQ_ERROR_IO_TIMEOUT:
            return None
        _need(response["result"], "receive")
        return label(response)

    def begin(self) -> None:
        uow = os.urandom(16)
        self._transaction = self._client.done("R_QMEnlistInternalTransaction", pUow=uow)["phIntXact"]
        self._uow = uow

    def end(self, committed: bool) -> None:
        self._uow = None
        name = "R_QMCommitTransaction" if committed else "R_QMAbortTransaction"
        _need(self._client.call(name, phIntXact=self._transaction)["result"], name)


class RemoteRead:
    """MS-MQRR: peeks, and receives in two phases."""

    def __init__(self, addresses: Addresses) -> None:
        self._dce = _bound(addresses.rpc)
        self._dce.bind(impacket_remote_read.REMOTE_READ)
        self._opened: dict[str, bytes] = {}
        self._number = 0
        self._held = b""

    def close(self) -> None:
        self._dce.disconnect()

    def _call(self, name: str, **values: Any) -> Any:
        return self._dce.request(impacket_remote_read.request(name, **values), checkError=False)

    def prepare(self, queue: str) -> None:
        if queue not in self._opened:
            response = self._call(
                "R_OpenQueue", pQueueFormat=direct(queue), dwAccess=RECEIVE_ACCESS, dwShareMode=0, pClientId=bytes(16),
                fNonRoutingServer=1, Major=6, Minor=3, BuildNumber=9600, fWorkgroup=1,
            )  # fmt: skip
            self._opened[queue] = response["pphContext"]

    def _start(self, queue: str, action: int) -> str | None:
        self._number += 1
        response = self._call(
            "R_StartReceive", phContext=self._opened[queue], LookupId=0, hCursor=0, ulAction=action, ulTimeout=0,
            dwRequestId=self._number, dwMaxBodySize=64, dwMaxCompoundMessageSize=0,
        )  # fmt: skip
        if response["result"] == MQ_ERROR_IO_TIMEOUT:
            return None
        _need(response["result"], "R_StartReceive")
        return parsed(response)[0]

    def peek(self, queue: str) -> str | None:
        return self._start(queue, ACTION_PEEK_CURRENT)

    def lock(self, queue: str) -> str | None:
        self._held = self._opened[queue]
        return self._start(queue, 0)

    def end(self, committed: bool) -> None:
        answer = 2 if committed else 1  # RR_ACK, RR_NACK
        response = self._call("R_EndReceive", phContext=self._held, dwAck=answer, dwRequestId=self._number)
        _need(response["result"], "R_EndReceive")


class Automation:
    """MSMQQueue and MSMQMessage over DCOM: sends, receives, peeks. impacket keeps one server for each address, so there
    can be one such client in a process at a time."""

    def __init__(self, addresses: Addresses) -> None:
        self._com = Connection(HOST, addresses.mapper)
        self._opened: dict[tuple[str, int], Object] = {}

    def close(self) -> None:
        with suppress(Exception):
            self._com.disconnect()
        Connection.PORTMAPS.pop(HOST, None)
        Connection.OID_ADD.clear()
        Connection.OID_DEL.clear()
        Connection.OID_SET.clear()

    def prepare(self, queue: str) -> None:
        for access in (SEND_ACCESS, RECEIVE_ACCESS):
            if (queue, access) not in self._opened:
                info = self._com.new("QueueInfo")
                info.put("PathName", f".\\private$\\{queue}")
                self._opened[queue, access] = info.call("Open", access, 0)

    def send(self, queue: str, value: str, priority: int) -> None:
        message = self._com.new("Message")
        for name, setting in (("Label", value), ("Priority", priority), ("Delivery", 1)):
            message.put(name, setting)
        message.call("Send", self._opened[queue, SEND_ACCESS])

    def receive(self, queue: str) -> str | None:
        return self._read(queue, "Receive")

    def peek(self, queue: str) -> str | None:
        return self._read(queue, "Peek")

    def _read(self, queue: str, how: str) -> str | None:
        try:
            message = self._opened[queue, RECEIVE_ACCESS].call(how, ReceiveTimeout=0)
        except Refused as refused:
            if refused.hresult in (MQ_ERROR_IO_TIMEOUT, MQ_ERROR_MESSAGE_NOT_FOUND):  # MS-MQMQ: a time-out of 0
                return None
            raise
        if message is None:
            return None
        return str(message.get("Label"))


class Transfer:
    """MS-MQQB: sends as another queue manager. A send is done when its packet is acknowledged as stored."""

    _numbers: Iterator[int] = iter(range(1, 1 << 31))

    def __init__(self, addresses: Addresses) -> None:
        self._peer = Peer(HOST, addresses.messages, os.urandom(16))
        self._peer.open()

    def close(self) -> None:
        self._peer.socket.close()

    def prepare(self, queue: str) -> None:
        """Nothing is opened."""

    def send(self, queue: str, value: str, priority: int) -> None:
        destination = f"TCP:{HOST}\\private$\\{queue}"
        message = Message(self._peer.guid, next(self._numbers), destination, label=value, recoverable=True)
        data = bytearray(message.pack())
        data[2] = data[2] & ~7 | priority  # BaseHeader.Flags.PR
        self._peer.sent += 1
        self._peer.sent_recoverable += 1
        number = self._peer.sent_recoverable
        self._peer.write(bytes(data))
        self._peer.until(lambda: number in self._peer.saved, PATIENCE)


class Flight:
    """Arrow Flight: several messages are staged and become visible together; several are claimed and committed."""

    def __init__(self, addresses: Addresses) -> None:
        self._client = BulkClient(HOST, addresses.flight)
        try:
            eventually(self._answers, PATIENCE)  # the Flight process may start a second after the daemon
        except BaseException:
            self._client.close()
            raise

    def _answers(self) -> bool:
        try:
            self._client.queues()
        except (ConnectionError, MsmqError):
            return False
        return True

    def close(self) -> None:
        self._client.close()

    def prepare(self, queue: str) -> None:
        """Nothing is opened."""

    def stage(self, queue: str, values: list[str]) -> Staged:
        rows = pa.record_batch({"body": pa.array([b"body"] * len(values), pa.binary()), "label": pa.array(values)})
        return self._client.stage(f"sink {values[0]}", 1, 0, 0, [rows], default_queue=queue)

    def finalize(self, values: list[str], staged: Staged) -> None:
        self._client.finalize(f"sink {values[0]}", 1, [staged])

    def forget(self, values: list[str]) -> None:
        self._client.forget(f"sink {values[0]}")

    def claim(self, queue: str, group: str, most: int) -> tuple[Claim, list[str]]:
        start = self._client.cursor(queue, group) or 0
        claim = self._client.claim(queue, group, start, max_messages=most)
        if not claim.count:
            return claim, []
        batches = self._client.read(
            queue, start=claim.start, end=claim.end, columns=["label"], group=group, token=claim.token
        )
        return claim, [value for batch in batches for value in batch.column("label").to_pylist()]

    def commit(self, queue: str, group: str, claim: Claim) -> None:
        self._client.commit(queue, group, claim.end, token=claim.token)

    def release(self, queue: str, group: str) -> None:
        self._client.release(queue, group)


ENTRANCES: dict[str, Callable[[Addresses], Any]] = {
    "qmcomm": Qmcomm, "remote read": RemoteRead, "automation": Automation, "transfer": Transfer, "flight": Flight
}  # fmt: skip
