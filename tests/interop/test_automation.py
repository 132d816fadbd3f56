"""The automation objects as seen by impacket's DCOM client: by name, by vtable, in all revisions."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import pytest
from impacket.dcerpc.v5.dcomrt import IActivation, IObjectExporter, IRemoteSCMActivator
from impacket.dcerpc.v5.rpcrt import (
    RPC_C_AUTHN_LEVEL_CONNECT,
    RPC_C_AUTHN_LEVEL_PKT_INTEGRITY,
    RPC_C_AUTHN_LEVEL_PKT_PRIVACY,
    DCERPCException,
)
from impacket.uuid import string_to_bin

from com_client import CLSIDS, GET, METHOD, MISSING, PUTREF, Connection, Object, Refused, TypedValue
from daemon import Daemon
from interop.impacket_client import PASSWORD, USER
from msrpc.dcom.objref import StandardReference, unpack
from msrpc.interfaces import ms_dcom, ms_oaut
from msrpc.ndr import Interface
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import SharingViolation
from openmsmq.model.message import Message

HOST = socket.gethostname().partition(".")[0]  # name of the machine in path names

RECEIVE, SEND, PEEK = 1, 2, 0x20
numbers = count()


@pytest.fixture
def com(daemon: Daemon) -> Iterator[Connection]:
    connection = Connection("127.0.0.1", daemon.mapper_port)
    yield connection
    connection.disconnect()


@pytest.fixture
def workgroup(tmp_path: Path) -> Iterator[Connection]:
    """A queue manager without a directory."""
    with Daemon(tmp_path / "data", "--directory-provider", "none", "--listen", "127.0.0.2") as alone:
        connection = Connection("127.0.0.2", alone.mapper_port)  # impacket has one server per address
        yield connection
        connection.disconnect()


def named(com: Connection) -> tuple[Object, str]:
    """Create a queue and return it with its path name."""
    path = f".\\private$\\com{next(numbers)}"
    info = com.new("QueueInfo")
    info.put("PathName", path)
    return info, path


def created(com: Connection, *transactional: bool) -> tuple[Object, str]:
    info, path = named(com)
    info.call("Create", *transactional)
    return info, path


def message(com: Connection, **properties: Any) -> Object:
    made = com.new("Message")
    for name, value in properties.items():
        made.put(name, value)
    return made


def interface(target: Object, wanted: Interface) -> Object:
    """Return an object's other interface."""
    return target.query(str(wanted.uuid))


def vtable(target: Object, wanted: Interface, name: str, **arguments: Any) -> Any:
    """Call by opnum with a stub from our own codec."""
    operation = wanted.operation(name)
    assert operation.request is not None
    return target.raw(wanted, name, operation.request(**arguments))


# -- a minimal exchange ---------------------------------------------------------------------------------------------


def test_a_queue_is_created_written_and_read(com: Connection, daemon: Daemon) -> None:
    info, path = created(com)
    with daemon.connect() as manager:
        assert path.rpartition("\\")[2] in " ".join(manager.queues())
    message(com, Body="hällo", Label="greeting", Priority=5).call("Send", info.call("Open", SEND, 0))
    received = info.call("Open", RECEIVE, 0).call("Receive", ReceiveTimeout=1000)
    found = [received.get(name) for name in ("Body", "Label", "Priority", "BodyLength", "Class")]
    assert found == ["hällo", "greeting", 5, 10, 0]
    info.call("Delete")
    with pytest.raises(Refused) as refused:
        info.call("Open", SEND, 0)
    assert refused.value.hresult == 0xC00E0006  # all data about the queue was deleted with it


BODIES = [
    TypedValue(16, -5), TypedValue(17, 200), TypedValue(2, -300), TypedValue(18, 60_000), TypedValue(3, -70_000),
    TypedValue(19, 4_000_000_000),
    TypedValue(4, 1.5), TypedValue(5, 2.25), TypedValue(6, 123_456), TypedValue(7, 45_000.5),
    TypedValue(8, "text"), TypedValue(8, ""),
    TypedValue(11, 0xFFFF), TypedValue(11, 0),
]  # fmt: skip


