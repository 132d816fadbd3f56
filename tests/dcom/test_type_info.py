"""Type information for tools: the members of an object with their types."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import UUID

from dcom.world import ComWorld
from msrpc.dcom.variant import VT, text_of
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_oaut as o
from openmsmq.interfaces import mc_mqac as m
from openmsmq.protocols.mqac.classes import CLASSES

CLASS_KIND: Final = 5
SYS_WIN64: Final = 3


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
                assert function.oVft == 8 * (member.opnum or 0)  # [MS-OAUT] 2.2.42
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


def test_the_type_library_describes_every_class_and_interface() -> None:
    """Queries of early-binding tools: the library, its types, and the interfaces that a class implements and calls."""
    world = ComWorld()

    async def walk() -> dict[str, list[tuple[str, int]]]:
        reference = world.export(world.new("QueueInfo"), o.IDispatch)
        info = world.unpack((await world.call(reference.ipid, o.IDispatch, "GetTypeInfo")).ppTInfo).ipid
        containing = await world.call(info, o.ITypeInfo, "GetContainingTypeLib")
        library = world.unpack(containing.ppTLib).ipid
        attributes = (await world.call(library, o.ITypeLib, "GetLibAttr")).ppTLibAttr
        assert UUID(bytes_le=attributes.guid) == UUID("d7d6e071-dccd-11d0-aa4b-0060970debae")
        assert (attributes.wMajorVerNum, attributes.wMinorVerNum) == (3, 0)
        assert attributes.syskind == SYS_WIN64  # so oVft is 8 for each opnum, 2.2.45
        named = await world.call(library, o.ITypeLib, "GetDocumentation", index=-1, refPtrFlags=1)
        assert text_of(named.pBstrName) == "MSMQ"
        named = await world.call(library, o.ITypeLib, "GetDocumentation", index=containing.pIndex, refPtrFlags=1)
        assert text_of(named.pBstrName) == "IMSMQQueueInfo4"
        classes = {}
        for index in range((await world.call(library, o.ITypeLib, "GetTypeInfoCount")).pcTInfo):
            kind = (await world.call(library, o.ITypeLib, "GetTypeInfoType", index=index)).pTKind
            described = world.unpack((await world.call(library, o.ITypeLib, "GetTypeInfo", index=index)).ppTInfo).ipid
            attributes = (await world.call(described, o.ITypeInfo, "GetTypeAttr")).ppTypeAttr
            assert attributes.typekind == kind
            assert (attributes.wMajorVerNum, attributes.wMinorVerNum) == (3, 0)  # of the library, 2.2.44
            assert attributes.dwReserved2 == attributes.dwReserved3 == 0xFFFFFFFF
            by_guid = await world.call(library, o.ITypeLib, "GetTypeInfoOfGuid", guid=attributes.guid)
            assert await name_of(world.unpack(by_guid.ppTInfo).ipid) == await name_of(described)
            if kind == CLASS_KIND:
                classes[await name_of(described)] = await implemented(described, attributes.cImplTypes)
        beyond = await world.call(library, o.ITypeLib, "GetTypeInfo", index=index + 1)
        assert beyond.result == ComResult.TYPE_E_ELEMENTNOTFOUND
        found = await world.call(library, o.ITypeLib, "IsName", szNameBuf="pathNAME")
        assert (found.pfName, text_of(found.pBstrNameInLibrary)) == (1, "PathName")
        assert not (await world.call(library, o.ITypeLib, "IsName", szNameBuf="nonsense")).pfName
        assert (await world.call(library, o.ITypeLib, "GetTypeComp")).result == ComResult.E_NOTIMPL
        return classes

    async def name_of(info: UUID) -> str:
        named = await world.call(info, o.ITypeInfo, "GetDocumentation", memid=-1, refPtrFlags=1)
        return text_of(named.pBstrName) or ""

    async def implemented(info: UUID, count: int) -> list[tuple[str, int]]:
        found = []
        for index in range(count):
            kind = (await world.call(info, o.ITypeInfo, "GetRefTypeOfImplType", index=index)).pRefType
            flags = (await world.call(info, o.ITypeInfo, "GetImplTypeFlags", index=index)).pImplTypeFlags
            referred = await world.call(info, o.ITypeInfo, "GetRefTypeInfo", hRefType=kind)
            found.append((await name_of(world.unpack(referred.ppTInfo).ipid), flags))
        assert (await world.call(info, o.ITypeInfo, "GetImplTypeFlags", index=count)).result
        return found

    classes = asyncio.run(walk())
    assert set(classes) == {kind.coclass.name for kind in CLASSES}
    assert classes["MSMQCollection"] == [("IMSMQCollection", 1)]
    assert classes["MSMQEvent"][0] == ("IMSMQEvent3", 1) and classes["MSMQEvent"][-1] == ("_DMSMQEventEvents", 3)
