"""VARIANT, SAFEARRAY and BSTR ([MS-OAUT] 2.2.23 to 2.2.30): conversion to and from Python values with types."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from operator import attrgetter
from typing import Any, Final

from msrpc.errors import ComError
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_oaut as o
from msrpc.interfaces.ms_dcom import MInterfacePointer
from msrpc.ndr.runtime import NULL
from msrpc.ndr.serialization import HEADERS, serialize

Unmarshal = Callable[[MInterfacePointer | None], Any]
Marshal = Callable[[Any, bool], MInterfacePointer | None]  # arguments: an object, and whether to use IDispatch


class VT(IntEnum):
    """VARENUM, [MS-OAUT] 2.2.7."""

    EMPTY = 0
    NULL = 1
    I2 = 2
    I4 = 3
    R4 = 4
    R8 = 5
    CY = 6
    DATE = 7
    BSTR = 8
    DISPATCH = 9
    ERROR = 10
    BOOL = 11
    VARIANT = 12
    UNKNOWN = 13
    DECIMAL = 14
    I1 = 16
    UI1 = 17
    UI2 = 18
    UI4 = 19
    I8 = 20
    UI8 = 21
    INT = 22
    UINT = 23
    RECORD = 36
    ARRAY = 0x2000
    BYREF = 0x4000


# Plain integers, because compiled code looks up a member of an enumeration by its name each time.
_EMPTY: Final = 0
_NULL: Final = 1
_ERROR: Final = 10
_ARRAY: Final = 0x2000
_BYREF: Final = 0x4000
_VARIANT_BY_REFERENCE: Final = 0x400C

MISSING: Final = ComResult.DISP_E_PARAMNOTFOUND  # a VT_ERROR with this value marks an omitted argument
# Type -> arm of the union, and arm by reference.
_ARMS: Final[dict[int, tuple[str, str]]] = {
    VT.I8: ("llVal", "pllVal"), VT.I4: ("lVal", "plVal"), VT.UI1: ("bVal", "pbVal"), VT.I2: ("iVal", "piVal"),
    VT.R4: ("fltVal", "pfltVal"), VT.R8: ("dblVal", "pdblVal"), VT.BOOL: ("boolVal", "pboolVal"),
    VT.ERROR: ("scode", "pscode"), VT.CY: ("cyVal", "pcyVal"), VT.DATE: ("date", "pdate"),
    VT.BSTR: ("bstrVal", "pbstrVal"), VT.UNKNOWN: ("punkVal", "ppunkVal"), VT.DISPATCH: ("pdispVal", "ppdispVal"),
    VT.I1: ("cVal", "pcVal"), VT.UI2: ("uiVal", "puiVal"), VT.UI4: ("ulVal", "pulVal"), VT.UI8: ("ullVal", "pullVal"),
    VT.INT: ("intVal", "pintVal"), VT.UINT: ("uintVal", "puintVal"), VT.DECIMAL: ("decVal", "pdecVal"),
    VT.ARRAY: ("parray", "pparray"),
}  # fmt: skip
#: Type in a VARIANT, arrays without the type of their elements -> arm, and type without `VT.BYREF`.
_PLACES: Final[dict[int, tuple[str, int]]] = {
    base | by_reference: (arms[by_reference != 0], int(base))
    for base, arms in _ARMS.items()
    for by_reference in (0, int(VT.BYREF))
}  # fmt: skip
_OBJECTS: Final = frozenset([int(VT.UNKNOWN), int(VT.DISPATCH)])
_POINTERS: Final = _OBJECTS | {int(VT.BSTR), int(VT.ARRAY)}
# Element type -> wire type of the array, its member, size in bytes and `struct` format of an element.
_ELEMENTS: Final[dict[int, tuple[int, str, int, str]]] = {
    VT.I1: (VT.I1, "ByteStr", 1, "b"), VT.UI1: (VT.I1, "ByteStr", 1, "B"),
    VT.I2: (VT.I2, "WordStr", 2, "h"), VT.UI2: (VT.I2, "WordStr", 2, "H"), VT.BOOL: (VT.I2, "WordStr", 2, "h"),
    VT.I4: (VT.I4, "LongStr", 4, "i"), VT.UI4: (VT.I4, "LongStr", 4, "I"), VT.R4: (VT.I4, "LongStr", 4, "f"),
    VT.INT: (VT.I4, "LongStr", 4, "i"), VT.UINT: (VT.I4, "LongStr", 4, "I"), VT.ERROR: (VT.I4, "LongStr", 4, "I"),
    VT.I8: (VT.I8, "HyperStr", 8, "q"), VT.UI8: (VT.I8, "HyperStr", 8, "Q"), VT.R8: (VT.I8, "HyperStr", 8, "d"),
    VT.CY: (VT.I8, "HyperStr", 8, "q"), VT.DATE: (VT.I8, "HyperStr", 8, "d"),
    VT.BSTR: (VT.BSTR, "BstrStr", 4, ""), VT.VARIANT: (VT.VARIANT, "VariantStr", 16, ""),
    VT.UNKNOWN: (VT.UNKNOWN, "UnknownStr", 4, ""), VT.DISPATCH: (VT.DISPATCH, "DispatchStr", 4, ""),
}  # fmt: skip
_FORMATS_ON_WIRE: Final = {"WordStr": "H", "LongStr": "I", "HyperStr": "q"}
_FEATURES: Final[dict[int, int]] = {VT.BSTR: 0x100, VT.UNKNOWN: 0x200, VT.DISPATCH: 0x400, VT.VARIANT: 0x800}
_HAVE_VARTYPE: Final = 0x80
_HAVE_IID_TYPE: Final = VT.UNKNOWN | 0x8000
_BY_WIRE_TYPE: Final = {VT.I1: VT.UI1, VT.I2: VT.I2, VT.I4: VT.I4, VT.I8: VT.I8}
_NULL_BSTR = 0xFFFFFFFF
_SIZE_OF_SCALAR: Final[dict[int, int]] = {int(VT.EMPTY): 20, int(VT.NULL): 20} | dict.fromkeys(
    map(int, (VT.I8, VT.UI8, VT.R8, VT.DATE, VT.CY)), 32
)  # size in bytes; 24 for other types


@dataclass(frozen=True, slots=True)
class SafeArray:
    """An array of `vt`. `values` are in wire order: bytes for VT_UI1, otherwise a list; `bounds` are (lower, count) by
    dimension, leftmost first."""

    vt: int
    values: Any
    bounds: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, vt: int, values: Any) -> SafeArray:
        """Return an array with one dimension that begins at 0."""
        return cls(vt, values, ((0, len(values)),))


class Variant:
    """A value of an Automation type. `vt` may include VT.BYREF; `value` is still the value itself. Not a
    dataclass: see `exporter.ObjectOwner`.

    By type: int, float, bool; str or None (a NULL BSTR); int of ten-thousandths for VT_CY; float of days since
    1899-12-30 for VT_DATE; Decimal; an object or None; `SafeArray`; `Variant` for VT_VARIANT by reference; None for the
    rest.
    """

    __slots__ = ("value", "vt")

    def __init__(self, vt: int = 0, value: Any = None) -> None:  # VT_EMPTY
        self.vt: Final = vt
        self.value: Final = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variant) and self.vt == other.vt and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash((self.vt, self.value))

    def __repr__(self) -> str:
        return f"Variant({self.vt!r}, {self.value!r})"

    @property
    def resolved(self) -> Variant:
        """The value with references resolved."""
        found = self
        while found.vt == _VARIANT_BY_REFERENCE:
            found = found.value
        return Variant(found.vt & ~_BYREF, found.value) if found.vt & _BYREF else found

    @property
    def is_missing(self) -> bool:
        """Whether this marks an omitted argument."""
        return self.vt == _EMPTY or (self.vt == _ERROR and self.value == MISSING)


EMPTY: Final = Variant()
NOTHING: Final = Variant(VT.ERROR, int(MISSING))


# -- BSTR --------------------------------------------------------------------------------------------------------------


def bstr(text: str | None) -> o.FLAGGED_WORD_BLOB:
    """Encode a text, or None as NULL."""
    if text is None:
        return o.FLAGGED_WORD_BLOB(_NULL_BSTR, 0, [])
    raw = text.encode("utf-16-le", "surrogatepass")
    count = len(raw) // 2
    return o.FLAGGED_WORD_BLOB(len(raw), count, list(struct.unpack(f"<{count}H", raw)))


def text_of(blob: o.FLAGGED_WORD_BLOB | None) -> str | None:
    """Decode the text of a BSTR. Raises ComError E_INVALIDARG for an odd number of bytes (D-247)."""
    if blob is None or blob.cBytes == _NULL_BSTR:
        return None
    if blob.cBytes != 2 * blob.clSize:
        raise ComError(ComResult.E_INVALIDARG, f"a BSTR of {blob.cBytes} bytes in {blob.clSize} characters")
    return struct.pack(f"<{blob.clSize}H", *blob.asData).decode("utf-16-le", "surrogatepass")


# -- from the wire -----------------------------------------------------------------------------------------------------


def from_wire(wire: o.wireVARIANTStr | None, unmarshal: Unmarshal) -> Variant:
    """Convert a VARIANT; NULL is VT_EMPTY. Raises ComError."""
    if wire is None:
        return EMPTY
    vt = wire.vt
    if vt == _VARIANT_BY_REFERENCE:
        inner = wire.pvarVal
        return Variant(vt, EMPTY if inner in (None, NULL) else from_wire(inner, unmarshal))  # type: ignore[arg-type]
    if vt in (_EMPTY, _NULL):
        return Variant(vt)
    arm, base = _place_of(vt)
    raw = getattr(wire, arm)
    return Variant(vt, _value(base, vt, None if raw is NULL else raw, unmarshal))


def _place_of(vt: int) -> tuple[str, int]:
    """Return the arm of the union that has the value of a VARIANT, and the type without `VT.BYREF`. Raises ComError
    DISP_E_BADVARTYPE for a type that is not supported."""
    place = _PLACES.get(vt & ~0xFFF | _ARRAY if vt & _ARRAY else vt)
    if place is None:
        raise ComError(ComResult.DISP_E_BADVARTYPE, f"VARIANT of type {vt:#x}")
    return place


def _value(base: int, vt: int, raw: Any, unmarshal: Unmarshal) -> Any:
    if base in _OBJECTS:
        return unmarshal(raw)
    if base == _ARRAY:
        return _array(raw, vt & 0xFFF, unmarshal)
    read = _READERS.get(base)
    return raw if read is None or raw is None else read(raw)


def _decimal(raw: o.DECIMAL) -> Decimal:
    digits = Decimal((raw.Hi32 << 64) | raw.Lo64).as_tuple().digits
    return Decimal(
        (raw.sign >> 7 & 1, digits, -raw.scale)
    )  # arithmetic would round to 28 digits, but a DECIMAL can have 29


_READERS: Final[dict[int, Callable[[Any], Any]]] = {
    int(VT.BSTR): text_of, int(VT.CY): attrgetter("int64"), int(VT.BOOL): bool, int(VT.DECIMAL): _decimal,
}  # fmt: skip


def _array(raw: Any, vt: int, unmarshal: Unmarshal) -> SafeArray | None:
    """Decode a SAFEARRAY (2.2.30.10). Raises ComError E_INVALIDARG if types, features or bounds are inconsistent."""
    if raw is None or raw is NULL:
        return None
    union = raw.uArrayStructs
    kind = union.sfType
    element = raw.cLocks >> 16 if raw.fFeatures & _HAVE_VARTYPE else vt
    element = element or vt or _BY_WIRE_TYPE.get(kind, kind & ~0x8000)
    if kind == _HAVE_IID_TYPE and element in _OBJECTS:
        values: Any = [unmarshal(pointer) for pointer in union.HaveIidStr.apUnknown]
    elif element not in _ELEMENTS or _ELEMENTS[element][0] != kind or (vt and vt != element):
        raise ComError(ComResult.E_INVALIDARG, f"a SAFEARRAY of {kind:#x} with elements of type {element:#x}")
    else:
        values = _elements(union, element, unmarshal)
    bounds = tuple((b.lLbound, b.cElements) for b in reversed(raw.rgsabound))
    count = 1
    for _, elements in bounds:
        count *= elements
    if not bounds or count != len(values):
        raise ComError(ComResult.E_INVALIDARG, f"a SAFEARRAY of {len(values)} elements has bounds for {count}")
    return SafeArray(int(element), values, bounds)


def _elements(union: o.SAFEARRAYUNION, element: int, unmarshal: Unmarshal) -> Any:
    _, member, _, fmt = _ELEMENTS[element]
    held = getattr(union, member)
    if member == "ByteStr":
        raw = held.pData or b""
        return bytes(raw) if element == VT.UI1 else list(struct.unpack(f"<{len(raw)}b", raw))
    if fmt:
        units = held.pData or []
        packed = struct.pack(f"<{len(units)}{_FORMATS_ON_WIRE[member]}", *units)
        values = list(struct.unpack(f"<{len(units)}{fmt}", packed))
        return [value != 0 for value in values] if element == VT.BOOL else values
    if element == VT.BSTR:
        return [text_of(blob) for blob in held.aBstr]
    if element == VT.VARIANT:
        return [from_wire(wire, unmarshal) for wire in held.aVariant]
    return [unmarshal(p) for p in (held.apUnknown if element == VT.UNKNOWN else held.apDispatch)]


# -- to the wire -------------------------------------------------------------------------------------------------------


def to_wire(variant: Variant, marshal: Marshal) -> o.wireVARIANTStr:
    """Encode a VARIANT. Raises ComError."""
    vt, value = variant.vt, variant.value
    wire = o.wireVARIANTStr(vt=vt)
    base = vt
    if vt == _VARIANT_BY_REFERENCE:
        wire.pvarVal = to_wire(value, marshal)
    elif vt != _EMPTY and vt != _NULL:
        arm, base = _place_of(vt)
        is_pointer = base in _POINTERS
        raw = _raw(base, value, marshal) if is_pointer or value is not None else None
        if raw is None and (base == _ARRAY or (is_pointer and vt & _BYREF)):
            raw = NULL  # a pointer to NULL
        setattr(wire, arm, raw)
    wire.clSize = (_size(wire, base) + 7) // 8
    return wire


def _raw(base: int, value: Any, marshal: Marshal) -> Any:
    if base == VT.BSTR:
        return bstr(value)
    if base in _OBJECTS:
        return marshal(value, base == VT.DISPATCH)
    if base == VT.ARRAY:
        return None if value is None else _wire_array(value, marshal)
    if base == VT.CY:
        return o.CURRENCY(value)
    if base == VT.BOOL:
        return -1 if value else 0
    if base == VT.DECIMAL:
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int) or not exponent >= -28:
            raise ComError(ComResult.DISP_E_OVERFLOW, f"{value} is no DECIMAL")
        number = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
        if number >> 96:
            raise ComError(ComResult.DISP_E_OVERFLOW, f"{value} is no DECIMAL")
        return o.DECIMAL(0, max(-exponent, 0), 0x80 if sign else 0, number >> 64, number & (1 << 64) - 1)
    return value


def _wire_array(array: SafeArray, marshal: Marshal) -> o._wireSAFEARRAY:
    kind, member, size, fmt = _ELEMENTS[array.vt]
    values, count = array.values, len(array.values)
    if member == "ByteStr":
        raw = bytes(values) if array.vt == VT.UI1 else struct.pack(f"<{count}b", *values)
        held: Any = o.BYTE_SIZEDARR(count, raw)
    elif fmt:
        numbers = [-1 if v else 0 for v in values] if array.vt == VT.BOOL else values
        packed = struct.pack(f"<{count}{fmt}", *numbers)
        units = list(struct.unpack(f"<{count}{_FORMATS_ON_WIRE[member]}", packed))
        held = {"WordStr": o.WORD_SIZEDARR, "LongStr": o.DWORD_SIZEDARR, "HyperStr": o.HYPER_SIZEDARR}[member](
            count, units
        )
    elif array.vt == VT.BSTR:
        held = o.SAFEARR_BSTR(count, [bstr(text) for text in values])
    elif array.vt == VT.VARIANT:
        held = o.SAFEARR_VARIANT(count, [to_wire(v, marshal) for v in values])
    elif array.vt == VT.UNKNOWN:
        held = o.SAFEARR_UNKNOWN(count, [marshal(v, False) for v in values])
    else:
        held = o.SAFEARR_DISPATCH(count, [marshal(v, True) for v in values])
    union = o.SAFEARRAYUNION(sfType=int(kind))
    setattr(union, member, held)
    bounds = [o.SAFEARRAYBOUND(elements, lower) for lower, elements in reversed(array.bounds)]
    features = _HAVE_VARTYPE | _FEATURES.get(array.vt, 0)
    return o._wireSAFEARRAY(len(bounds), features, size, array.vt << 16, union, bounds)


def _size(wire: o.wireVARIANTStr, base: int) -> int:
    """Return the size of a VARIANT on the wire in bytes."""
    if base == VT.BSTR and not wire.vt & VT.BYREF:
        return 36 + 2 * (wire.bstrVal.clSize if wire.bstrVal is not None else 0)
    if base in _OBJECTS and not wire.vt & VT.BYREF:
        pointer = wire.punkVal if base == VT.UNKNOWN else wire.pdispVal
        return 24 + (8 + len(pointer.abData) if pointer is not None else 0)
    if wire.vt & (VT.BYREF | VT.ARRAY) or base == VT.DECIMAL:
        return len(serialize(wire)) - HEADERS
    return _SIZE_OF_SCALAR.get(base, 24)
