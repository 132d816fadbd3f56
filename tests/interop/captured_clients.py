"""Clients of all interfaces of a daemon, for captures: each scenario is a function that does one thing after the other.

The clients are impacket, Samba, http.client, gRPC, and ours.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from impacket.dcerpc.v5 import epm
from impacket.dcerpc.v5.dcomrt import IActivation, IObjectExporter
from impacket.dcerpc.v5.rpcrt import DCERPCException
from impacket.uuid import string_to_bin, uuidtup_to_bin

import com_client
from daemon import Daemon, eventually
from interop import impacket_msmq as msmq
from interop import impacket_remote_read as reads
from interop.captures import Connection, Recorder
from interop.impacket_client import (
    INTEGRITY,
    PASSWORD,
    PRIVACY,
    RECEIVE_ACCESS,
    SEND_ACCESS,
    USER,
    Client,
    connect,
    direct,
)
from interop.samba_connection import Samba, need_samba
from interop.wireshark import BIND, RESPONSE, sent_headers
from msrpc.rpc.pdu import AuthLevel
from openmsmq import com
from openmsmq.bulk.client import BulkClient
from openmsmq.interfaces.mc_mqac import IMSMQMessage
from openmsmq.model.errors import MessageNotFound, QueueNotFound

QMCOMM = "fdb3a030-065f-11d1-bb9b-00a024ea5525"
NDR, NDR64 = "8a885d04-1ceb-11c9-9fe8-08002b104860", "71710533-beba-4937-8319-b5dbef9ccc36"
UNKNOWN = "11111111-2222-3333-4444-555555555555"
UNKNOWN_SERVICE = 99
BODY = b"\x5a" * 9_000  # more than one fragment of all clients
QUEUE = ".\\private$\\captured"
_LAST = (1 << 56) - 1  # position


@dataclass
class World:
    daemon: Daemon
    recorder: Recorder

    def port(self, endpoint: str) -> int:
        return int(self.daemon.ready["endpoints"][endpoint]["port"])

    def proxy(self, endpoint: str) -> int:
        return self.recorder.proxies[self.port(endpoint)]

    def close_objects(self) -> None:
        """Close our client's objects when the ping in the background, which closing would cut off, is answered."""
        eventually(lambda: sum(map(_is_answered, self._of_the_resolver())) == 2)  # the activation and the ping
        com.close_all()

    def _of_the_resolver(self) -> list[Connection]:
        scenario = self.recorder.connections[-1].scenario
        port = self.port("ept")
        return [c for c in self.recorder.connections if (c.scenario, c.server_port) == (scenario, port)]


def _is_answered(connection: Connection) -> bool:
    return any(header.kind == RESPONSE for header in sent_headers(connection.stream(is_from_client=False)))


def ask_the_mapper(world: World) -> None:
    dce = connect(world.daemon.mapper_port)
    for interface in (msmq.QMCOMM, msmq.QMCOMM2, msmq.QMMGMT, reads.REMOTE_READ):
        epm.hept_map("127.0.0.1", interface, protocol="ncacn_ip_tcp", dce=dce)
    epm.hept_lookup(None, dce=dce)
    dce.disconnect()


def send_and_receive(world: World) -> None:
    client = Client(world.daemon.port)
    for _ in range(2):  # the second time, it exists
        client.create("captured")
    sending, _ = client.opened("captured", SEND_ACCESS)
    client.send(sending, BODY, "first")
    _, context = client.opened("captured", RECEIVE_ACCESS)
    client.read(context, room=len(BODY))
    client.read(context)
    client.dce.call(99, b"")
    with contextlib.suppress(DCERPCException):
        client.dce.recv()
    client.close()


