"""Conversion between the JSON form of `tests/vectors/ndr` and generated argument classes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from idl_files import SOURCES
from msrpc.idl import wiretypes as w
from msrpc.ndr import NULL, Interface, Operation, Structure
from openmsmq.interfaces import ms_mqmp, ms_mqmr, ms_mqqp, ms_mqrr

VECTORS = Path(__file__).parents[1] / "vectors"
INTERFACES: dict[str, Interface] = {
    i.name: i for i in (ms_mqmp.qmcomm, ms_mqmp.qmcomm2, ms_mqmr.qmmgmt, ms_mqqp.qm2qm, ms_mqrr.RemoteRead)
}
_IDL = {"qmcomm": "ms-mqmp.idl", "qmcomm2": "ms-mqmp.idl", "qmmgmt": "ms-mqmr.idl", "qm2qm": "ms-mqqp.idl",
        "RemoteRead": "ms-mqrr.idl"}  # fmt: skip


@cache
def wire_interface(name: str) -> w.InterfaceType:
    """Return the resolved description of an interface, for generators of arguments."""
    return next(i for i in SOURCES.compile(_IDL[name]).interfaces if i.name == name)


def vectors(folder: str = "ndr") -> list[Path]:
    return sorted((VECTORS / folder).glob("*.json"))


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def operation(vector: dict[str, Any]) -> Operation:
    found = INTERFACES[vector["interface"]].operations[vector["opnum"]]
    assert found.name == vector["method"]
    return found


def wire_fields(vector: dict[str, Any]) -> list[w.Field]:
    found = wire_interface(vector["interface"]).operations[vector["opnum"]]
    if vector["direction"] == "request":
        return found.inputs
    return [*found.outputs, *([w.Field("result", found.result)] if found.result else [])]


def to_json(value: Any, wire_type: w.WireType, parameter: bool = False) -> Any:
    """Convert a decoded value to the JSON form of the vectors."""
    match wire_type:
        case w.Pointer(kind="ref", to=w.Pointer(to=to)):
            return {"non_null_pointer_to": None} if value is None or value is NULL else to_json(value, to)
        case w.Pointer(to=to):
            if value is None:
                return None
            return {"non_null_pointer_to": None} if value is NULL else to_json(value, to)
        case w.Primitive(format=fmt):
            return str(value) if fmt in "qQ" else value
        case w.Opaque(name="GUID"):
            return str(UUID(bytes_le=value))
        case w.Opaque(name="context_handle"):
            return {"attributes": int.from_bytes(value[:4], "little"), "uuid": str(UUID(bytes_le=value[4:]))}
        case w.Opaque():
            return value.hex()
        case w.Enum():
            return value
        case w.Array(element=element):
            if isinstance(value, bytes):
                return value.hex()
            return value if isinstance(value, str) else [to_json(v, element) for v in value]
        case w.Struct(name="tag_inner_PROPVARIANT") | w.Struct():
            if wire_type.name in ("ULARGE_INTEGER", "LARGE_INTEGER"):
                return str(value.QuadPart)
            return fields_to_json(value, wire_type.fields)
    raise TypeError(wire_type)


def fields_to_json(value: Any, wire_fields: list[w.Field]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for field in wire_fields:
        if isinstance(field.type, w.Union):
            selector = getattr(value, field.switch)
            for arm in field.type.arms:
                if selector in arm.labels and arm.field is not None:
                    result[arm.field.name] = to_json(getattr(value, arm.field.name), arm.field.type)
        else:
            result[field.name] = to_json(getattr(value, field.name), field.type)
    return result


def without_padding_noise(value: Any) -> Any:
    """Return a deep copy of a structure as plain data, for comparing two decoded values."""
    if isinstance(value, Structure):
        return {name: without_padding_noise(getattr(value, name)) for name in value.__slots__}
    return [without_padding_noise(v) for v in value] if isinstance(value, list) else value
