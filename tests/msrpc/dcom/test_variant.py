"""VARIANT, SAFEARRAY and BSTR on the wire, and their conversions."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msrpc.dcom import coercion
from msrpc.dcom.slots import AutomationArgument, converted, signed
from msrpc.dcom.variant import EMPTY, NOTHING, VT, SafeArray, Variant, bstr, from_wire, text_of, to_wire
from msrpc.errors import BadStubData, ComError
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_oaut as o
from msrpc.interfaces.ms_dcom import MInterfacePointer
from msrpc.ndr.serialization import HEADERS, deserialize, serialize, size_of

INTEGERS = {VT.I1: "b", VT.UI1: "B", VT.I2: "h", VT.UI2: "H", VT.I4: "i", VT.UI4: "I", VT.I8: "q", VT.UI8: "Q",
            VT.INT: "i", VT.UINT: "I", VT.ERROR: "I"}  # fmt: skip


def bounds(fmt: str) -> tuple[int, int]:
    bits = 8 * struct.calcsize(fmt)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if fmt.islower() else (0, (1 << bits) - 1)


def numbers(vt: int) -> st.SearchStrategy[int]:
    low, high = bounds(INTEGERS[VT(vt)])
    return st.integers(low, high)


SCALARS = st.one_of(
    st.sampled_from([EMPTY, Variant(VT.NULL)]),
    st.sampled_from(sorted(INTEGERS)).flatmap(lambda vt: numbers(vt).map(lambda n: Variant(vt, n))),
    st.floats(width=32, allow_nan=False).map(lambda x: Variant(VT.R4, x)),
    st.floats(allow_nan=False).flatmap(lambda x: st.sampled_from([Variant(VT.R8, x), Variant(VT.DATE, x)])),
    numbers(VT.I8).map(lambda n: Variant(VT.CY, n)),
    st.booleans().map(lambda b: Variant(VT.BOOL, b)),
    st.one_of(st.none(), st.text(max_size=50)).map(lambda t: Variant(VT.BSTR, t)),
    st.builds(
        lambda digits, scale, sign: Variant(VT.DECIMAL, Decimal((sign, Decimal(digits).as_tuple().digits, -scale))),
        st.integers(0, 2**96 - 1), st.integers(0, 28), st.integers(0, 1),
    ),
)  # fmt: skip


@st.composite
def arrays(draw: st.DrawFn) -> Variant:
    vt = draw(st.sampled_from([*INTEGERS, VT.BSTR, VT.BOOL, VT.R8, VT.CY, VT.VARIANT]))
    size = draw(st.integers(0, 5))
    if vt == VT.UI1:
        values: Any = draw(st.binary(min_size=size, max_size=size))
    else:
        one = (
            numbers(vt) if vt in INTEGERS else numbers(VT.I8) if vt == VT.CY else st.text(max_size=9) if vt == VT.BSTR
            else st.booleans() if vt == VT.BOOL else st.floats(allow_nan=False) if vt == VT.R8 else SCALARS
        )  # fmt: skip
        values = draw(st.lists(one, min_size=size, max_size=size))
    return Variant(VT.ARRAY | vt, SafeArray.of(vt, values))


def through(variant: Variant) -> Variant:
    """Encode and decode a value, and check its size field."""
    wire = to_wire(variant, lambda target, by_dispatch: None)
    raw = serialize(wire)
    assert wire.clSize == (len(raw) - HEADERS) // 8
    assert raw == serialize(deserialize(o.wireVARIANTStr, raw))
    return from_wire(deserialize(o.wireVARIANTStr, raw), lambda pointer: pointer)


@given(st.one_of(SCALARS, arrays()))
def test_every_value_comes_back_with_its_type(variant: Variant) -> None:
    assert through(variant) == variant


@given(SCALARS.filter(lambda v: v.vt not in (VT.EMPTY, VT.NULL)))
def test_references_come_back_and_resolve_to_the_value(variant: Variant) -> None:
    by_reference = Variant(variant.vt | VT.BYREF, variant.value)
    assert through(by_reference).resolved == variant
    nested = Variant(VT.VARIANT | VT.BYREF, Variant(VT.VARIANT | VT.BYREF, variant))
    assert through(nested).resolved == variant


@pytest.mark.parametrize("vt", [VT.UNKNOWN, VT.DISPATCH, VT.DISPATCH | VT.BYREF])
@pytest.mark.parametrize("size", [None, 0, 1, 8, 100])
def test_the_size_of_an_object_counts_its_reference(vt: int, size: int | None) -> None:
    reference = None if size is None else MInterfacePointer(size, bytes(size))
    wire = to_wire(Variant(vt, "an object"), lambda target, by_dispatch: reference)
    assert wire.clSize == (len(serialize(wire)) - HEADERS) // 8


@pytest.mark.parametrize("vt", [VT.UNKNOWN, VT.DISPATCH])
def test_an_array_of_objects_has_their_references(vt: VT) -> None:
    references = {name: MInterfacePointer(8, name.encode() * 8) for name in "ab"}
    array = Variant(VT.ARRAY | vt, SafeArray.of(vt, ["a", "b"]))
    raw = serialize(to_wire(array, lambda target, by_dispatch: references[target]))
    found = from_wire(deserialize(o.wireVARIANTStr, raw), lambda pointer: bytes(pointer.abData)[:1].decode())
    assert found == array


def test_a_bstr_that_is_null_is_not_an_empty_one() -> None:
    assert (bstr(None).cBytes, bstr("").cBytes) == (0xFFFFFFFF, 0)
    assert (text_of(bstr(None)), text_of(bstr("")), text_of(None)) == (None, "", None)
    assert text_of(bstr("\ud800x\0")) == "\ud800x\0"
    with pytest.raises(ComError, match="E_INVALIDARG: a BSTR of 3 bytes"):
        text_of(o.FLAGGED_WORD_BLOB(3, 2, [65, 66]))


def test_the_bounds_of_an_array_travel_in_reverse() -> None:
    array = SafeArray(VT.I4, list(range(6)), ((1, 2), (0, 3)))
    wire = to_wire(Variant(VT.ARRAY | VT.I4, array), lambda target, by_dispatch: None)
    assert wire.parray is not None and [b.cElements for b in wire.parray.rgsabound] == [3, 2]  # type: ignore[union-attr]
    assert through(Variant(VT.ARRAY | VT.I4, array)).value == array


def broken(**changes: Any) -> o.wireVARIANTStr:
    wire = to_wire(Variant(VT.ARRAY | VT.I4, SafeArray.of(VT.I4, [1, 2])), lambda target, by_dispatch: None)
    for name, value in changes.items():
        setattr(wire.parray, name, value)
    return wire


@pytest.mark.parametrize(
    "wire",
    [
        broken(rgsabound=[o.SAFEARRAYBOUND(3, 0)]), broken(rgsabound=[]), broken(cLocks=VT.BSTR << 16),
        broken(cLocks=VT.UI4 << 16), broken(rgsabound=[o.SAFEARRAYBOUND(0xFFFFFFFF, 0)] * 8),
        broken(uArrayStructs=o.SAFEARRAYUNION(99)), broken(uArrayStructs=o.SAFEARRAYUNION(VT.RECORD)),
        o.wireVARIANTStr(vt=VT.RECORD), o.wireVARIANTStr(vt=0x7777),
    ],
)  # fmt: skip
def test_inconsistent_values_are_refused(wire: o.wireVARIANTStr) -> None:
    with pytest.raises(ComError) as refused:
        from_wire(wire, lambda pointer: pointer)
    assert refused.value.hresult in (ComResult.E_INVALIDARG, ComResult.DISP_E_BADVARTYPE)


def test_values_that_no_variant_holds_are_refused() -> None:
    for value in (Decimal(2) ** 97, Decimal("1e-29"), Decimal("NaN")):
        with pytest.raises(ComError, match="DISP_E_OVERFLOW"):
            to_wire(Variant(VT.DECIMAL, value), lambda target, by_dispatch: None)


@pytest.mark.parametrize(
    ("given_", "vt", "expected"),
    [
        (Variant(VT.BSTR, " 12 "), VT.I4, 12), (Variant(VT.BSTR, "&hff"), VT.I4, 255),
        (Variant(VT.R8, 2.5), VT.I4, 2), (Variant(VT.R8, 3.5), VT.I4, 4), (Variant(VT.UI4, 0xFFFFFFFF), VT.I4, -1),
        (Variant(VT.BOOL, True), VT.I2, -1), (Variant(VT.CY, 125_000), VT.I4, 12), (EMPTY, VT.I4, 0),
        (Variant(VT.VARIANT | VT.BYREF, Variant(VT.I2, 7)), VT.I4, 7),
        (Variant(VT.BSTR, "x"), VT.I4, ComResult.DISP_E_TYPEMISMATCH),
        (Variant(VT.I4, 40_000), VT.I2, ComResult.DISP_E_OVERFLOW),
        (Variant(VT.R8, float("inf")), VT.I4, ComResult.DISP_E_OVERFLOW),
        (Variant(VT.NULL), VT.I4, ComResult.DISP_E_TYPEMISMATCH),
        (Variant(VT.DISPATCH, None), VT.I4, ComResult.DISP_E_TYPEMISMATCH),
        (Variant(VT.BSTR, "9" * 5000), VT.I8, ComResult.DISP_E_OVERFLOW),
        (Variant(VT.BSTR, "1e999999"), VT.I8, ComResult.DISP_E_OVERFLOW),
        (Variant(VT.BSTR, "nan"), VT.I8, ComResult.DISP_E_TYPEMISMATCH),
        (Variant(VT.BSTR, "-infinity"), VT.I8, ComResult.DISP_E_TYPEMISMATCH),
    ],
)  # fmt: skip
def test_numbers_are_converted_or_refused(given_: Variant, vt: int, expected: int) -> None:
    if isinstance(expected, ComResult):
        with pytest.raises(ComError) as refused:
            coercion.to_integer(given_, vt)
        assert refused.value.hresult == expected
    else:
        assert coercion.to_integer(given_, vt) == expected


def test_texts_and_truths_are_converted() -> None:
    assert [coercion.to_text(v) for v in (Variant(VT.I4, 5), Variant(VT.R8, 2.0), Variant(VT.BOOL, True), EMPTY)] == [
        "5", "2", "True", ""]  # fmt: skip
    assert coercion.to_text(Variant(VT.CY, 125_000)) == "12.5" and coercion.to_text(Variant(VT.BSTR, None)) is None
    truths = (Variant(VT.BSTR, "True"), Variant(VT.I4, 7), Variant(VT.R8, 0.1), Variant(VT.BOOL, True))
    assert all(coercion.to_boolean(v) for v in truths)
    assert not any(coercion.to_boolean(v) for v in (Variant(VT.BSTR, "false"), Variant(VT.BSTR, "0"), EMPTY))
    assert coercion.to_boolean(Variant(VT.BSTR, "9" * 40)), "a number of at most 40 digits"
    with pytest.raises(ComError, match="a number of 41 digits is too large"):
        coercion.to_boolean(Variant(VT.BSTR, "1" + "0" * 40))
    assert NOTHING.is_missing and EMPTY.is_missing and not Variant(VT.NULL).is_missing


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [("long", 0x7FFFFFFF, 0x7FFFFFFF), ("long", 0x80000000, -0x80000000), ("long", 0xFFFFFFFF, -1),
     ("short", 0x7FFF, 0x7FFF), ("short", 0x8000, -0x8000), ("HRESULT", 0x80000000, 0x80000000)],
)  # fmt: skip
def test_numbers_of_the_model_are_signed_in_a_variant(kind: str, value: int, expected: int) -> None:
    assert signed(kind, value) == expected


THING = object()


@pytest.mark.parametrize(
    ("kind", "optional", "given_", "expected"),
    [
        ("VARIANT", True, Variant(VT.VARIANT | VT.BYREF, Variant(VT.I2, 7)), Variant(VT.I2, 7)),
        ("VARIANT", True, NOTHING, None),
        ("VARIANT", False, NOTHING, NOTHING),
        ("BSTR", False, Variant(VT.I4, 5), "5"),
        ("BSTR", True, NOTHING, ComResult.DISP_E_PARAMNOTOPTIONAL),
        ("BSTR", False, Variant(VT.ERROR, 5), "5"),
        ("VARIANT_BOOL", False, Variant(VT.BSTR, "false"), False),
        ("long", False, Variant(VT.BSTR, "70000"), 70_000),
        ("long", False, Variant(VT.DISPATCH, THING), ComResult.DISP_E_TYPEMISMATCH),
        ("short", False, Variant(VT.I4, 70_000), ComResult.DISP_E_OVERFLOW),
        ("HRESULT", False, Variant(VT.UI4, 0x80000000), 0x80000000),
        ("IMSMQQueue", False, Variant(VT.DISPATCH, THING), THING),
        ("IDispatch", False, EMPTY, None),
        ("IDispatch", False, Variant(VT.I4, 5), ComResult.DISP_E_TYPEMISMATCH),
        ("IDispatch", True, NOTHING, ComResult.DISP_E_PARAMNOTOPTIONAL),
    ],
)
def test_an_argument_is_converted_to_the_type_of_its_parameter(
    kind: str, optional: bool, given_: Variant, expected: Any
) -> None:
    argument = AutomationArgument("a", kind, optional)
    if isinstance(expected, ComResult):
        with pytest.raises(ComError) as refused:
            converted(argument, given_)
        assert refused.value.hresult == expected
    else:
        assert converted(argument, given_) == expected


def test_the_size_of_a_serialized_structure_is_in_its_header() -> None:
    raw = serialize(to_wire(Variant(VT.I4, 5), lambda target, by_dispatch: None))
    assert size_of(raw) == size_of(raw + b"what follows") == len(raw)
    big = bytes.fromhex("01 00 0008 cccccccc 00000108 00000000")  # the same in big-endian order
    assert size_of(big) == HEADERS + 0x108
    with pytest.raises(BadStubData, match="15 bytes are too short"):
        size_of(big[:-1])
