"""Activation properties ([MS-DCOM] 2.2.22): request of a client to create an object, and the response."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from msrpc.dcom.bindings import Bindings
from msrpc.dcom.objref import CustomReference, StandardReference, unpack
from msrpc.interfaces import ms_dcom as d
from msrpc.ndr import BadStubData
from msrpc.ndr.serialization import deserialize, serialize, size_of


def _well_known(number: int) -> UUID:
    return UUID(f"{number:08x}-0000-0000-c000-000000000046")


IID_IN, IID_OUT = _well_known(0x1A2), _well_known(0x1A3)
CLSID_IN, CLSID_OUT = _well_known(0x338), _well_known(0x339)
VERSION: Final = d.COMVERSION(5, 7)
_DESTINATION: Final = 2  # destCtx; the value has no meaning (2.2.22.1)
_INSTANTIATION, _SCM_REQUEST, _LOCATION = _well_known(0x1AB), _well_known(0x1AA), _well_known(0x1A4)
_SCM_REPLY = _well_known(0x1B6)
_READ: Final[dict[UUID, type]] = {
    _INSTANTIATION: d.InstantiationInfoData,
    _SCM_REQUEST: d.ScmRequestInfoData,
    _LOCATION: d.LocationInfoData,
}
_REQUIRED: Final = (_INSTANTIATION, _SCM_REQUEST, _LOCATION)


@dataclass(frozen=True, slots=True)
class ActivationRequest:
    """Request for an object of a class, with a list of interfaces."""

    clsid: UUID
    iids: tuple[UUID, ...]
    version: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Exported:
    """Location of the objects in a response."""

    oxid: int
    bindings: Bindings
    rem_unknown: bytes
    authentication_hint: int


def parse_request(objref: bytes) -> ActivationRequest:
    """Read pActProperties of RemoteGetClassObject and RemoteCreateInstance. Raises BadStubData."""
    properties = _properties(objref, CLSID_IN)
    for clsid in _REQUIRED:
        if clsid not in properties:
            raise BadStubData(f"the activation property {_READ[clsid].__name__} is missing")
    wanted = properties[_INSTANTIATION]
    iids = tuple(UUID(bytes_le=iid) for iid in wanted.pIID or [])
    version = wanted.clientCOMVersion
    return ActivationRequest(UUID(bytes_le=wanted.classId), iids, (version.MajorVersion, version.MinorVersion))


def make_request(clsid: UUID, iids: tuple[UUID, ...]) -> bytes:
    """Encode pActProperties of a client, without optional properties."""
    raw = [iid.bytes_le for iid in iids]
    return _objref(IID_IN, CLSID_IN, [
        (_INSTANTIATION, d.InstantiationInfoData(clsid.bytes_le, cIID=len(raw), pIID=raw, clientCOMVersion=VERSION)),
        (_LOCATION, d.LocationInfoData()),
        (_SCM_REQUEST, d.ScmRequestInfoData(remoteRequest=d.customREMOTE_REQUEST_SCM_INFO(2, 1, [7]))),
    ])  # fmt: skip


def make_answer(exported: Exported, results: list[tuple[UUID, int, StandardReference | None]]) -> bytes:
    """Encode ppActProperties: HRESULT and reference for each interface."""
    reply = d.customREMOTE_REPLY_SCM_INFO(
        exported.oxid, exported.bindings.to_wire(), exported.rem_unknown, exported.authentication_hint, VERSION
    )
    references = [None if r is None else interface_pointer(r.pack()) for _, _, r in results]
    out = d.PropsOutInfo(
        len(results), [iid.bytes_le for iid, _, _ in results], [hresult for _, hresult, _ in results], references
    )
    # The order matters to clients such as impacket, which use the position instead of the class.
    return _objref(IID_OUT, CLSID_OUT, [(CLSID_OUT, out), (_SCM_REPLY, d.ScmReplyInfoData(None, reply))])


def parse_answer(objref: bytes) -> tuple[Exported, list[tuple[UUID, int, StandardReference | None]]]:
    """Parse the result of `make_answer`. Raises BadStubData."""
    properties = _properties(objref, CLSID_OUT, {_SCM_REPLY: d.ScmReplyInfoData, CLSID_OUT: d.PropsOutInfo})
    if _SCM_REPLY not in properties or CLSID_OUT not in properties:
        raise BadStubData("the activation response has no ScmReplyInfoData or PropsOutInfo")
    reply, out = properties[_SCM_REPLY].remoteReply, properties[CLSID_OUT]
    if reply is None or reply.pdsaOxidBindings is None:
        raise BadStubData("an activation was answered without bindings")
    found: list[tuple[UUID, int, StandardReference | None]] = []
    for iid, hresult, pointer in zip(out.piid or [], out.phresults or [], out.ppIntfData or [], strict=True):
        reference = unpack(pointer.abData) if pointer is not None else None
        if isinstance(reference, CustomReference):
            raise BadStubData("the activation response has an object by value, which is not supported")
        found.append((UUID(bytes_le=iid), hresult, reference))
    bindings = Bindings.from_wire(reply.pdsaOxidBindings)
    return Exported(reply.Oxid, bindings, reply.ipidRemUnknown, reply.authnHint), found


def interface_pointer(data: bytes) -> d.MInterfacePointer:
    """Encode an OBJREF as a parameter (2.2.14)."""
    return d.MInterfacePointer(len(data), data)


def _properties(objref: bytes, clsid: UUID, known: dict[UUID, type] | None = None) -> dict[UUID, Any]:
    """Return the known properties in a BLOB by class; others are ignored (3.1.2.5.2.3)."""
    known = _READ if known is None else known
    reference = unpack(objref)
    if not isinstance(reference, CustomReference) or reference.clsid != clsid:
        raise BadStubData("the activation properties are in no OBJREF_CUSTOM of their class")
    data = reference.data
    if len(data) < 8:
        raise BadStubData("the activation properties are truncated")
    (size,) = struct.unpack_from("<I", data)
    data = data[8 : 8 + size]
    header = deserialize(d.CustomHeader, data)
    at = header.headerSize
    if at < size_of(data) or header.pclsid is None or header.pSizes is None:
        raise BadStubData("the header of the activation properties is incomplete")
    found: dict[UUID, Any] = {}
    for raw, length in zip(header.pclsid, header.pSizes, strict=True):
        kind = known.get(UUID(bytes_le=raw))
        if at + length > len(data):
            raise BadStubData("an activation property is truncated")
        if kind is not None:
            found[UUID(bytes_le=raw)] = deserialize(kind, data[at : at + length])
        at += length
    return found


def _objref(iid: UUID, clsid: UUID, properties: list[tuple[UUID, Any]]) -> bytes:
    blobs = [serialize(value) for _, value in properties]
    header = d.CustomHeader(
        destCtx=_DESTINATION, cIfs=len(blobs), pclsid=[c.bytes_le for c, _ in properties], pSizes=list(map(len, blobs))
    )
    header.headerSize = len(serialize(header))
    header.totalSize = header.headerSize + sum(map(len, blobs))
    data = struct.pack("<II", header.totalSize, 0) + serialize(header) + b"".join(blobs)
    return CustomReference(iid, clsid, data).pack()
