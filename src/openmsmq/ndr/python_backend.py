"""The back end that emits Python: a dataclass a structure, straight-line code to decode and encode it.

Runs of members with a fixed layout become one `struct` call. Code is emitted twice for decoding (both byte orders) and
once for encoding. Pointees follow the outermost construct (C706 14.3.12.3), so each structure has a function for its
body, where pointers are referent identifiers, and one for what its pointers refer to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from openmsmq.ndr import syntax as s
from openmsmq.ndr import wiretypes as w
from openmsmq.ndr.lexer import IdlError

_HEADER = '''"""Generated from {idl} by openmsmq.ndr. Do not edit: change the IDL or the compiler."""
# mypy: ignore-errors
# fmt: off
from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct, unpack_from
from struct import pack as _pack
from uuid import UUID

from openmsmq.ndr.runtime import (
    NULL, BadStubData, DecodeState, EncodeState, Interface, NdrError, Null, Operation, PADDING as _PAD,
    guid_from_big_endian as _guid_be, handle_from_big_endian as _handle_be, short_of as _short_of,
)

_new = object.__new__
'''


def generate(library: w.Library, idl: str) -> str:
    """Return the text of the Python module for what one IDL file declares."""
    return _Module(library, idl).text()


class _Module:
    def __init__(self, library: w.Library, idl: str) -> None:
        self.library, self.idl = library, idl
        self.structs: dict[str, str] = {}
        self.foreign: dict[str, set[str]] = {}

    def struct(self, fmt: str, method: str) -> str:
        """The name of a module-level bound method of Struct(fmt)."""
        return self.structs.setdefault(f"Struct({fmt!r}).{method}", f"_S{len(self.structs)}")

    def use(self, struct: w.Struct | w.Union, name: str) -> str:
        """Refer to `name`, which is generated in the home module of `struct`."""
        if struct.home != self.idl:
            self.foreign.setdefault(module_name(struct.home), set()).update([name])
        return name

    def text(self) -> str:
        body: list[str] = []
        for name, value in self.library.constants.items():
            body.append(f"{name} = {value}")
        for enum in self.library.enums:
            body.extend(f"{name} = {value}" for name, value in enum.members.items())
        for struct in self.library.structs:
            body += self._class(struct.name, _class_fields(struct))
            for order in "<>":
                body += _Decoder(self, order).functions(struct)
            body += _Encoder(self).functions(struct)
        for interface in self.library.interfaces:
            body += self._interface(interface)
        head = [_HEADER.format(idl=self.idl)]
        for module, names in sorted(self.foreign.items()):
            head.append(f"from openmsmq.interfaces.{module} import {', '.join(sorted(names))}")
        head += [f"{name} = {expression}" for expression, name in self.structs.items()]
        return "\n".join(head + body) + "\n"

    def _class(self, name: str, fields: list[w.Field]) -> list[str]:
        lines = ["", "", "@dataclass(slots=True)", f"class {name}:"]
        for f in fields:
            lines.append(f"    {f.name}: {self._annotation(f.type)} = {self._default(f.type)}")
        return lines if fields else [*lines, "    pass"]

    def _annotation(self, wire_type: w.WireType) -> str:
        match wire_type:
            case w.Primitive(format=fmt):
                return "float" if fmt in "fd" else "int"
            case w.Opaque():
                return "bytes"
            case w.Enum():
                return "int"
            case w.Pointer(kind=kind, to=w.Pointer(kind=inner, to=to)) if inner != "ref" and kind != "ref":
                return f"{self._annotation(to)} | Null | None"
            case w.Pointer(kind=kind, to=to):
                inner_annotation = self._annotation(to)
                return inner_annotation if kind == "ref" or "None" in inner_annotation else f"{inner_annotation} | None"
            case w.Array(string=True):
                return "str"
            case w.Array(element=element):
                if _is_bytes(element):
                    return "bytes"
                return "str" if _is_wchar(element) else f"list[{self._annotation(element)}]"
            case w.Struct() | w.Union():
                return self.use(wire_type, wire_type.name)
        raise IdlError("interface pointers have no codec yet")

    def _default(self, wire_type: w.WireType) -> str:
        match wire_type:
            case w.Primitive() | w.Enum():
                return "0"
            case w.Opaque(size=size):
                return f"bytes({size})"
            case w.Pointer(kind="ref", to=to):
                return self._default(to)
            case w.Pointer():
                return "None"
            case w.Array(string=True):
                return '""'
            case w.Array(element=element):
                return 'b""' if _is_bytes(element) else '""' if _is_wchar(element) else "field(default_factory=list)"
            case w.Struct() | w.Union():
                return f"field(default_factory=lambda: {wire_type.name}())"
        raise IdlError("interface pointers have no codec yet")

    def _interface(self, interface: w.Interface) -> list[str]:
        body: list[str] = []
        rows: list[str] = []
        for o in interface.operations:
            if not o.used_on_wire or o.unsupported:
                rows.append(f"Operation({o.opnum}, {o.name!r}, None, None, None, None)")
                continue
            key = f"{interface.name}_{o.name}"
            result = [w.Field("result", o.result)] if o.result else []
            body += self._class(f"{o.name}_Request", _flatten_parameters(o.inputs))
            body += self._class(f"{o.name}_Response", _flatten_parameters([*o.outputs, *result]))
            for suffix, order in (("", "<"), ("_be", ">")):
                body += _Decoder(self, order).call(f"_dq_{key}{suffix}", f"{o.name}_Request", o.inputs)
                body += _Decoder(self, order).call(f"_dr_{key}{suffix}", f"{o.name}_Response", [*o.outputs, *result])
            body += _Encoder(self).call(f"_eq_{key}", o.inputs)
            body += _Encoder(self).call(f"_er_{key}", [*o.outputs, *result])
            rows.append(
                f"Operation({o.opnum}, {o.name!r}, {o.name}_Request, {o.name}_Response, "
                f"(_dq_{key}, _dq_{key}_be, _dr_{key}, _dr_{key}_be), (_eq_{key}, _er_{key}))"
            )
        body += ["", "", f"{interface.name} = Interface({interface.name!r}, UUID({interface.uuid!r}), "
                         f"{interface.version!r}, ("]  # fmt: skip
        return [*body, *[f"    {row}," for row in rows], "))"]


def module_name(idl: str) -> str:
    """`ms-mqmq.idl` -> `ms_mqmq`."""
    return idl.removesuffix(".idl").replace("-", "_")


def _class_fields(struct: w.Struct | w.Union) -> list[w.Field]:
    if isinstance(struct, w.Union):
        return [_optional(arm.field) for arm in struct.arms if arm.field]
    return _flatten_parameters(struct.fields)


def _flatten_parameters(fields: list[w.Field]) -> list[w.Field]:
    """The arms of a union declared in place become attributes of the structure around it."""
    flat: list[w.Field] = []
    for f in fields:
        if isinstance(f.type, w.Union) and not f.type.name:
            flat += [_optional(arm.field) for arm in f.type.arms if arm.field]
        else:
            flat.append(f)
    return flat


def _optional(arm: w.Field) -> w.Field:
    return w.Field(arm.name, arm.type if isinstance(arm.type, w.Pointer) else w.Pointer("unique", arm.type))


def _is_bytes(element: w.WireType) -> bool:
    return isinstance(element, w.Primitive) and element.format in "Bb"


def _is_wchar(element: w.WireType) -> bool:
    return isinstance(element, w.Primitive) and element.name == "wchar_t"


def _static_size(wire_type: w.WireType) -> int | None:
    """Size on the wire if it never varies and the type's own alignment holds at its start; else None."""
    match wire_type:
        case w.Primitive() | w.Opaque() | w.Enum() | w.Pointer():
            return wire_type.size
        case w.Struct(fields=fields):
            offset = 0
            for f in fields:
                size = _static_size(f.type)
                if size is None:
                    return None
                offset += -offset % f.type.alignment + size
            return offset
        case _:
            return None


