"""References in the arguments of Invoke, and its flags ([MS-OAUT] 3.1.4.4, [MS-DCOM] 3.1.1.5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dcom.world import ANONYMOUS, RESOLVER, ComWorld
from msrpc.dcom.activation import interface_pointer
from msrpc.dcom.objref import StandardReference, unpack
from msrpc.dcom.variant import EMPTY, VT, Variant, text_of, to_wire
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_oaut as o
from openmsmq.interfaces import mc_mqac as m
from openmsmq.protocols.mqac.queue import MSMQQueue

METHOD, GET = 1, 2
ZERO_RESULT, ZERO_EXCEPINFO, ZERO_ARGERR = 0x20000, 0x40000, 0x80000
D = m.IMSMQMessage4
DISPIDS = {f"{member.name}/{member.kind}": member.dispid for member in D.all_members}


class Room:
    """A message, and a destination of which a client has five references."""

    def __init__(self) -> None:
        self.world = ComWorld()
        self.message = self.world.export(self.world.new("Message"), D)
        self.passed = self.world.export(self.world.new("Destination"), o.IDispatch)

    @property
    def held(self) -> int:
        """The references that the server counts."""
        found = self.world.exporter._interfaces.get(self.passed.ipid)
        return 0 if found is None else found.public

    def argument(self, oxid: int | None = None) -> o.wireVARIANTStr:
        """The destination as VT_DISPATCH, with one of the client's references; with `oxid` one of another process."""
        own = self.passed
        reference = StandardReference(own.iid, 1, oxid or own.oxid, own.oid, own.ipid, RESOLVER)
        return o.wireVARIANTStr(vt=VT.DISPATCH, clSize=10, pdispVal=interface_pointer(reference.pack()))

    async def invoke(self, member: str, values: list[Any], flags: int = METHOD, **more: Any) -> Any:
        parameters = o.DISPPARAMS(values, None, len(values), 0)
        dispid = DISPIDS[member] if member else 9999
        return await self.world.call(
            self.message.ipid, D, "Invoke", dispIdMember=dispid, dwFlags=flags, pDispParams=parameters, **more
        )


def plain(variant: Variant) -> Any:
    return to_wire(variant, lambda target, by_dispatch: None)


def by_reference(wire: o.wireVARIANTStr) -> o.wireVARIANTStr:
    """A VT_DISPATCH as VT_BYREF | VT_DISPATCH."""
    return o.wireVARIANTStr(vt=VT.BYREF | VT.DISPATCH, clSize=10, ppdispVal=wire.pdispVal)


def returned(wire: Any) -> StandardReference:
    pointer = wire.pvarVal.pdispVal if wire.vt & 0xFFF == VT.VARIANT else wire.ppdispVal
    reference = unpack(pointer.abData)
    assert isinstance(reference, StandardReference)
    return reference


@pytest.mark.parametrize("within", [True, False], ids=["variant", "dispatch"])
def test_an_object_passed_by_reference_keeps_its_references(within: bool) -> None:
    async def steps() -> None:
        room = Room()
        for _ in range(8):
            inner = room.argument()
            if within:
                given = o.wireVARIANTStr(vt=VT.BYREF | VT.VARIANT, clSize=3, pvarVal=inner)
            else:
                given = by_reference(inner)
            before = room.held
            response = await room.invoke("Send/method", [plain(EMPTY)], cVarRef=1, rgVarRefIdx=[0], rgVarRef=[given])
            back = returned(response.rgVarRef[0])
            assert back.ipid == room.passed.ipid and room.held == before - 1 + back.public_refs
        await room.world.call(room.passed.ipid, o.IDispatch, "GetTypeInfoCount")

    asyncio.run(steps())


def test_an_object_of_the_client_comes_back_without_references() -> None:
    """The server releases those that came with it."""

    async def steps() -> None:
        room = Room()
        given = by_reference(room.argument(oxid=77))
        response = await room.invoke("Send/method", [plain(EMPTY)], cVarRef=1, rgVarRefIdx=[0], rgVarRef=[given])
        back = returned(response.rgVarRef[0])
        assert (back.oxid, back.oid, back.public_refs) == (77, room.passed.oid, 0)

    asyncio.run(steps())


@pytest.mark.parametrize(
    ("member", "more", "flags"),
    [("Send/method", 0, METHOD), ("", 0, METHOD), ("Send/method", 2, METHOD), ("Label/propput", 0, 0)],
    ids=["reaches", "unknown", "too many", "no flags"],
)
def test_references_of_arguments_are_taken_although_the_call_fails(member: str, more: int, flags: int) -> None:
    """[MS-DCOM] 3.1.1.5.4: parameters are unmarshaled before anything else."""

    async def steps() -> None:
        room = Room()
        response = await room.invoke(member, [room.argument(), *[plain(Variant(VT.I4, 1))] * more], flags)
        assert response.result != 0
        room.world.exporter.release(room.passed.ipid, ANONYMOUS, room.passed.public_refs - 1, 0)
        assert room.held == 0, "the object has ended"

    asyncio.run(steps())


def test_what_the_client_ignores_is_not_returned() -> None:
    async def steps() -> None:
        room = Room()
        assert (await room.invoke("Class/propget", [], GET)).pVarResult.vt == VT.I4
        assert (await room.invoke("Class/propget", [], GET | ZERO_RESULT)).pVarResult.vt == VT.EMPTY
        nothing = [plain(Variant(VT.DISPATCH, None))]
        failed = await room.invoke("Send/method", nothing)
        assert failed.result == ComResult.DISP_E_EXCEPTION and failed.pExcepInfo.scode
        plainly = await room.invoke("Send/method", nothing, METHOD | ZERO_EXCEPINFO)
        assert plainly.result == failed.pExcepInfo.scode
        assert not plainly.pExcepInfo.scode and text_of(plainly.pExcepInfo.bstrSource) is None
        wrong = [plain(Variant(VT.I4, 1)), room.argument()]
        assert (await room.invoke("Send/method", wrong, METHOD | ZERO_ARGERR)).pArgErr == 0

    asyncio.run(steps())


def test_an_ignored_object_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[MSMQQueue] = []

    def release(queue: MSMQQueue) -> None:
        released.append(queue)

    monkeypatch.setattr(MSMQQueue, "released", release)

    async def steps() -> None:
        world = ComWorld()
        info = world.new("QueueInfo")
        info.put_PathName(world.context(), ".\\private$\\q")
        info.Create(world.context(), None, None)
        reference = world.export(info, m.IMSMQQueueInfo4)
        [opening] = {member.dispid for member in m.IMSMQQueueInfo4.all_members if member.name == "Open"}
        values = [plain(Variant(VT.I4, 0)), plain(Variant(VT.I4, 1))]
        for flags, count in ((METHOD, 0), (METHOD | ZERO_RESULT, 1)):
            response = await world.call(
                reference.ipid, m.IMSMQQueueInfo4, "Invoke", dispIdMember=opening, dwFlags=flags,
                pDispParams=o.DISPPARAMS(values, None, 2, 0),
            )  # fmt: skip
            assert response.result == 0 and len(released) == count

    asyncio.run(steps())
