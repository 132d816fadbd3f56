"""Type information of dual interfaces ([MS-OAUT] 3.7): what tools show of an object, made of its interface's tables.

Each description is of a dispatch interface: the members of the interface itself without those of IDispatch, results as
the type of the function.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from openmsmq.dcom.hresults import ComError, ComResult
from openmsmq.dcom.server import CallContext
from openmsmq.dcom.variant import VT, bstr
from openmsmq.interfaces import ms_oaut as o
from openmsmq.interfaces.ms_dcom import IUnknown
from openmsmq.ndr import Interface, Operation
from openmsmq.ndr.runtime import Member, Parameter

_DISPATCH_KIND, _DUAL_FLAGS = 4, 0x1040  # TKIND_DISPATCH; TYPEFLAG_FDUAL | TYPEFLAG_FDISPATCHABLE
_FUNC_DISPATCH, _STDCALL, _POINTER = 4, 4, 8
_INVOKE: Final = {"method": 1, "propget": 2, "propput": 4, "propputref": 8}
_TYPES: Final = {
    "long": VT.I4, "short": VT.I2, "BSTR": VT.BSTR, "VARIANT": VT.VARIANT, "VARIANT_BOOL": VT.BOOL, "HRESULT": 25,
    "IUnknown": VT.UNKNOWN,
}  # fmt: skip
_VOID, _PTR = 24, 26
_PARAMETER_FLAGS: Final = {"in": 1, "out": 2, "retval": 8, "optional": 0x10}
_MEMBERID_NIL: Final = -1


class TypeInfo:
    """ITypeInfo of a dual interface."""

    def __init__(self, interface: Interface) -> None:
        self._interface = interface

    def query(self, iid: UUID) -> bool:
        return iid in (IUnknown.uuid, o.ITypeInfo.uuid)

    def released(self) -> None:
        """It holds nothing."""

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any:
        method = getattr(self, operation.name, None)
        if method is None:
            raise ComError(ComResult.E_NOTIMPL, f"ITypeInfo::{operation.name} is not offered")
        return method(context, request)

    def GetTypeAttr(self, context: CallContext, q: Any) -> Any:
        """3.7.4.1."""
        members = self._interface.all_members
        attributes = o.TYPEATTR(
            guid=self._interface.uuid.bytes_le, cbSizeInstance=_POINTER, typekind=_DISPATCH_KIND, cFuncs=len(members),
            cImplTypes=1, cbSizeVft=_POINTER * 7, cbAlignment=_POINTER, wTypeFlags=_DUAL_FLAGS, wMajorVerNum=1,
        )  # fmt: skip
        return o.ITypeInfo_GetTypeAttr_Response(ppTypeAttr=attributes)

    def GetFuncDesc(self, context: CallContext, q: Any) -> Any:
        """3.7.4.3."""
        return o.ITypeInfo_GetFuncDesc_Response(ppFuncDesc=_function(self._member(q.index)))

    def GetVarDesc(self, context: CallContext, q: Any) -> Any:
        """3.7.4.4: properties are functions here."""
        raise ComError(ComResult.TYPE_E_ELEMENTNOTFOUND, "the interface has no variables")

    def GetNames(self, context: CallContext, q: Any) -> Any:
        """3.7.4.5: of a member, then of its parameters."""
        member = self._by_id(q.memid)
        names = [member.name, *[p.name for p in member.parameters if "in" in p.attributes]][: q.cMaxNames]
        return o.ITypeInfo_GetNames_Response(rgBstrNames=[bstr(name) for name in names], pcNames=len(names))

    def GetImplTypeFlags(self, context: CallContext, q: Any) -> Any:
        """3.7.4.7."""
        if q.index:
            raise ComError(ComResult.TYPE_E_ELEMENTNOTFOUND, f"there is no interface {q.index}")
        return o.ITypeInfo_GetImplTypeFlags_Response(pImplTypeFlags=0)

    def GetDocumentation(self, context: CallContext, q: Any) -> Any:
        """3.7.4.8: names only."""
        name = self._interface.name if q.memid == _MEMBERID_NIL else self._by_id(q.memid).name
        wanted = [q.refPtrFlags & bit for bit in (1, 2, 8)]
        texts = [bstr(text) if asked else bstr(None) for text, asked in zip((name, None, None), wanted, strict=True)]
        return o.ITypeInfo_GetDocumentation_Response(
            pBstrName=texts[0], pBstrDocString=texts[1], pBstrHelpFile=texts[2]
        )

    def _member(self, index: int) -> Member:
        members = self._interface.all_members
        if index >= len(members):
            raise ComError(ComResult.TYPE_E_ELEMENTNOTFOUND, f"there are {len(members)} members, not {index + 1}")
        return members[index]

    def _by_id(self, dispid: int) -> Member:
        for member in self._interface.all_members:
            if member.dispid == dispid:
                return member
        raise ComError(ComResult.TYPE_E_ELEMENTNOTFOUND, f"no member has the DISPID {dispid}")


def _function(member: Member) -> o.FUNCDESC:
    inputs = [p for p in member.parameters if "in" in p.attributes]
    results = [p for p in member.parameters if "in" not in p.attributes]
    returned = _described(results[0].type[:-1]) if results else o.TYPEDESC(vt=_VOID)
    return o.FUNCDESC(
        memid=member.dispid, lprgelemdescParam=[_parameter(p) for p in inputs] or None, funckind=_FUNC_DISPATCH,
        invkind=_INVOKE[member.kind], callconv=_STDCALL, cParams=len(inputs),
        cParamsOpt=sum("optional" in p.attributes for p in inputs), oVft=_POINTER * (member.opnum or 0),
        elemdescFunc=o.ELEMDESC(returned, o.PARAMDESC()),
    )  # fmt: skip


def _parameter(parameter: Parameter) -> o.ELEMDESC:
    flags = sum(_PARAMETER_FLAGS[name] for name in parameter.attributes)
    return o.ELEMDESC(_described(parameter.type), o.PARAMDESC(wParamFlags=flags))


def _described(written: str) -> o.TYPEDESC:
    """A type as it is written: pointers to interfaces are VT_DISPATCH, other pointers VT_PTR."""
    name = written.rstrip("*")
    stars = len(written) - len(name)
    if name not in _TYPES:
        name, stars, vt = "", max(stars - 1, 0), int(VT.DISPATCH)
    else:
        vt = int(_TYPES[name])
        if name == "IUnknown":
            stars = max(stars - 1, 0)
    described = o.TYPEDESC(vt=vt)
    for _ in range(stars):
        described = o.TYPEDESC(lptdesc=described, vt=_PTR)
    return described
