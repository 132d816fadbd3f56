"""Generates little-endian encoders: bodies first, then pointees."""

from __future__ import annotations

from collections.abc import Collection

from msrpc.idl import syntax as s
from msrpc.idl import wiretypes as w
from msrpc.idl.lexer import IdlError
from msrpc.idl.python_emitter import (
    Emitter,
    Symbols,
    is_bytes,
    is_missing_arm,
    is_wchar,
    python_expression,
    scalar_format,
)


class Encoder(Emitter):
    def __init__(self, symbols: Symbols) -> None:
        super().__init__(symbols, "<")
        self.announced: frozenset[str] = frozenset()

    def skip(self, padding: int) -> None:
        self.line(f"w += _PAD[{padding}]")

    def pad(self, alignment: int) -> None:
        self.line(f"w += _PAD[-len(w) & {alignment - 1}]")

    def emit_run(self, fmt: str, operands: list[str], size: int) -> None:
        self.line(f"w += {self.symbols.struct(fmt, 'pack')}({', '.join(operands)})")

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
            self.count(array, self._maximum(array, "c0", "o", where))
            self.flush()
        self.align(struct.alignment)
        self.modulus = max(self.modulus, struct.alignment)
        for f in struct.fields:
            if array is not None and f is struct.fields[-1]:
                if struct.ndr64:
                    self.align(struct.alignment)
                if array.varying:
                    self._varying(array, "c0")
                self._elements(array.element, data, where)
            else:
                self._body(f, f"o.{f.name}", "o", struct.name)
        if struct.ndr64:  # [MS-RPCE] 2.2.5.3.4.1
            self.align(struct.alignment)
        self.flush()
        self.line("return")

    def _maximum(self, array: w.Array, count: str, owner: str, where: str) -> str:
        """Emit the checks of a count against size_is and length_is. Return the name of the maximum count."""
        if not array.varying:
            self._check(where, count, array.size, owner)
            return count
        maximum = count
        if isinstance(array.size, s.Name) and array.size.text in self.announced:
            maximum, size = self.local("n"), f"{owner}.{array.size.text}"
            self.line(f"{maximum} = {count} if {size} is None else {size}")
            self._check_maximum(where, count, maximum)
        elif self.resolvable(array.size):
            assert array.size is not None
            maximum = self.local("n")
            self.line(f"{maximum} = {python_expression(array.size, owner)}")
            self._check_maximum(where, count, maximum)
        self._check(where, count, array.length, owner)
        return maximum

    def _check_maximum(self, where: str, count: str, maximum: str) -> None:
        self.line(f"if {count} > {maximum}: raise NdrError(f'{where}: {{{count}}} elements, at most "
                  f"{{{maximum}}} announced')")  # fmt: skip

    def _varying(self, array: w.Array, count: str) -> None:
        self.count(array, "0")
        self.count(array, count)

    def call(self, function: str, parameters: list[w.Field], announced: Collection[str] = ()) -> list[str]:
        """Return the function for an operation; `announced` are sizes in the request (`announced_sizes`)."""
        self.announced = frozenset(announced)
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
                    self.scalar_of(f.type, self._referent(f.type, value))
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
            case w.Primitive() | w.Enum() as scalar:
                self.scalar_of(scalar, value)
            case w.Opaque(size=size, alignment=alignment):
                self.line(f"if len({value}) != {size}: raise NdrError(f'{where}.{f.name} has {{len({value})}} bytes, "
                          f"not {size}')")  # fmt: skip
                self.scalar(f"{size}s", size, alignment, value)
            case w.Pointer() as pointer:
                self.scalar_of(pointer, self._referent(pointer, value))
            case w.Struct() as struct:
                self.flush()
                if not struct.conformant:
                    self.align(struct.alignment)
                    self.flush()
                self.line(f"{self.symbols.use(struct, f'_e_{struct.name}')}(w, {value}, s)")
                self.advance(struct)
            case w.Union() as union if union.name:
                self.flush()
                self.line(f"{self.symbols.use(union, f'_e_{union.name}')}(w, {value}, s, {owner}.{f.switch})")
                self.modulus, self.remainder = 1, 0
            case w.Union() as union:
                self._union_body(union, self.selector(f, owner), owner, where)
            case w.Array(fixed=fixed, element=element, varying=True) as array if fixed is not None:
                self.flush()
                where = f"{where}.{f.name}"
                data = self._data(element, value, array.string, where)
                count = self.local("c")
                self.line(f"{count} = {self._count(element, data)}")
                self._check_maximum(where, count, str(fixed))
                self._check(where, count, array.length, owner)
                self._varying(array, count)
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
            if union.ndr64:
                self.align(union.alignment)
            self.scalar_of(union.discriminant, switch)
        if union.ndr64:
            self.align(union.arm_alignment)
        self.flush()
        for arm in self.arms(union, switch):
            if is_missing_arm(arm):
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
                self.line(f"{self.symbols.use(struct, f'_g_{struct.name}')}(w, {value}, s)")
                self.forget_alignment()
            case w.Union() as union if union.name:
                self.flush()
                self.line(f"{self.symbols.use(union, f'_g_{union.name}')}(w, {value}, s, {owner}.{f.switch})")
                self.forget_alignment()
            case w.Union() as union:
                self._union_deferred(union, self.selector(f, owner), owner, where)
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
                self.scalar_of(inner, f"(r() if {value} is not NULL and {value} is not None else 0)")
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
        self.count(array, self._maximum(array, count, owner, where))
        if array.varying:
            self._varying(array, count)
        self.flush()
        self._elements(array.element, data, where)
        if w.has_pointers(array.element):
            self._elements_deferred(array.element, value, owner, where)

    def _check(self, where: str, count: str, expression: s.Expression | None, owner: str) -> None:
        if self.resolvable(expression):
            assert expression is not None
            wanted = python_expression(expression, owner)
            self.line(f"if {count} != {wanted}: raise NdrError(f'{where}: {{{count}}} elements, {{{wanted}}} "
                      f"announced')")  # fmt: skip

    def _data(self, element: w.WireType, value: str, string: bool = False, where: str = "") -> str:
        """Return the name of the variable with the elements: encoded bytes for characters, otherwise the list
        itself."""
        if not is_wchar(element) and not string:
            return value
        self.flush()
        data = self.local("d")
        codec = "'utf-16-le', 'surrogatepass'" if is_wchar(element) else "'latin-1'"
        terminator = (r" + b'\0\0'" if is_wchar(element) else r" + b'\0'") if string else ""
        self.line(f"{data} = {value}.encode({codec}){terminator}")
        if string:
            self.line(f"if '\\0' in {value}: raise NdrError('{where}: a string with an embedded NUL')")
        return data

    def _count(self, element: w.WireType, data: str) -> str:
        return f"len({data}) >> 1" if is_wchar(element) else f"len({data})"

    def _elements(self, element: w.WireType, data: str, where: str) -> None:
        self.flush()
        if is_wchar(element) or is_bytes(element):
            self.align(element.alignment)
            self.line(f"w += {data}")
        elif isinstance(element, w.Primitive | w.Enum):
            self.align_elements(element.size, data)
            self.line(f"w += _pack(f'<{{len({data})}}{scalar_format(element)}', *{data})")
        elif isinstance(element, w.Pointer):
            self.align_elements(element.alignment, data)
            value = "v is not None"
            self.line(
                f"w += _pack(f'<{{len({data})}}{scalar_format(element)}', *[(r() if {value} else 0) for v in {data}])"
            )
        elif isinstance(element, w.Opaque):
            self.align_elements(element.alignment, data)
            self.line(f"if any(len(v) != {element.size} for v in {data}): "
                      f"raise NdrError('{where}: an element that has not {element.size} bytes')")  # fmt: skip
            self.line(f"w += b''.join({data})")
        elif isinstance(element, w.Struct):
            value = self.local("v")
            with self.block(f"for {value} in {data}:"):
                self.forget_alignment()
                self.align(element.alignment)
                self.line(f"{self.symbols.use(element, f'_e_{element.name}')}(w, {value}, s)")
        else:
            raise IdlError(f"{where}: no codec for arrays of {element}")
        self.forget_alignment()

    def _elements_deferred(self, element: w.WireType, data: str, owner: str, where: str) -> None:
        self.flush()
        value = self.local("v")
        with self.block(f"for {value} in {data}:"):
            self.forget_alignment()
            if isinstance(element, w.Struct):
                self.line(f"{self.symbols.use(element, f'_g_{element.name}')}(w, {value}, s)")
            elif isinstance(element, w.Pointer):
                self._pointer(element, value, owner, where)
        self.forget_alignment()
