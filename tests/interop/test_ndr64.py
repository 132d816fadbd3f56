"""NDR64 of impacket, of Samba, and of our own clients, against the daemon.

Where impacket and Samba deviate from [MS-RPCE] 2.2.5, the specification takes precedence:

- impacket writes the discriminant of each union as 4 bytes, and aligns each arm to 8. In the unions of MSMQ the largest
  arm is aligned to 8, and discriminants are small, so its encoding differs only in padding.
- Samba declares twr_t and the statistics of rpc_mgmt_inq_stats with a maximum count of 32 bits, which has 64 in NDR64
  (2.2.5.3.4.2, 2.2.5.3.2.1): it cannot decode the replies.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from typing import Any

import pytest
from impacket.dcerpc.v5.rpcrt import DCERPCException

import openmsmq
from daemon import Daemon
from interop import impacket_msmq as calls
from interop import impacket_remote_read as reads
from interop.impacket_client import (
    INTEGRITY,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_OK,
    NONE,
    PASSWORD,
    PRIVACY,
    RECEIVE_ACCESS,
    USER,
    Client,
    connect,
    direct,
)
from interop.samba_connection import ANONYMOUS, Samba, SambaError, need_samba
from msrpc.rpc.pdu import NDR, NDR64
from openmsmq import aio
from openmsmq.client import pool, runner
from openmsmq.interfaces import ms_mqmp, ms_mqmr, ms_mqrr

SYNTAX = ("71710533-BEBA-4937-8319-B5DBEF9CCC36", "1.0")
SAMBA = ["", "ntlm,packet", "ntlm,sign", "spnego,seal"]
LARGE = 4 * 1024 * 1024 - 4096  # bytes of a body: 4 MiB including the headers of a message
_names = itertools.count()


@pytest.fixture
def queue(daemon: Daemon) -> str:
    name = f"wide{next(_names)}"
    with daemon.connect() as manager:
        manager.create_queue(f".\\private$\\{name}")
    return name


# -- impacket ----------------------------------------------------------------------------------------------------------


class WideClient(Client):
    """A client with one connection per interface, because impacket's alter_context offers NDR 2.0 only. Context
    handles belong to one connection, so their queues and cursors must be opened on both."""

    def __init__(self, daemon: Daemon, level: int) -> None:
        self.dce, self.second = connect(daemon.port, level), connect(daemon.port, level)
        self.dce.bind(calls.QMCOMM, transfer_syntax=SYNTAX)
        self.second.bind(calls.QMCOMM2, transfer_syntax=SYNTAX)

    def close(self) -> None:
        self.dce.disconnect()
        self.second.disconnect()


@pytest.mark.parametrize("level", [NONE, INTEGRITY, PRIVACY])
def test_impacket_opens_queues_and_reads_their_properties(daemon: Daemon, queue: str, level: int) -> None:
    client = WideClient(daemon, level)
    assert client.open(queue, RECEIVE_ACCESS)["result"] == MQ_OK
    assert client.open("nowhere", RECEIVE_ACCESS)["result"] == MQ_ERROR_QUEUE_NOT_FOUND
    path, quota = client.properties(queue, 103, 105)
    assert path.endswith(f"\\private$\\{queue}\0") and quota == 0xFFFFFFFF
    client.close()


def test_impacket_reads_messages_of_queues_in_two_phases(daemon: Daemon, queue: str) -> None:
    with daemon.connect() as manager, manager.open(f".\\private$\\{queue}", "send") as ours:
        ours.send(b"kept", label="a")
    dce = connect(daemon.port)
    dce.bind(reads.REMOTE_READ, transfer_syntax=SYNTAX)

    def call(name: str, **values: Any) -> Any:
        return dce.request(reads.request(name, **values), checkError=False)

    assert call("R_GetServerPort")["result"] == daemon.port
    handle = call(
        "R_OpenQueue", pQueueFormat=direct(queue), dwAccess=1, dwShareMode=0, pClientId=bytes(16),
        fNonRoutingServer=0, Major=5, Minor=1, BuildNumber=2600, fWorkgroup=0,
    )["pphContext"]  # fmt: skip
    for acknowledge in (1, 2):  # put back, take
        started = call(
            "R_StartReceive", phContext=handle, LookupId=0, hCursor=0, ulAction=0, ulTimeout=0, dwRequestId=1,
            dwMaxBodySize=100, dwMaxCompoundMessageSize=4000,
        )  # fmt: skip
        assert (started["result"], started["pdwNumberOfSections"]) == (MQ_OK, 1)
        (section,) = started["ppPacketSections"]
        assert section["pSectionBuffer"][4:8] == b"LIOR" and b"kept" in section["pSectionBuffer"]
        assert section["SectionSize"] == len(section["pSectionBuffer"])
        assert call("R_EndReceive", phContext=handle, dwAck=acknowledge, dwRequestId=1)["result"] == MQ_OK
    assert call("R_CloseQueue", pphContext=handle)["pphContext"] == bytes(20)
    dce.disconnect()


def test_the_management_of_queues_is_in_ndr_only(daemon: Daemon) -> None:
    """[MS-MQMR] 2.2."""
    dce = connect(daemon.port)
    with pytest.raises(DCERPCException, match="transfer_syntaxes_not_supported"):
        dce.bind(calls.QMMGMT, transfer_syntax=SYNTAX)
    dce.disconnect()


# -- Samba -------------------------------------------------------------------------------------------------------------


def samba(port: int, options: str) -> Samba:
    need_samba()
    return Samba(port, ",".join(filter(None, ("ndr64", options))), (USER, PASSWORD) if options else ANONYMOUS)


@pytest.mark.parametrize("options", SAMBA)
def test_samba_asks_the_management_interface_what_is_served(daemon: Daemon, options: str) -> None:
    with samba(daemon.port, options) as client:
        interfaces = {uuid.UUID(identifier): version for identifier, version in client.ask("interface_ids")}
        for interface in (ms_mqmp.qmcomm, ms_mqmp.qmcomm2, ms_mqrr.RemoteRead):
            assert interfaces[interface.uuid] == interface.version[0]
        assert client.ask("listening") == [0, 1]
        with pytest.raises(SambaError, match="UNKNOWN_AUTHN_SERVICE"):
            client.ask("principal_name", 16, 100)


@pytest.mark.parametrize("options", SAMBA)
def test_samba_carries_all_operations_of_our_client(daemon: Daemon, queue: str, options: str) -> None:
    name = f".\\private$\\{queue}"
    with samba(daemon.port, options) as client:
        manager = client.manager(is_ndr64=True)
        with manager.open(name, "send") as sending:
            sending.send(b"\x5a" * 30_000, label="large")
        with manager.open(name) as receiving:
            assert receiving.peek(timeout=0).label == "large"
            assert receiving.receive(timeout=0).body == b"\x5a" * 30_000
            with pytest.raises(openmsmq.ReceiveTimeout):
                receiving.receive(timeout=0)


# -- our own clients ---------------------------------------------------------------------------------------------------


@pytest.fixture
def only_ndr64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make our clients offer only NDR64 where both are allowed."""
    for module in (pool, runner):
        monkeypatch.setattr(
            module, "transfer_syntaxes", lambda interface: [NDR if interface is ms_mqmr.qmmgmt else NDR64]
        )


