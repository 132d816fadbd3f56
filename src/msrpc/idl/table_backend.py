"""The back end for the engine: tables of literals at the end of each generated module, read by `ndr.tables`.

There are no tables for features that no frequently called interface uses. The Python codec handles them: full pointers,
structures with a trailing array, unions with a name, arrays of fixed size and of references, floating point,
expressions that calculate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msrpc.idl import syntax as s
from msrpc.idl import wiretypes as w
from msrpc.idl.lexer import IdlError
from msrpc.idl.python_emitter import Symbols, flatten_parameters, is_wchar, scalar_format

_CONTENTS = {"bytes": 0, "GUID": 1, "context_handle": 2}


class Tables:
    """The tables of one module. Structures of other modules are added to `symbols`."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols

    def structures(self, structs: Sequence[w.Struct | w.Union]) -> list[str]:
        """Return the lines that register the structures of a module with `ndr.tables`; all are announced before any is
        declared."""
        supported = [struct for struct in structs if isinstance(struct, w.Struct) and _is_supported(struct, set())]
        announced = [
            f"_announce({struct.name}, {struct.alignment}, {struct.recursive}, {w.has_pointers(struct)}, "
            f"{struct.ndr64})"
            for struct in supported
        ]
        declared = [
            f"_declare({struct.name}, {self._fields(struct.fields, None)}, {struct.ndr64})" for struct in supported
        ]
        return [*announced, *declared]

    def arguments(self, class_name: str, parameters: list[w.Field]) -> str:
        """Return the arguments of `ndr.tables.codec` that describe `parameters`; empty if tables do not support
        them."""
        if not all(_is_supported(p.type, set()) for p in parameters):
            return ""
        return f"({class_name}, {self._fields(parameters, {p.name for p in parameters})})"

    def _fields(self, fields: list[w.Field], parameters: set[str] | None) -> str:
        kept = {f.name for f in fields}
        absent = [f.name for f in flatten_parameters(fields) if f.name not in kept]
        return f"{_tuple(self._member(f, parameters) for f in fields)}, {_tuple(map(repr, absent))}"

    def _member(self, f: w.Field, parameters: set[str] | None) -> str:
        return f"({f.name!r}, {self._type(f.type, parameters)}, {f.switch or None!r}, {f.range!r})"

    def _type(self, wire_type: w.WireType, parameters: set[str] | None) -> str:
        match wire_type:
            case w.Primitive() | w.Enum():
                return repr(scalar_format(wire_type))
            case w.Opaque(name=name, size=size, alignment=alignment):
                return f"('o', {size}, {alignment}, {_CONTENTS[name]})"
            case w.Pointer(kind=kind, to=to):
                return f"('p', {kind == 'unique'}, {self._type(to, parameters)})"
            case w.Array(element=element):
                return self._array(wire_type, element, parameters)
            case w.Struct(name=name):
                return self._symbols.use(wire_type, name)
            case w.Union():
                return self._union(wire_type, parameters)
        raise IdlError(f"no table of {wire_type}")

    def _array(self, array: w.Array, element: w.WireType, parameters: set[str] | None) -> str:
        kind = "'u'" if is_wchar(element) else self._type(element, parameters)
        size, length = _count(array.size, parameters), _count(array.length, parameters)
        return f"('a', {kind}, {size}, {length}, {array.varying}, {array.string}, {w.minimum_size(element)})"

    def _union(self, union: w.Union, parameters: set[str] | None) -> str:
        discriminant = self._type(union.discriminant, parameters)
        arms = [
            f"({_tuple(map(repr, arm.labels))}, {self._member(arm.field, parameters) if arm.field else None})"
            for arm in union.arms
        ]
        return f"('u', {discriminant}, {_tuple(arms)}, {union.arm_alignment})"


def _is_supported(wire_type: w.WireType, seen: set[int]) -> bool:
    """Whether tables support a type and everything that it contains; `seen` are the enclosing structures."""
    match wire_type:
        case w.Primitive(format=fmt):
            return fmt not in "fd"
        case w.Enum() | w.Opaque():
            return True
        case w.Pointer(kind=kind, to=to):
            return kind != "full" and _is_supported(to, seen)
        case w.Array(element=w.Pointer(kind="ref")):
            return False
        case w.Array(fixed=None, element=element, size=size, length=length):
            return _is_plain(size) and _is_plain(length) and _is_supported(element, seen)
        case w.Union(name="", encapsulated=False, arms=arms):
            return all(_is_supported(arm.field.type, seen) for arm in arms if arm.field)
        case w.Struct(conformant=None, fields=fields):
            known = id(wire_type) in seen
            seen.add(id(wire_type))
            return known or all(_is_plain_field(f) and _is_supported(f.type, seen) for f in fields)
    return False


def _is_plain_field(f: w.Field) -> bool:
    return f.selector is None and not f.switch_follows


def _is_plain(expression: s.Expression | None) -> bool:
    return expression is None or isinstance(_pointed_to(expression), s.Number | s.Name)


def _pointed_to(expression: s.Expression | None) -> s.Expression | None:
    while isinstance(expression, s.Unary) and expression.operator == "*":  # pointers are transparent
        expression = expression.operand
    return expression


def _count(expression: s.Expression | None, parameters: set[str] | None) -> str:
    """Return a number, the name of a member, or None if there is nothing to compare; `parameters` are those in the same
    stub."""
    match _pointed_to(expression):
        case s.Number(value=value):
            return str(value)
        case s.Name(text=text) if parameters is None or text in parameters:
            return repr(text)
    return "None"


def _tuple(items: Iterable[str]) -> str:
    listed = list(items)
    return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"
