"""Type information of objects ([MS-OAUT] 3.7, 3.11): descriptions of objects for tools, generated from the interface
tables.

An interface is described as a dispatch interface: its members without those of IDispatch, results as the type of the
function. A class is described by the interfaces that it implements and calls. Both are in one type library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from msrpc.dcom.server import CallContext
from msrpc.dcom.variant import VT, bstr
from msrpc.errors import ComError
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_oaut as o
from msrpc.interfaces.ms_dcom import IUnknown
from msrpc.ndr import Interface, Operation
from msrpc.ndr.runtime import CoClass, Member, Parameter

_DISPATCH_KIND, _DUAL_FLAGS = 4, 0x1040  # TKIND_DISPATCH; TYPEFLAG_FDUAL | TYPEFLAG_FDISPATCHABLE
_CLASS_KIND, _CAN_CREATE = 5, 2  # TKIND_COCLASS; TYPEFLAG_FCANCREATE
_DEFAULT, _SOURCE = 1, 2  # IMPLTYPEFLAGs, 2.2.13
_WIN64, _POINTER = 3, 8  # SYS_WIN64 (2.2.21), whose pointers have eight octets (2.2.45)
_FUNC_DISPATCH, _STDCALL = 4, 4
_INVOKE: Final = {"method": 1, "propget": 2, "propput": 4, "propputref": 8}
_TYPES: Final = {
    "long": VT.I4, "short": VT.I2, "BSTR": VT.BSTR, "VARIANT": VT.VARIANT, "VARIANT_BOOL": VT.BOOL, "HRESULT": 25,
    "IUnknown": VT.UNKNOWN,
}  # fmt: skip
_VOID, _PTR = 24, 26
_PARAMETER_FLAGS: Final = {"in": 1, "out": 2, "retval": 8, "optional": 0x10}
_MEMBERID_NIL: Final = -1
_UNUSED: Final = 0xFFFFFFFF  # reserved DWORDs of TYPEATTR, which are -1


def _texts(name: str, wanted: int) -> list[o.FLAGGED_WORD_BLOB]:
    """Return name, description and help file, as far as requested (3.7.4.8); only names exist."""
    return [bstr(text if wanted & bit else None) for text, bit in ((name, 1), (None, 2), (None, 8))]


@dataclass(frozen=True, slots=True)
class LibraryObject:
    """Contents of a type library: interfaces, then classes."""

    name: str
    guid: UUID
    version: tuple[int, int]
    types: tuple[Interface | CoClass, ...]

    def index(self, described: Interface | CoClass) -> int:
        """Return the position of a type, which is also its HREFTYPE."""
        return self.types.index(described)

    def described(self, index: int) -> TypeInfo | ClassInfo:
        """Return the type information at an index. Raises ComError TYPE_E_ELEMENTNOTFOUND."""
        if not 0 <= index < len(self.types):
            raise ComError(ComResult.TYPE_E_ELEMENTNOTFOUND, f"{self.name} has {len(self.types)} types")
        found = self.types[index]
        return ClassInfo(found, self) if isinstance(found, CoClass) else TypeInfo(found, self)


class _Described:
    """Base class of type information objects."""

    interface: Interface

    def query(self, iid: UUID) -> bool:
        return iid in (IUnknown.uuid, self.interface.uuid)

    def released(self) -> None:
        """Do nothing: the object holds no resources."""

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any:
        method = getattr(self, operation.name, None)
        if method is None:
            raise ComError(ComResult.E_NOTIMPL, f"{self.interface.name}::{operation.name} is not offered")
        return method(context, request)


class TypeLibrary(_Described):
    """ITypeLib."""

    interface = o.ITypeLib

    def __init__(self, library: LibraryObject) -> None:
        self._library = library

    def GetTypeInfoCount(self, context: CallContext, q: Any) -> Any:
        """3.11.4.1."""
        return o.ITypeLib_GetTypeInfoCount_Response(pcTInfo=len(self._library.types))

    def GetTypeInfo(self, context: CallContext, q: Any) -> Any:
        """3.11.4.2."""
        found = self._library.described(q.index)
        return o.ITypeLib_GetTypeInfo_Response(ppTInfo=context.marshal(found, o.ITypeInfo.uuid))

    def GetTypeInfoType(self, context: CallContext, q: Any) -> Any:
        """3.11.4.3."""
        return o.ITypeLib_GetTypeInfoType_Response(pTKind=self._library.described(q.index).kind)

    def GetTypeInfoOfGuid(self, context: CallContext, q: Any) -> Any:
        """3.11.4.4."""
        wanted = UUID(bytes_le=q.guid)
        for index, described in enumerate(self._library.types):
            if described.uuid == wanted:
                found = context.marshal(self._library.described(index), o.ITypeInfo.uuid)
                return o.ITypeLib_GetTypeInfoOfGuid_Response(ppTInfo=found)
        raise ComError(ComResult.TYPE_E_ELEMENTNOTFOUND, f"{self._library.name} does not describe {wanted}")

    def GetLibAttr(self, context: CallContext, q: Any) -> Any:
        """3.11.4.5."""
        major, minor = self._library.version
        attributes = o.TLIBATTR(
            guid=self._library.guid.bytes_le, syskind=_WIN64, wMajorVerNum=major, wMinorVerNum=minor
        )  # fmt: skip
        return o.ITypeLib_GetLibAttr_Response(ppTLibAttr=attributes)

    def GetDocumentation(self, context: CallContext, q: Any) -> Any:
        """3.11.4.7: index -1 is the library itself."""
        library = self._library
        name = library.name if q.index == _MEMBERID_NIL else library.described(q.index).name
        texts = _texts(name, q.refPtrFlags)
        return o.ITypeLib_GetDocumentation_Response(pBstrName=texts[0], pBstrDocString=texts[1], pBstrHelpFile=texts[2])

    def IsName(self, context: CallContext, q: Any) -> Any:
        """3.11.4.8: whether a type, member or parameter has this name; case-insensitive."""
        wanted = q.szNameBuf.lower()
        for described in self._library.types:
            members = described.all_members if isinstance(described, Interface) else ()
            for name in (described.name, *(n for m in members for n in (m.name, *(p.name for p in m.parameters)))):
                if name.lower() == wanted:
                    return o.ITypeLib_IsName_Response(pfName=1, pBstrNameInLibrary=bstr(name))
        return o.ITypeLib_IsName_Response(pBstrNameInLibrary=bstr(None))


class _InLibrary(_Described):
    """ITypeInfo of a type in a library."""

    interface = o.ITypeInfo
    kind: int
    name: str

    def __init__(self, described: Interface | CoClass, library: LibraryObject) -> None:
        self._type, self._library = described, library
        self.name = described.name

    def GetContainingTypeLib(self, context: CallContext, q: Any) -> Any:
        """3.7.4.13."""
        pointer = context.marshal(TypeLibrary(self._library), o.ITypeLib.uuid)
        return o.ITypeInfo_GetContainingTypeLib_Response(ppTLib=pointer, pIndex=self._library.index(self._type))

    def GetRefTypeInfo(self, context: CallContext, q: Any) -> Any:
        """3.7.4.10."""
        found = context.marshal(self._library.described(q.hRefType), o.ITypeInfo.uuid)
        return o.ITypeInfo_GetRefTypeInfo_Response(ppTInfo=found)

    def GetVarDesc(self, context: CallContext, q: Any) -> Any:
        """3.7.4.4: properties are functions here."""
        raise ComError(ComResult.TYPE_E_ELEMENTNOTFOUND, f"{self.name} has no variables")

    def _attributes(self, flags: int, interfaces: int, functions: int = 0, table_size: int = 0) -> o.TYPEATTR:
        """Return the attributes of the type (2.2.44); the version is that of the library."""
        major, minor = self._library.version
        return o.TYPEATTR(
            guid=self._type.uuid.bytes_le, dwReserved2=_UNUSED, dwReserved3=_UNUSED, cbSizeInstance=_POINTER,
            typekind=self.kind, cFuncs=functions, cImplTypes=interfaces, cbSizeVft=table_size, cbAlignment=_POINTER,
            wTypeFlags=flags, wMajorVerNum=major, wMinorVerNum=minor,
        )  # fmt: skip


class ClassInfo(_InLibrary):
    """ITypeInfo of a class: the interfaces that it implements and those that it calls."""

    kind = _CLASS_KIND

    def __init__(self, described: CoClass, library: LibraryObject) -> None:
        super().__init__(described, library)
        default = described.default
        others = [interface for interface in described.interfaces if interface is not default]
        self._implemented = [(default, _DEFAULT), *((other, 0) for other in others)]
        self._implemented += [
            (source, _SOURCE | (_DEFAULT if index == 0 else 0)) for index, source in enumerate(described.sources)
        ]

    def GetTypeAttr(self, context: CallContext, q: Any) -> Any:
        """3.7.4.1."""
        attributes = self._attributes(_CAN_CREATE, len(self._implemented))
        return o.ITypeInfo_GetTypeAttr_Response(ppTypeAttr=attributes)

    def GetFuncDesc(self, context: CallContext, q: Any) -> Any:
        """3.7.4.3: a class has interfaces, not functions."""
        raise ComError(ComResult.TYPE_E_ELEMENTNOTFOUND, f"{self.name} is a class")

    def GetRefTypeOfImplType(self, context: CallContext, q: Any) -> Any:
        """3.7.4.6."""
        found, _ = self._implements(q.index)
        return o.ITypeInfo_GetRefTypeOfImplType_Response(pRefType=self._library.index(found))

    def GetImplTypeFlags(self, context: CallContext, q: Any) -> Any:
        """3.7.4.7."""
        return o.ITypeInfo_GetImplTypeFlags_Response(pImplTypeFlags=self._implements(q.index)[1])

    def GetDocumentation(self, context: CallContext, q: Any) -> Any:
        """3.7.4.8: names only."""
        if q.memid != _MEMBERID_NIL:
            raise ComError(ComResult.TYPE_E_ELEMENTNOTFOUND, f"{self.name} is a class")
        texts = _texts(self.name, q.refPtrFlags)
        return o.ITypeInfo_GetDocumentation_Response(
            pBstrName=texts[0], pBstrDocString=texts[1], pBstrHelpFile=texts[2]
        )

    def _implements(self, index: int) -> tuple[Interface, int]:
        if index >= len(self._implemented):
            raise ComError(ComResult.TYPE_E_ELEMENTNOTFOUND, f"{self.name} has {len(self._implemented)} interfaces")
        return self._implemented[index]


class TypeInfo(_InLibrary):
    """ITypeInfo of a dual interface, which has one description (D-249)."""

    kind = _DISPATCH_KIND

    def __init__(self, interface: Interface, library: LibraryObject) -> None:
        super().__init__(interface, library)
        self._interface = interface

    def GetTypeAttr(self, context: CallContext, q: Any) -> Any:
        """3.7.4.1."""
        members = self._interface.all_members
        attributes = self._attributes(_DUAL_FLAGS, 1, len(members), _POINTER * 7)
        return o.ITypeInfo_GetTypeAttr_Response(ppTypeAttr=attributes)

    def GetFuncDesc(self, context: CallContext, q: Any) -> Any:
        """3.7.4.3."""
        return o.ITypeInfo_GetFuncDesc_Response(ppFuncDesc=_function(self._member(q.index)))

    def GetNames(self, context: CallContext, q: Any) -> Any:
        """3.7.4.5: the name of a member, then those of its parameters."""
        member = self._by_id(q.memid)
        names = [member.name, *[p.name for p in member.parameters if "in" in p.attributes]][: q.cMaxNames]
        blobs: list[o.FLAGGED_WORD_BLOB | None] = [bstr(name) for name in names]
        return o.ITypeInfo_GetNames_Response(rgBstrNames=blobs, pcNames=len(names), cMaxNames=q.cMaxNames)

    def GetImplTypeFlags(self, context: CallContext, q: Any) -> Any:
        """3.7.4.7."""
        if q.index:
            raise ComError(ComResult.TYPE_E_ELEMENTNOTFOUND, f"there is no interface {q.index}")
        return o.ITypeInfo_GetImplTypeFlags_Response(pImplTypeFlags=0)

    def GetDocumentation(self, context: CallContext, q: Any) -> Any:
        """3.7.4.8: names only."""
        name = self._interface.name if q.memid == _MEMBERID_NIL else self._by_id(q.memid).name
        texts = _texts(name, q.refPtrFlags)
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
    """Convert a declared type: pointers to interfaces become VT_DISPATCH, other pointers VT_PTR."""
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
