"""The body of a message as a VARIANT ([MC-MQAC] 3.17.4.1.21, 3.17.4.1.22): its bytes and the VARTYPE beside them."""

from __future__ import annotations

import struct
from typing import Final

from openmsmq.dcom.hresults import ComError, ComResult
from openmsmq.dcom.variant import VT, Variant
from openmsmq.protocols.mqac.objects import octets

BYTES: Final = VT.ARRAY | VT.UI1
_FORMATS: Final[dict[int, str]] = {
    VT.I1: "<b", VT.UI1: "<B", VT.I2: "<h", VT.UI2: "<H", VT.I4: "<i", VT.UI4: "<I", VT.R4: "<f", VT.R8: "<d",
    VT.CY: "<q", VT.DATE: "<d", VT.BOOL: "<h",
}  # fmt: skip
ALLOWED: Final = "VT_I1, UI1, I2, UI2, I4, UI4, R4, R8, CY, DATE, BOOL, BSTR and VT_ARRAY | VT_UI1"


def body_of(value: Variant) -> tuple[bytes, int]:
    """(body, body type). Raises ComError E_INVALIDARG for a type that bodies can't have.

    Deviation D-75: objects (VT_UNKNOWN, VT_DISPATCH) are refused too; the specification lists them and does not say how
    they are stored.
    """
    found = value.resolved
    if found.vt in _FORMATS:
        number = -1 if found.vt == VT.BOOL and found.value else found.value
        return struct.pack(_FORMATS[found.vt], int(number) if found.vt == VT.BOOL else number), found.vt
    if found.vt == VT.BSTR:
        return (found.value or "").encode("utf-16-le", "surrogatepass"), VT.BSTR
    if found.vt == BYTES and found.value is not None:
        return bytes(found.value.values), BYTES
    raise ComError(ComResult.E_INVALIDARG, f"a body can't have type {found.vt:#x}; allowed: {ALLOWED}")


def variant_of(body: bytes, body_type: int) -> Variant:
    """The inverse. What has another type, or is not as long as its type, is an array of bytes."""
    fmt = _FORMATS.get(body_type)
    if fmt is not None and len(body) == struct.calcsize(fmt):
        (number,) = struct.unpack(fmt, body)
        return Variant(body_type, number != 0 if body_type == VT.BOOL else number)
    if body_type == VT.BSTR and len(body) % 2 == 0:
        return Variant(VT.BSTR, body.decode("utf-16-le", "surrogatepass"))
    return octets(body)