def test_T14_every_type_of_body_comes_back_and_means_the_same_to_other_protocols(
    com: Connection, daemon: Daemon
) -> None:
    info, path = created(com)
    out, back = info.call("Open", SEND, 0), info.call("Open", RECEIVE, 0)
    with daemon.connect() as manager, manager.open(path, "peek") as reader, manager.open(path, "send") as writer:
        for body in BODIES:
            message(com, Body=body).call("Send", out)
            seen = reader.peek(1)
            assert seen.body_type == body.vt
            received = back.call("Receive", ReceiveTimeout=1000).get("Body")
            assert received == (body.value != 0 if body.vt == 11 else body.value)
        writer.send("by another protocol")
        assert back.call("Receive", ReceiveTimeout=1000).get("Body") == "by another protocol"
        for refused in (TypedValue(20, 5), TypedValue(10, 1), TypedValue(0, None)):
            with pytest.raises(Refused) as failure:
                message(com, Body=refused)
            assert failure.value.hresult == 0x80070057


def test_T14_a_body_of_four_megabytes_travels_in_many_fragments(com: Connection, daemon: Daemon) -> None:
    info, path = created(com)
    body = os.urandom(4_000_000)
    made = interface(com.new("Message"), m.IMSMQMessage4)
    array = ms_oaut._wireSAFEARRAY(
        1, 0x80, 1, 17 << 16, ms_oaut.SAFEARRAYUNION(16, ByteStr=ms_oaut.BYTE_SIZEDARR(len(body), body)),
        [ms_oaut.SAFEARRAYBOUND(len(body), 0)],
    )  # fmt: skip
    vtable(made, m.IMSMQMessage4, "put_Body", a0=ms_oaut.wireVARIANTStr(clSize=3, vt=0x2011, parray=array))
    made.call("Send", info.call("Open", SEND, 0))
    with daemon.connect() as manager, manager.open(path, "receive") as reader:
        received = reader.receive(1)
        assert (received.body, received.body_type) == (body, 0x2011)


# -- revisions, IDispatch and vtable calls --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["QueueInfo", "Message", "Application", "Management"])
def test_T1_T2_every_property_has_the_same_value_by_vtable_and_by_name(com: Connection, name: str) -> None:
    target = com.new(name)
    if name == "QueueInfo":
        target, _ = created(com)
    elif name == "Management":
        target.call("Init", MISSING, created(com)[1])
    wanted = {"QueueInfo": m.IMSMQQueueInfo4, "Message": m.IMSMQMessage4, "Application": m.IMSMQApplication3,
              "Management": m.IMSMQManagement}[name]  # fmt: skip
    by_vtable = interface(target, wanted)
    compared = 0
    for member in wanted.all_members:
        kind = member.parameters[-1].type.rstrip("*") if member.parameters else ""
        if member.kind != "propget" or kind not in ("long", "short", "BSTR", "VARIANT_BOOL"):
            continue
        try:
            expected: Any = target.get(member.name)
        except Refused as refused:
            expected = refused.hresult
        try:
            found = vtable(by_vtable, wanted, f"get_{member.name}").a0
            if kind == "BSTR":
                found = None if found.cBytes == 0xFFFFFFFF else "".join(map(chr, found.asData))
            elif kind == "VARIANT_BOOL":
                found = found != 0
        except Refused as refused:
            found = refused.hresult
        assert found == expected, member.name
        compared += 1
    assert compared >= 5


def test_T3_names_belong_to_the_requested_revision(com: Connection) -> None:
    queue = created(com)[0].call("Open", RECEIVE, 0)
    first, newest = interface(queue, m.IMSMQQueue), interface(queue, m.IMSMQQueue4)
    assert first.ids("Receive") == [0x60020006] and newest.ids("RECEIVE") == [0x6002000D]
    assert newest.ids("Receive_v1") == [0x60020006]
    with pytest.raises(Refused, match="80020006"):
        first.ids("Receive_v1")
    query = com.new("Query")
    assert interface(query, m.IMSMQQuery2).ids("LookupQueue") == [0x60020000]
    assert interface(query, m.IMSMQQuery4).ids("LookupQueue") == [0x60020002]
    assert queue.ids("Receive", "ReceiveTimeout", "WantBody") == [0x6002000D, 3, 2]


