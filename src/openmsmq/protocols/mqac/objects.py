"""Base of the automation objects: their queue manager, their caller, and conversion of arguments to values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final
from uuid import UUID

from msrpc.dcom import coercion
from msrpc.dcom.automation import AutomationObject, Slot
from msrpc.dcom.server import CallContext
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
# The type library that Windows has for them (mqoa.tlb); programs that were compiled early know it by this identifier.
LIBRARY: Final = LibraryObject(
    "MSMQ", UUID("d7d6e071-dccd-11d0-aa4b-0060970debae"), (3, 0),
    (
        *(interface for interface in INTERFACES.values() if interface.members is not None),
        *(value for value in vars(m).values() if isinstance(value, CoClass)),
    ),
)  # fmt: skip
LONGEST_TEXT: Final = 0x8000  # characters; names of several queues are the longest
_DAYS_TO_1970: Final = 25569.0  # from 1899-12-30, where VT_DATE begins
_SECONDS_A_DAY: Final = 86400


class HeldByObject:
    """The owner of queues that objects open: nobody gets at them by their handles."""

    def admits(self, caller: Holder) -> bool:
        return False


NOBODY: Final = HeldByObject()


class MqacObject(AutomationObject):
    """An automation object of MSMQ."""

    interfaces_by_name: ClassVar[dict[str, Interface]] = INTERFACES
    library = LIBRARY
    # By operation what is not fully served answers; `openmsmq protocols` shows it.
    states: ClassVar[Mapping[str, str]] = {}
    longest_text: ClassVar[int] = LONGEST_TEXT  # characters of an argument

    def __init__(self, environment: Environment) -> None:
        self.environment = environment

    def run(self, context: CallContext, slot: Slot, arguments: list[Any]) -> Any:
        """See `AutomationObject.run`. Raises MsmqError for a text that nothing here is as long as: objects keep it."""
        for argument in arguments:
            text = argument.resolved.value if isinstance(argument, Variant) else argument
            if isinstance(text, str) and len(text) > self.longest_text:
                limit = f"limit {self.longest_text}"
                raise MsmqError(
                    HResult.MQ_ERROR_INVALID_PARAMETER, f"{slot.member.name}: {len(text)} characters, {limit}"
                )
        return super().run(context, slot, arguments)

    def caller(self, context: CallContext) -> Caller:
        """The caller, for access checks."""
        return self.environment.caller(context.call)


def integer(value: Variant | None, default: int) -> int:
    """A VARIANT that holds a long, unsigned; `default` where it was left out. Raises ComError."""
    return default if value is None else coercion.to_integer(value, VT.I4) & 0xFFFFFFFF


def boolean(value: Variant | None, default: bool) -> bool:
    """A VARIANT that holds a VARIANT_BOOL. Raises ComError."""
    return default if value is None else coercion.to_boolean(value)


def text(value: Variant | None) -> str | None:
    """A VARIANT that holds a BSTR; None where it was left out. Raises ComError."""
    return None if value is None else coercion.to_text(value)


def timeout(value: Variant | None) -> int:
    """ReceiveTimeout in milliseconds; INFINITE where it was left out. Raises ComError."""
    return integer(value, INFINITE)


def octets(value: bytes) -> Variant:
    """VT_ARRAY | VT_UI1."""
    return Variant(VT.ARRAY | VT.UI1, SafeArray.of(VT.UI1, value))


def octets_of(value: Variant) -> bytes:
    """The bytes of a VT_ARRAY | VT_UI1; none of VT_EMPTY and VT_NULL. Raises MsmqError MQ_ERROR_ILLEGAL_PROPERTY_VT."""
    found = value.resolved
    if found.vt in (VT.EMPTY, VT.NULL):
        return b""
    if found.vt != VT.ARRAY | VT.UI1 or found.value is None:
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_PROPERTY_VT, f"a VARIANT of type {found.vt:#x}, not an array of bytes")
    return bytes(found.value.values)


def date(seconds: int) -> Variant:
    """A time in seconds since 1970 UTC as VT_DATE."""
    return Variant(VT.DATE, _DAYS_TO_1970 + seconds / _SECONDS_A_DAY)


def seconds_of(value: Variant) -> int:
    """The inverse of `date`. Raises ComError DISP_E_TYPEMISMATCH."""
    found = value.resolved
    if found.vt not in (VT.DATE, VT.R8):
        raise ComError(ComResult.DISP_E_TYPEMISMATCH, f"a VARIANT of type {found.vt:#x}, not a date")
    seconds: float = (found.value - _DAYS_TO_1970) * _SECONDS_A_DAY
    return round(seconds)


def texts(values: list[str]) -> Variant:
    """VT_ARRAY | VT_VARIANT of BSTRs would be possible too; the specification wants VT_ARRAY | VT_BSTR."""
    return Variant(VT.ARRAY | VT.BSTR, SafeArray.of(VT.BSTR, values))


def not_there(what: str, hresult: int = HResult.MQ_ERROR_INVALID_PARAMETER) -> Any:
    """Raise MsmqError: something that the operation needs has not been set."""
    raise MsmqError(hresult, what)
