"""The interface qmmgmt ([MS-MQMR] 3.1.4), through its stubs: each property with messages in the queues, each action."""

from __future__ import annotations

import time
from typing import Any

import pytest

from openmsmq.conversion.management import MACHINE_PROPERTIES, QUEUE_PROPERTIES, unpack
from openmsmq.interfaces import ms_mqmr
from openmsmq.interfaces.ms_mqmq import tag_inner_PROPVARIANT as PROPVARIANT
from openmsmq.model import names, security
from openmsmq.model.constants import Access, MachineAccessMask, MessageClass, VarType
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message
from openmsmq.protocols import management
from openmsmq.queueing.outgoing_queues import (
    ConnectionEvent,
    ConnectionStatus,
    OutgoingQueue,
    OutgoingState,
    SequenceInfo,
)
from protocols.clients import Client, Server, queue_format

H = HResult
THERE = "DIRECT=OS:there\\private$\\q"
FAR = "DIRECT=TCP:192.0.2.7\\public"
ELSEWHERE = "PRIVATE=00000000-0000-0000-0000-0000000000aa\\00000007"
HERE = "03020100-0504-0706-0809-0a0b0c0d0e0f"
QUEUE_TYPES = {  # [MS-MQMQ] 2.3.12; 0x1000 is VT_VECTOR, 12 VT_VARIANT. 27 as in MS-MQMQ, not MS-MQMR
    **dict.fromkeys((1, 2, 3, 4, 5, 6, 11), VarType.VT_LPWSTR),
    **dict.fromkeys((7, 8, 9, 10, 15, 19, 20, 22, 23, 26), VarType.VT_UI4),
    **dict.fromkeys((14, 21), VarType.VT_I4),
    **dict.fromkeys((13, 16, 17, 18), VarType.VT_BLOB),
    **dict.fromkeys((12, 27), 0x1000 | VarType.VT_LPWSTR),
    **dict.fromkeys((24, 25), 0x1000 | 12),
}


@pytest.fixture
def server() -> Server:
    server = Server()
    server.world.create("q", JOURNAL=1)
    server.world.create("t", TRANSACTION=1)
    return server


@pytest.fixture
def client(server: Server) -> Client:
    return server.client()


@pytest.fixture
def administrator(server: Server) -> Client:
    server.administrators.add(None)
    return server.client()


MACHINE = ms_mqmr.MGMT_OBJECT(type=1, Reserved1=0)
SESSION = ms_mqmr.MGMT_OBJECT(type=3, Reserved2=0)


def of_queue(name: str = "q") -> Any:
    return ms_mqmr.MGMT_OBJECT(type=2, pQueueFormat=queue_format(name))


def info(client: Client, target: Any, *propids: int) -> Any:
    return client.call("R_QMMgmtGetInfo", pObjectFormat=target, cp=len(propids), aProp=list(propids),
                       apVar=[PROPVARIANT(vt=1) for _ in propids])  # fmt: skip


def machine(client: Client) -> dict[str, Any]:
    answer = info(client, MACHINE, *range(1, 7))
    assert answer.result == H.MQ_OK
    return {name: unpack(MACHINE_PROPERTIES, name, variant)
            for name, variant in zip(MACHINE_PROPERTIES, answer.apVar, strict=True)}  # fmt: skip


def queue(client: Client, name: str = "q") -> dict[str, Any]:
    answer = info(client, of_queue(name), *range(1, 28))
    assert answer.result == H.MQ_OK
    return {name: unpack(QUEUE_PROPERTIES, name, variant)
            for name, variant in zip(QUEUE_PROPERTIES, answer.apVar, strict=True)}  # fmt: skip


def act(client: Client, target: Any, action: str) -> int:
    result: int = client.call("R_QMMgmtAction", pObjectFormat=target, lpwszAction=action).result
    return result


def outgoing(server: Server, name: str = THERE) -> OutgoingQueue:
    found = server.world.registry.outgoing_queue(names.parse_format_name(name))
    assert found is not None
    return found


# -- machine ---------------------------------------------------------------------------------------------------


def test_every_property_has_a_name_and_a_value() -> None:
    assert list(MACHINE_PROPERTIES) == list(management.MACHINE)
    assert list(QUEUE_PROPERTIES) == list(management.QUEUE)
    assert [entry.propid for entry in MACHINE_PROPERTIES.values()] == list(range(1, 7))
    assert [entry.propid for entry in QUEUE_PROPERTIES.values()] == list(range(1, 28))