def reference(pointer: Any) -> StandardReference:
    found = unpack(pointer.abData)
    assert isinstance(found, StandardReference)
    return found


def test_T4_results_have_the_interface_of_the_revision_that_was_called(com: Connection) -> None:
    info, _ = created(com)
    old = interface(info, m.IMSMQQueueInfo2)
    opened = reference(vtable(old, m.IMSMQQueueInfo2, "Open", a0=PEEK, a1=0).a0)
    assert opened.iid == m.IMSMQQueue2.uuid
    queue = info.call("Open", PEEK, 0)
    oids = set()
    for revision in (m.IMSMQQueue, m.IMSMQQueue2, m.IMSMQQueue3, m.IMSMQQueue4, ms_dcom.IUnknown, ms_oaut.IDispatch):
        oids.add(interface(queue, revision).dispatch.get_oid())
    assert len(oids) == 1


def test_T5_operations_after_the_end_of_a_revision_do_not_exist(com: Connection) -> None:
    queue = interface(created(com)[0].call("Open", PEEK, 0), m.IMSMQQueue3)
    mine = queue.dispatch
    mine.connect(string_to_bin(str(m.IMSMQQueue3.uuid)) + bytes(4))
    link = mine.get_dce_rpc()
    link.call(39, b"\0" * 64, mine.get_iPid())
    with pytest.raises(DCERPCException, match="op_rng"):
        link.recv()


# -- activation -----------------------------------------------------------------------------------------------------


def test_T7_all_classes_can_be_made_and_unknown_ones_cannot(com: Connection) -> None:
    for name in CLSIDS:
        com.new(name)
    with pytest.raises(Exception, match="80040154"):
        com.dispatch(str(uuid4()))
    with pytest.raises(Exception, match="80004002"):
        com.create(CLSIDS["Message"], str(uuid4()))


def test_T6_activation_works_in_all_three_ways(com: Connection) -> None:
    clsid, iid = string_to_bin(CLSIDS["Message"]), string_to_bin(str(m.IMSMQMessage4.uuid)) + bytes(4)
    by_activation = IActivation(com.get_dce_rpc()).RemoteActivation(clsid, iid)
    assert by_activation is not None
    factory = IRemoteSCMActivator(com.get_dce_rpc()).RemoteGetClassObject(
        clsid, string_to_bin("00000001-0000-0000-c000-000000000046") + bytes(4)
    )
    assert factory is not None


def test_T11_the_resolver_answers_about_itself_and_its_exporter(com: Connection, daemon: Daemon) -> None:
    resolver = IObjectExporter(com.get_dce_rpc())
    addresses = resolver.ServerAlive2()
    assert "127.0.0.1" in str(addresses[0]["aNetworkAddr"])
    oxid = com.new("Message").dispatch.get_oxid()
    bindings = resolver.ResolveOxid2(oxid, (7,))
    assert any(f"[{daemon.port}]" in binding["aNetworkAddr"] for binding in bindings)
    with pytest.raises(DCERPCException, match="0x776"):
        resolver.ResolveOxid2(12345, (7,))


# -- references -----------------------------------------------------------------------------------------------------


def test_T9_an_object_lives_while_references_are_held(com: Connection) -> None:
    info, _ = created(com)
    queue = info.call("Open", RECEIVE, 1)
    with pytest.raises(Refused, match="C00E0009"):
        info.call("Open", RECEIVE, 0)
    for _ in range(5):  # the number of references that came with it
        queue.release()
    info.call("Open", RECEIVE, 0)
    with pytest.raises(Exception, match="RPC_E_DISCONNECTED"):
        queue.get("Access")


def test_T10_interfaces_are_not_guessed_and_not_mixed_up(com: Connection) -> None:
    made = com.new("Message")
    made.dispatch.set_iPid(uuid4().bytes_le)
    with pytest.raises(Exception, match="RPC_E_DISCONNECTED"):
        made.get("Label")
    queue = interface(created(com)[0].call("Open", PEEK, 0), m.IMSMQQueue4)
    with pytest.raises(DCERPCException):
        vtable(queue, m.IMSMQMessage4, "get_Label")


