"""Message bodies as Python values: text, numbers and times by VARTYPE, or raw bytes.

The types are those of System.Messaging's ActiveXMessageFormatter ([MS-OAUT] 2.2.7, [MS-MQMQ] 2.2.12): the body type of
a message is the VARTYPE of its body. Raw bytes have VT_EMPTY, as have XML and .NET binary bodies.
"""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from openmsmq.model.constants import VarType
from openmsmq.model.errors import ClientError, HResult

BodyValue = str | bytes | bool | int | float | Decimal | datetime | UUID | None

VT_ARRAY_UI1 = 0x2011
_NUMBERS = {
    VarType.VT_I1: "<b",
    VarType.VT_UI1: "<B",
    VarType.VT_I2: "<h",
    VarType.VT_UI2: "<H",
    VarType.VT_I4: "<i",
    VarType.VT_UI4: "<I",
    VarType.VT_I8: "<q",
    VarType.VT_UI8: "<Q",
    VarType.VT_R4: "<f",
    VarType.VT_R8: "<d",
}
_DATE_ORIGIN = datetime(1899, 12, 30, tzinfo=UTC)
_FILETIME_ORIGIN = datetime(1601, 1, 1, tzinfo=UTC)
_I4 = range(-(1 << 31), 1 << 31)


class BodyError(ClientError, ValueError):
    """A body does not match its type, or a value cannot be a body."""

    hresult = HResult.MQ_ERROR_INVALID_PARAMETER


def encode_body(value: BodyValue) -> tuple[bytes, int]:
    """Return (body, body type) of a value: str VT_BSTR, int VT_I4 or VT_I8, float VT_R8, bool VT_BOOL, datetime
    VT_DATE, Decimal VT_CY, UUID VT_CLSID, bytes unchanged with VT_EMPTY. Raises BodyError for other types, for ints of
    more than 64 bits, and for Decimals with more than the 4 decimals of VT_CY."""
    match value:
        case None:
            return b"", VarType.VT_EMPTY
        case bytes() | bytearray() | memoryview():
            return bytes(value), VarType.VT_EMPTY
        case str():
            return value.encode("utf-16-le", "surrogatepass"), VarType.VT_BSTR
        case bool():
            return struct.pack("<h", -value), VarType.VT_BOOL
        case int():
            kind = VarType.VT_I4 if int(value) in _I4 else VarType.VT_I8
            try:
                return struct.pack(_NUMBERS[kind], value), kind
            except struct.error:
                raise BodyError(f"{value} does not fit into 64 bits") from None
        case float():
            return struct.pack("<d", value), VarType.VT_R8
        case Decimal():
            return struct.pack("<q", to_currency(value)), VarType.VT_CY
        case datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return struct.pack("<d", to_date(moment)), VarType.VT_DATE
        case UUID():
            return value.bytes_le, VarType.VT_CLSID
    raise BodyError(f"{type(value).__name__} cannot be a body; allowed: str, bytes, int, float, bool, datetime, "
                    "Decimal and UUID")  # fmt: skip


def decode_body(body: bytes, body_type: int) -> BodyValue:
    """Return the value of a body; bytes for other types. Raises BodyError."""
    try:
        return _decode(body, body_type)
    except (struct.error, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise BodyError(f"a body of {len(body)} bytes cannot be decoded as VARTYPE {body_type:#x}: {error}") from None


def _decode(body: bytes, body_type: int) -> BodyValue:
    if body_type in _NUMBERS:
        number: int | float = struct.unpack(_NUMBERS[VarType(body_type)], body)[0]
        return number
    match body_type:
        case VarType.VT_NULL:
            return None
        case VarType.VT_BSTR:
            return body.decode("utf-16-le", "surrogatepass")
        case VarType.VT_LPWSTR:
            return body.decode("utf-16-le", "surrogatepass").removesuffix("\0")
        case VarType.VT_LPSTR:
            return body.decode("latin-1").removesuffix("\0")
        case VarType.VT_BOOL:
            return bool(struct.unpack("<h", body)[0])
        case VarType.VT_CY:
            return Decimal(struct.unpack("<q", body)[0]).scaleb(-4)
        case VarType.VT_DATE:
            return from_date(struct.unpack("<d", body)[0])
        case VarType.VT_FILETIME:
            return _FILETIME_ORIGIN + timedelta(microseconds=struct.unpack("<Q", body)[0] / 10)
        case VarType.VT_CLSID:
            return UUID(bytes_le=body)
    return body


def to_currency(value: Decimal) -> int:
    """Return the number of ten-thousandths in VT_CY. Raises BodyError for a value that it cannot hold exactly."""
    try:
        scaled = value.scaleb(4)
        exact = scaled == scaled.to_integral_value()
        number = int(scaled)
    except (ValueError, OverflowError, ArithmeticError):  # infinite, or not a number
        exact, number = True, 1 << 63
    if not exact:
        raise BodyError(f"{value} has more than 4 decimals, the limit of VT_CY; round it, or send text")
    if not -(1 << 63) <= number < 1 << 63:
        raise BodyError(f"{value} does not fit into a currency of 64 bits with 4 decimals")
    return number


def to_date(moment: datetime) -> float:
    """Return a DATE: the whole days since 1899-12-30, and the time of day as a fraction with the same sign: -1.25 is
    1899-12-29 06:00."""
    days, time = divmod(moment - _DATE_ORIGIN, timedelta(days=1))
    fraction = time / timedelta(days=1)
    return days - fraction if days < 0 else days + fraction


def from_date(date: float) -> datetime:
    """Return the time of a DATE. Raises OverflowError, ValueError for one outside of the years 1 to 9999."""
    fraction, days = math.modf(date)
    return _DATE_ORIGIN + timedelta(days=days) + timedelta(days=abs(fraction))
