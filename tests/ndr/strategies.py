"""Hypothesis strategies for the arguments of an operation, made from its wire types."""

from __future__ import annotations

import importlib
import math
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from idl_files import SOURCES, idl_files
from msrpc.idl import syntax as s
from msrpc.idl import wiretypes as w
from msrpc.ndr import NULL, Operation
from ndr.ndr64_by_text import attributes_of, evaluate
from ndr.vector_args import INTERFACES, wire_interface

_DEEPEST = 2  # maximum depth of structures behind pointers
_COUNTS = 4  # maximum number of elements, unless the declaration requires more


def operations() -> list[tuple[str, Operation, w.OperationType]]:
    """Return every operation of the five interfaces that is used on the wire."""
    return [
        (f"{name}.{operation.name}", operation, wire)
        for name, interface in INTERFACES.items()
        for operation, wire in zip(interface.operations, wire_interface(name).operations, strict=True)
        if operation.used_on_wire
    ]


def all_operations() -> list[tuple[str, Operation, w.OperationType]]:
    """Return every operation of all IDL files that is used on the wire, without inherited ones."""
    found = []
    for path in idl_files():
        module = importlib.import_module(SOURCES.module_of(path.name))
        for wire in SOURCES.compile(path.name).interfaces:
            own = getattr(module, wire.name).operations[wire.first_opnum :]
            found += [
                (f"{wire.name}.{operation.name}", operation, declared)
                for operation, declared in zip(own, wire.operations, strict=True)
                if operation.used_on_wire
            ]
    return found


@cache
def request(wire: w.OperationType, made: type) -> SearchStrategy[Any]:
    return _arguments(wire.inputs, made)


@cache
def response(wire: w.OperationType, made: type) -> SearchStrategy[Any]:
    return _arguments([*wire.outputs, *([w.Field("result", wire.result)] if wire.result else [])], made)


def _arguments(fields: list[w.Field], made: type) -> SearchStrategy[Any]:
    @st.composite
    def arguments(draw: DrawFn) -> Any:
        attributes = attributes_of(fields, made)
        return made(**{attributes.get(name, name): value for name, value in _members(draw, fields, 0).items()})

    return arguments()


def _scalar(wire: w.WireType) -> w.Primitive | w.Enum | None:
    """Return the scalar that a field is or points to; expressions ignore pointers."""
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
        if f.name not in values and _union(f.type) is None:
            selects = next((o for o in fields if _union(o.type) is not None and o.switch == f.name), None)
            if selects is not None:
                values[f.name] = draw(_selector(selects, f, depth))
            else:
                values[f.name] = _value(draw, f.type, values, depth, f.range)
    for f in fields:
        union = _union(f.type)
        if union is None:
            continue
        arm = _draw_arm(draw, f, union, values, depth)
        if union.name:
            absent = isinstance(f.type, w.Pointer) and f.type.kind != "ref" and draw(st.booleans())
            values[f.name] = None if absent else _class_of(union)(**arm)
        else:
            values |= arm
    return values


def _union(wire: w.WireType) -> w.Union | None:
    while isinstance(wire, w.Pointer):
        wire = wire.to
    return wire if isinstance(wire, w.Union) else None


def _class_of(wire: w.Struct | w.Union) -> Any:
    return getattr(_module_of(wire.home), wire.name)


@cache
def _module_of(home: str) -> ModuleType:
    return importlib.import_module(SOURCES.module_of(home))


def _draw_counts(
    draw: DrawFn, fields: list[w.Field], by_name: dict[str, w.Field], values: dict[str, Any], depth: int
) -> None:
    """Draw the values named by size_is and length_is before the arrays; a length never exceeds its size."""
    arrays = [a for f in fields if (a := _array(f.type)) is not None]
    pairs = [(_named(a.size), _named(a.length)) for a in arrays]
    names = {name for a in arrays for e in (a.size, a.length) if e is not None for name in s.names_in(e)}
    for name in sorted(names & by_name.keys()):
        f = by_name[name]
        scalar = _scalar(f.type)
        assert scalar is not None
        low, high = f.range or (0, _COUNTS)
        values[name] = draw(st.integers(low, low if depth >= _DEEPEST else min(high, low + _COUNTS)))
    for size, length in pairs:
        if size in values and length in values:
            values[size] = max(values[size], values[length])


def _selector(of: w.Field, f: w.Field, depth: int) -> SearchStrategy[int]:
    union = _union(of.type)
    assert union is not None
    arms = union.arms
    if depth >= _DEEPEST:
        arms = [arm for arm in arms if not _is_deep(arm)] or arms
    labels = [label for arm in arms for label in arm.labels]
    if any(not arm.labels for arm in union.arms):
        labels.append(max((label for arm in union.arms for label in arm.labels), default=0) + 1)
    low, high = f.range or (-math.inf, math.inf)
    values = [label for label in labels if low <= label <= high]
    if of.selector is not None:
        values = [value for value in values if _evaluated(of.selector, {f.name: value}) in labels]
    return st.sampled_from(values)


def _evaluated(expression: s.Expression, values: dict[str, Any]) -> Any:
    return evaluate(expression, SimpleNamespace(**values))


def _is_deep(arm: w.ArmType) -> bool:
    return arm.field is not None and isinstance(arm.field.type, w.Struct)


def _draw_arm(draw: DrawFn, f: w.Field, union: w.Union, values: dict[str, Any], depth: int) -> dict[str, Any]:
    selected = values[f.switch] if f.selector is None else _evaluated(f.selector, values)
    chosen = next((a for a in union.arms if selected in a.labels), None)
    chosen = chosen or next(a for a in union.arms if not a.labels)
    if chosen.field is None:
        return {}
    return {chosen.field.name: _value(draw, chosen.field.type, values, depth, None)}


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
            return _class_of(wire)(**_members(draw, wire.fields, depth + 1))
    raise TypeError(wire)


def _elements(draw: DrawFn, array: w.Array, siblings: dict[str, Any], depth: int) -> Any:
    if array.string:
        wide = isinstance(array.element, w.Primitive) and array.element.name == "wchar_t"
        return draw(_TEXT if wide else _LATIN)
    name = _named(array.length) or _named(array.size) if array.varying else _named(array.size)
    expression = (array.length or array.size) if array.varying else array.size
    if array.fixed is not None:
        count = array.fixed
    elif isinstance(array.length if array.varying else array.size, s.Number):
        number = array.length if array.varying else array.size
        assert isinstance(number, s.Number)
        count = number.value
    elif name in siblings:
        count = siblings[name]
    elif not name and expression is not None and s.names_in(expression) <= siblings.keys():
        count = _evaluated(expression, siblings)
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
    """Combine adjacent surrogate halves into one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


_LATIN = st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=6)  # char strings are ISO 8859-1
_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=()), max_size=6).map(_as_it_travels)