def test_T8_the_objects_of_a_dead_client_end_and_those_of_a_living_one_do_not(tmp_path: Any) -> None:
    with Daemon(tmp_path / "data", "--com-ping-seconds", "0.4") as daemon:
        com = Connection("127.0.0.1", daemon.mapper_port)
        info, path = created(com)
        mine, theirs = created(com)[0].call("Open", RECEIVE, 1), info.call("Open", RECEIVE, 1)
        resolver = IObjectExporter(com.get_dce_rpc())
        setid = resolver.ComplexPing(0, 0, {mine.dispatch.get_oid()}, ())["pSetId"]
        assert theirs.get("Access") == RECEIVE
        with daemon.connect() as manager:
            deadline = time.monotonic() + 20
            while True:
                resolver.SimplePing(setid)
                try:
                    manager.open(path, "receive").close()
                    break
                except SharingViolation:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
        assert mine.get("Access") == RECEIVE


# -- security -------------------------------------------------------------------------------------------------------


def test_T12_a_required_level_is_enforced_and_senders_are_named(tmp_path: Any) -> None:
    from command_line import add_user

    with Daemon(tmp_path / "data", "--com-level", "integrity") as daemon:
        add_user(daemon.directory, USER, PASSWORD)
        for user, level in (("", RPC_C_AUTHN_LEVEL_CONNECT), (USER, RPC_C_AUTHN_LEVEL_CONNECT)):
            low = Connection("127.0.0.1", daemon.mapper_port, user, PASSWORD if user else "", level)
            with pytest.raises(Exception, match=r"(?i)access_denied"):
                low.new("Message")
            low.disconnect()
        for level in (RPC_C_AUTHN_LEVEL_PKT_INTEGRITY, RPC_C_AUTHN_LEVEL_PKT_PRIVACY):
            com = Connection("127.0.0.1", daemon.mapper_port, USER, PASSWORD, level)
            info, path = created(com)
            message(com, Body="signed").call("Send", info.call("Open", SEND, 0))
            with daemon.connect() as manager, manager.open(path, "receive") as reader:
                received = reader.receive(1)
                assert received.sender_identifier_type == 1 and received.sender_identifier
            com.disconnect()


# -- arguments ------------------------------------------------------------------------------------------------------


def test_T13_arguments_may_be_left_out_named_and_of_other_types(com: Connection) -> None:
    info, _ = created(com)
    queue = info.call("Open", PEEK, 0)
    for timeout in (0, TypedValue(2, 0), "0", TypedValue(19, 0), 0.0):
        with pytest.raises(Refused, match="C00E0088"):
            queue.call("Peek", MISSING, MISSING, timeout)
    with pytest.raises(Refused, match="C00E0088"):
        queue.call("Peek", ReceiveTimeout=0, WantBody=False)
    with pytest.raises(Refused) as many:
        queue.call("Peek", MISSING, MISSING, 0, MISSING, MISSING)
    with pytest.raises(Refused) as wrong:
        queue.call("Peek", MISSING, MISSING, "soon")
    with pytest.raises(Refused) as few:
        info.call("Open", SEND)
    with pytest.raises(Refused) as read_only:
        queue.put("Access", 1)
    found = [failure.value.hresult for failure in (many, wrong, few, read_only)]
    assert found == [0x8002000E, 0x80020005, 0x8002000E, 0x80020003]


def test_put_and_putref_both_set_a_property_that_holds_an_object(com: Connection) -> None:
    answers, path = created(com)
    for flags in (4, PUTREF):
        made = com.new("Message")
        made.put("ResponseQueueInfo", answers, flags)
        assert made.get("ResponseQueueInfo").get("FormatName") == f"DIRECT=OS:{HOST}{path[1:]}"
    assert com.new("Message").get("ResponseQueueInfo") is None
    assert answers.invoke("Label", METHOD | GET, ()) == ""


# -- queues ---------------------------------------------------------------------------------------------------------