def _names(expression: s.Expression) -> set[str]:
    match expression:
        case s.Name(text=text):
            return {text}
        case s.Unary(operand=operand):
            return _names(operand)
        case s.Binary(left=left, right=right):
            return _names(left) | _names(right)
        case s.Conditional(condition=a, then=b, otherwise=c):
            return _names(a) | _names(b) | _names(c)
    return set()


def _python(expression: s.Expression, owner: str) -> str:
    """An IDL expression over the fields of `owner`. Dereferences vanish: pointers are transparent in Python."""
    match expression:
        case s.Number(value=value):
            return str(value)
        case s.Name(text=text):
            return f"{owner}.{text}"
        case s.Unary(operator="*", operand=operand):
            return _python(operand, owner)
        case s.Unary(operator="!", operand=operand):
            return f"(not {_python(operand, owner)})"
        case s.Unary(operator=operator, operand=operand):
            return f"({operator}{_python(operand, owner)})"
        case s.Binary(operator=operator, left=left, right=right):
            spelled = {"/": "//", "&&": "and", "||": "or"}.get(operator, operator)
            shift = "31 & " if operator in ("<<", ">>") else ""  # a shift by what was sent must not eat the memory
            return f"({_python(left, owner)} {spelled} ({shift}{_python(right, owner)}))"
        case s.Conditional(condition=a, then=b, otherwise=c):
            return f"({_python(b, owner)} if {_python(a, owner)} else {_python(c, owner)})"
    raise IdlError(f"{expression} is no expression over fields")


