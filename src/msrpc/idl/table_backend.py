"""The back end for the engine: tables of literals at the end of each generated module, read by `ndr.tables`.

There are no tables for features that no frequently called interface uses. The Python codec handles them: full pointers,
unions with a name, arrays of fixed size and of references, trailing arrays that are varying or strings, floating point,
most operators of expressions. Where such a type is optional, behind a unique pointer or in an arm of a union, its table
is None: the engine stops at a value of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msrpc.idl import syntax as s
from msrpc.idl import wiretypes as w
from msrpc.idl.lexer import IdlError
from msrpc.idl.python_emitter import Symbols, flatten_parameters, is_wchar, scalar_format

_OPERATORS = ("&", "+", "~")  # of `engine.c`, besides the conditional
_CONTENTS = {"bytes": 0, "GUID": 1, "context_handle": 2}


class Tables:
    """The tables of one module. Structures of other modules are added to `symbols`."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols

    def structures(self, structs: Sequence[w.Struct | w.Union]) -> list[str]:
        """Return the lines that register the structures of a module with `ndr.tables`; all are announced before any is
        declared."""
        supported = [struct for struct in structs if isinstance(struct, w.Struct) and _is_supported(struct)]
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
        if not all(_is_supported_member(p) for p in parameters):
            return ""
        return f"({class_name}, {self._fields(parameters, {p.name for p in parameters})})"

    def _fields(self, fields: list[w.Field], parameters: set[str] | None) -> str:
        kept = {f.name for f in fields}
        absent = [f.name for f in flatten_parameters(fields) if f.name not in kept]
        return f"{_tuple(self._member(f, parameters) for f in fields)}, {_tuple(map(repr, absent))}"

    def _member(self, f: w.Field, parameters: set[str] | None) -> str:
        selector = f.selector or (s.Name(f.switch) if f.switch else None)
        selecting = None if selector is None else _expression(selector)
        return f"({f.name!r}, {self._type(f.type, parameters)}, {selecting!r}, {f.range!r})"

    def _type(self, wire_type: w.WireType, parameters: set[str] | None) -> str:
        if not _is_supported(wire_type):
            return "None"
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


def _is_supported(wire_type: w.WireType, enclosing: frozenset[int] = frozenset()) -> bool:
    """Whether tables support a type and everything that it always contains; `enclosing` are structures around it."""
    match wire_type:
        case w.Primitive(format=fmt):
            return fmt not in "fd"
        case w.Enum() | w.Opaque():
            return True
        case w.Pointer(kind=kind, to=to):
            return kind == "unique" or (kind == "ref" and _is_supported(to, enclosing))
        case w.Array(element=w.Pointer(kind="ref")) | w.Array(element=w.Struct(conformant=w.Array())):
            return False
        case w.Array(fixed=None, element=element, size=size, length=length):
            return _is_calculable(size) and _is_calculable(length) and _is_supported(element, enclosing)
        case w.Union(name=name, encapsulated=encapsulated):
            return not name and not encapsulated
        case w.Struct(conformant=w.Array(varying=varying, string=string)) if varying or string:
            return False
        case w.Struct(fields=fields):
            inside = enclosing | {id(wire_type)}
            return id(wire_type) in enclosing or all(_is_supported_member(f, inside) for f in fields)
    return False


def _is_supported_member(f: w.Field, enclosing: frozenset[int] = frozenset()) -> bool:
    if f.switch_follows or not _is_calculable(f.selector):
        return False
    return not (isinstance(f.type, w.Struct) and f.type.conformant) and _is_supported(f.type, enclosing)


def _is_calculable(expression: s.Expression | None) -> bool:
    match expression:
        case None | s.Number() | s.Name():
            return True
        case s.Unary(operator="*", operand=operand):
            return _is_calculable(operand)
        case s.Unary(operator=operator, operand=operand):
            return operator in _OPERATORS and _is_calculable(operand)
        case s.Binary(operator=operator, left=left, right=right):
            return operator in _OPERATORS and _is_calculable(left) and _is_calculable(right)
        case s.Conditional(condition=condition, then=then, otherwise=otherwise):
            return all(map(_is_calculable, (condition, then, otherwise)))
    return False


def _expression(expression: s.Expression) -> Any:
    """Return the table of a calculable expression: a number, a name, or a tuple of an operator and its operands."""
    match expression:
        case s.Number(value=value):
            return value
        case s.Name(text=text):
            return text
        case s.Unary(operator="*", operand=operand):  # pointers are transparent
            return _expression(operand)
        case s.Unary(operator=operator, operand=operand):
            return operator, _expression(operand)
        case s.Binary(operator=operator, left=left, right=right):
            return operator, _expression(left), _expression(right)
        case s.Conditional(condition=condition, then=then, otherwise=otherwise):
            return "?", _expression(condition), _expression(then), _expression(otherwise)
    raise IdlError(f"no table of {expression}")


def _count(expression: s.Expression | None, parameters: set[str] | None) -> str:
    """Return the table of the expression of a count, or None if there is nothing to compare; `parameters` are those in
    the same stub."""
    if expression is None or (parameters is not None and not s.names_in(expression) <= parameters):
        return "None"
    return repr(_expression(expression))


def _tuple(items: Iterable[str]) -> str:
    listed = list(items)
    return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"
