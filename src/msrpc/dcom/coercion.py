"""Convert arguments to the types of parameters ([MS-OAUT] 3.1.4.4 allows servers to convert)."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any, Final

from msrpc.dcom.variant import VT, Variant
from msrpc.errors import ComError
from msrpc.hresults import ComResult

_RANGES: Final[dict[int, tuple[int, int]]] = {
    VT.I1: (-(1 << 7), (1 << 7) - 1), VT.UI1: (0, (1 << 8) - 1), VT.I2: (-(1 << 15), (1 << 15) - 1),
    VT.UI2: (0, (1 << 16) - 1), VT.I4: (-(1 << 31), (1 << 31) - 1), VT.UI4: (0, (1 << 32) - 1),
    VT.INT: (-(1 << 31), (1 << 31) - 1), VT.UINT: (0, (1 << 32) - 1), VT.I8: (-(1 << 63), (1 << 63) - 1),
    VT.UI8: (0, (1 << 64) - 1), VT.ERROR: (0, (1 << 32) - 1),
}  # fmt: skip
_MOST_DIGITS: Final = 40  # more than any type has
_NUMBERS: Final = frozenset([*_RANGES, VT.R4, VT.R8, VT.CY, VT.DATE, VT.DECIMAL, VT.BOOL])


def to_integer(variant: Variant, vt: int) -> int:
    """Convert to an integer of type `vt`. Raises ComError: DISP_E_TYPEMISMATCH or DISP_E_OVERFLOW."""
    found = variant.resolved
    number = _number(found, vt)
    low, high = _RANGES[vt]
    if found.vt in (VT.UI4, VT.UINT) and vt in (VT.I4, VT.INT) and number > high:
        number -= 1 << 32  # programs pass 0xFFFFFFFF for a long of -1
    if not low <= number <= high:
        raise ComError(ComResult.DISP_E_OVERFLOW, f"{number} is not in {low} to {high}")
    return number


def _number(found: Variant, vt: int) -> int:
    value = found.value
    if found.vt == VT.EMPTY:
        return 0
    if found.vt == VT.BOOL:
        return -1 if value else 0
    try:
        if found.vt == VT.BSTR:
            text = (value or "").strip()
            value = int(text[2:], 16) if text[:2].lower() == "&h" else Decimal(text)
        elif found.vt == VT.CY:
            value = Decimal(value) / 10_000
        elif found.vt not in _NUMBERS:
            raise _mismatch(found, vt)
        if isinstance(value, int) and found.vt != VT.BSTR:  # digits in a text may be many
            return value
        if isinstance(value, float) and not math.isfinite(value):
            raise ComError(ComResult.DISP_E_OVERFLOW, f"{value} is not an integer")
        number = Decimal(value)
        if not number.is_finite():
            raise _mismatch(found, vt)
        if number.adjusted() >= _MOST_DIGITS:  # avoid expensive work for huge numbers
            raise ComError(ComResult.DISP_E_OVERFLOW, f"a number of {number.adjusted() + 1} digits is too large")
        return int(number.to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, ValueError, TypeError):
        raise _mismatch(found, vt) from None


def to_boolean(variant: Variant) -> bool:
    """Convert to a boolean. Raises ComError DISP_E_TYPEMISMATCH."""
    found = variant.resolved
    if found.vt == VT.BSTR:
        text = (found.value or "").strip().lower()
        if text in ("true", "#true#"):
            return True
        if text in ("false", "#false#"):
            return False
        return _number(found, VT.BOOL) != 0
    if found.vt in (VT.R4, VT.R8, VT.DATE, VT.CY, VT.DECIMAL):
        return bool(found.value != 0)
    return _number(found, VT.BOOL) != 0


def to_text(variant: Variant) -> str | None:
    """Convert to a BSTR: text, or None for NULL. Raises ComError DISP_E_TYPEMISMATCH."""
    found = variant.resolved
    if found.vt == VT.BSTR:
        text: str | None = found.value
        return text
    if found.vt == VT.EMPTY:
        return ""
    if found.vt == VT.BOOL:
        return "True" if found.value else "False"
    if found.vt == VT.CY:
        return format((Decimal(found.value) / 10_000).normalize(), "f")
    if found.vt in (VT.R4, VT.R8):
        return repr(found.value).removesuffix(".0")
    if found.vt in _RANGES or found.vt == VT.DECIMAL:
        return str(found.value)
    raise _mismatch(found, VT.BSTR)


def to_object(variant: Variant) -> Any:
    """Convert to an object or None. Raises ComError DISP_E_TYPEMISMATCH."""
    found = variant.resolved
    if found.vt in (VT.DISPATCH, VT.UNKNOWN):
        return found.value
    if found.vt == VT.EMPTY:
        return None
    raise _mismatch(found, VT.DISPATCH)


def _mismatch(found: Variant, vt: int) -> ComError:
    return ComError(ComResult.DISP_E_TYPEMISMATCH, f"a value of type {found.vt:#x} can't be converted to {vt:#x}")