class _Emitter:
    """Lines of code plus what is known of the alignment of the current position: p % modulus == remainder."""

    def __init__(self, module: _Module, order: str) -> None:
        self.module, self.order = module, order
        self.lines: list[str] = []
        self.depth = 1
        self.modulus, self.remainder = 1, 0
        self.run: list[tuple[str, str, str]] = []  # format, target or value, line to emit after it
        self.run_size = 0
        self.counter = 0
        self.suffix = "_be" if order == ">" else ""
        self.available: set[str] | None = None  # names that size_is may refer to; None: all fields
        self.late: list[str] = []
        self.preamble = 0  # where a parameter's function may set locals to None

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def local(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block that may or may not run: alignment knowledge from inside does not survive it."""
        self.flush()
        self.line(head)
        self.depth += 1
        before, state = len(self.lines), (self.modulus, self.remainder)
        yield
        self.flush()
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1
        self.modulus, self.remainder = state

    def forget_alignment(self) -> None:
        self.flush()
        self.modulus, self.remainder = 1, 0

    def scalar(self, fmt: str, size: int, alignment: int, operand: str, after: str = "") -> None:
        """Add a member of fixed size to the current run."""
        self.align(alignment)
        self.run.append((fmt, operand, after))
        self.run_size += size

    def align(self, alignment: int) -> None:
        if alignment <= self.modulus:
            padding = -(self.remainder + self.run_size) % alignment
            if padding and self.run:
                self.run.append((f"{padding}x", "", ""))
                self.run_size += padding
            elif padding:
                self.skip(padding)
                self.remainder = (self.remainder + padding) % self.modulus
        else:
            self.flush()
            self.pad(alignment)
            self.modulus, self.remainder = alignment, 0

    def flush(self) -> None:
        if not self.run:
            return
        run, self.run = self.run, []
        fmt = self.order + "".join(f for f, _, _ in run)
        self.emit_run(fmt, [operand for _, operand, _ in run if operand], self.run_size)
        for _, _, after in run:
            if after:
                self.line(after)
        self.remainder = (self.remainder + self.run_size) % self.modulus
        self.run_size = 0

    def advance(self, wire_type: w.WireType) -> None:
        """Account for a nested construct that was emitted as a call."""
        size = _static_size(wire_type)
        if size is None:
            self.modulus, self.remainder = 1, 0
        else:
            self.remainder = (self.remainder + size) % self.modulus

    def skip(self, padding: int) -> None:
        raise NotImplementedError

    def pad(self, alignment: int) -> None:
        raise NotImplementedError

    def emit_run(self, fmt: str, operands: list[str], size: int) -> None:
        raise NotImplementedError

    def arms(self, union: w.Union, switch: str) -> Iterator[w.Arm]:
        """Emit the branches over the selector; yields each arm with the emitter inside its block."""
        start = (self.modulus, self.remainder)
        keyword = "if"
        default = None
        for arm in union.arms:
            if not arm.labels:
                default = arm
                continue
            test = f"== {arm.labels[0]}" if len(arm.labels) == 1 else f"in {tuple(arm.labels)}"
            with self.block(f"{keyword} {switch} {test}:"):
                yield arm
            self.modulus, self.remainder = start
            keyword = "elif"
        if default is not None:
            with self.block("else:" if keyword == "elif" else "if True:"):
                yield default
        else:
            with self.block("else:"):
                yield w.Arm([], w.Field("", w.Union("", union.discriminant, [])))
        self.forget_alignment()

    def resolvable(self, expression: s.Expression | None) -> bool:
        return expression is not None and (self.available is None or _names(expression) <= self.available)


def _is_missing_arm(arm: w.Arm) -> bool:
    return arm.field is not None and isinstance(arm.field.type, w.Union) and not arm.field.type.arms


class _Decoder(_Emitter):
    def skip(self, padding: int) -> None:
        self.line(f"p += {padding}")

    def pad(self, alignment: int) -> None:
        self.line(f"p += -p & {alignment - 1}")

    def emit_run(self, fmt: str, operands: list[str], size: int) -> None:
        self.line(f"{', '.join(operands)}{',' if len(operands) == 1 else ''} = "
                  f"{self.module.struct(fmt, 'unpack_from')}(b, p)")  # fmt: skip
        self.line(f"p += {size}")

    # -- entry points ----------------------------------------------------------------------------------------

    def functions(self, struct: w.Struct | w.Union) -> list[str]:
        if isinstance(struct, w.Union):
            return self._union_functions(struct)
        name = struct.name
        self.lines += ["", "", f"def _b_{name}{self.suffix}(b, p, s):"]
        if struct.recursive:
            self.line("s.enter()")
        self._create("o", name, _flatten_parameters(struct.fields), struct.fields)
        if struct.conformant:
            self.scalar("I", 4, 4, "n0")
            self.flush()
        self.align(struct.alignment)
        self.modulus = max(self.modulus, struct.alignment)
        for f in struct.fields:
            if f is struct.fields[-1] and struct.conformant:
                self._counted(struct.conformant, "n0", f"o.{f.name}", "o", f"{name}.{f.name}")
            else:
                self._body(f, f"o.{f.name}", "o", name)
        self.flush()
        if struct.recursive:
            self.line("s.depth -= 1")
        self.line("return o, p")
        if w.has_pointers(struct):
            self.lines += ["", "", f"def _f_{name}{self.suffix}(o, b, p, s):"]
            if struct.recursive:
                self.line("s.enter()")
            self.forget_alignment()
            for f in struct.fields:
                self._deferred(f, f"o.{f.name}", "o", name)
            if struct.recursive:
                self.line("s.depth -= 1")
            self.line("return p")
        return self.lines

    def _union_functions(self, union: w.Union) -> list[str]:
        self.lines += ["", "", f"def _b_{union.name}{self.suffix}(b, p, s, t):"]
        self._create("o", union.name, _class_fields(union), [])
        self._union_body(union, "t", "o", union.name)
        self.line("return o, p")
        if w.has_pointers(union):
            self.lines += ["", "", f"def _f_{union.name}{self.suffix}(o, b, p, s, t):"]
            self.forget_alignment()
            self._union_deferred(union, "t", "o", union.name)
            self.line("return p")
        return self.lines

    def call(self, function: str, class_name: str, parameters: list[w.Field]) -> list[str]:
        self.lines += ["", "", f"def {function}(b):"]
        self.line("p = 0")
        self.line("s = DecodeState()")
        self.preamble = len(self.lines)
        self._create("o", class_name, _flatten_parameters(parameters), parameters)
        self.modulus, self.remainder = 8, 0
        self.available = {p.name for p in parameters}
        for f in parameters:
            target = f"o.{f.name}"
            if isinstance(f.type, w.Pointer):
                if f.type.kind == "ref":
                    self._pointee(f.type.to, target, "o", f.name, null="None", switch=f.switch)
                else:
                    self.scalar("I", 4, 4, target)
                    self._pointer(f.type, target, "o", f.name, switch=f.switch)
                if f.range:
                    self.flush()
                    self._range(target, f)
            elif isinstance(f.type, w.Array):
                self._pointee(f.type, target, "o", f.name)
            else:
                self._body(f, target, "o", class_name)
                if w.has_pointers(f.type):
                    self._deferred(f, target, "o", class_name)
        self.flush()
        for check in self.late:
            self.line(check)
        self.line("return o")
        return self.lines

    def _create(self, target: str, name: str, fields: list[w.Field], declared: list[w.Field]) -> None:
        self.line(f"{target} = _new({name})")
        kept = {f.name for f in declared}
        optional = [f"{target}.{f.name}" for f in fields if f.name not in kept]
        if optional:
            self.line(" = ".join([*optional, "None"]))

    # -- bodies ----------------------------------------------------------------------------------------------

    def _body(self, f: w.Field, target: str, owner: str, where: str) -> None:
        """Decode the part of a field that lies in its construct; pointers become referent identifiers."""
        match f.type:
            case w.Primitive(format=fmt, size=size) as primitive:
                self.scalar(fmt, size, primitive.alignment, target, self._range_line(target, f))
            case w.Enum(size=size):
                self.scalar("I" if size == 4 else "H", size, size, target)
            case w.Opaque(name=name, size=size, alignment=alignment):
                fix = {"GUID": "_guid_be", "context_handle": "_handle_be"}.get(name) if self.order == ">" else None
                self.scalar(f"{size}s", size, alignment, target, f"{target} = {fix}({target})" if fix else "")
            case w.Pointer():
                self.scalar("I", 4, 4, target)
            case w.Struct() as struct:
                self.flush()
                if not struct.conformant:
                    self.align(struct.alignment)
                    self.flush()
                function = self.module.use(struct, f"_b_{struct.name}{self.suffix}")
                self.line(f"{target}, p = {function}(b, p, s)")
                self.advance(struct)
            case w.Union() as union if union.name:
                self.flush()
                function = self.module.use(union, f"_b_{union.name}{self.suffix}")
                self.line(f"{target}, p = {function}(b, p, s, {owner}.{f.switch})")
                self.modulus, self.remainder = 1, 0
            case w.Union() as union:
                self._union_body(union, f"{owner}.{f.switch}", owner, where)
            case w.Array(fixed=fixed) as array if fixed is not None:
                self.flush()
                self._counted(array, str(fixed), target, owner, f"{where}.{f.name}")
            case _:
                raise IdlError(f"{where}: no codec for {f.type}")

    def _union_body(self, union: w.Union, switch: str, owner: str, where: str) -> None:
        self.flush()
        if not union.encapsulated:
            tag = self.local("t")
            fmt = (
                union.discriminant.format
                if isinstance(union.discriminant, w.Primitive)
                else ("I" if union.discriminant.size == 4 else "H")
            )
            self.scalar(fmt, union.discriminant.size, union.discriminant.size, tag)
            self.flush()
            with self.block(f"if {tag} != {switch}:"):
                self.line(f"raise BadStubData(f'{where}: union selected by {{{tag}}} and {{{switch}}}')")
        for arm in self.arms(union, switch):
            if _is_missing_arm(arm):
                self.line(f"raise BadStubData(f'{where}: no union arm for {{{switch}}}')")
            elif arm.field is not None:
                self._body(arm.field, f"{owner}.{arm.field.name}", owner, where)

    def _range_line(self, target: str, f: w.Field) -> str:
        if f.range is None:
            return ""
        low, high = f.range
        return (f"if not {low} <= {target} <= {high}: "
                f"raise BadStubData(f'{f.name} is {{{target}}}, not in {low}..{high}')")  # fmt: skip

    def _range(self, target: str, f: w.Field) -> None:
        self.line(self._range_line(target, f))

    # -- pointees --------------------------------------------------------------------------------------------

    def _deferred(self, f: w.Field, target: str, owner: str, where: str) -> None:
        if not w.has_pointers(f.type):
            return
        match f.type:
            case w.Pointer() as pointer:
                self._pointer(pointer, target, owner, f"{where}.{f.name}", switch=f.switch)
            case w.Struct() as struct:
                self.flush()
                self.line(f"p = {self.module.use(struct, f'_f_{struct.name}{self.suffix}')}({target}, b, p, s)")
                self.forget_alignment()
            case w.Union() as union if union.name:
                self.flush()
                function = self.module.use(union, f"_f_{union.name}{self.suffix}")
                self.line(f"p = {function}({target}, b, p, s, {owner}.{f.switch})")
                self.forget_alignment()
            case w.Union() as union:
                self._union_deferred(union, f"{owner}.{f.switch}", owner, where)
            case w.Array(element=element):
                self._elements_deferred(element, target, owner, f"{where}.{f.name}")

    def _union_deferred(self, union: w.Union, switch: str, owner: str, where: str) -> None:
        keyword = "if"
        for arm in union.arms:
            if arm.field is None or not w.has_pointers(arm.field.type):
                continue
            if arm.labels:
                test = f"{switch} == {arm.labels[0]}" if len(arm.labels) == 1 else f"{switch} in {tuple(arm.labels)}"
            else:
                others = tuple(label for a in union.arms for label in a.labels)
                test = f"{switch} not in {others}"
            with self.block(f"{keyword} {test}:"):
                self._deferred(arm.field, f"{owner}.{arm.field.name}", owner, where)
            keyword = "elif"
        self.forget_alignment()

    def _pointer(
        self, pointer: w.Pointer, target: str, owner: str, where: str, null: str = "None", switch: str = ""
    ) -> None:
        """`target` holds a referent identifier; replace it by what it refers to."""
        self.flush()
        if pointer.kind == "ref":
            self._pointee(pointer.to, target, owner, where, null="None", switch=switch)
            return
        if pointer.kind == "full":
            referent = self.local("r")
            self.line(f"{referent} = {target}")
            with self.block(f"if {referent} in s.full:"):
                self.line(f"{target} = s.full[{referent}]")
            with self.block(f"elif {referent}:"):
                self._pointee(pointer.to, target, owner, where, switch=switch)
                self.flush()
                self.line(f"s.full[{referent}] = {target}")
        else:
            with self.block(f"if {target}:"):
                self._pointee(pointer.to, target, owner, where, switch=switch)
        with self.block("else:"):
            self.line(f"{target} = {null}")
        self.forget_alignment()

    def _pointee(
        self, wire_type: w.WireType, target: str, owner: str, where: str, null: str = "NULL", switch: str = ""
    ) -> None:
        """Decode a complete construct, with what its own pointers refer to."""
        match wire_type:
            case w.Pointer() as inner:
                self.scalar("I", 4, 4, target)
                self._pointer(inner, target, owner, where, null, switch)
            case w.Array(fixed=None) as array:
                self._conformant(array, target, owner, where)
            case _:
                field = w.Field(where.rpartition(".")[2], wire_type, switch)
                self._body(field, target, owner, where)
                self.flush()
                self._deferred(field, target, owner, where)

    def _conformant(self, array: w.Array, target: str, owner: str, where: str) -> None:
        """C706 14.3.3: maximum count, for varying arrays offset and actual count, then the elements."""
        self.flush()
        maximum = self.local("n")
        self.scalar("I", 4, 4, maximum)
        self._counted(array, maximum, target, owner, where)
        if w.has_pointers(array.element):
            self._elements_deferred(array.element, target, owner, where)

    def _counted(self, array: w.Array, maximum: str, target: str, owner: str, where: str) -> None:
        """The part of an array behind its maximum count: for varying ones offset and actual count, the elements."""
        count = maximum
        if array.varying:
            offset, count = self.local("f"), self.local("c")
            self.scalar("I", 4, 4, offset)
            self.scalar("I", 4, 4, count)
            self.flush()
            with self.block(f"if {offset} or {count} > {maximum}:"):
                self.line(f"raise BadStubData(f'{where}: elements {{{offset}}} to {{{offset}}} + {{{count}}} "
                          f"of {{{maximum}}}')")  # fmt: skip
        self.flush()
        if array.fixed is None:  # here, because the count of a structure is compared with a field before the array
            self._check_count(where, maximum, array.size, owner)
        if array.varying:
            self._check_count(where, count, array.length, owner)
        if array.string:
            self._string(array.element, count, target, where)
        else:
            self._elements(array.element, count, target, where)

    def _check_count(self, where: str, count: str, expression: s.Expression | None, owner: str) -> None:
        if not self.resolvable(expression):
            return
        assert expression is not None
        wanted = _python(expression, owner)
        absent = f"{count} is not None and " if self.available is not None else ""
        error = f"BadStubData(f'{where}: {{{count}}} elements, {{{wanted}}} announced')"
        check = f"if {absent}{count} != {wanted}: raise {error}"
        if self.available is None:
            self.line(check)
        else:  # a parameter may come after the array whose size it tells
            self.late.append(check)
            self.lines.insert(self.preamble, f"    {count} = None")

    def _string(self, element: w.WireType, count: str, target: str, where: str) -> None:
        size, codec = (2, "utf-16-be" if self.order == ">" else "utf-16-le") if _is_wchar(element) else (1, "latin-1")
        errors = ", 'surrogatepass'" if size == 2 else ""
        end = self.local("e")
        self.line(f"{end} = p + {size} * {count}")
        with self.block(f"if not {count} or {end} > len(b):"):
            self.line(f"raise _short_of({where!r})")
        with self.block(f"if any(b[{end} - {size}:{end}]):"):
            self.line(f"raise BadStubData('{where}: no terminator')")
        self.line(f"{target} = b[p:{end} - {size}].decode({codec!r}{errors})")
        with self.block(f"if '\\0' in {target}:"):  # what is behind it some would see and others not
            self.line(f"raise BadStubData('{where}: a string with an embedded NUL')")
        self.line(f"p = {end}")
        self.forget_alignment()

    def _elements(self, element: w.WireType, count: str, target: str, where: str) -> None:
        """Decode `count` elements into `target`; pointers in them stay referent identifiers."""
        self.flush()
        size = w.minimum_size(element)
        if size == 0:
            raise IdlError(f"{where}: elements of size 0")
        if not isinstance(element, w.Struct):  # of those each is aligned by itself, so none brings no padding
            self.align(element.alignment)
        end = self.local("e")
        self.line(f"{end} = p + {size} * {count}")
        with self.block(f"if {end} > len(b):"):
            self.line(f"raise _short_of({where!r})")
        if _is_bytes(element):
            self.line(f"{target} = b[p:{end}]")
        elif _is_wchar(element):
            codec = "utf-16-be" if self.order == ">" else "utf-16-le"
            self.line(f"{target} = b[p:{end}].decode('{codec}', 'surrogatepass')")
        elif isinstance(element, w.Primitive | w.Enum | w.Pointer):
            fmt = element.format if isinstance(element, w.Primitive) else "H" if size == 2 else "I"
            self.line(f"{target} = list(unpack_from(f'{self.order}{{{count}}}{fmt}', b, p))")
        elif isinstance(element, w.Opaque):
            item = f"b[i:i + {size}]"
            if self.order == ">" and element.name == "GUID":
                item = f"_guid_be({item})"
            self.line(f"{target} = [{item} for i in range(p, {end}, {size})]")
        else:
            self._struct_elements(element, count, target)
            return
        self.line(f"p = {end}")
        self.forget_alignment()

    def _struct_elements(self, element: w.WireType, count: str, target: str) -> None:
        if not isinstance(element, w.Struct):
            raise IdlError(f"no codec for arrays of {element}")
        values, value = self.local("l"), self.local("v")
        self.line(f"{values} = []")
        with self.block(f"for _ in range({count}):"):
            self.forget_alignment()
            self.align(element.alignment)
            function = self.module.use(element, f"_b_{element.name}{self.suffix}")
            self.line(f"{value}, p = {function}(b, p, s)")
            self.line(f"{values}.append({value})")
        self.line(f"{target} = {values}")
        self.forget_alignment()

    def _elements_deferred(self, element: w.WireType, target: str, owner: str, where: str) -> None:
        self.flush()
        value = self.local("v")
        if isinstance(element, w.Struct):
            function = self.module.use(element, f"_f_{element.name}{self.suffix}")
            with self.block(f"for {value} in {target}:"):
                self.line(f"p = {function}({value}, b, p, s)")
        elif isinstance(element, w.Pointer):
            index = self.local("i")
            with self.block(f"for {index}, {value} in enumerate({target}):"):
                self.forget_alignment()
                self._pointer(element, value, owner, where)
                self.line(f"{target}[{index}] = {value}")
        self.forget_alignment()


class _Encoder(_Emitter):
    def __init__(self, module: _Module) -> None:
        super().__init__(module, "<")

    def skip(self, padding: int) -> None:
        self.line(f"w += _PAD[{padding}]")

    def pad(self, alignment: int) -> None:
        self.line(f"w += _PAD[-len(w) & {alignment - 1}]")

    def emit_run(self, fmt: str, operands: list[str], size: int) -> None:
        self.line(f"w += {self.module.struct(fmt, 'pack')}({', '.join(operands)})")

    # -- entry points ----------------------------------------------------------------------------------------

    def functions(self, struct: w.Struct | w.Union) -> list[str]:
        extra = ", t" if isinstance(struct, w.Union) else ""
        name = struct.name
        self.lines += ["", "", f"def _e_{name}(w, o, s{extra}):"]
        if w.has_pointers(struct):
            self.line("r = s.next")
        if isinstance(struct, w.Union):
            self._union_body(struct, "t", "o", name)
            self.line("return")
        else:
            self._struct_body(struct)
        if w.has_pointers(struct):
            self.lines += ["", "", f"def _g_{name}(w, o, s{extra}):"]
            self.line("r = s.next")
            self.forget_alignment()
            if isinstance(struct, w.Union):
                self._union_deferred(struct, "t", "o", name)
            else:
                for f in struct.fields:
                    self._deferred(f, f"o.{f.name}", "o", name)
            self.line("return")
        return self.lines

    def _struct_body(self, struct: w.Struct) -> None:
        array = struct.conformant
        if array is not None:
            trailing, where = f"o.{struct.fields[-1].name}", f"{struct.name}.{struct.fields[-1].name}"
            data = self._data(array.element, trailing, array.string, where)
            self.line(f"c0 = {self._count(array.element, data)}")
            self.scalar("I", 4, 4, self._maximum(array, "c0", "o", where))
            self.flush()
        self.align(struct.alignment)
        self.modulus = max(self.modulus, struct.alignment)
        for f in struct.fields:
            if array is not None and f is struct.fields[-1]:
                if array.varying:
                    self._varying("c0")
                self._elements(array.element, data, where)
            else:
                self._body(f, f"o.{f.name}", "o", struct.name)
        self.flush()
        self.line("return")

    def _maximum(self, array: w.Array, count: str, owner: str, where: str) -> str:
        """The name of the maximum count, after the checks of the count against size_is and length_is."""
        if not array.varying:
            self._check(where, count, array.size, owner)
            return count
        maximum = count
        if self.resolvable(array.size):
            assert array.size is not None
            maximum = self.local("n")
            self.line(f"{maximum} = {_python(array.size, owner)}")
            self._check_maximum(where, count, maximum)
        self._check(where, count, array.length, owner)
        return maximum

    def _check_maximum(self, where: str, count: str, maximum: str) -> None:
        self.line(f"if {count} > {maximum}: raise NdrError(f'{where}: {{{count}}} elements, at most "
                  f"{{{maximum}}} announced')")  # fmt: skip

    def _varying(self, count: str) -> None:
        self.scalar("I", 4, 4, "0")
        self.scalar("I", 4, 4, count)

    def call(self, function: str, parameters: list[w.Field]) -> list[str]:
        self.lines += ["", "", f"def {function}(o):"]
        self.line("w = bytearray()")
        self.line("s = EncodeState()")
        self.line("r = s.next")
        self.modulus, self.remainder = 8, 0
        self.available = {p.name for p in parameters}
        for f in parameters:
            value = f"o.{f.name}"
            if f.range:
                self._range(value, f)
            if isinstance(f.type, w.Pointer):
                if f.type.kind == "ref":
                    self._pointee(f.type.to, value, "o", f.name, f.switch)
                else:
                    self.scalar("I", 4, 4, self._referent(f.type, value))
                    self._pointer(f.type, value, "o", f.name, f.switch)
            elif isinstance(f.type, w.Array):
                self._pointee(f.type, value, "o", f.name)
            else:
                self._body(f, value, "o", f.name)
                if w.has_pointers(f.type):
                    self._deferred(f, value, "o", f.name)
        self.flush()
        self.line("return bytes(w)")
        return self.lines

    # -- bodies ----------------------------------------------------------------------------------------------

    def _referent(self, pointer: w.Pointer, value: str) -> str:
        return "r()" if pointer.kind == "ref" else f"(r() if {value} is not None else 0)"

    def _body(self, f: w.Field, value: str, owner: str, where: str) -> None:
        if f.range and self.available is None:
            self._range(value, f)
        match f.type:
            case w.Primitive(format=fmt, size=size):
                self.scalar(fmt, size, size, value)
            case w.Enum(size=size):
                self.scalar("I" if size == 4 else "H", size, size, value)
            case w.Opaque(size=size, alignment=alignment):
                self.line(f"if len({value}) != {size}: raise NdrError(f'{where}.{f.name} has {{len({value})}} bytes, "
                          f"not {size}')")  # fmt: skip
                self.scalar(f"{size}s", size, alignment, value)
            case w.Pointer() as pointer:
                self.scalar("I", 4, 4, self._referent(pointer, value))
            case w.Struct() as struct:
                self.flush()
                if not struct.conformant:
                    self.align(struct.alignment)
                    self.flush()
                self.line(f"{self.module.use(struct, f'_e_{struct.name}')}(w, {value}, s)")
                self.advance(struct)
            case w.Union() as union if union.name:
                self.flush()
                self.line(f"{self.module.use(union, f'_e_{union.name}')}(w, {value}, s, {owner}.{f.switch})")
                self.modulus, self.remainder = 1, 0
            case w.Union() as union:
                self._union_body(union, f"{owner}.{f.switch}", owner, where)
            case w.Array(fixed=fixed, element=element, varying=True) as array if fixed is not None:
                self.flush()
                where = f"{where}.{f.name}"
                data = self._data(element, value, array.string, where)
                count = self.local("c")
                self.line(f"{count} = {self._count(element, data)}")
                self._check_maximum(where, count, str(fixed))
                self._check(where, count, array.length, owner)
                self._varying(count)
                self._elements(element, data, where)
            case w.Array(fixed=fixed, element=element) if fixed is not None:
                self.flush()
                data = self._data(element, value)
                count = self._count(element, data)
                self.line(f"if {count} != {fixed}: raise NdrError(f'{where}.{f.name} has {{{count}}} elements, "
                          f"not {fixed}')")  # fmt: skip
                self._elements(element, data, f"{where}.{f.name}")
            case _:
                raise IdlError(f"{where}: no codec for {f.type}")

    def _union_body(self, union: w.Union, switch: str, owner: str, where: str) -> None:
        if not union.encapsulated:
            fmt = (
                union.discriminant.format
                if isinstance(union.discriminant, w.Primitive)
                else ("I" if union.discriminant.size == 4 else "H")
            )
            self.scalar(fmt, union.discriminant.size, union.discriminant.size, switch)
        self.flush()
        for arm in self.arms(union, switch):
            if _is_missing_arm(arm):
                self.line(f"raise NdrError(f'{where}: no union arm for {{{switch}}}')")
            elif arm.field is not None:
                self._body(arm.field, f"{owner}.{arm.field.name}", owner, where)

    def _range(self, value: str, f: w.Field) -> None:
        assert f.range is not None
        low, high = f.range
        self.line(f"if not {low} <= {value} <= {high}: "
                  f"raise NdrError(f'{f.name} is {{{value}}}, not in {low}..{high}')")  # fmt: skip

    # -- pointees --------------------------------------------------------------------------------------------

    def _deferred(self, f: w.Field, value: str, owner: str, where: str) -> None:
        if not w.has_pointers(f.type):
            return
        match f.type:
            case w.Pointer() as pointer:
                self._pointer(pointer, value, owner, f"{where}.{f.name}", f.switch)
            case w.Struct() as struct:
                self.flush()
                self.line(f"{self.module.use(struct, f'_g_{struct.name}')}(w, {value}, s)")
                self.forget_alignment()
            case w.Union() as union if union.name:
                self.flush()
                self.line(f"{self.module.use(union, f'_g_{union.name}')}(w, {value}, s, {owner}.{f.switch})")
                self.forget_alignment()
            case w.Union() as union:
                self._union_deferred(union, f"{owner}.{f.switch}", owner, where)
            case w.Array(element=element):
                self._elements_deferred(element, value, owner, f"{where}.{f.name}")

    def _union_deferred(self, union: w.Union, switch: str, owner: str, where: str) -> None:
        keyword = "if"
        for arm in union.arms:
            if arm.field is None or not w.has_pointers(arm.field.type):
                continue
            others = tuple(label for a in union.arms for label in a.labels)
            test = f"in {tuple(arm.labels)}" if arm.labels else f"not in {others}"
            with self.block(f"{keyword} {switch} {test}:"):
                self._deferred(arm.field, f"{owner}.{arm.field.name}", owner, where)
            keyword = "elif"
        self.forget_alignment()

    def _pointer(self, pointer: w.Pointer, value: str, owner: str, where: str, switch: str = "") -> None:
        self.flush()
        if pointer.kind == "ref":
            self._pointee(pointer.to, value, owner, where, switch)
            return
        with self.block(f"if {value} is not None:"):
            self._pointee(pointer.to, value, owner, where, switch)
        self.forget_alignment()

    def _pointee(self, wire_type: w.WireType, value: str, owner: str, where: str, switch: str = "") -> None:
        match wire_type:
            case w.Pointer() as inner:
                self.flush()
                self.scalar("I", 4, 4, f"(r() if {value} is not NULL and {value} is not None else 0)")
                with self.block(f"if {value} is not NULL and {value} is not None:"):
                    self._pointee(inner.to, value, owner, where, switch)
                self.forget_alignment()
            case w.Array(fixed=None) as array:
                self._conformant(array, value, owner, where)
            case _:
                field = w.Field(where.rpartition(".")[2], wire_type, switch)
                self._body(field, value, owner, where)
                self.flush()
                self._deferred(field, value, owner, where)

    def _conformant(self, array: w.Array, value: str, owner: str, where: str) -> None:
        self.flush()
        data = self._data(array.element, value, array.string, where)
        count = self.local("c")
        self.line(f"{count} = {self._count(array.element, data)}")
        self.scalar("I", 4, 4, self._maximum(array, count, owner, where))
        if array.varying:
            self._varying(count)
        self.flush()
        self._elements(array.element, data, where)
        if w.has_pointers(array.element):
            self._elements_deferred(array.element, value, owner, where)

    def _check(self, where: str, count: str, expression: s.Expression | None, owner: str) -> None:
        if self.resolvable(expression):
            assert expression is not None
            wanted = _python(expression, owner)
            self.line(f"if {count} != {wanted}: raise NdrError(f'{where}: {{{count}}} elements, {{{wanted}}} "
                      f"announced')")  # fmt: skip

    def _data(self, element: w.WireType, value: str, string: bool = False, where: str = "") -> str:
        """The name of what holds the elements: encoded bytes for characters, the list itself otherwise."""
        if not _is_wchar(element) and not string:
            return value
        self.flush()
        data = self.local("d")
        codec = "'utf-16-le', 'surrogatepass'" if _is_wchar(element) else "'latin-1'"
        terminator = (r" + b'\0\0'" if _is_wchar(element) else r" + b'\0'") if string else ""
        self.line(f"{data} = {value}.encode({codec}){terminator}")
        if string:
            self.line(f"if '\\0' in {value}: raise NdrError('{where}: a string with an embedded NUL')")
        return data

    def _count(self, element: w.WireType, data: str) -> str:
        return f"len({data}) >> 1" if _is_wchar(element) else f"len({data})"

    def _elements(self, element: w.WireType, data: str, where: str) -> None:
        self.flush()
        if _is_wchar(element) or _is_bytes(element):
            self.align(element.alignment)
            self.line(f"w += {data}")
        elif isinstance(element, w.Primitive | w.Enum):
            self.align(element.size)
            fmt = element.format if isinstance(element, w.Primitive) else "H" if element.size == 2 else "I"
            self.line(f"w += _pack(f'<{{len({data})}}{fmt}', *{data})")
        elif isinstance(element, w.Pointer):
            self.align(4)
            value = "v is not None"
            self.line(f"w += _pack(f'<{{len({data})}}I', *[(r() if {value} else 0) for v in {data}])")
        elif isinstance(element, w.Opaque):
            self.align(element.alignment)
            self.line(f"if any(len(v) != {element.size} for v in {data}): "
                      f"raise NdrError('{where}: an element that has not {element.size} bytes')")  # fmt: skip
            self.line(f"w += b''.join({data})")
        elif isinstance(element, w.Struct):
            value = self.local("v")
            with self.block(f"for {value} in {data}:"):
                self.forget_alignment()
                self.align(element.alignment)
                self.line(f"{self.module.use(element, f'_e_{element.name}')}(w, {value}, s)")
        else:
            raise IdlError(f"{where}: no codec for arrays of {element}")
        self.forget_alignment()

    def _elements_deferred(self, element: w.WireType, data: str, owner: str, where: str) -> None:
        self.flush()
        value = self.local("v")
        with self.block(f"for {value} in {data}:"):
            self.forget_alignment()
            if isinstance(element, w.Struct):
                self.line(f"{self.module.use(element, f'_g_{element.name}')}(w, {value}, s)")
            elif isinstance(element, w.Pointer):
                self._pointer(element, value, owner, where)
        self.forget_alignment()