def read_in_two_phases(world: World) -> None:
    with world.daemon.connect() as manager, manager.open(QUEUE, "send") as queue:
        queue.send(BODY, label="second")
    dce = connect(world.daemon.port, PRIVACY)
    dce.bind(reads.REMOTE_READ)

    def call(name: str, **values: Any) -> Any:
        return dce.request(reads.request(name, **values), checkError=False)

    call("R_GetServerPort")
    handle = call(
        "R_OpenQueue", pQueueFormat=direct("captured"), dwAccess=1, dwShareMode=0, pClientId=bytes(16),
        fNonRoutingServer=0, Major=5, Minor=1, BuildNumber=2600, fWorkgroup=0,
    )["pphContext"]  # fmt: skip
    call(
        "R_StartReceive", phContext=handle, LookupId=0, hCursor=0, ulAction=0, ulTimeout=0, dwRequestId=1,
        dwMaxBodySize=len(BODY), dwMaxCompoundMessageSize=2 * len(BODY),
    )  # fmt: skip
    call("R_EndReceive", phContext=handle, dwAck=2, dwRequestId=1)
    call("R_CloseQueue", pphContext=handle)
    dce.disconnect()


def manage(world: World) -> None:
    dce = connect(world.daemon.port, INTEGRITY)
    dce.bind(msmq.QMMGMT)
    blank = [{"vt": 1, "u": {"null": None}}]
    machine = {"type": 1, "u": {"Reserved1": 0}}
    dce.request(msmq.request("R_QMMgmtGetInfo", pObjectFormat=machine, cp=1, aProp=[1], apVar=blank), checkError=False)
    dce.disconnect()


def be_refused(world: World) -> None:
    """Bind an unknown interface, log in with a wrong password, and by an authentication service that nobody has."""
    dce = connect(world.daemon.port)
    with pytest.raises(DCERPCException):
        dce.bind(uuidtup_to_bin((UNKNOWN, "1.0")))
    dce.disconnect()
    dce = connect(world.daemon.port, INTEGRITY, password="wrong")
    dce.bind(msmq.QMCOMM)
    with pytest.raises(DCERPCException):
        dce.request(msmq.request("R_QMGetRTQMServerPort", fIP=0), checkError=False)
    dce.disconnect()
    trailer = bytes([UNKNOWN_SERVICE, INTEGRITY, 0, 0]) + bytes(4)
    syntaxes = uuidtup_to_bin((QMCOMM, "1.0")) + uuidtup_to_bin((NDR, "2.0"))
    body = struct.pack("<HHIBxxxHBx", 4280, 4280, 0, 1, 0, 1) + syntaxes + trailer + b"token___"
    with socket.create_connection(("127.0.0.1", world.daemon.port)) as connection:
        connection.sendall(struct.pack("<BBBBIHHI", 5, 0, BIND, 3, 0x10, 16 + len(body), 8, 1) + body)
        connection.recv(100)


def ask_in_ndr64(world: World) -> None:
    dce = connect(world.daemon.port)
    dce.bind(msmq.QMCOMM, transfer_syntax=(NDR64, "1.0"))
    dce.request(msmq.request("R_QMGetRTQMServerPort", fIP=0), checkError=False)
    dce.disconnect()


def _send_and_receive_with_ours(world: World, **security: Any) -> None:
    with world.daemon.connect(user=USER, password=PASSWORD, **security) as manager:
        with manager.open(QUEUE, "send") as queue:
            queue.send(BODY, label="third")
        with manager.open(QUEUE) as queue:
            assert queue.receive(0).body == BODY


def use_our_client(world: World) -> None:
    _send_and_receive_with_ours(world, level=AuthLevel.PKT_PRIVACY)


def use_our_client_with_spnego(world: World) -> None:
    _send_and_receive_with_ours(world, spnego=True)


def use_qm2qm_and_qmmgmt(world: World) -> None:
    with world.daemon.connect(user=USER, password=PASSWORD, level=AuthLevel.PKT_PRIVACY) as manager:
        with manager.open(QUEUE, "send") as queue:
            queue.send(BODY, label="old")
        with manager.open(QUEUE, protocol="qm2qm") as queue:
            assert queue.receive(0).body == BODY
        manager.management(QUEUE)


