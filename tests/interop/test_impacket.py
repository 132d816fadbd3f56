"""impacket, with its own NDR, against the daemon: queues, messages, cursors, transactions, at every level."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from impacket.dcerpc.v5 import epm
from impacket.dcerpc.v5.rpcrt import DCERPCException
from impacket.uuid import bin_to_uuidtup

import openmsmq
from daemon import Daemon
from interop import impacket_msmq as calls
from interop.impacket_client import (
    ACTION_PEEK_CURRENT,
    ACTION_PEEK_NEXT,
    CONNECT,
    INTEGRITY,
    MQ_ERROR_BUFFER_OVERFLOW,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_QUEUE_EXISTS,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_ERROR_TRANSACTION_USAGE,
    MQ_OK,
    NONE,
    PEEK_ACCESS,
    PRIVACY,
    RECEIVE_ACCESS,
    SEND_ACCESS,
    Client,
    body,
    connect,
    direct,
    label,
    queue_object,
)

LEVELS = {"anonymous": NONE, "connect": CONNECT, "integrity": INTEGRITY, "privacy": PRIVACY}
LARGEST_BODY = 4 * 1024 * 1024 - 4096  # 4 MiB including the headers of a message
UINT1, UINT4, TEXT = (17, "bVal"), (19, "ulVal"), (31, "pwszVal")
_names = itertools.count()


@pytest.fixture
def queue() -> str:
    return f"queue{next(_names)}"


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    connected = Client(daemon.port)
    yield connected
    connected.close()


def property_of(propid: int, kind: tuple[int, str], value: Any) -> tuple[int, int, str, Any]:
    return (propid, *kind, value)


TRANSACTIONAL = property_of(113, UINT1, 1)


# -- sections 4.1, 4.3 and 4.5 of [MS-MQMP] --------------------------------------------------------------------------


def test_section_4_1_a_queue_is_opened_used_and_closed(daemon: Daemon, queue: str) -> None:
    with daemon.connect() as manager:
        manager.create_queue(f".\\private$\\{queue}")
    asking = connect(daemon.port)
    asking.bind(calls.QMCOMM)
    port = asking.request(calls.request("R_QMGetRTQMServerPort", fIP=0), checkError=False)["result"]
    asking.disconnect()
    assert port == daemon.port
    client = Client(port)
    opened = client.open(queue, SEND_ACCESS)
    assert opened["result"] == MQ_OK
    assert calls.is_null(opened.fields["lplpRemoteQueueName"])
    assert client.send(opened["phQueue"], b"one")["result"] == MQ_OK
    closed = client.done("rpc_ACCloseHandle", phQueue=opened["phQueue"])
    assert closed["phQueue"] == bytes(20)
    with pytest.raises(DCERPCException, match="context_mismatch"):
        client.send(opened["phQueue"], b"two")
    client.close()


def test_section_4_3_a_cursor_is_created_used_and_closed(client: Client, queue: str) -> None:
    client.create(queue)
    sender, _ = client.opened(queue, SEND_ACCESS)
    handle, context = client.opened(queue, RECEIVE_ACCESS)
    for word in (b"first", b"second", b"third"):
        client.send(sender, word)
    cursor = client.done("rpc_ACCreateCursorEx", hQueue=handle, pcc={})["pcc"]["hCursor"]
    assert body(client.read(context, ACTION_PEEK_CURRENT, cursor=cursor)) == b"first"
    assert body(client.read(context, ACTION_PEEK_NEXT, cursor=cursor)) == b"second"
    assert body(client.read(context, cursor=cursor)) == b"second"
    assert body(client.read(context)) == b"first"
    client.done("rpc_ACCloseCursor", hQueue=handle, hCursor=cursor)
    assert client.read(context, ACTION_PEEK_NEXT, cursor=cursor)["result"] & 0x80000000
    assert body(client.read(context)) == b"third"
    assert client.read(context)["result"] == MQ_ERROR_IO_TIMEOUT


def test_section_4_5_an_internal_transaction_is_committed(client: Client, queue: str) -> None:
    client.create(queue, TRANSACTIONAL)
    sender, _ = client.opened(queue, SEND_ACCESS)
    _, context = client.opened(queue, RECEIVE_ACCESS)
    uow = os.urandom(16)
    handle = client.done("R_QMEnlistInternalTransaction", pUow=uow)["phIntXact"]
    for word in (b"one", b"two"):
        assert client.send(sender, word, uow=uow)["result"] == MQ_OK
    assert client.read(context)["result"] == MQ_ERROR_IO_TIMEOUT
    assert client.done("R_QMCommitTransaction", phIntXact=handle)["phIntXact"] == bytes(20)
    assert [body(client.read(context)) for _ in range(2)] == [b"one", b"two"]


# -- transactions ----------------------------------------------------------------------------------------------------


def test_an_aborted_transaction_leaves_no_message_and_gives_received_ones_back(client: Client, queue: str) -> None:
    client.create(queue, TRANSACTIONAL)
    sender, _ = client.opened(queue, SEND_ACCESS)
    _, context = client.opened(queue, RECEIVE_ACCESS)
    for committed in (True, False):
        uow = os.urandom(16)
        handle = client.done("R_QMEnlistInternalTransaction", pUow=uow)["phIntXact"]
        client.send(sender, b"kept" if committed else b"dropped", uow=uow)
        if not committed:
            assert body(client.read(context, uow=uow)) == b"kept"
            assert client.read(context)["result"] == MQ_ERROR_IO_TIMEOUT
        client.done("R_QMCommitTransaction" if committed else "R_QMAbortTransaction", phIntXact=handle)
    assert body(client.read(context)) == b"kept"
    assert client.read(context)["result"] == MQ_ERROR_IO_TIMEOUT


def test_a_transactional_queue_refuses_a_message_without_transaction(client: Client, queue: str) -> None:
    client.create(queue, TRANSACTIONAL)
    sender, _ = client.opened(queue, SEND_ACCESS)
    assert client.send(sender, b"alone")["result"] == MQ_ERROR_TRANSACTION_USAGE


def test_a_transaction_whose_client_disconnects_is_aborted(daemon: Daemon, client: Client, queue: str) -> None:
    client.create(queue, TRANSACTIONAL)
    going = Client(daemon.port)
    sender, _ = going.opened(queue, SEND_ACCESS)
    uow = os.urandom(16)
    going.done("R_QMEnlistInternalTransaction", pUow=uow)
    assert going.send(sender, b"unfinished", uow=uow)["result"] == MQ_OK
    going.close()
    _, context = client.opened(queue, RECEIVE_ACCESS)
    assert client.read(context, timeout=200)["result"] == MQ_ERROR_IO_TIMEOUT


# -- levels and fragments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fragment", [0, 200])
@pytest.mark.parametrize("level", LEVELS)
def test_messages_go_both_ways_at_every_level_and_fragment_size(
    daemon: Daemon, queue: str, level: str, fragment: int
) -> None:
    client = Client(daemon.port, LEVELS[level], fragment=fragment)
    assert client.create(queue, property_of(108, TEXT, "Aufträge\0"))["result"] == MQ_OK
    sender, _ = client.opened(queue, SEND_ACCESS)
    _, context = client.opened(queue, RECEIVE_ACCESS)
    data = os.urandom(3000)
    with daemon.connect() as manager, manager.open(f".\\private$\\{queue}") as ours:
        client.send(sender, data, "über", pDelivery=1, pPriority=5, pApplicationTag=77)
        received = ours.receive(5)
        assert (received.body, received.label, received.priority, received.application_tag) == (data, "über", 5, 77)
        assert received.delivery_guarantee == 1
        # At CONNECT a request has no verifier, and impacket's second interface has a second security context. Both
        # contexts belong to one user, so the caller is known.
        assert bool(received.sender_identifier) == (level != "anonymous")
    with daemon.connect() as manager, manager.open(f".\\private$\\{queue}", "send") as ours:
        ours.send(data[::-1], label="zurück", recoverable=True, application_tag=78)
    answer = client.read(context, room=4000)
    assert (body(answer), label(answer)) == (data[::-1], "zurück")
    assert answer["ptb"]["old"]["pApplicationTag"] == 78
    client.close()


@pytest.mark.parametrize("level", ["anonymous", "privacy"])
def test_the_largest_body_arrives_unchanged(daemon: Daemon, queue: str, level: str) -> None:
    client = Client(daemon.port, LEVELS[level])
    client.create(queue)
    sender, _ = client.opened(queue, SEND_ACCESS)
    _, context = client.opened(queue, RECEIVE_ACCESS)
    data = os.urandom(4096) * (LARGEST_BODY // 4096)
    assert client.send(sender, data, pDelivery=1)["result"] == MQ_OK
    answer = client.read(context, room=LARGEST_BODY)
    assert answer["result"] == MQ_OK
    assert body(answer) == data
    client.close()


@pytest.mark.parametrize("level", ["connect", "integrity", "privacy"])
def test_a_wrong_password_gets_no_reply(daemon: Daemon, level: str) -> None:
    dce = connect(daemon.port, LEVELS[level], "wrong")
    dce.bind(calls.QMCOMM)
    with pytest.raises(DCERPCException, match="access_denied"):
        dce.request(calls.request("R_QMEnlistInternalTransaction", pUow=bytes(15) + b"1"))
    dce.disconnect()


def test_an_object_identifier_in_the_request_makes_no_difference(client: Client, queue: str) -> None:
    client.create(queue)
    answer = client.call("R_QMGetRTQMServerPort", uuid.uuid4().bytes, fIP=0)
    assert answer["result"] > 0
    resolved = client.call(
        "R_QMObjectPathToObjectFormat", uuid.uuid4().bytes, lpwcsPathName=f".\\private$\\{queue}\0",
        pObjectFormat={"ObjType": 1, "u": {"pQueueFormat": {"u": {"none": None}}}},
    )  # fmt: skip
    assert resolved["result"] == MQ_OK


# -- queue objects ---------------------------------------------------------------------------------------------------


def test_queue_properties_are_set_at_creation_changed_and_read_back(client: Client, queue: str) -> None:
    made = client.create(queue, property_of(108, TEXT, "before\0"), property_of(104, UINT1, 1))
    assert made["result"] == MQ_OK
    assert client.create(queue)["result"] == MQ_ERROR_QUEUE_EXISTS
    client.done(
        "R_QMSetObjectProperties", pObjectFormat=queue_object(queue), cp=2, aProp=[108, 105],
        apVar=[{"vt": 31, "u": {"pwszVal": "after\0"}}, {"vt": 19, "u": {"ulVal": 9000}}],
    )  # fmt: skip
    instance, path, journal, quota, text, created = client.properties(queue, 101, 103, 104, 105, 108, 109)
    assert (journal, quota, text) == (1, 9000, "after\0")
    assert path.lower().endswith(f"\\private$\\{queue}\0")
    assert len(instance) == 16 and created > 1_500_000_000


def test_a_path_name_resolves_to_a_private_format_name_that_opens_the_queue(client: Client, queue: str) -> None:
    client.create(queue)
    resolved = client.done(
        "R_QMObjectPathToObjectFormat", lpwcsPathName=f".\\private$\\{queue}\0",
        pObjectFormat={"ObjType": 1, "u": {"pQueueFormat": {"u": {"none": None}}}},
    )["pObjectFormat"]["u"]["pQueueFormat"]  # fmt: skip
    private = resolved["u"]["m_oPrivateID"]
    assert resolved["m_qft"] == 2
    opened = client.done(
        "rpc_QMOpenQueueInternal", dwDesiredAccess=SEND_ACCESS, pLicGuid=bytes(16), lpClientName="c\0",
        pQueueFormat={"m_qft": 2, "u": {"m_oPrivateID": {
            "Lineage": private["Lineage"], "Uniquifier": private["Uniquifier"]}}},
    )  # fmt: skip
    name = client.done(
        "rpc_ACHandleToFormatName", hQueue=opened["phQueue"], dwFormatNameRPCBufferLen=200,
        lpwcsFormatName=bytes(400), pdwLength=200,
    )  # fmt: skip
    text = name["lpwcsFormatName"].decode("utf-16-le")[: name["pdwLength"] - 1]
    lineage = uuid.UUID(bytes_le=private["Lineage"])
    assert text.upper() == f"PRIVATE={lineage}\\{private['Uniquifier']:08x}".upper()


def test_a_deleted_queue_is_gone(client: Client, queue: str) -> None:
    client.create(queue)
    client.done("R_QMDeleteObject", pObjectFormat=queue_object(queue))
    assert client.open(queue)["result"] == MQ_ERROR_QUEUE_NOT_FOUND


def test_purging_removes_all_messages(client: Client, queue: str) -> None:
    client.create(queue)
    sender, _ = client.opened(queue, SEND_ACCESS)
    handle, context = client.opened(queue, RECEIVE_ACCESS)
    for number in range(5):
        client.send(sender, bytes([number]), pDelivery=number % 2)
    client.done("rpc_ACPurgeQueue", hQueue=handle)
    assert client.read(context)["result"] == MQ_ERROR_IO_TIMEOUT


def test_management_counts_the_messages_of_a_queue(daemon: Daemon, client: Client, queue: str) -> None:
    client.create(queue)
    sender, _ = client.opened(queue, SEND_ACCESS)
    for _ in range(3):
        client.send(sender, b"x" * 100)
    dce = connect(daemon.port)
    dce.bind(calls.QMMGMT)
    blank = [{"vt": 1, "u": {"null": None}} for _ in range(2)]
    counted = calls.request(
        "R_QMMgmtGetInfo", pObjectFormat={"type": 2, "u": {"pQueueFormat": direct(queue)}}, cp=2, aProp=[7, 5],
        apVar=blank,
    )  # fmt: skip
    messages, transactional = dce.request(counted, checkError=False)["apVar"]
    assert messages["u"]["ulVal"] == 3
    assert transactional["u"]["pwszVal"] == "NO\0"
    dce.disconnect()


# -- reading ---------------------------------------------------------------------------------------------------------


def test_a_too_small_buffer_reports_the_size_and_leaves_the_message(client: Client, queue: str) -> None:
    client.create(queue)
    sender, _ = client.opened(queue, SEND_ACCESS)
    _, context = client.opened(queue, RECEIVE_ACCESS)
    client.send(sender, b"y" * 500)
    answer = client.read(context, room=100)
    assert answer["result"] == MQ_ERROR_BUFFER_OVERFLOW
    assert answer["ptb"]["old"]["pBodySize"] == 500
    assert body(client.read(context, room=500)) == b"y" * 500


def test_a_peek_leaves_the_message_and_peek_access_takes_none(client: Client, queue: str) -> None:
    client.create(queue)
    sender, _ = client.opened(queue, SEND_ACCESS)
    _, looking = client.opened(queue, PEEK_ACCESS)
    client.send(sender, b"here")
    for _ in range(2):
        assert body(client.read(looking, ACTION_PEEK_CURRENT)) == b"here"
    assert client.read(looking)["result"] & 0x80000000
    assert body(client.read(looking, ACTION_PEEK_CURRENT)) == b"here"


def test_sender_and_receiver_see_the_same_message_identifier(client: Client, queue: str) -> None:
    client.create(queue)
    sender, _ = client.opened(queue, SEND_ACCESS)
    _, context = client.opened(queue, RECEIVE_ACCESS)
    sent = client.send(sender, b"z")["pMessageID"]
    seen = client.read(context)["ptb"]["old"]["ppMessageID"]
    assert (sent["Lineage"], sent["Uniquifier"]) == (seen["Lineage"], seen["Uniquifier"])
    assert sent["Uniquifier"]


# -- the endpoint mapper and the command line ------------------------------------------------------------------------


def test_the_endpoint_mapper_lists_the_interfaces_with_their_port(daemon: Daemon) -> None:
    dce = connect(daemon.mapper_port)
    found = {}
    for entry in epm.hept_lookup(None, dce=dce):
        floors = entry["tower"]["Floors"]
        found[str(floors[0]).split()[0].lower()] = epm.PrintStringBinding(floors)
    for wanted in (calls.QMCOMM, calls.QMCOMM2, calls.QMMGMT):
        assert found[bin_to_uuidtup(wanted)[0].lower()] == f"ncacn_ip_tcp:127.0.0.1[{daemon.port}]"
    dce.disconnect()


def test_an_unknown_queue_is_not_found_and_the_connection_stays_usable(client: Client) -> None:
    assert client.open("nowhere")["result"] == MQ_ERROR_QUEUE_NOT_FOUND
    assert client.done("R_QMEnlistInternalTransaction", pUow=os.urandom(16))["phIntXact"] != bytes(20)


def test_our_own_client_is_refused_with_a_wrong_password_and_served_with_the_right_one(daemon: Daemon) -> None:
    with pytest.raises((openmsmq.AccessDenied, ConnectionError)):
        daemon.connect(user="tester", password="wrong")
    with daemon.connect(user="tester", password="Passw0rd!") as manager:
        assert manager.machine_id