def test_T15_priorities_order_and_a_transaction_hides_until_it_ends(com: Connection) -> None:
    info, _ = created(com, True)
    out, back = info.call("Open", SEND, 0), info.call("Open", RECEIVE, 0)
    dispenser = com.new("TransactionDispenser")
    for label in "abc":
        message(com, Label=label).call("Send", out, 3)
    unit = dispenser.call("BeginTransaction")
    assert back.call("Receive", unit, MISSING, MISSING, 1000).get("Label") == "a"
    assert back.call("Peek", ReceiveTimeout=1000).get("Label") == "b"
    unit.call("Abort")
    assert back.call("Peek", ReceiveTimeout=1000).get("Label") == "a"
    unit = dispenser.call("BeginTransaction")
    assert back.call("Receive", unit, MISSING, MISSING, 1000).get("Label") == "a"
    unit.call("Commit")
    assert back.call("Peek", ReceiveTimeout=1000).get("Label") == "b"
    plain, _ = created(com)
    out, back = plain.call("Open", SEND, 0), plain.call("Open", RECEIVE, 0)
    for priority in (3, 7, 0, 5):
        message(com, Priority=priority).call("Send", out)
    assert [back.call("Receive", ReceiveTimeout=1000).get("Priority") for _ in range(4)] == [7, 5, 3, 0]


def test_T16_each_message_completes_one_waiting_receive(com: Connection, daemon: Daemon) -> None:
    info, path = created(com)
    receivers = 12

    queue = info.call("Open", RECEIVE, 0)
    begun = time.monotonic()
    with pytest.raises(Refused, match="C00E001B"):
        queue.call("Receive", ReceiveTimeout=200)
    assert time.monotonic() - begun >= 0.2

    ready = Barrier(receivers + 1)

    def wait(_: int) -> Any:
        thread = Connection("127.0.0.1", daemon.mapper_port)
        own = thread.new("QueueInfo")
        own.put("PathName", path)
        opened = own.call("Open", RECEIVE, 0)
        ready.wait(30)
        return opened.call("Receive", ReceiveTimeout=20_000).get("Label")

    with ThreadPoolExecutor(receivers) as pool, daemon.connect() as manager, manager.open(path, "send") as sender:
        waiting = [pool.submit(wait, number) for number in range(receivers)]
        ready.wait(30)
        for number in range(receivers):
            sender.send(b"", label=str(number))
        assert sorted(int(future.result(30)) for future in waiting) == list(range(receivers))


def test_T17_the_cursor_follows_its_states(com: Connection) -> None:
    info, _ = created(com)
    out, back = info.call("Open", SEND, 0), info.call("Open", RECEIVE, 0)
    for label in "abc":
        message(com, Label=label).call("Send", out)
    with pytest.raises(Refused, match="C00E001C"):
        back.call("PeekNext", ReceiveTimeout=0)
    assert back.call("PeekCurrent", ReceiveTimeout=0).get("Label") == "a"
    assert back.call("PeekNext", ReceiveTimeout=0).get("Label") == "b"
    info.call("Open", RECEIVE, 0).call("ReceiveByLookupId", back.call("PeekCurrent", ReceiveTimeout=0).get("LookupId"))
    with pytest.raises(Refused, match="C00E001D"):
        back.call("PeekCurrent", ReceiveTimeout=0)
    assert back.call("PeekNext", ReceiveTimeout=0).get("Label") == "c"
    assert back.call("ReceiveCurrent", ReceiveTimeout=0).get("Label") == "c"
    back.call("Reset")
    assert back.call("PeekCurrent", ReceiveTimeout=0).get("Label") == "a"


def test_T18_messages_are_found_by_their_lookup_ids(com: Connection) -> None:
    info, _ = created(com)
    out, back = info.call("Open", SEND, 0), info.call("Open", RECEIVE, 0)
    for label in "abcd":
        message(com, Label=label).call("Send", out)
    first, last = back.call("PeekFirstByLookupId"), back.call("PeekLastByLookupId")
    assert (first.get("Label"), last.get("Label")) == ("a", "d")
    assert back.call("PeekNextByLookupId", first.get("LookupId")).get("Label") == "b"
    assert back.call("PeekPreviousByLookupId", TypedValue(21, int(last.get("LookupId")))).get("Label") == "c"
    for wrong in (
        lambda: back.call("PeekNextByLookupId", last.get("LookupId")),
        lambda: back.call("PeekByLookupId", "77"),
    ):
        with pytest.raises(Refused, match="C00E0088"):
            wrong()
    with pytest.raises(Refused, match="C00E0006"):
        back.call("PeekByLookupId", 0)
    assert back.call("ReceiveLastByLookupId").get("Label") == "d"
    assert back.call("ReceiveNextByLookupId", first.get("LookupId")).get("Label") == "b"
    assert back.call("ReceiveFirstByLookupId").get("Label") == "a"
    back.call("Purge")
    with pytest.raises(Refused, match="C00E0088"):
        back.call("PeekFirstByLookupId")


