"""Generates decoders for one byte order: bodies first, then pointees."""

from __future__ import annotations

from msrpc.idl import syntax as s
from msrpc.idl import wiretypes as w
from msrpc.idl.lexer import IdlError
from msrpc.idl.python_emitter import (
    Emitter,
    class_fields,
    flatten_parameters,
    is_bytes,
    is_missing_arm,
    is_wchar,
    python_expression,
    scalar_format,
)

LARGEST_COUNT = 0x7FFFFFFF  # maximum elements if counts have 64 bits


class Decoder(Emitter):
    def skip(self, padding: int) -> None:
        self.line(f"p += {padding}")

    def pad(self, alignment: int) -> None:
        self.line(f"p += -p & {alignment - 1}")

    def emit_run(self, fmt: str, operands: list[str], size: int) -> None:
        if fmt[1:] == "B" and operands:
            self.line(f"{operands[0]} = b[p]")
            self.line("p += 1")
            return
        self.line(f"{', '.join(operands)}{',' if len(operands) == 1 else ''} = "
                  f"{self.symbols.struct(fmt, 'unpack_from')}(b, p)")  # fmt: skip
        self.line(f"p += {size}")

    # -- entry points ----------------------------------------------------------------------------------------

    def functions(self, struct: w.Struct | w.Union) -> list[str]:
        if isinstance(struct, w.Union):
            return self._union_functions(struct)
        name = struct.name
        self.lines += ["", "", f"def _b_{name}{self.suffix}(b, p, s):"]
        if struct.recursive:
            self.line("s.enter()")
        self._create("o", name, flatten_parameters(struct.fields), struct.fields)
        if struct.conformant:
            self.count(struct.conformant, "n0")
            self.flush()
        self.align(struct.alignment)
        self.modulus = max(self.modulus, struct.alignment)
        for f in struct.fields:
            if f is struct.fields[-1] and struct.conformant:
                self._end_of_fixed_part(struct)
                self._counted(struct.conformant, "n0", f"o.{f.name}", "o", f"{name}.{f.name}")
            else:
                self._body(f, f"o.{f.name}", "o", name)
        self._end_of_fixed_part(struct)
        self.flush()
        for check in self.late:
            self.line(check)
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

    def _end_of_fixed_part(self, struct: w.Struct) -> None:
        """Skip the padding at the end of a structure, which only NDR64 transfers ([MS-RPCE] 2.2.5.3.4.1)."""
        if struct.ndr64:
            self.align(struct.alignment)

    def _union_functions(self, union: w.Union) -> list[str]:
        self.lines += ["", "", f"def _b_{union.name}{self.suffix}(b, p, s, t):"]
        self._create("o", union.name, class_fields(union), [])
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
        self._create("o", class_name, flatten_parameters(parameters), parameters)
        self.modulus, self.remainder = 8, 0
        self.available = {p.name for p in parameters}
        for f in parameters:
            target = f"o.{f.name}"
            if isinstance(f.type, w.Pointer):
                if f.type.kind == "ref":
                    self._pointee(f.type.to, target, "o", f.name, null="None", switch=f.switch)
                else:
                    self.scalar_of(f.type, target)
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
            case w.Primitive() as primitive:
                self.scalar_of(primitive, target, self._range_line(target, f))
            case w.Enum() | w.Pointer() as scalar:
                self.scalar_of(scalar, target)
            case w.Opaque(name=name, size=size, alignment=alignment):
                fix = {"GUID": "_guid_be", "context_handle": "_handle_be"}.get(name) if self.order == ">" else None
                self.scalar(f"{size}s", size, alignment, target, f"{target} = {fix}({target})" if fix else "")
            case w.Struct() as struct:
                self.flush()
                if not struct.conformant:
                    self.align(struct.alignment)
                    self.flush()
                function = self.symbols.use(struct, f"_b_{struct.name}{self.suffix}")
                self.line(f"{target}, p = {function}(b, p, s)")
                self.advance(struct)
            case w.Union() as union if union.name:
                self.flush()
                function = self.symbols.use(union, f"_b_{union.name}{self.suffix}")
                self.line(f"{target}, p = {function}(b, p, s, {owner}.{f.switch})")
                self.modulus, self.remainder = 1, 0
            case w.Union() as union:
                self.flush()
                self._union_body(union, self.selector(f, owner), owner, where, f.switch_follows)
            case w.Array(fixed=fixed) as array if fixed is not None:
                self.flush()
                self._counted(array, str(fixed), target, owner, f"{where}.{f.name}")
            # The encoder refuses any other type.

    def _union_body(self, union: w.Union, switch: str, owner: str, where: str, follows: bool = False) -> None:
        if not union.encapsulated:
            tag = self.local("t")
            if union.ndr64:
                self.align(union.alignment)
            self.scalar_of(union.discriminant, tag)
            self.flush()
            error = f"raise BadStubData(f'{where}: union selected by {{{tag}}} and {{{switch}}}')"
            if follows:  # the selector follows the union and is read there again
                self.line(f"{switch} = {tag}")
                self.late.append(f"if {tag} != {switch}: {error}")
            else:
                with self.block(f"if {tag} != {switch}:"):
                    self.line(error)
        if union.ndr64:
            self.align(union.arm_alignment)
        for arm in self.arms(union, switch):
            if is_missing_arm(arm):
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
                self.line(f"p = {self.symbols.use(struct, f'_f_{struct.name}{self.suffix}')}({target}, b, p, s)")
                self.forget_alignment()
            case w.Union() as union if union.name:
                self.flush()
                function = self.symbols.use(union, f"_f_{union.name}{self.suffix}")
                self.line(f"p = {function}({target}, b, p, s, {owner}.{f.switch})")
                self.forget_alignment()
            case w.Union() as union:
                self._union_deferred(union, self.selector(f, owner), owner, where)
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
        """Decode a pointee: replace the referent identifier in `target` by the value."""
        self.flush()
        if pointer.kind == "ref":
            self._pointee(pointer.to, target, owner, where, null="None", switch=switch)
            return
        if pointer.kind == "full":
            referent = self.local("r")
            self.line(f"{referent} = {target}")
            with self.block(f"if {referent} in s.full:"):
                self.line(f"{target} = s.alias({referent}, {_kind(pointer.to)!r})")
            with self.block(f"elif {referent}:"):
                self._pointee(pointer.to, target, owner, where, switch=switch)
                self.flush()
                self.line(f"s.full[{referent}] = {_kind(pointer.to)!r}, {target}")
        else:
            with self.block(f"if {target}:"):
                self._pointee(pointer.to, target, owner, where, switch=switch)
        with self.block("else:"):
            self.line(f"{target} = {null}")
        self.forget_alignment()

    def _pointee(
        self, wire_type: w.WireType, target: str, owner: str, where: str, null: str = "NULL", switch: str = ""
    ) -> None:
        """Decode a complete construct, including the pointees of its own pointers."""
        match wire_type:
            case w.Pointer() as inner:
                self.scalar_of(inner, target)
                self._pointer(inner, target, owner, where, null, switch)
            case w.Array(fixed=None) as array:
                self._conformant(array, target, owner, where)
            case _:
                field = w.Field(where.rpartition(".")[2], wire_type, switch)
                self._body(field, target, owner, where)
                self.flush()
                self._deferred(field, target, owner, where)

    def _conformant(self, array: w.Array, target: str, owner: str, where: str) -> None:
        """Decode a conformant array (C706 14.3.3): maximum count; for varying arrays, offset and actual count; then the
        elements."""
        self.flush()
        maximum = self.local("n")
        self.count(array, maximum)
        self._counted(array, maximum, target, owner, where)
        if w.has_pointers(array.element):
            self._elements_deferred(array.element, target, owner, where)

    def _counted(self, array: w.Array, maximum: str, target: str, owner: str, where: str) -> None:
        """Decode an array after its maximum count: for varying arrays, offset and actual count; then the elements."""
        count = maximum
        if array.ndr64 and array.fixed is None:  # [MS-RPCE] 3.1.1.5.3.2.2.1
            self.flush()
            with self.block(f"if {maximum} > {LARGEST_COUNT}:"):
                self.line(f"raise BadStubData(f'{where}: {{{maximum}}} elements, at most {LARGEST_COUNT} are allowed')")
        if array.varying:
            offset, count = self.local("f"), self.local("c")
            self.count(array, offset)
            self.count(array, count)
            self.flush()
            with self.block(f"if {offset} or {count} > {maximum}:"):
                self.line(f"raise BadStubData(f'{where}: elements {{{offset}}} to {{{offset}}} + {{{count}}} "
                          f"of {{{maximum}}}')")  # fmt: skip
        self.flush()
        if array.fixed is None:  # only here: the count of a structure is compared with a field before the array
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
        wanted = python_expression(expression, owner)
        absent = f"{count} is not None and " if self.available is not None else ""
        error = f"BadStubData(f'{where}: {{{count}}} elements, {{{wanted}}} announced')"
        check = f"if {absent}{count} != {wanted}: raise {error}"
        if self.available is None:
            self.line(check)
        else:  # the size may be a parameter after the array
            self.late.append(check)
            self.lines.insert(self.preamble, f"    {count} = None")

    def _string(self, element: w.WireType, count: str, target: str, where: str) -> None:
        size, codec = (2, "utf-16-be" if self.order == ">" else "utf-16-le") if is_wchar(element) else (1, "latin-1")
        errors = ", 'surrogatepass'" if size == 2 else ""
        end = self.local("e")
        self.line(f"{end} = p + {size} * {count}")
        with self.block(f"if not {count} or {end} > len(b):"):
            self.line(f"raise _short_of({where!r})")
        with self.block(f"if any(b[{end} - {size}:{end}]):"):
            self.line(f"raise BadStubData('{where}: no terminator')")
        self.line(f"{target} = b[p:{end} - {size}].decode({codec!r}{errors})")
        with self.block(f"if '\\0' in {target}:"):  # programs disagree on the text after it
            self.line(f"raise BadStubData('{where}: a string with an embedded NUL')")
        self.line(f"p = {end}")
        self.forget_alignment()

    def _elements(self, element: w.WireType, count: str, target: str, where: str) -> None:
        """Decode `count` elements into `target`; pointers in them stay referent identifiers."""
        size = w.minimum_size(element)
        if size == 0:
            raise IdlError(f"{where}: elements of size 0")
        if is_bytes(element) or is_wchar(element):
            self.align(element.alignment)
        elif not isinstance(element, w.Struct):  # structures are aligned individually
            self.align_elements(element.alignment, count)
        end = self.local("e")
        self.line(f"{end} = p + {size} * {count}")
        with self.block(f"if {end} > len(b):"):
            self.line(f"raise _short_of({where!r})")
        if is_bytes(element):
            self.line(f"{target} = b[p:{end}]")
        elif is_wchar(element):
            codec = "utf-16-be" if self.order == ">" else "utf-16-le"
            self.line(f"{target} = b[p:{end}].decode('{codec}', 'surrogatepass')")
        elif isinstance(element, w.Primitive | w.Enum | w.Pointer):
            fmt = scalar_format(element)
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
            function = self.symbols.use(element, f"_b_{element.name}{self.suffix}")
            self.line(f"{value}, p = {function}(b, p, s)")
            self.line(f"{values}.append({value})")
        self.line(f"{target} = {values}")
        self.forget_alignment()

    def _elements_deferred(self, element: w.WireType, target: str, owner: str, where: str) -> None:
        self.flush()
        value = self.local("v")
        if isinstance(element, w.Struct):
            function = self.symbols.use(element, f"_f_{element.name}{self.suffix}")
            with self.block(f"for {value} in {target}:"):
                self.line(f"p = {function}({value}, b, p, s)")
        elif isinstance(element, w.Pointer):
            index = self.local("i")
            with self.block(f"for {index}, {value} in enumerate({target}):"):
                self.forget_alignment()
                self._pointer(element, value, owner, where)
                self.line(f"{target}[{index}] = {value}")
        self.forget_alignment()


def _kind(wire_type: w.WireType) -> str:
    """Return a name for the type of a pointee, to distinguish full pointers to different types."""
    return str(getattr(wire_type, "name", "")) or type(wire_type).__name__.lower()