def test_the_machine_reports_its_properties(client: Client) -> None:
    answer = info(client, MACHINE, *range(1, 7))
    texts = 0x1000 | VarType.VT_LPWSTR
    assert [variant.vt for variant in answer.apVar] == [
        texts, texts, VarType.VT_NULL, VarType.VT_LPWSTR, VarType.VT_LPWSTR, VarType.VT_I8,
    ]  # fmt: skip
    assert machine(client) == {
        "active_queues": [], "private_queues": ["HERE\\private$\\q", "HERE\\private$\\t"], "ds_server": None,
        "connected": "CONNECTED", "type": "Message Queuing 6.3.0", "bytes_in_all_queues": 0,
    }  # fmt: skip


def test_active_are_queues_that_are_open_and_outgoing_ones_with_messages(server: Server, client: Client) -> None:
    handles = [client.open(name).phQueue for name in (
        "q", "DIRECT=OS:.\\private$\\q;JOURNAL", "DIRECT=OS:.\\SYSTEM$;DEADLETTER")]  # fmt: skip
    server.world.send("t", transaction=server.world.begin())
    server.world.send(THERE)
    handles.append(client.open(FAR, Access.SEND).phQueue)
    active = [f"PRIVATE={HERE}\\00000010", f"PRIVATE={HERE}\\00000010;JOURNAL", f"MACHINE={HERE};DEADLETTER"]
    assert sorted(machine(client)["active_queues"]) == sorted([*active, THERE, FAR])
    for handle in handles:
        client.call("rpc_ACCloseHandle", phQueue=handle)
    assert machine(client)["active_queues"] == [THERE]


def test_all_bytes_are_counted(server: Server, client: Client) -> None:
    server.world.send(THERE, body=bytes(100))
    server.world.send(body=bytes(50), journaling_requested=2)
    registry = server.world.registry
    counted = [len(found) for found in (outgoing(server), server.world.queue(), registry.system_journal)]
    assert counted == [1, 1, 1]
    assert machine(client)["bytes_in_all_queues"] == sum(q.total_bytes for q in registry.queues.values()) > 150


# -- queues ----------------------------------------------------------------------------------------------------


def test_a_local_queue_reports_its_properties(server: Server, client: Client) -> None:
    server.world.send(body=bytes(100))
    server.world.read(server.world.open())
    server.world.send(body=bytes(100))
    client.open(share=1)  # denies other readers
    journal = server.world.queue().journal
    assert journal is not None
    values = queue(client)
    assert {name: value for name, value in values.items() if value is not None} == {
        "path_name": "HERE\\private$\\q", "format_name": "DIRECT=OS:here.example.com\\private$\\q", "type": "PRIVATE",
        "location": "LOCAL", "transactional": "NO", "foreign": "NO", "message_count": 1,
        "bytes_in_queue": server.world.queue().total_bytes, "journal_message_count": 1,
        "bytes_in_journal": journal.total_bytes, "state": "LOCAL CONNECTION", "eod_source_info": [],
        "subqueue_count": 0, "subqueue_names": [],
    }  # fmt: skip
    assert queue(client, "t")["transactional"] == "YES"
    unlike = server.world.queue("t").properties._replace(path_name=server.world.queue().properties.path_name)
    server.world.registry.update(server.world.queue(), unlike)
    assert queue(client)["bytes_in_journal"] == 0, "journaling is off"


def test_subqueues_are_listed_and_report_their_properties(server: Server, client: Client) -> None:
    world = server.world
    world.send(label="a")
    key = world.queue().first()
    assert key is not None
    target = world.open("q;later", Access.MOVE)
    world.manager.subqueues.move(world.open(), target, key)
    parent, subqueue = queue(client), queue(client, "q;later")
    assert (parent["subqueue_count"], parent["subqueue_names"]) == (1, ["later"])
    assert (parent["message_count"], subqueue["message_count"]) == (0, 1)
    assert subqueue["path_name"].endswith("\\private$\\q;later") and subqueue["subqueue_count"] == 0
    assert any(name.endswith("q;later") for name in machine(client)["active_queues"])
    world.manager.handles.close_queue(target)
    world.read(world.open("q;later"))
    assert [queue(client, name)["journal_message_count"] for name in ("q", "q;later")] == [1, 0]
    assert queue(client, "q;later")["bytes_in_journal"] == 0
    for descriptor in list(world.manager.handles.descriptors.values()):
        world.manager.handles.close_queue(descriptor)
    assert queue(client)["subqueue_count"] == 0


