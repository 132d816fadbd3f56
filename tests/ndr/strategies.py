"""Hypothesis strategies for the arguments of an operation, made from its wire types."""

from __future__ import annotations

import importlib
import math
from functools import cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from idl_files import SOURCES
from msrpc.idl import syntax as s
from msrpc.idl import wiretypes as w
from msrpc.ndr import NULL, Operation
from ndr.vector_args import INTERFACES, wire_interface

_DEEPEST = 2  # levels of nested structures behind pointers that are drawn
_COUNTS = 4  # elements at most, where the declaration does not demand more


def operations() -> list[tuple[str, Operation, w.OperationType]]:
    """Every operation of the five interfaces that travels."""
    return [
        (f"{name}.{operation.name}", operation, wire)
        for name, interface in INTERFACES.items()
        for operation, wire in zip(interface.operations, wire_interface(name).operations, strict=True)
        if operation.used_on_wire
    ]


@cache
def request(wire: w.OperationType, made: type) -> SearchStrategy[Any]:
    return _arguments(wire.inputs, made)


@cache
def response(wire: w.OperationType, made: type) -> SearchStrategy[Any]:
    return _arguments([*wire.outputs, *([w.Field("result", wire.result)] if wire.result else [])], made)


def _arguments(fields: list[w.Field], made: type) -> SearchStrategy[Any]:
    @st.composite
    def arguments(draw: DrawFn) -> Any:
        return made(**_members(draw, fields, 0))

    return arguments()


def _scalar(wire: w.WireType) -> w.Primitive | w.Enum | None:
    """The scalar that a field is or points to: pointers are transparent in expressions."""
    while isinstance(wire, w.Pointer):
        wire = wire.to
    return wire if isinstance(wire, w.Primitive | w.Enum) else None


def _array(wire: w.WireType) -> w.Array | None:
    while isinstance(wire, w.Pointer):
        wire = wire.to
    return wire if isinstance(wire, w.Array) else None


def _named(expression: s.Expression | None) -> str:
    match expression:
        case s.Name(text=text):
            return text
        case s.Unary(operator="*", operand=operand):
            return _named(operand)
    return ""


def _members(draw: DrawFn, fields: list[w.Field], depth: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    by_name = {f.name: f for f in fields}
    _draw_counts(draw, fields, by_name, values, depth)
    for f in fields:
        if isinstance(f.type, w.Union):
            continue
        if f.name not in values:
            selects = next((o.type for o in fields if isinstance(o.type, w.Union) and o.switch == f.name), None)
            if selects is not None:
                values[f.name] = draw(_selector(selects, f, depth))
            else:
                values[f.name] = _value(draw, f.type, values, depth, f.range)
    for f in fields:
        if isinstance(f.type, w.Union):
            _draw_arm(draw, f, values, depth)
    return values


def _draw_counts(
    draw: DrawFn, fields: list[w.Field], by_name: dict[str, w.Field], values: dict[str, Any], depth: int
) -> None:
    """Draw what size_is and length_is name before the arrays, the length never above the size."""
    pairs = [(_named(a.size), _named(a.length)) for f in fields if (a := _array(f.type)) is not None]
    for name in sorted({name for pair in pairs for name in pair if name and name in by_name}):
        f = by_name[name]
        scalar = _scalar(f.type)
        assert scalar is not None
        low, high = f.range or (0, _COUNTS)
        values[name] = draw(st.integers(low, low if depth >= _DEEPEST else min(high, low + _COUNTS)))
    for size, length in pairs:
        if size in values and length in values:
            values[size] = max(values[size], values[length])


def _selector(union: w.Union, f: w.Field, depth: int) -> SearchStrategy[int]:
    arms = union.arms
    if depth >= _DEEPEST:
        arms = [arm for arm in arms if not _is_deep(arm)] or arms
    labels = [label for arm in arms for label in arm.labels]
    if any(not arm.labels for arm in union.arms):
        labels.append(max((label for arm in union.arms for label in arm.labels), default=0) + 1)
    low, high = f.range or (-math.inf, math.inf)
    return st.sampled_from([label for label in labels if low <= label <= high])


def _is_deep(arm: w.ArmType) -> bool:
    return arm.field is not None and isinstance(arm.field.type, w.Struct)


def _draw_arm(draw: DrawFn, f: w.Field, values: dict[str, Any], depth: int) -> None:
    union = f.type
    assert isinstance(union, w.Union) and not union.name
    chosen = next((a for a in union.arms if values[f.switch] in a.labels), None)
    chosen = chosen or next(a for a in union.arms if not a.labels)
    if chosen.field is not None:
        values[chosen.field.name] = _value(draw, chosen.field.type, values, depth, None)


def _value(draw: DrawFn, wire: w.WireType, siblings: dict[str, Any], depth: int, bounds: tuple[int, int] | None) -> Any:
    match wire:
        case w.Primitive(format=fmt, size=size):
            if fmt in "fd":
                return draw(st.floats(allow_nan=False, width=32 if fmt == "f" else 64))
            low, high = (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) if fmt.islower() else (0, (1 << 8 * size) - 1)
            return draw(st.integers(*(bounds or (low, high))))
        case w.Enum(size=size):
            return draw(st.integers(*(bounds or (0, (1 << 8 * size - 1) - 1))))
        case w.Opaque(size=size):
            return draw(st.binary(min_size=size, max_size=size))
        case w.Pointer(kind="ref", to=w.Pointer(to=to)):
            return None if draw(st.booleans()) else _value(draw, to, siblings, depth, bounds)
        case w.Pointer(kind="ref", to=to):
            return _value(draw, to, siblings, depth, bounds)
        case w.Pointer(to=w.Pointer(to=to)):
            absent = draw(st.sampled_from([None, NULL, ...]))
            return _value(draw, to, siblings, depth, bounds) if absent is ... else absent
        case w.Pointer(to=to):
            if depth >= _DEEPEST + 2 or draw(st.booleans()):
                return None
            return _value(draw, to, siblings, depth, bounds)
        case w.Array():
            return _elements(draw, wire, siblings, depth)
        case w.Struct():
            made = getattr(importlib.import_module(SOURCES.module_of(wire.home)), wire.name)
            return made(**_members(draw, wire.fields, depth + 1))
    raise TypeError(wire)


def _elements(draw: DrawFn, array: w.Array, siblings: dict[str, Any], depth: int) -> Any:
    if array.string:
        return draw(_TEXT)
    name = _named(array.length) or _named(array.size) if array.varying else _named(array.size)
    if array.fixed is not None:
        count = array.fixed
    elif isinstance(array.length if array.varying else array.size, s.Number):
        number = array.length if array.varying else array.size
        assert isinstance(number, s.Number)
        count = number.value
    elif name in siblings:
        count = siblings[name]
    else:
        count = draw(st.integers(0, 0 if depth >= _DEEPEST else _COUNTS))
    element = array.element
    if isinstance(element, w.Primitive) and element.format in "Bb":
        return draw(st.binary(min_size=count, max_size=count))
    if isinstance(element, w.Primitive) and element.name == "wchar_t":
        units = draw(st.binary(min_size=2 * count, max_size=2 * count))
        return units.decode("utf-16-le", "surrogatepass")
    return [_value(draw, element, siblings, depth, None) for _ in range(count)]


def _as_it_travels(text: str) -> str:
    """Two halves of a surrogate pair side by side become one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=()), max_size=6).map(_as_it_travels)
