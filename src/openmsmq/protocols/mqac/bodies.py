"""The body of a message as a VARIANT ([MC-MQAC] 3.17.4.1.21, 3.17.4.1.22): its bytes and their VARTYPE."""

from __future__ import annotations

import struct
from typing import Final

from msrpc.dcom.budget import Charge
from msrpc.dcom.persistence import CLSID_SIZE, ObjectState, SavedObject, state_of
from msrpc.dcom.server import CallContext, ForeignReference
from msrpc.dcom.variant import VT, Variant
from msrpc.hresults import ComResult
from msrpc.interfaces import com
from openmsmq.model.constants import MAXIMUM_MESSAGE_SIZE, VarType
from openmsmq.model.errors import ComError
from openmsmq.protocols.mqac.objects import octets

BYTES: Final = VT.ARRAY | VT.UI1
_FORMATS: Final[dict[int, str]] = {
    VT.I1: "<b", VT.UI1: "<B", VT.I2: "<h", VT.UI2: "<H", VT.I4: "<i", VT.UI4: "<I", VT.R4: "<f", VT.R8: "<d",
    VT.CY: "<q", VT.DATE: "<d", VT.BOOL: "<h",
}  # fmt: skip
_OBJECTS: Final = (VT.UNKNOWN, VT.DISPATCH)
ALLOWED: Final = "VT_I1, UI1, I2, UI2, I4, UI4, R4, R8, CY, DATE, BOOL, BSTR, ARRAY | UI1, UNKNOWN, DISPATCH"


def body_of(value: Variant) -> tuple[bytes, int]:
    """Return (body, body type) of a value other than an object. Raises ComError E_INVALIDARG for an unsupported
    type."""
    found = value.resolved
    if found.vt in _FORMATS:
        number = -1 if found.vt == VT.BOOL and found.value else found.value
        return struct.pack(_FORMATS[found.vt], int(number) if found.vt == VT.BOOL else number), found.vt
    if found.vt == VT.BSTR:
        return (found.value or "").encode("utf-16-le", "surrogatepass"), VT.BSTR
    if found.vt == BYTES and found.value is not None:
        return bytes(found.value.values), BYTES
    raise ComError(ComResult.E_INVALIDARG, f"a body can't have type {found.vt:#x}; allowed: {ALLOWED}")


def is_object(value: Variant) -> bool:
    """Whether the value is an object, so that `body_of_object` is needed."""
    return value.resolved.vt in _OBJECTS


async def body_of_object(context: CallContext, value: Variant) -> tuple[bytes, int]:
    """Return (body, body type) of an object, which must save its state. Raises ComError, E_INVALIDARG if it cannot.

    Deviation D-75: the body is the CLSID and the data written by IPersistStream::Save.
    """
    target = value.resolved.value
    if isinstance(target, SavedObject):
        return target.state.pack(), VarType.VT_STREAMED_OBJECT
    if not isinstance(target, ForeignReference):
        raise ComError(ComResult.E_INVALIDARG, "an object without state can't be a body; allowed: one of the client's")
    async with context.server.remote.reached(target.reference, target.host) as exporter:
        state = await state_of(
            exporter, target.reference.ipid, lambda s: context.marshal(s, com.IStream.uuid), MAXIMUM_MESSAGE_SIZE,
            context.causality, charge_of(context),
        )  # fmt: skip
    return state.pack(), VarType.VT_STREAMED_OBJECT


def charge_of(context: CallContext) -> Charge:
    """Return a charge for bytes that an object holds for the caller."""
    return Charge(context.server.budgets.message_bytes, context.owner.source)


def variant_of(context: CallContext, body: bytes, body_type: int) -> Variant:
    """Return the VARIANT of a body. An object that was saved can only be saved again (deviation D-75). A body of
    another type, or whose length does not match its type, becomes an array of bytes. Raises InsufficientResources."""
    fmt = _FORMATS.get(body_type)
    if fmt is not None and len(body) == struct.calcsize(fmt):
        (number,) = struct.unpack(fmt, body)
        return Variant(body_type, number != 0 if body_type == VT.BOOL else number)
    if body_type == VT.BSTR and len(body) % 2 == 0:
        return Variant(VT.BSTR, body.decode("utf-16-le", "surrogatepass"))
    if body_type == VarType.VT_STREAMED_OBJECT and len(body) >= CLSID_SIZE:
        charge = charge_of(context)
        charge.set(len(body))
        return Variant(VT.UNKNOWN, SavedObject(ObjectState.unpack(body), charge))
    return octets(body)