def test_T18_a_message_that_is_received_by_its_lookup_id_may_stay_visible(com: Connection) -> None:
    info, _ = created(com, True)
    out, back, other = (info.call("Open", access, 0) for access in (SEND, RECEIVE, RECEIVE))
    for label in "ab":
        message(com, Label=label).call("Send", out, 3)
    identifier = back.call("PeekFirstByLookupId").get("LookupId")
    transaction = com.new("TransactionDispenser").call("BeginTransaction")
    assert back.call("ReceiveByLookupIdAllowPeek", identifier, transaction).get("Label") == "a"
    assert other.call("Peek", ReceiveTimeout=0).get("Label") == "a"
    assert other.call("PeekByLookupId", identifier).get("Label") == "a"
    with pytest.raises(Refused, match="C00E0088"):
        other.call("ReceiveByLookupId", identifier)
    assert other.call("Receive", ReceiveTimeout=0).get("Label") == "b"
    transaction.call("Commit")
    with pytest.raises(Refused, match="C00E0088"):
        other.call("Peek", ReceiveTimeout=0)


def test_T20_property_changes_take_effect_only_after_update(com: Connection) -> None:
    info, path = created(com)
    other = com.new("QueueInfo")
    other.put("PathName", path)
    info.put("Label", "changed")
    info.put("Quota", 100)
    assert other.get("Label") == ""
    info.call("Update")
    assert other.get("Label") == ""
    other.call("Refresh")
    assert (other.get("Label"), other.get("Quota"), other.get("Journal")) == ("changed", 100, 0)
    before = other.get("FormatName")
    other.put("PathName", ".\\private$\\elsewhere")
    assert other.get("FormatName") != before


def test_T21_access_and_share_modes_are_kept(com: Connection) -> None:
    info, _ = created(com)
    lonely = com.new("Queue")
    for name in ("Access", "IsOpen"):
        with pytest.raises(Refused, match="80040007"):
            lonely.get(name)
    peeking = info.call("Open", PEEK, 0)
    with pytest.raises(Refused, match="C00E0025"):
        peeking.call("Receive", ReceiveTimeout=0)
    with pytest.raises(Refused, match="C00E0045"):
        info.call("Open", SEND, 1)
    owner = info.call("Open", RECEIVE, 1)
    with pytest.raises(Refused, match="C00E0009"):
        info.call("Open", RECEIVE, 0)
    owner.call("Close")
    info.call("Open", RECEIVE, 0)
    with pytest.raises(Refused, match="C00E0007"):
        owner.call("Receive", ReceiveTimeout=0)
    assert (owner.get("IsOpen"), owner.get("IsOpen2"), peeking.get("IsOpen2")) == (0, False, True)


def test_T22_transactions_end_once_and_as_their_parameters_allow(com: Connection) -> None:
    dispenser = com.new("TransactionDispenser")
    unit = dispenser.call("BeginTransaction")
    with pytest.raises(Refused, match="8004D00F"):
        unit.call("Commit", False, 1, 0)
    unit.call("Commit")
    for name in ("Commit", "Abort"):
        with pytest.raises(Refused, match="C00E0051"):
            unit.call(name)
    empty = com.new("Transaction")
    with pytest.raises(Refused, match="80070057"):
        empty.call("Commit")
    fresh = com.new("CoordinatedTransactionDispenser").call("BeginTransaction")
    empty.call("InitNew", fresh)
    with pytest.raises(Refused, match="C00E0050"):
        empty.call("InitNew", fresh)
    inner = empty.get("ITransaction")
    found = vtable(inner.query(str(m.ITransaction.uuid)), m.ITransaction, "GetTransactionInfo")
    assert UUID(bytes_le=found.pinfo.uow.rgb) != UUID(int=0)
    empty.call("Abort")


