"""OBJREF ([MS-DCOM] 2.2.18): the wire format of references to objects."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from uuid import UUID

from msrpc.dcom.bindings import Bindings
from msrpc.interfaces.ms_dcom import STDOBJREF
from msrpc.ndr import BadStubData

_SIGNATURE = 0x574F454D
_STANDARD, _HANDLER, _CUSTOM, _EXTENDED = 1, 2, 4, 8
_HEADER = struct.Struct("<II16s")
_STD = struct.Struct("<IIQQ16s")
NOPING = 0x1000  # SORF_NOPING
_MAXIMUM_KEPT = 512  # maximum size of a cached reference in bytes


@lru_cache(maxsize=64)
def _guid(iid: UUID) -> bytes:
    return iid.bytes_le


class StandardReference:
    """A reference to an interface of an object. `resolver` has the addresses of the resolver that knows its exporter.
    Not a dataclass: see `exporter.ObjectOwner`.

    Attributes:
        iid: the interface for which it was marshaled.
        public_refs: references that the receiver now holds and must release.
        oxid, oid: exporter and object.
        ipid: the interface of the object, which calls name as their object UUID; 16 bytes.
        flags: `NOPING` for an object that needs no pings.
    """

    __slots__ = ("flags", "iid", "ipid", "oid", "oxid", "public_refs", "resolver")

    def __init__(
        self, iid: UUID, public_refs: int, oxid: int, oid: int, ipid: bytes, resolver: Bindings, flags: int = 0
    ) -> None:
        self.iid: Final = iid
        self.public_refs: Final = public_refs
        self.oxid: Final = oxid
        self.oid: Final = oid
        self.ipid: Final = ipid
        self.resolver: Final = resolver
        self.flags: Final = flags

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StandardReference) and self.pack() == other.pack()

    def __hash__(self) -> int:
        return hash((self.oxid, self.oid, self.ipid))

    def without_references(self) -> StandardReference:
        """Return the same reference, with which the receiver gets no public references."""
        return StandardReference(self.iid, 0, self.oxid, self.oid, self.ipid, self.resolver, self.flags)

    def pack(self) -> bytes:
        """Encode an OBJREF_STANDARD (2.2.18.4)."""
        std = _STD.pack(self.flags, self.public_refs, self.oxid, self.oid, self.ipid)
        return _HEADER.pack(_SIGNATURE, _STANDARD, _guid(self.iid)) + std + self.resolver.pack()

    def to_wire(self) -> STDOBJREF:
        """Convert to the result of RemQueryInterface."""
        return STDOBJREF(self.flags, self.public_refs, self.oxid, self.oid, self.ipid)


@dataclass(frozen=True, slots=True)
class CustomReference:
    """An object by value: `data` is in the format of the class `clsid` (2.2.18.6)."""

    iid: UUID
    clsid: UUID
    data: bytes

    def pack(self) -> bytes:
        """Encode an OBJREF_CUSTOM."""
        head = _HEADER.pack(_SIGNATURE, _CUSTOM, self.iid.bytes_le)
        # The last field is unused; clients write the size of the data plus 8 there.
        return head + struct.pack("<16sII", self.clsid.bytes_le, 0, len(self.data) + 8) + self.data


Reference = StandardReference | CustomReference


def unpack(data: bytes) -> Reference:
    """Decode an OBJREF of any form; for OBJREF_HANDLER and OBJREF_EXTENDED, only the standard part. Raises
    BadStubData."""
    return _unpack_again(data) if len(data) <= _MAXIMUM_KEPT else _unpack(data)


def _unpack(data: bytes) -> Reference:
    try:
        signature, flags, iid = _HEADER.unpack_from(data)
        if signature != _SIGNATURE:
            raise BadStubData(f"an OBJREF begins with {signature:#x}")
        at = _HEADER.size
        if flags == _CUSTOM:
            (clsid,) = struct.unpack_from("<16s", data, at)
            return CustomReference(UUID(bytes_le=iid), UUID(bytes_le=clsid), data[at + 24 :])
        if flags not in (_STANDARD, _HANDLER, _EXTENDED):
            raise BadStubData(f"an OBJREF has flags {flags:#x}")
        sorf, refs, oxid, oid, ipid = _STD.unpack_from(data, at)
        at += _STD.size + {_STANDARD: 0, _HANDLER: 16, _EXTENDED: 4}[flags]
        resolver, _ = Bindings.unpack(data, at)
    except struct.error as error:
        raise BadStubData(f"an OBJREF is truncated: {error}") from None
    return StandardReference(UUID(bytes_le=iid), refs, oxid, oid, ipid, resolver, sorf)


# Clients pass the same reference with each message that they send.
_unpack_again: Final = lru_cache(1024)(_unpack)
