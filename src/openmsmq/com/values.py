"""Conversion between Python values and VARIANTs."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from msrpc.dcom.variant import EMPTY, NOTHING, VT, SafeArray, Variant
from msrpc.hresults import ComResult
from openmsmq.model.bodies import BodyError, from_date, to_currency, to_date
from openmsmq.model.errors import ComError

_LONG: Final = range(-(1 << 31), 1 << 31)
_SCALE: Final = 10_000


def to_variant(value: Any) -> Variant:
    """Return the VARIANT of an argument: int VT_I4 (VT_I8 if it is larger), bool, float VT_R8, str, bytes VT_ARRAY |
    VT_UI1, Decimal VT_CY, datetime VT_DATE, None VT_EMPTY, `...` an omitted argument; a Variant is unchanged.

    Raises ComError DISP_E_TYPEMISMATCH for other types, DISP_E_OVERFLOW for a Decimal that VT_CY cannot hold exactly.
    """
    match value:
        case Variant():
            return value
        case None:
            return EMPTY
        case _ if value is ...:
            return NOTHING
        case bool():
            return Variant(VT.BOOL, value)
        case int():
            return Variant(VT.I4 if int(value) in _LONG else VT.I8, int(value))
        case float():
            return Variant(VT.R8, value)
        case str():
            return Variant(VT.BSTR, value)
        case bytes() | bytearray() | memoryview():
            return Variant(VT.ARRAY | VT.UI1, SafeArray.of(VT.UI1, bytes(value)))
        case Decimal():
            try:
                return Variant(VT.CY, to_currency(value))
            except BodyError as error:
                raise ComError(ComResult.DISP_E_OVERFLOW, error.detail) from None
        case datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return Variant(VT.DATE, to_date(moment))
        case list() | tuple():
            return Variant(VT.ARRAY | VT.VARIANT, SafeArray.of(VT.VARIANT, [to_variant(item) for item in value]))
    if hasattr(value, "_oleobj_"):
        return Variant(VT.DISPATCH, value)
    raise ComError(ComResult.DISP_E_TYPEMISMATCH, f"{type(value).__name__} cannot be converted to a VARIANT")


def from_variant(variant: Variant) -> Any:
    """Return the value of a result; bytes for an array of bytes, lists for other arrays.
    Raises ComError DISP_E_OVERFLOW for a date that `datetime` cannot hold."""
    found = variant.resolved
    value = found.value
    if found.vt & VT.ARRAY:
        if value is None or isinstance(value.values, bytes):
            return None if value is None else value.values
        return [from_variant(item) if isinstance(item, Variant) else item for item in value.values]
    if found.vt == VT.CY:
        return Decimal(value) / _SCALE
    if found.vt == VT.DATE:
        try:
            return from_date(value)
        except (OverflowError, ValueError):
            raise ComError(ComResult.DISP_E_OVERFLOW, f"the date {value} is not in the years 1 to 9999") from None
    return value