def test_T23_management_objects_show_changes(com: Connection, daemon: Daemon) -> None:
    info, path = created(com)
    managed = com.new("Management")
    with pytest.raises(Refused, match="C00E0094"):
        managed.get("MessageCount")
    managed.call("Init", MISSING, path)
    assert (managed.get("MessageCount"), managed.get("BytesInQueue"), managed.get("QueueType")) == (0, 0, 1)
    message(com, Body="x" * 100).call("Send", info.call("Open", SEND, 0))
    assert managed.get("MessageCount") == 1 and managed.get("BytesInQueue") > 200
    here = interface(managed, m.IMSMQQueueManagement)
    assert here.get("JournalMessageCount") == 0
    with pytest.raises(Exception, match="80004002"):
        managed.query(str(m.IMSMQOutgoingQueueManagement.uuid))


def test_T23_an_outgoing_queue_is_managed_by_its_own_interface(tmp_path: Any) -> None:
    with Daemon(tmp_path / "data", "--anonymous-is-administrator") as daemon:
        com = Connection("127.0.0.1", daemon.mapper_port)
        with daemon.connect() as manager:
            manager.open("DIRECT=OS:elsewhere\\private$\\q", "send").close()
        outgoing = com.new("Management")
        outgoing.call("Init", FormatName="DIRECT=OS:elsewhere\\private$\\q")
        face = interface(outgoing, m.IMSMQOutgoingQueueManagement)
        face.call("Pause")
        assert face.get("State") == m.MQ_QUEUE_STATE_ONHOLD
        face.call("Resume")
        assert face.get("State") != m.MQ_QUEUE_STATE_ONHOLD
        assert face.call("EodGetSendInfo").call("Item", "EodNoAckCount") == 0
        with pytest.raises(Refused, match="80004002"):
            outgoing.query(str(m.IMSMQQueueManagement.uuid))
        application = com.new("Application")
        application.call("Disconnect")
        assert application.get("IsConnected") is False
        application.call("Connect")
        application.call("Tidy")
        assert application.get("IsConnected") is True
        com.disconnect()


def test_T25_the_machine_is_known_without_a_directory(com: Connection, workgroup: Connection) -> None:
    application = workgroup.new("Application")
    assert UUID(application.call("MachineIdOfMachineName", ""))
    assert application.get("IsDsEnabled") is False
    with pytest.raises(Refused, match="C00E000D"):
        application.call("MachineIdOfMachineName", "elsewhere")
    with pytest.raises(Refused, match="C00E0013"):
        workgroup.new("Query").call("LookupQueue")
    with pytest.raises(Refused, match="C00E0013"):
        application.call("RegisterCertificate")
    application = com.new("Application")
    identifier = application.call("MachineIdOfMachineName", "")
    info, _ = created(com)
    sent = message(com, Body="x")
    sent.call("Send", info.call("Open", SEND, 0))
    assert UUID(sent.get("SourceMachineGuid")) == UUID(identifier)
    assert application.call("MachineNameOfMachineId", f"{{{identifier}}}") == application.get("Machine")
    assert application.get("IsDsEnabled") is True
    with pytest.raises(Refused, match="C00E000D"):
        application.call("MachineIdOfMachineName", "elsewhere")


def test_the_collection_of_private_queues_is_an_array_of_texts(com: Connection) -> None:
    _, path = created(com)
    assert path.rpartition("\\")[2] in " ".join(com.new("Application").array("PrivateQueues"))


def test_messages_by_automation_and_by_other_protocols_are_the_same(com: Connection, daemon: Daemon) -> None:
    info, path = created(com)
    sent = message(com, Label="ä", AppSpecific=-2, Delivery=1, Journal=2, Ack=0xE, Priority=6, MaxTimeToReceive=500)
    sent.put("AdminQueueInfo", info)
    sent.call("Send", info.call("Open", SEND, 0))
    with daemon.connect() as manager, manager.open(path, "receive") as reader:
        found: Message = reader.receive(1)
    assert (found.label, found.application_tag, found.priority, found.recoverable) == ("ä", 0xFFFFFFFE, 6, True)
    assert (found.journaling_requested, found.acknowledgements_requested, found.time_to_be_received) == (2, 0xE, 500)
    assert found.administration_queue_format_name == f"DIRECT=OS:{HOST}{path[1:]}"
    assert bytes(sent.array("Id")) == found.identifier
