"""Base of the automation objects: their queue manager, their caller, and conversion of arguments to values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final
from uuid import UUID

from msrpc.dcom import coercion
from msrpc.dcom.automation import AutomationObject
from msrpc.dcom.server import CallContext
from msrpc.dcom.slots import Slot
from msrpc.dcom.type_info import LibraryObject
from msrpc.dcom.variant import VT, SafeArray, Variant
from msrpc.hresults import ComResult
from msrpc.ndr import Interface
from msrpc.ndr.runtime import CoClass
from msrpc.rpc.association import Holder
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import ComError, HResult, MsmqError
from openmsmq.protocols.environment import Environment
from openmsmq.queueing.authorization import Caller

INTERFACES: Final[dict[str, Interface]] = {
    name: value for name, value in vars(m).items() if isinstance(value, Interface)
}
# Identifier of the type library on Windows (mqoa.tlb), which early-bound programs use.
LIBRARY: Final = LibraryObject(
    "MSMQ", UUID("d7d6e071-dccd-11d0-aa4b-0060970debae"), (3, 0),
    (
        *(interface for interface in INTERFACES.values() if interface.members is not None),
        *(value for value in vars(m).values() if isinstance(value, CoClass)),
    ),
)  # fmt: skip
LONGEST_TEXT: Final = 0x8000  # characters; multiple-element format names are the longest
_DAYS_TO_1970: Final = 25569.0  # from 1899-12-30, the epoch of VT_DATE
_SECONDS_A_DAY: Final = 86400


class HeldByObject:
    """Owner of queues that objects open; admits no caller, so clients cannot use their handles."""

    def admits(self, caller: Holder) -> bool:
        return False


NOBODY: Final = HeldByObject()


class MqacObject(AutomationObject):
    """An automation object of MSMQ."""

    interfaces_by_name: ClassVar[dict[str, Interface]] = INTERFACES
    library = LIBRARY
    # Behavior of operations that are not fully implemented; `openmsmq protocols` shows it.
    states: ClassVar[Mapping[str, str]] = {}
    longest_text: ClassVar[int] = LONGEST_TEXT

    def __init__(self, environment: Environment) -> None:
        self.environment = environment

    def text_too_long(self, slot: Slot, size: int) -> MsmqError:
        """See `AutomationObject.text_too_long`."""
        return MsmqError(
            HResult.MQ_ERROR_INVALID_PARAMETER, f"{slot.member.name}: {size} characters, limit {self.longest_text}"
        )

    def caller(self, context: CallContext) -> Caller:
        """Return the caller, for access checks."""
        return self.environment.caller(context.call)


def integer(value: Variant | None, default: int) -> int:
    """Return the long in a VARIANT as unsigned; `default` if omitted. Raises ComError."""
    return default if value is None else coercion.to_integer(value, VT.I4) & 0xFFFFFFFF


def boolean(value: Variant | None, default: bool) -> bool:
    """Return the VARIANT_BOOL in a VARIANT; `default` if omitted. Raises ComError."""
    return default if value is None else coercion.to_boolean(value)


def text(value: Variant | None) -> str | None:
    """Return the BSTR in a VARIANT; None if omitted or VT_NULL. Raises ComError."""
    return None if value is None or value.resolved.vt == VT.NULL else coercion.to_text(value)


def timeout(value: Variant | None) -> int:
    """Return ReceiveTimeout in milliseconds; INFINITE if omitted. Raises ComError."""
    return integer(value, INFINITE)


def octets(value: bytes) -> Variant:
    """Return bytes as VT_ARRAY | VT_UI1."""
    return Variant(VT.ARRAY | VT.UI1, SafeArray.of(VT.UI1, value))


def octets_of(value: Variant) -> bytes:
    """Return the bytes of a VT_ARRAY | VT_UI1; empty for VT_EMPTY and VT_NULL. Raises MsmqError
    MQ_ERROR_ILLEGAL_PROPERTY_VT."""
    found = value.resolved
    if found.vt in (VT.EMPTY, VT.NULL):
        return b""
    if found.vt != VT.ARRAY | VT.UI1 or found.value is None:
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_PROPERTY_VT, f"a VARIANT of type {found.vt:#x}, not an array of bytes")
    return bytes(found.value.values)


def date(seconds: int) -> Variant:
    """Return a time in seconds since 1970 UTC as VT_DATE."""
    return Variant(VT.DATE, _DAYS_TO_1970 + seconds / _SECONDS_A_DAY)


def seconds_of(value: Variant) -> int:
    """Return the seconds since 1970 UTC of a VT_DATE. Raises ComError DISP_E_TYPEMISMATCH."""
    found = value.resolved
    if found.vt not in (VT.DATE, VT.R8):
        raise ComError(ComResult.DISP_E_TYPEMISMATCH, f"a VARIANT of type {found.vt:#x}, not a date")
    seconds: float = (found.value - _DAYS_TO_1970) * _SECONDS_A_DAY
    return round(seconds)


def texts(values: list[str]) -> Variant:
    """Return texts as VT_ARRAY | VT_BSTR, as specified, not VT_ARRAY | VT_VARIANT."""
    return Variant(VT.ARRAY | VT.BSTR, SafeArray.of(VT.BSTR, values))


def not_there(what: str, hresult: int = HResult.MQ_ERROR_INVALID_PARAMETER) -> Any:
    """Raises MsmqError: a value required by the operation is not set."""
    raise MsmqError(hresult, what)