def use_objects(world: World) -> None:
    connection = com_client.Connection("127.0.0.1", world.daemon.mapper_port)
    info = connection.new("QueueInfo")
    info.put("PathName", ".\\private$\\objects")
    info.call("Create")
    queue, message = info.call("Open", 2, 0), connection.new("Message")
    message.put("Label", "fourth")
    message.call("Send", queue)
    with contextlib.suppress(com_client.Refused):
        info.call("Create")
    connection.disconnect()


def use_objects_with_ours(world: World) -> None:
    info = com.Dispatch(
        "MSMQ.MSMQQueueInfo", host="127.0.0.1", port=world.daemon.mapper_port, user=USER, password=PASSWORD
    )
    info.PathName = ".\\private$\\objects"
    queue = info.Open(1, 0)
    assert queue.Receive(ReceiveTimeout=0).Label == "fourth"
    with contextlib.suppress(MessageNotFound):
        queue.Receive(ReceiveTimeout=0)
    world.close_objects()


def resolve(world: World) -> None:
    """Create an object by the older activation, find its exporter, query an interface, and ping."""
    connection = com_client.Connection("127.0.0.1", world.daemon.mapper_port)
    clsid = string_to_bin(com_client.CLSIDS["Message"])
    IActivation(connection.get_dce_rpc()).RemoteActivation(clsid, string_to_bin(com_client.IID_IDISPATCH))
    resolver = IObjectExporter(connection.get_dce_rpc())
    resolver.ServerAlive2()
    message = connection.new("Message")
    resolver.ResolveOxid2(message.dispatch.get_oxid(), (7,))
    with contextlib.suppress(DCERPCException):
        resolver.ResolveOxid2(12345, (7,))
    pinged = resolver.ComplexPing(addToSet=[message.dispatch.get_oid()])
    resolver.SimplePing(pinged["pSetId"])
    message.query(str(IMSMQMessage.uuid)).release()
    connection.disconnect()


def use_sealed_objects(world: World) -> None:
    message = com.Dispatch(
        "MSMQ.MSMQMessage", host="127.0.0.1", port=world.daemon.mapper_port, user=USER, password=PASSWORD,
        level=AuthLevel.PKT_PRIVACY,
    )  # fmt: skip
    message.Label = "sealed"
    assert message.Label == "sealed"
    world.close_objects()


PAGES = ("/api/v1/queues", "/metrics", "/api/v1/nowhere", "/")


def browse(world: World) -> None:
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    connection = http.client.HTTPConnection("127.0.0.1", world.port("web"))
    for page in PAGES:
        connection.request("GET", page, headers={"Authorization": f"Basic {login}"})
        connection.getresponse().read()
    connection.close()


def read_rows(world: World) -> None:
    with world.daemon.connect() as manager, manager.open(QUEUE, "send") as queue:
        queue.send(b"row", recoverable=True)
    client = BulkClient(port=world.proxy("flight"))
    list(client.read("captured", end=_LAST))
    with contextlib.suppress(QueueNotFound):
        list(client.read("nowhere", end=_LAST))
    client.close()


def ask_the_mapper_in_big_endian(world: World) -> None:
    with contextlib.suppress(pytest.skip.Exception):  # without Samba, only the test of this scenario is skipped
        need_samba()
        with Samba(world.proxy("ept"), "ntlm,sign,bigendian", (USER, PASSWORD), "epmapper") as samba:
            samba.ask("map", QMCOMM, 1)


SCENARIOS: dict[str, Callable[[World], None]] = {
    "mapper": ask_the_mapper,
    "anonymous": send_and_receive,
    "sealed": read_in_two_phases,
    "signed": manage,
    "refused": be_refused,
    "NDR64": ask_in_ndr64,
    "ours": use_our_client,
    "ours with SPNEGO": use_our_client_with_spnego,
    "ours with qm2qm": use_qm2qm_and_qmmgmt,
    "objects": use_objects,
    "our objects": use_objects_with_ours,
    "our sealed objects": use_sealed_objects,
    "resolver": resolve,
    "web": browse,
    "flight": read_rows,
    "big-endian": ask_the_mapper_in_big_endian,
}
