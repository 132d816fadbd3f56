"""A second NDR64 encoder, written from [MS-RPCE] 2.2.5 alone, for comparison.

It uses the declarations and their NDR 2.0 properties, but no back end of the compiler. Each rule names its section.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from msrpc.idl import syntax as s
from msrpc.idl import wiretypes as w
from msrpc.ndr import NULL

_FIRST_REFERENT = 0x20000  # the values have no meaning


def alignment(wire: w.WireType) -> int:
    match wire:
        case w.Primitive(name=name, size=size):
            return 8 if "int3264" in name else size  # 2.2.4.1.2
        case w.Enum():
            return 4  # 2.2.5.2
        case w.Opaque():
            return wire.alignment
        case w.Pointer():
            return 8  # 2.2.5.3.5
        case w.Array(element=element, varying=varying):
            return max(8 if varying else 1, alignment(element))  # 2.2.5.3.2.2: counts in place
        case w.Struct(fields=fields):
            return max((alignment(f.type) for f in fields), default=1)
        case w.Union():
            return max(alignment(wire.discriminant), _of_arms(wire))
    raise TypeError(wire)


def _of_arms(union: w.Union) -> int:
    return max((alignment(arm.field.type) for arm in union.arms if arm.field), default=1)


class Encoder:
    def __init__(self) -> None:
        self.out = bytearray()
        self._referent = _FIRST_REFERENT
        self._arguments: Any = None
        self._names: set[str] = set()

    def arguments(self, fields: list[w.Field], value: Any) -> bytes:
        attributes = attributes_of(fields, type(value))
        self._arguments = value
        self._names = {name for name, attribute in attributes.items() if name == attribute}
        for f in fields:
            wire = f.type
            if isinstance(wire, w.Pointer) and wire.kind == "ref":
                wire = wire.to  # a top-level reference pointer is not in the stub (C706 14.3.12.1)
            self.construct(f, wire, getattr(value, attributes[f.name], None), value)
        return bytes(self.out)

    def construct(self, f: w.Field, wire: w.WireType, value: Any, owner: Any) -> None:
        """Encode a complete value: its body, then the referents of its pointers (C706 14.3.12.3)."""
        later: list[Callable[[], None]] = []
        if isinstance(wire, w.Array) and wire.fixed is None:
            self.pad(8)
            self.out += struct.pack("<Q", self.maximum(wire, value, owner))  # 2.2.5.3.2.1
            self.elements(wire, value, owner, later)
        elif isinstance(wire, w.Struct) and wire.conformant is not None:
            array, last = wire.conformant, wire.fields[-1]
            self.pad(8)
            self.out += struct.pack("<Q", self.maximum(array, getattr(value, last.name), value))  # 2.2.5.3.4.2
            self.body(f, wire, value, owner, later)
        else:
            self.body(f, wire, value, owner, later)
        for refer in later:
            refer()

    def body(self, f: w.Field, wire: w.WireType, value: Any, owner: Any, later: list[Callable[[], None]]) -> None:
        match wire:
            case w.Primitive(name=name, format=fmt):
                hyper = "int3264" in name
                self.pad(alignment(wire))
                self.out += struct.pack("<" + ({"i": "q", "I": "Q"}[fmt] if hyper else fmt), value)
            case w.Enum():
                self.pad(4)
                self.out += struct.pack("<I", value)
            case w.Opaque():
                self.pad(wire.alignment)
                self.out += value
            case w.Pointer():
                self.pointer(f, wire, value, owner, later)
            case w.Struct():
                self.structure(wire, value, later)
            case w.Union():
                self.union(f, wire, value, owner, later)
            case w.Array():
                self.elements(wire, value, owner, later)

    def pointer(self, f: w.Field, wire: w.Pointer, value: Any, owner: Any, later: list[Callable[[], None]]) -> None:
        self.pad(8)
        absent = (value is None and wire.kind != "ref") or (value is NULL and not isinstance(wire.to, w.Pointer))
        if isinstance(wire.to, w.Pointer) and value is NULL:
            value, absent = None, False  # a non-null pointer to NULL
        self.out += struct.pack("<Q", 0 if absent else self._referent)
        if not absent:
            self._referent += 4
            later.append(lambda: self.construct(f, wire.to, value, owner))

    def structure(self, wire: w.Struct, value: Any, later: list[Callable[[], None]]) -> None:
        self.pad(alignment(wire))
        for f in wire.fields:
            if f is wire.fields[-1] and wire.conformant is not None:
                self.pad(alignment(wire))  # 2.2.5.3.4.1: from the last member that is neither conformant nor varying
            own = getattr(value, f.name, None)
            self.body(f, f.type, own, value, later)
        self.pad(alignment(wire))  # 2.2.5.3.4.1

    def union(self, f: w.Field, wire: w.Union, value: Any, owner: Any, later: list[Callable[[], None]]) -> None:
        selected = evaluate(f.selector, owner) if f.selector is not None else getattr(owner, f.switch)
        self.pad(alignment(wire))  # 2.2.5.3.4.4
        if not wire.encapsulated:
            self.body(f, wire.discriminant, selected, owner, later)
        self.pad(_of_arms(wire))  # 2.2.5.3.4.4
        default = next((arm for arm in wire.arms if not arm.labels), None)
        arm = next((arm for arm in wire.arms if selected in arm.labels), default)
        assert arm is not None
        if arm.field is not None:
            holder = value if wire.name else owner
            self.body(arm.field, arm.field.type, getattr(holder, arm.field.name), holder, later)

    def elements(self, wire: w.Array, value: Any, owner: Any, later: list[Callable[[], None]]) -> None:
        listed = _listed(wire, value)
        if wire.varying:
            self.pad(8)
            self.out += struct.pack("<QQ", 0, len(listed))  # 2.2.5.3.2.2, 2.2.5.3.3.1
        self.pad(alignment(wire.element))
        if isinstance(listed, bytes):
            self.out += listed
            return
        for element in listed:
            self.body(w.Field("", wire.element), wire.element, element, owner, later)

    def maximum(self, wire: w.Array, value: Any, owner: Any) -> int:
        count = len(_listed(wire, value))
        if not wire.varying or wire.size is None:
            return count
        if owner is not self._arguments or s.names_in(wire.size) <= self._names:
            return evaluate(wire.size, owner)
        if isinstance(wire.size, s.Name):  # in the request only, not in the response
            announced = getattr(owner, wire.size.text, None)
            return count if announced is None else announced
        return count

    def pad(self, to: int) -> None:
        self.out += bytes(-len(self.out) % to)


def attributes_of(fields: list[w.Field], made: type) -> dict[str, str]:
    """Map parameters to attributes, which are numbered in classes that several operations share."""
    slots = getattr(made, "__slots__", ())
    first = -1 if fields and fields[0].name in ("orpcthis", "orpcthat") else 0
    return {f.name: f.name if f.name in slots else f"a{index}" for index, f in enumerate(fields, first)}


def _listed(wire: w.Array, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    assert isinstance(wire.element, w.Primitive)
    wide = wire.element.name == "wchar_t"
    data = value.encode("utf-16-le", "surrogatepass") if wide else value.encode("latin-1")
    units = [unit for (unit,) in struct.iter_unpack(f"<{wire.element.format}", data)]
    return [*units, 0] if wire.string else units


def evaluate(expression: s.Expression, owner: Any) -> Any:
    match expression:
        case s.Number(value=value):
            return value
        case s.Name(text=text):
            return getattr(owner, text)
        case s.Unary(operator="*", operand=operand):
            return evaluate(operand, owner)
        case s.Unary(operator="~", operand=operand):
            return ~evaluate(operand, owner)
        case s.Conditional(condition=condition, then=then, otherwise=otherwise):
            return evaluate(then if evaluate(condition, owner) else otherwise, owner)
        case s.Binary(operator=operator, left=left, right=right):
            a, b = evaluate(left, owner), evaluate(right, owner)
            return {
                "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a // b, "&": lambda: a & b,
                "|": lambda: a | b, ">>": lambda: a >> b, "<<": lambda: a << b,
            }[operator]()  # fmt: skip
    raise TypeError(expression)