def test_journals_and_system_queues_report_their_properties(server: Server, client: Client) -> None:
    server.world.send(journaling_requested=2)
    server.world.read(server.world.open())
    for name, kind, path in (
        ("DIRECT=OS:.\\private$\\q;JOURNAL", "PRIVATE", "HERE\\private$\\q;journal"),
        (f"MACHINE={HERE};JOURNAL", "MACHINE", "HERE\\system$;journal"),
    ):
        values = queue(client, name)
        assert (values["type"], values["path_name"], values["message_count"]) == (kind, path, 1)
        assert (values["journal_message_count"], values["location"]) == (0, "LOCAL")
    assert queue(client, f"MACHINE={HERE};DEADXACT")["transactional"] == "YES"


def test_an_outgoing_queue_reports_its_properties(server: Server, client: Client) -> None:
    for name in (THERE, FAR, ELSEWHERE):
        client.send(client.open(name, Access.SEND).phQueue, Message(body=bytes(100)))
    answer = info(client, of_queue(FAR), *range(1, 28))
    types = {n: variant.vt for n, variant in enumerate(answer.apVar, 1)}
    assert types == {**QUEUE_TYPES, 13: VarType.VT_NULL}, "nothing has been acknowledged"
    there, far, elsewhere = (queue(client, name) for name in (THERE, FAR, ELSEWHERE))
    assert there["path_name"] == "there\\private$\\q" and there["format_name"] == THERE
    assert [q["type"] for q in (there, far, elsewhere)] == ["PRIVATE", "PUBLIC", "PRIVATE"]
    assert [q["foreign"] for q in (there, far, elsewhere)] == ["NO", "UNKNOWN", "NO"]
    assert [q["next_hops"] for q in (there, far, elsewhere)] == [[], ["IP=192.0.2.7"], None]
    assert [q["state"] for q in (there, far, elsewhere)] == ["WAITING", "WAITING", "NEED VALIDATION"]
    assert [q["path_name"] for q in (far, elsewhere)] == ["192.0.2.7\\public", None]
    assert {(q["location"], q["transactional"], q["message_count"]) for q in (there, far)} == {("REMOTE", "UNKNOWN", 1)}
    assert there["bytes_in_queue"] == outgoing(server).total_bytes > 100


def test_messages_that_await_their_final_acknowledgment_are_in_no_journal(server: Server, client: Client) -> None:
    world, outgoing = server.world, server.world.manager.outgoing
    transaction = world.begin(5)
    world.send(THERE, transaction=transaction, journaling_requested=1)
    world.manager.transactions.commit(transaction)
    destination = world.registry.outgoing_queue(names.parse_format_name(THERE))
    keys = list(destination.available)
    for key in keys:
        outgoing.take(destination, key)
    outgoing.ordered(destination, keys)
    values = queue(client, THERE)
    assert (values["message_count"], values["journal_message_count"], values["bytes_in_journal"]) == (0, 0, 0)
    assert values["eod_no_read_count"] == 1
    outgoing.finished(destination, keys[0], MessageClass.ACK_RECEIVE)
    assert queue(client, THERE)["eod_no_read_count"] == 0


