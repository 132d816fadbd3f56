"""What tools learn of an object: its members with their types."""

from __future__ import annotations

import asyncio
from typing import Any

from dcom.world import ComWorld
from openmsmq.dcom.hresults import ComResult
from openmsmq.dcom.variant import VT, text_of
from openmsmq.interfaces import mc_mqac as m
from openmsmq.interfaces import ms_oaut as o
from openmsmq.protocols.mqac.classes import CLASSES


def test_every_member_of_every_class_is_described() -> None:
    world = ComWorld()

    async def describe() -> int:
        count = 0
        for kind in CLASSES:
            reference = world.export(kind(world.protocols.environment), o.IDispatch)
            answer = await world.call(reference.ipid, o.IDispatch, "GetTypeInfoCount")
            assert answer.pctinfo == 1
            answer = await world.call(reference.ipid, o.IDispatch, "GetTypeInfo")
            info = world.unpack(answer.ppTInfo).ipid
            attributes = (await world.call(info, o.ITypeInfo, "GetTypeAttr")).ppTypeAttr
            assert attributes.guid == kind.coclass.default.uuid.bytes_le
            for index, member in enumerate(kind.coclass.default.all_members):
                function = (await world.call(info, o.ITypeInfo, "GetFuncDesc", index=index)).ppFuncDesc
                names = await world.call(info, o.ITypeInfo, "GetNames", memid=function.memid, cMaxNames=50)
                assert text_of(names.rgBstrNames[0]) == member.name
                assert function.cParams == sum("in" in p.attributes for p in member.parameters)
                count += 1
            assert index + 1 == attributes.cFuncs
            beyond = await world.call(info, o.ITypeInfo, "GetFuncDesc", index=index + 1)
            assert beyond.result == ComResult.TYPE_E_ELEMENTNOTFOUND
        return count

    assert asyncio.run(describe()) == sum(len(kind.coclass.default.all_members) for kind in CLASSES) == 251


def test_a_member_has_the_types_of_its_parameters_and_result() -> None:
    world = ComWorld()

    async def one(name: str) -> Any:
        reference = world.export(world.new("QueueInfo"), m.IMSMQQueueInfo4)
        answer = await world.call(reference.ipid, m.IMSMQQueueInfo4, "GetTypeInfo")
        index = [member.name for member in m.IMSMQQueueInfo4.all_members].index(name)
        info = world.unpack(answer.ppTInfo).ipid
        return (await world.call(info, o.ITypeInfo, "GetFuncDesc", index=index)).ppFuncDesc

    opened = asyncio.run(one("Open"))
    assert [p.tdesc.vt for p in opened.lprgelemdescParam] == [VT.I4, VT.I4]
    assert (opened.elemdescFunc.tdesc.vt, opened.invkind, opened.cParamsOpt) == (VT.DISPATCH, 1, 0)
    created = asyncio.run(one("Create"))
    assert [p.tdesc.lptdesc.vt for p in created.lprgelemdescParam] == [VT.VARIANT] * 2 and created.cParamsOpt == 2
    assert asyncio.run(one("Label")).elemdescFunc.tdesc.vt == VT.BSTR
