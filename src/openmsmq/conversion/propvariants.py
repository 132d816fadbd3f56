"""Queue properties and PROPVARIANT ([MS-MQMQ] 2.2.13 and 2.3.1): the type of each property."""

from __future__ import annotations

from typing import Any

from openmsmq.interfaces.ms_mqmq import BLOB
from openmsmq.interfaces.ms_mqmq import tag_inner_PROPVARIANT as PROPVARIANT
from openmsmq.model.constants import PropId, VarType
from openmsmq.model.errors import HResult, IllegalPropertyValue, MsmqError

LAST_TIME = 0x7FFFFFFF  # VT_I4, in 2038; later times are shown as this one
_ATTRIBUTES = {
    VarType.VT_I1: "cVal",
    VarType.VT_UI1: "bVal",
    VarType.VT_I2: "iVal",
    VarType.VT_UI2: "uiVal",
    VarType.VT_I4: "lVal",
    VarType.VT_UI4: "ulVal",
    VarType.VT_BOOL: "boolVal",
    VarType.VT_CLSID: "puuid",
    VarType.VT_LPWSTR: "pwszVal",
}
_RANGES = {
    VarType.VT_UI1: range(1 << 8), VarType.VT_I2: range(-(1 << 15), 1 << 15), VarType.VT_I4: range(1 << 31),
    VarType.VT_UI4: range(1 << 32),
}  # fmt: skip
QUEUE_PROPERTY_TYPES: dict[int, VarType] = {
    PropId.PROPID_Q_INSTANCE: VarType.VT_CLSID,
    PropId.PROPID_Q_TYPE: VarType.VT_CLSID,
    PropId.PROPID_Q_PATHNAME: VarType.VT_LPWSTR,
    PropId.PROPID_Q_JOURNAL: VarType.VT_UI1,
    PropId.PROPID_Q_QUOTA: VarType.VT_UI4,
    PropId.PROPID_Q_BASEPRIORITY: VarType.VT_I2,
    PropId.PROPID_Q_JOURNAL_QUOTA: VarType.VT_UI4,
    PropId.PROPID_Q_LABEL: VarType.VT_LPWSTR,
    PropId.PROPID_Q_CREATE_TIME: VarType.VT_I4,
    PropId.PROPID_Q_MODIFY_TIME: VarType.VT_I4,
    PropId.PROPID_Q_AUTHENTICATE: VarType.VT_UI1,
    PropId.PROPID_Q_PRIV_LEVEL: VarType.VT_UI4,
    PropId.PROPID_Q_TRANSACTION: VarType.VT_UI1,
    PropId.PROPID_Q_PATHNAME_DNS: VarType.VT_LPWSTR,
    PropId.PROPID_Q_MULTICAST_ADDRESS: VarType.VT_LPWSTR,
    PropId.PROPID_Q_ADS_PATH: VarType.VT_LPWSTR,
    PropId.PROPID_Q_OPENMSMQ_DELIVERY_LIMIT: VarType.VT_UI4,
    PropId.PROPID_Q_OPENMSMQ_POISON_TO_DEADLETTER: VarType.VT_UI1,
}


def pack(vt: VarType, value: Any) -> PROPVARIANT:
    """Return a PROPVARIANT of type `vt` for an int, bool, str, a GUID (16 bytes) or, for VT_BLOB, bytes. Values of
    VT_I4 are times."""
    if vt is VarType.VT_BLOB:
        return PROPVARIANT(vt=vt, blob=BLOB(len(value), value))
    return PROPVARIANT(vt=vt, **{_ATTRIBUTES[vt]: min(value, LAST_TIME) if vt is VarType.VT_I4 else value})


def check_value(name: str, propid: int, value: Any) -> None:
    """Check that a value has the type of the property `name`, and the range of that type. Raises MsmqError."""
    vt = property_type(propid)
    allowed = _RANGES.get(vt)
    if allowed is not None:
        if not isinstance(value, int) or not allowed[0] <= value <= allowed[-1]:
            raise IllegalPropertyValue(detail=f"{name} is {value!r}, allowed: {allowed[0]} to {allowed[-1]}")
    elif vt is VarType.VT_LPWSTR and not isinstance(value, str):
        raise IllegalPropertyValue(detail=f"{name} is {value!r}, allowed: text")
    elif vt is VarType.VT_CLSID and (not isinstance(value, bytes) or len(value) != 16):
        raise IllegalPropertyValue(detail=f"{name} is {value!r}, allowed: a UUID")


def unpack(variant: PROPVARIANT) -> Any:
    """Return the value of a PROPVARIANT; None for VT_EMPTY and VT_NULL. Raises MsmqError for other types."""
    if variant.vt in (VarType.VT_EMPTY, VarType.VT_NULL):
        return None
    if variant.vt == VarType.VT_BLOB:
        return variant.blob.pBlobData if variant.blob is not None else None
    try:
        return getattr(variant, _ATTRIBUTES[VarType(variant.vt)])
    except (ValueError, KeyError):
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_PROPERTY_VT, f"VARTYPE {variant.vt} in a queue property") from None


def property_type(propid: int) -> VarType:
    """Return the VARTYPE of a queue property. Raises MsmqError MQ_ERROR_ILLEGAL_PROPID."""
    vt = QUEUE_PROPERTY_TYPES.get(propid)
    if vt is None:
        known = ", ".join(str(int(p)) for p in QUEUE_PROPERTY_TYPES)
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_PROPID, f"unknown queue property {propid}; allowed: {known}")
    return vt


def unpack_properties(propids: list[int], variants: list[PROPVARIANT]) -> dict[int, Any]:
    """Return the properties to create or set: PROPID -> value. Raises MsmqError MQ_ERROR_PROPERTY for a wrong VARTYPE
    ([MS-MQMP] 3.1.4.10) and for a duplicate property."""
    values: dict[int, Any] = {}
    for propid, variant in zip(propids, variants, strict=True):
        vt = property_type(propid)
        name = PropId(propid).name
        if variant.vt != vt:
            raise MsmqError(HResult.MQ_ERROR_PROPERTY, f"{name} has VARTYPE {variant.vt}, it must be {vt.name} ({vt})")
        if propid in values:
            raise MsmqError(HResult.MQ_ERROR_PROPERTY, f"{name} is given twice")
        value = unpack(variant)
        if value is None and vt is not VarType.VT_LPWSTR:
            raise MsmqError(HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, f"{name} is NULL")
        values[propid] = value if value is not None else ""
    return values


def pack_properties(propids: list[int], values: list[Any], asked: list[PROPVARIANT]) -> list[PROPVARIANT]:
    """Return the values of properties for a client. Raises MsmqError MQ_ERROR_PROPERTY if the client has initialized an
    element to another type than that of the property or VT_NULL ([MS-MQMP] 3.1.4.9)."""
    packed = []
    for propid, value, variant in zip(propids, values, asked, strict=True):
        vt = property_type(propid)
        if variant.vt not in (vt, VarType.VT_NULL, VarType.VT_EMPTY):  # D-228
            raise MsmqError(
                HResult.MQ_ERROR_PROPERTY,
                f"{PropId(propid).name} was requested as VARTYPE {variant.vt}, but is {vt.name} ({vt})",
            )
        packed.append(pack(vt, value))
    return packed