def test_the_state_of_the_transport_is_reported(server: Server, client: Client) -> None:
    server.world.send(THERE)
    found = outgoing(server)
    found.link = OutgoingState.CONNECTED
    found.next_hops = ["IP=192.0.2.1", "IP=192.0.2.2"]
    found.connection_history += [
        ConnectionEvent(ConnectionStatus.DNS_FAILURE, 1_700_000_000, H.MQ_ERROR, ("192.0.2.1", "192.0.2.2")),
        ConnectionEvent(ConnectionStatus.ESTABLISHED, 1_700_000_001),
    ]
    transfer = found.transfer_info
    transfer.eod_last_ack, transfer.eod_first_non_ack = SequenceInfo((1 << 64) - 5, 2, 1), SequenceInfo(1 << 40, 3, 2)
    transfer.eod_last_non_ack, transfer.eod_next_seq = SequenceInfo(6, 4, 3), SequenceInfo(7, 5, 4)
    transfer.eod_last_ack_time, transfer.eod_last_ack_count = 1_700_000_002, 9
    transfer.eod_no_ack_count = 11
    transfer.eod_resend_time, transfer.eod_resend_interval, transfer.eod_resend_count = 1_700_000_003, 30, 12
    started = time.process_time()
    values = queue(client, THERE)
    assert time.process_time() - started < 1, "a range looks through all its numbers for an enumeration's"
    assert (values["state"], values["next_hops"]) == ("CONNECTED", found.next_hops)
    assert values["connection_history"] == [
        {"status": 0x80000008, "time": 1_700_000_000, "error": H.MQ_ERROR - (1 << 32),
         "addresses": ["192.0.2.1", "192.0.2.2"]},
        {"status": 2, "time": 1_700_000_001, "error": 0, "addresses": []},
    ]  # fmt: skip
    assert {name: value for name, value in values.items() if name.startswith("eod")} == {
        "eod_last_ack": {"identifier": (1 << 64) - 5, "number": 2, "previous": 1},
        "eod_first_non_ack": {"identifier": 1 << 40, "number": 3, "previous": 2},
        "eod_last_non_ack": {"identifier": 6, "number": 4, "previous": 3},
        "eod_next_seq": {"identifier": 7, "number": 5, "previous": 4},
        "eod_last_ack_time": 1_700_000_002, "eod_last_ack_count": 9, "eod_no_read_count": 0, "eod_no_ack_count": 11,
        "eod_resend_time": 1_700_000_003, "eod_resend_interval": 30, "eod_resend_count": 12, "eod_source_info": [],
    }  # fmt: skip


def test_128_properties_are_returned_in_the_requested_order(client: Client) -> None:
    asked = [1 + n % 27 for n in range(128)]
    answer = info(client, of_queue(), *asked)
    assert [answer.apVar[n].pwszVal for n in (0, 27, 54)] == ["HERE\\private$\\q"] * 3
    assert len(answer.apVar) == 128


@pytest.mark.parametrize(
    ("target", "propid", "error"),
    [
        (MACHINE, 7, H.MQ_ERROR_ILLEGAL_PROPID),
        (MACHINE, 0, H.MQ_ERROR_ILLEGAL_PROPID),
        (of_queue(), 28, H.MQ_ERROR_ILLEGAL_PROPID),
        (of_queue("no"), 1, H.MQ_ERROR_QUEUE_NOT_FOUND),
        (of_queue(THERE), 1, H.MQ_ERROR_QUEUE_NOT_FOUND),
        (ms_mqmr.MGMT_OBJECT(type=2, pQueueFormat=None), 1, H.MQ_ERROR_INVALID_PARAMETER),
        (SESSION, 1, H.MQ_ERROR_INVALID_PARAMETER),
    ],
)
def test_unknown_properties_set_no_value(client: Client, target: Any, propid: int, error: HResult) -> None:
    answer = info(client, target, 1, propid)
    assert answer.result == error
    assert [variant.vt for variant in answer.apVar] == [VarType.VT_NULL] * 2


def test_reading_properties_needs_a_right(server: Server, client: Client) -> None:
    server.world.send(THERE)
    everyone = int(MachineAccessMask.CREATE_QUEUE)
    server.world.manager.authorization.machine = security.SecurityDescriptor(
        dacl=(security.allow(security.EVERYONE, everyone),)
    )
    for target in (MACHINE, of_queue(THERE), of_queue(f"MACHINE={HERE};JOURNAL")):
        assert info(client, target, 1).result == H.MQ_ERROR_ACCESS_DENIED
    assert info(client, of_queue(), 1).result == H.MQ_OK


# -- actions ---------------------------------------------------------------------------------------------------


def test_section_4_1_an_outgoing_queue_is_paused_and_resumed(server: Server, administrator: Client) -> None:
    server.world.send(THERE)
    states = []
    for action in ("PAUSE", "pause", "Resume"):
        assert act(administrator, of_queue(THERE), action) == H.MQ_OK
        states.append(queue(administrator, THERE)["state"])
    assert states == ["ONHOLD", "ONHOLD", "WAITING"]


