"""Only the user who created an object can use it, even if others know its IPID."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dcom.world import ComWorld
from msrpc.dcom.activation import interface_pointer
from msrpc.dcom.exporter import ObjectOwner
from msrpc.dcom.objref import StandardReference
from msrpc.dcom.server import owner_of
from msrpc.dcom.variant import VT, Variant, to_wire
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_dcom, ms_oaut
from msrpc.ndr import Interface
from msrpc.rpc.call import UNAUTHENTICATED, RpcCaller
from msrpc.rpc.faults import RPC_S_ACCESS_DENIED, Fault
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.security import Identity
from openmsmq.interfaces import mc_mqac as m

NONE, CONNECT, INTEGRITY, PRIVACY = AuthLevel.NONE, AuthLevel.CONNECT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY


def user(name: str, level: AuthLevel = INTEGRITY) -> RpcCaller:
    return RpcCaller(Identity(name, "DOMAIN", f"S-1-5-21-1-{len(name)}"), level)


ALICE, BOB = user("alice"), user("bob")
STRANGERS = [BOB, UNAUTHENTICATED, user("alice", CONNECT), user("bob", PRIVACY)]


class ObjectsOfAlice:
    """Objects made by alice."""

    def __init__(self) -> None:
        self.world = ComWorld()
        self.owner = self.world.context(caller=ALICE).owner
        self.queue = self.world.new("Queue")
        self.message = self.world.new("Message")
        self.transaction = self.world.new("TransactionDispenser").BeginTransaction(self.world.context(caller=ALICE))

    def reference(self, target: Any, interface: Interface) -> StandardReference:
        return self.world.export(target, interface, self.owner)

    def call(self, caller: RpcCaller, target: Any, interface: Interface, name: str, **arguments: Any) -> Any:
        ipid = self.reference(target, interface).ipid
        return asyncio.run(self.world.call(ipid, interface, name, by=caller, **arguments))

    def at_unknown(self, caller: RpcCaller, interface: Interface, name: str, **arguments: Any) -> Any:
        ipid = self.world.exporter.rem_unknown
        return asyncio.run(self.world.call(ipid, interface, name, by=caller, **arguments))


@pytest.fixture
def things() -> ObjectsOfAlice:
    return ObjectsOfAlice()


@contextmanager
def refused() -> Iterator[None]:
    """Expect ERROR_ACCESS_DENIED (note 42 of [MS-DCOM] 3.1.1.5.4)."""
    with pytest.raises(Fault) as fault:
        yield
    assert fault.value.status == RPC_S_ACCESS_DENIED


@pytest.mark.parametrize("caller", STRANGERS, ids=str)
def test_calls_of_others_are_refused(
    things: ObjectsOfAlice, caller: RpcCaller, caplog: pytest.LogCaptureFixture
) -> None:
    with refused():
        things.call(caller, things.message, m.IMSMQMessage4, "get_Label")
    empty = ms_oaut.DISPPARAMS(None, None, 0, 0)
    with refused():
        things.call(caller, things.message, ms_oaut.IDispatch, "Invoke", dispIdMember=0, dwFlags=2, pDispParams=empty)
    with refused():
        things.call(caller, things.transaction.inner, m.ITransaction, "Abort", pboidReason=None, fRetaining=0, fAsync=0)
    assert things.transaction.inner.transaction.is_open
    assert "MSMQMessage of" in caplog.text and "was refused to" in caplog.text


@pytest.mark.parametrize("caller", STRANGERS, ids=str)
def test_others_get_no_more_interfaces_and_count_no_references(things: ObjectsOfAlice, caller: RpcCaller) -> None:
    held = things.reference(things.message, m.IMSMQMessage4)
    ipid, iids = held.ipid, [m.IMSMQMessage.uuid.bytes_le]
    counted = [ms_dcom.REMINTERFACEREF(ipid, 50, 0), ms_dcom.REMINTERFACEREF(ipid, 0, 50)]
    for interface, name, arguments in (
        (ms_dcom.IRemUnknown, "RemQueryInterface", {"ripid": ipid, "cRefs": 1, "cIids": 1, "iids": iids}),
        (ms_dcom.IRemUnknown2, "RemQueryInterface2", {"ripid": ipid, "cIids": 1, "iids": iids}),
        (ms_dcom.IRemUnknown, "RemAddRef", {"cInterfaceRefs": 2, "InterfaceRefs": counted}),
        (ms_dcom.IRemUnknown, "RemRelease", {"cInterfaceRefs": 2, "InterfaceRefs": counted}),
    ):
        assert things.at_unknown(caller, interface, name, **arguments).result == ComResult.E_ACCESSDENIED, name
    assert things.call(ALICE, things.message, m.IMSMQMessage4, "get_Priority").a0 == 3
    things.at_unknown(ALICE, ms_dcom.IRemUnknown, "RemRelease", cInterfaceRefs=2, InterfaceRefs=counted)
    assert things.world.exporter.find(ipid, things.owner) is None


@pytest.mark.parametrize("caller", STRANGERS, ids=str)
def test_objects_of_others_are_refused_as_arguments_and_lose_no_references(
    things: ObjectsOfAlice, caller: RpcCaller
) -> None:
    held = things.reference(things.queue, ms_oaut.IDispatch)
    owner = things.world.context(caller=caller).owner
    ipid = things.world.export(things.world.new("Message"), m.IMSMQMessage4, owner).ipid
    pointer = interface_pointer(held.pack())
    missing = to_wire(Variant(VT.ERROR, 0x80020004), lambda target, by_dispatch: None)
    answer = asyncio.run(things.world.call(ipid, m.IMSMQMessage4, "Send", by=caller, a0=pointer, a1=missing))
    assert answer.result == ComResult.E_ACCESSDENIED
    assert things.world.exporter.find(held.ipid, things.owner) is not None


@pytest.mark.parametrize("name", ["RemAddRef", "RemRelease"])
def test_a_request_that_names_another_users_object_changes_nothing(things: ObjectsOfAlice, name: str) -> None:
    mine = things.world.export(things.world.new("Message"), m.IMSMQMessage4, things.world.context(caller=BOB).owner)
    theirs = things.reference(things.message, m.IMSMQMessage4)
    both = [ms_dcom.REMINTERFACEREF(r.ipid, 5, 0) for r in (mine, theirs)]
    answer = things.at_unknown(BOB, ms_dcom.IRemUnknown, name, cInterfaceRefs=2, InterfaceRefs=both)
    assert answer.result == ComResult.E_ACCESSDENIED
    found = things.world.exporter.find(mine.ipid, things.world.context(caller=BOB).owner)
    assert found is not None and found.public == 5


@pytest.mark.parametrize("made", [CONNECT, INTEGRITY, PRIVACY])
@pytest.mark.parametrize("level", [CONNECT, INTEGRITY, PRIVACY])
def test_the_same_user_may_call_at_any_level_that_is_signed_if_the_object_was_made_so(
    made: AuthLevel, level: AuthLevel
) -> None:
    world = ComWorld()
    ipid = world.export(world.new("Message"), m.IMSMQMessage4, world.context(caller=user("alice", made)).owner).ipid
    calling = world.call(ipid, m.IMSMQMessage4, "get_Priority", by=user("alice", level))
    if level is CONNECT and made is not CONNECT:
        with refused():
            asyncio.run(calling)
    else:
        assert asyncio.run(calling).a0 == 3


def test_a_reference_may_be_passed_to_another_process_of_the_user_on_any_host() -> None:
    made = ObjectOwner("here", "S-1-5-21-1-5", INTEGRITY)
    assert made.admits(ObjectOwner("there", "S-1-5-21-1-5", INTEGRITY))
    assert not made.admits(ObjectOwner("here", None, NONE))


def test_anonymous_clients_of_a_host_are_one_and_those_of_another_host_are_another() -> None:
    made = ObjectOwner("here", None, NONE)
    assert made.admits(ObjectOwner("here", None, NONE))
    assert not made.admits(ObjectOwner("there", None, NONE)) and not made.admits(
        ObjectOwner("here", "S-1-5-21-1-5", PRIVACY)
    )


def test_all_addresses_by_which_a_machine_reaches_itself_are_one_host() -> None:
    world = ComWorld()
    owners = set()
    for peer, local in (("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("192.0.2.2", "192.0.2.2"), ("127.0.0.9", "::")):
        context = world.context()
        context.call.connection.peer_host, context.call.connection.local_host = peer, local
        owners.add(owner_of(context.call).source)
    assert len(owners) == 1 and world.context().owner.source not in owners


def test_attempts_on_objects_of_others_are_throttled_like_password_guesses(things: ObjectsOfAlice) -> None:
    link = things.world.context().call.connection
    before = dict(link.failures._failures)
    with refused():
        things.call(BOB, things.message, m.IMSMQMessage4, "get_Label")
    assert dict(link.failures._failures) != before


def test_clients_learn_the_level_at_which_they_may_use_what_they_make() -> None:
    world = ComWorld(CONNECT)
    hints = [world.server.authentication_hint(world.context(caller=caller).call) for caller in (
        UNAUTHENTICATED, user("alice", CONNECT), ALICE, user("alice", PRIVACY))]  # fmt: skip
    assert hints == [CONNECT, CONNECT, INTEGRITY, INTEGRITY]


@pytest.mark.parametrize("asked", [257, 32_000])
def test_a_request_for_more_interfaces_than_exist_is_refused(things: ObjectsOfAlice, asked: int) -> None:
    ipid = things.reference(things.message, m.IMSMQMessage4).ipid
    iids = [m.IMSMQMessage4.uuid.bytes_le] * asked
    for interface, name, more in (
        (ms_dcom.IRemUnknown, "RemQueryInterface", {"cRefs": 1}),
        (ms_dcom.IRemUnknown2, "RemQueryInterface2", {}),
    ):
        answer = things.at_unknown(ALICE, interface, name, ripid=ipid, cIids=asked, iids=iids, **more)
        assert answer.result == ComResult.E_INVALIDARG
    service = things.world.services["IActivation"]
    request = ms_dcom.RemoteActivation_Request(
        ORPCthis=ms_dcom.ORPCTHIS(version=ms_dcom.COMVERSION(5, 7), cid=bytes(16)),
        Clsid=m.MSMQMessage.uuid.bytes_le, Interfaces=asked, pIIDs=iids,
    )  # fmt: skip
    answer = service.RemoteActivation(things.world.context(caller=ALICE).call, request)
    assert answer.phr == ComResult.E_INVALIDARG and len(things.world.exporter) == 1