@pytest.mark.usefixtures("only_ndr64")
@pytest.mark.parametrize("size", [0, 7, 30_000, LARGE])
def test_messages_go_both_ways(daemon: Daemon, queue: str, size: int) -> None:
    name, content = f".\\private$\\{queue}", bytes(range(256)) * (size // 256 + 1)
    with daemon.connect() as manager, manager.open(name, "send") as sending, manager.open(name) as receiving:
        for number in range(3):
            sending.send(content[:size], label=f"n{number}")
        assert receiving.peek(timeout=5).label == "n0"
        assert [receiving.receive(timeout=5).label for _ in range(2)] == ["n0", "n1"]
        assert receiving.receive(timeout=5).body == content[:size]


@pytest.mark.usefixtures("only_ndr64")
def test_transactions_properties_and_remote_reads_work_in_ndr64(daemon: Daemon, queue: str) -> None:
    path = f".\\private$\\{queue}t"
    with daemon.connect() as manager:
        manager.create_queue(path, transactional=True)
        with manager.open(path, "send") as sending, manager.transaction() as transaction:
            sending.send(b"one", label="a", transaction=transaction)
        with manager.open(path) as receiving, manager.transaction() as transaction:
            assert receiving.receive(timeout=0, transaction=transaction).body == b"one"
        assert manager.properties(path, "transactional") == {"transactional": True}


@pytest.mark.usefixtures("only_ndr64")
def test_many_calls_on_one_connection_are_answered_in_their_own_syntax(daemon: Daemon, queue: str) -> None:
    async def run() -> list[bytes]:
        name = f".\\private$\\{queue}"
        async with await aio.connect("127.0.0.1", daemon.port) as manager:
            async with await manager.open(name, "send") as sending, await manager.open(name) as receiving:
                waiting = [asyncio.create_task(receiving.receive(timeout=20)) for _ in range(10)]
                await asyncio.gather(*(sending.send(b"%d" % n) for n in range(40)))
                found = [await task for task in waiting] + [await receiving.receive(timeout=20) for _ in range(30)]
        return [message.body for message in found]

    assert sorted(asyncio.run(run())) == sorted(b"%d" % n for n in range(40))


def test_our_client_offers_both_syntaxes_and_uses_the_servers_choice(daemon: Daemon, queue: str) -> None:
    with daemon.connect() as manager, manager.open(f".\\private$\\{queue}") as _:
        (member,) = manager._session.pool._idle
        assert set(member.connection.core.transfer_syntaxes.values()) == {NDR}