def test_the_machine_goes_offline_and_online(server: Server, administrator: Client) -> None:
    server.world.send(THERE)
    for action, connected, state in (
        ("Disconnect", "DISCONNECTED", "DISCONNECTED"), ("CONNECT", "CONNECTED", "WAITING"),
    ):  # fmt: skip
        assert act(administrator, MACHINE, action) == H.MQ_OK
        assert machine(administrator)["connected"] == connected
        assert queue(administrator, THERE)["state"] == state
        assert queue(administrator)["state"] == "LOCAL CONNECTION"


def test_tidying_deletes_no_message(server: Server, administrator: Client) -> None:
    server.world.send(label="m")
    server.world.send(THERE, label="m")
    assert act(administrator, MACHINE, "tidy") == H.MQ_OK
    assert server.tidied == [True]
    assert server.world.labels() == server.world.labels(outgoing(server)) == ["m"]


def test_what_was_never_sent_cannot_be_sent_again(server: Server, administrator: Client) -> None:
    server.world.send(THERE)
    assert act(administrator, of_queue(THERE), "EOD_RESEND") == H.MQ_ERROR
    resent: list[OutgoingQueue] = []

    class Transport:
        def wake(self) -> None: ...

        def resend(self, queue: OutgoingQueue) -> None:
            resent.append(queue)

    server.world.manager.outgoing.transport = Transport()
    assert act(administrator, of_queue(THERE), "eod_resend") == H.MQ_OK
    assert resent == [outgoing(server)]


@pytest.mark.parametrize(
    ("target", "action", "error"),
    [
        (MACHINE, "PAUSE", H.MQ_ERROR_INVALID_PARAMETER),
        (MACHINE, "", H.MQ_ERROR_INVALID_PARAMETER),
        (MACHINE, "FORMAT C:", H.MQ_ERROR_INVALID_PARAMETER),
        (SESSION, "PAUSE", H.MQ_ERROR_INVALID_PARAMETER),
        (SESSION, "TIDY", H.MQ_ERROR_INVALID_PARAMETER),
        (of_queue(THERE), "TIDY", H.MQ_ERROR_INVALID_PARAMETER),
        (of_queue(), "PAUSE", H.MQ_ERROR_INVALID_PARAMETER),
        (of_queue("DIRECT=OS:.\\SYSTEM$;JOURNAL"), "RESUME", H.MQ_ERROR_INVALID_PARAMETER),
        (of_queue(FAR), "PAUSE", H.MQ_ERROR_QUEUE_NOT_FOUND),
        (of_queue("no"), "EOD_RESEND", H.MQ_ERROR_QUEUE_NOT_FOUND),
        (ms_mqmr.MGMT_OBJECT(type=2, pQueueFormat=None), "PAUSE", H.MQ_ERROR_INVALID_PARAMETER),
    ],
)
def test_impossible_actions_are_refused(
    server: Server, administrator: Client, target: Any, action: str, error: HResult
) -> None:  # fmt: skip
    server.world.send(THERE)
    assert act(administrator, target, action) == error


@pytest.mark.parametrize("action", ["CONNECT", "DISCONNECT", "TIDY", "PAUSE", "RESUME", "EOD_RESEND"])
def test_only_administrators_act(server: Server, client: Client, action: str) -> None:
    server.world.send(THERE)
    target = of_queue(THERE) if action in ("PAUSE", "RESUME", "EOD_RESEND") else MACHINE
    assert act(client, target, action) == H.MQ_ERROR_ACCESS_DENIED
    assert (server.world.manager.outgoing.online, outgoing(server).on_hold, server.tidied) == (True, False, [])


def test_an_administrator_opens_an_outgoing_queue(server: Server, client: Client) -> None:
    server.world.send(THERE, label="m")
    assert client.open(THERE, Access.RECEIVE_ADMIN).result == H.MQ_ERROR_ACCESS_DENIED
    server.administrators.add(None)
    opened = client.open(THERE, Access.RECEIVE_ADMIN)
    assert client.receive(opened.pdwQMContext).result == H.MQ_OK
    server.world.send(THERE)
    assert client.call("rpc_ACPurgeQueue", hQueue=opened.phQueue).result == H.MQ_OK
    assert len(outgoing(server)) == 0
    missing = client.open(FAR, Access.PEEK_ADMIN)
    assert (missing.result, missing.lplpRemoteQueueName) == (H.MQ_ERROR_QUEUE_NOT_FOUND, None)
