"""Bytes of an independent DCOM client (tests/vectors/dcom): our codecs decode and re-encode them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from msrpc.dcom import activation
from msrpc.dcom.objref import CustomReference, unpack
from msrpc.dcom.slots import DISPID_PROPERTYPUT
from msrpc.dcom.variant import VT, from_wire
from msrpc.interfaces import ms_dcom, ms_oaut

CALLS = sorted((Path(__file__).parents[2] / "vectors" / "dcom").glob("call_*.json"))


def read(path: Path) -> tuple[Any, bytes]:
    *_, interface, name = path.stem.split("_")
    described = getattr(ms_oaut, interface, None) or getattr(ms_dcom, interface)
    return described.operation(name), bytes.fromhex(json.loads(path.read_text())["stub_hex"])


@pytest.mark.parametrize("path", CALLS, ids=lambda path: path.stem)
def test_a_request_is_read_and_written_with_the_same_length_and_meaning(path: Path) -> None:
    operation, stub = read(path)
    request = operation.decode_request(stub)
    again = operation.encode_request(request)
    assert len(again) == len(stub)
    assert operation.decode_request(again) == request


def test_the_activation_properties_say_which_object_is_wanted() -> None:
    operation, stub = read(next(path for path in CALLS if "RemoteCreateInstance" in path.name))
    properties = operation.decode_request(stub).pActProperties.abData
    wanted = activation.parse_request(properties)
    assert wanted.clsid == UUID("d7d6e07c-dccd-11d0-aa4b-0060970debae")
    assert wanted.iids == (ms_oaut.IDispatch.uuid,) and wanted.version == (5, 7)
    custom = unpack(properties)
    assert isinstance(custom, CustomReference) and custom.pack() == properties[: len(custom.pack())]


def test_the_arguments_of_invoke_are_variants() -> None:
    found = []
    for path in CALLS:
        if "Invoke" not in path.name:
            continue
        operation, stub = read(path)
        request = operation.decode_request(stub)
        parameters = request.pDispParams
        values = [from_wire(wire, lambda pointer: pointer) for wire in parameters.rgvarg or []]
        found.append((request.dispIdMember, [(v.vt, v.value) for v in values], parameters.rgdispidNamedArgs))
        for wire, value in zip(parameters.rgvarg or [], values, strict=True):
            assert wire is not None and wire.vt == value.vt
    assert found, "no vector was read"
    assert any(vt == VT.BSTR for _, values, _ in found for vt, _ in values)
    assert any(named == [DISPID_PROPERTYPUT] for _, _, named in found)
