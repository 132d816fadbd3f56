"""References to an object, and its lifetime."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from dcom.world import ANONYMOUS, PEER, ComWorld
from msrpc.dcom.activation import VERSION
from msrpc.dcom.exporter import ObjectOwner
from msrpc.dcom.pinging import MOST_SETS_OF_PEER
from msrpc.hresults import ComResult, ResolverError
from msrpc.interfaces import ms_dcom, ms_oaut
from msrpc.rpc.faults import Fault
from msrpc.rpc.pdu import AuthLevel
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import ComError


class ExampleObject:
    """An object with two interfaces."""

    def __init__(self) -> None:
        self.ended = 0

    def query(self, iid: UUID) -> bool:
        return iid in (ms_dcom.IUnknown.uuid, ms_oaut.IDispatch.uuid)

    def released(self) -> None:
        self.ended += 1


@pytest.fixture
def world() -> ComWorld:
    return ComWorld()


def test_references_to_one_object_have_one_oid_and_add_up(world: ComWorld) -> None:
    thing = ExampleObject()
    first, second = world.export(thing, ms_oaut.IDispatch), world.export(thing, ms_oaut.IDispatch)
    other = world.export(thing, ms_dcom.IUnknown)
    assert first.oid == second.oid == other.oid and first.ipid == second.ipid != other.ipid
    world.exporter.release(first.ipid, ANONYMOUS, 9, 0)
    assert not thing.ended
    world.exporter.release(first.ipid, ANONYMOUS, 1, 0)
    assert world.exporter.find(first.ipid, ANONYMOUS) is None and not thing.ended
    world.exporter.release(other.ipid, ANONYMOUS, 99, 0)
    assert thing.ended == 1 and len(world.exporter) == 0 and world.exporter.interfaces == 0


def test_private_references_belong_to_their_client(world: ComWorld) -> None:
    thing = ExampleObject()
    here, there = ObjectOwner("here", "S-1-5-21-1", AuthLevel.PKT), ObjectOwner("there", "S-1-5-21-1", AuthLevel.PKT)
    ipid = world.export(thing, ms_dcom.IUnknown, here).ipid
    assert world.exporter.add_references(ipid, here, 0, 3) == ComResult.S_OK
    world.exporter.release(ipid, here, 5, 0)
    world.exporter.release(ipid, there, 0, 3)
    assert not thing.ended
    world.exporter.release(ipid, here, 0, 9)
    assert thing.ended == 1
    assert world.exporter.add_references(ipid, here, 1, 0) == ComResult.CO_E_OBJNOTREG


def test_a_reference_that_comes_back_is_consumed(world: ComWorld) -> None:
    thing = ExampleObject()
    reference = world.export(thing, ms_dcom.IUnknown)
    assert world.exporter.unmarshal(reference, ANONYMOUS) is thing and not thing.ended
    world.exporter.withdraw(thing)  # the call is over
    assert thing.ended == 1
    with pytest.raises(ComError, match="E_NOINTERFACE"):
        world.exporter.unmarshal(reference, ANONYMOUS)


def test_an_object_whose_release_fails_is_gone_all_the_same(world: ComWorld, caplog: pytest.LogCaptureFixture) -> None:
    class FailingObject(ExampleObject):
        def released(self) -> None:
            raise RuntimeError("no")

    reference = world.export(FailingObject(), ms_dcom.IUnknown)
    world.exporter.release(reference.ipid, ANONYMOUS, 5, 0)
    assert len(world.exporter) == 0 and "releasing FailingObject failed" in caplog.text


def test_objects_are_limited_for_each_user_of_a_host_and_in_all() -> None:
    world = ComWorld(most_objects=3, most_of_peer=2)
    owner = lambda user: ObjectOwner(PEER, user, AuthLevel.NONE)  # noqa: E731
    export = lambda user: world.export(ExampleObject(), ms_dcom.IUnknown, owner(user))  # noqa: E731
    kept = [export("a"), export("a")]
    for user, limit in (
        ("a", "2 for .*'a'.*max_com_objects_per_peer"),
        ("b", None),
        ("c", "3 in all .max_com_objects"),
    ):
        if limit is None:
            export(user)
            continue
        with pytest.raises(ComError, match=f"E_OUTOFMEMORY.*limit {limit}"):
            export(user)
    world.exporter.release(kept[0].ipid, owner("a"), 5, 0)
    export("a")


# -- pings ----------------------------------------------------------------------------------------------------------


def test_an_object_that_is_pinged_stays_and_one_that_is_not_ends(world: ComWorld) -> None:
    held, forgotten = ExampleObject(), ExampleObject()
    oid = world.export(held, ms_dcom.IUnknown).oid
    world.export(forgotten, ms_dcom.IUnknown)
    setid, status = world.exporter.change_pings(0, 0, [oid], [], PEER)
    assert setid and not status
    for _ in range(10):
        world.now += 100
        assert world.exporter.ping(setid) == 0
        world.exporter.collect()
    assert (held.ended, forgotten.ended) == (0, 1)
    world.now += 361
    world.exporter.collect()
    assert held.ended == 1 and world.exporter.ping(setid) == ResolverError.OR_INVALID_SET


def test_a_call_in_the_last_period_keeps_an_object(world: ComWorld) -> None:
    thing = ExampleObject()
    reference = world.export(thing, ms_dcom.IUnknown)
    world.exporter.change_pings(0, 0, [reference.oid], [], PEER)
    world.now += 400
    world.exporter.find(reference.ipid, ANONYMOUS)
    world.exporter.collect()
    assert not thing.ended
    world.now += 400
    world.exporter.collect()
    assert thing.ended == 1


def test_an_object_in_two_sets_needs_both_to_end(world: ComWorld) -> None:
    thing = ExampleObject()
    oid = world.export(thing, ms_dcom.IUnknown).oid
    first, _ = world.exporter.change_pings(0, 0, [oid], [], PEER)
    second, _ = world.exporter.change_pings(0, 0, [oid], [], PEER)
    world.now += 350
    world.exporter.ping(second)
    world.now += 20
    world.exporter.collect()
    assert not thing.ended and world.exporter.ping(first) == ResolverError.OR_INVALID_SET
    world.exporter.change_pings(second, 1, [], [oid], PEER)
    world.now += 400
    world.exporter.collect()
    assert thing.ended == 1


def test_sets_take_what_exists_in_order_and_are_limited(world: ComWorld) -> None:
    oid = world.export(ExampleObject(), ms_dcom.IUnknown).oid
    setid, status = world.exporter.change_pings(0, 5, [oid, 77], [], PEER)
    assert status == 0 and world.exporter.pings.holds(oid), "3.1.2.5.1.3 has no error for a new set"
    assert world.exporter.change_pings(setid, 5, [77], [], PEER) == (setid, ResolverError.OR_INVALID_OID)
    assert world.exporter.change_pings(setid, 4, [], [oid], PEER) == (setid, 0) and world.exporter.pings.holds(oid)
    assert world.exporter.change_pings(999, 1, [], [], PEER)[1] == ResolverError.OR_INVALID_SET
    for _ in range(MOST_SETS_OF_PEER - 1):
        assert world.exporter.change_pings(0, 0, [], [], PEER)[0]
    assert world.exporter.change_pings(0, 0, [], [], PEER)[0] == 0
    assert world.exporter.change_pings(0, 0, [], [], "another")[0]


def test_a_set_is_changed_by_the_host_that_made_it(world: ComWorld) -> None:
    oid = world.export(ExampleObject(), ms_dcom.IUnknown).oid
    setid, _ = world.exporter.change_pings(0, 1, [oid], [], PEER)
    assert world.exporter.change_pings(setid, 2, [], [oid], "another") == (setid, ResolverError.OR_INVALID_SET)
    assert world.exporter.pings.holds(oid)


# -- calls ----------------------------------------------------------------------------------------------------------


def test_calls_need_a_known_object_its_interface_and_a_plain_header(world: ComWorld) -> None:
    message = world.new("Message")
    reference = world.export(message, m.IMSMQMessage4)

    async def calls() -> None:
        response = await world.call(reference.ipid, m.IMSMQMessage4, "get_Priority")
        assert response.a0 == 3
        for ipid, interface, status in (
            (uuid4(), m.IMSMQMessage4, ComResult.RPC_E_DISCONNECTED),
            (reference.ipid, m.IMSMQMessage3, None),
            (reference.ipid, m.IMSMQQueue, None),
        ):
            with pytest.raises(Fault) as fault:
                await world.call(ipid, interface, "get_Handle" if interface is m.IMSMQQueue else "get_Priority")
            assert status is None or fault.value.status == status
        operation = m.IMSMQMessage4.operation("get_Priority")
        for this, status in (
            (ms_dcom.ORPCTHIS(ms_dcom.COMVERSION(5, 9)), ComResult.RPC_E_VERSION_MISMATCH),
            (ms_dcom.ORPCTHIS(ms_dcom.COMVERSION(4, 1)), ComResult.RPC_E_VERSION_MISMATCH),
            (ms_dcom.ORPCTHIS(ms_dcom.COMVERSION(5, 7), flags=1), ComResult.RPC_E_INVALID_HEADER),
        ):
            assert operation.request is not None
            stub = operation.encode_request(operation.request(orpcthis=this))
            with pytest.raises(Fault) as fault:
                await world.call_stub(reference.ipid, m.IMSMQMessage4, operation.opnum, stub)
            assert fault.value.status == status

    asyncio.run(calls())


def test_more_interfaces_are_asked_for_at_the_remote_unknown(world: ComWorld) -> None:
    reference = world.export(world.new("QueueInfo"), m.IMSMQQueueInfo)
    unknown = world.exporter.rem_unknown
    wanted = [m.IMSMQQueueInfo4.uuid.bytes_le, m.IMSMQMessage.uuid.bytes_le, uuid4().bytes_le]

    async def calls() -> None:
        answer = await world.call(
            unknown,
            ms_dcom.IRemUnknown,
            "RemQueryInterface",
            ripid=reference.ipid,
            cRefs=2,
            cIids=3,
            iids=wanted,
        )
        assert [result.hResult for result in answer.ppQIResults] == [
            0,
            ComResult.E_NOINTERFACE,
            ComResult.E_NOINTERFACE,
        ]
        assert answer.ppQIResults[0].std.oid == reference.oid and answer.ppQIResults[0].std.cPublicRefs == 2
        answer = await world.call(
            unknown, ms_dcom.IRemUnknown2, "RemQueryInterface2", ripid=reference.ipid, cIids=3, iids=wanted
        )
        assert list(answer.phr) == [0, ComResult.E_NOINTERFACE, ComResult.E_NOINTERFACE]
        assert world.unpack(answer.ppMIF[0]).oid == reference.oid
        answer = await world.call(
            unknown, ms_dcom.IRemUnknown, "RemQueryInterface", ripid=uuid4().bytes_le, cRefs=1, cIids=1, iids=wanted[:1]
        )
        assert answer.result == ComResult.RPC_E_INVALID_OBJECT

    asyncio.run(calls())


@pytest.mark.parametrize("name", ["ResolveOxid", "ResolveOxid2"])
def test_only_the_exporter_of_this_server_is_resolved(world: ComWorld, name: str) -> None:
    service: Any = world.services["IObjectExporter"]
    call: Any = world.context().call
    for oxid, result in (
        (world.exporter.oxid, 0), (world.exporter.oxid ^ 1, ResolverError.OR_INVALID_OXID),
    ):  # fmt: skip
        request = ms_dcom.IObjectExporter.operation(name).request
        answer = getattr(service, name)(call, request(pOxid=oxid))
        assert answer.result == result
        assert (answer.pipidRemUnknown == world.exporter.rem_unknown) is (result == 0)
        assert answer.pAuthnHint == (world.server.authentication_hint(call) if result == 0 else 0)


def test_an_object_is_activated_with_the_interfaces_that_are_asked_for(world: ComWorld) -> None:
    service: Any = world.services["IActivation"]
    call: Any = world.context().call
    this = ms_dcom.ORPCTHIS(version=VERSION, cid=bytes(16))
    clsid = m.MSMQQueueInfo.uuid

    def activate(*iids: UUID) -> Any:
        request = ms_dcom.IActivation.operation("RemoteActivation").request
        raw = [iid.bytes_le for iid in iids]
        return service.RemoteActivation(
            call, request(ORPCthis=this, Clsid=clsid.bytes_le, Mode=0, Interfaces=len(raw), pIIDs=raw or None)
        )

    answer = activate(m.IMSMQQueueInfo.uuid, uuid4())
    assert (answer.phr, list(answer.pResults)) == (0, [0, ComResult.E_NOINTERFACE])
    assert answer.ppInterfaceData[0] is not None and answer.ppInterfaceData[1] is None
    assert (answer.pOxid, answer.pipidRemUnknown) == (world.exporter.oxid, world.exporter.rem_unknown)
    assert answer.pAuthnHint == world.server.authentication_hint(call) > 0
    assert activate().phr == ComResult.E_INVALIDARG
