"""Base class of the generators of decoders and encoders, and properties of wire types."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msrpc.idl import syntax as s
from msrpc.idl import wiretypes as w
from msrpc.idl.lexer import IdlError

NDR64_SUFFIX = "_ndr64"  # suffix of modules with NDR64 codecs


def module_name(idl: str) -> str:
    """Return the module name of an IDL file: `ms_mqmq` for `ms-mqmq.idl`."""
    return idl.removesuffix(".idl").replace("-", "_")


def class_fields(struct: w.Struct | w.Union) -> list[w.Field]:
    if isinstance(struct, w.Union):
        return [optional(arm.field) for arm in struct.arms if arm.field]
    return flatten_parameters(struct.fields)


def flatten_parameters(fields: list[w.Field]) -> list[w.Field]:
    """Replace a union declared in place by its arms, which become attributes of the enclosing structure."""
    flat: list[w.Field] = []
    for f in fields:
        if isinstance(f.type, w.Union) and not f.type.name:
            flat += [optional(arm.field) for arm in f.type.arms if arm.field]
        else:
            flat.append(f)
    return flat


def announced_sizes(outputs: list[w.Field]) -> list[str]:
    """Return the request arguments that are `size_is` of varying arrays in the response: they are the max_count of
    these arrays, even if there are fewer elements. Responses have them as attributes; None means the number of
    elements."""
    known = {f.name for f in outputs}
    targets = [f.type.to if isinstance(f.type, w.Pointer) else f.type for f in outputs]
    arrays = [target for target in targets if isinstance(target, w.Array) and target.varying]
    sizes = [a.size.text for a in arrays if isinstance(a.size, s.Name) and a.size != a.length]
    return [size for size in dict.fromkeys(sizes) if size not in known]


def optional(arm: w.Field) -> w.Field:
    return w.Field(arm.name, arm.type if isinstance(arm.type, w.Pointer) else w.Pointer("unique", arm.type))


def is_bytes(element: w.WireType) -> bool:
    return isinstance(element, w.Primitive) and element.format in "Bb"


def is_wchar(element: w.WireType) -> bool:
    return isinstance(element, w.Primitive) and element.name == "wchar_t"


_UNSIGNED = {2: "H", 4: "I", 8: "Q"}


def scalar_format(wire_type: w.Primitive | w.Enum | w.Pointer) -> str:
    """Return the `struct` format character for a scalar, or for the referent identifier of a pointer."""
    return wire_type.format if isinstance(wire_type, w.Primitive) else _UNSIGNED[wire_type.size]


def static_size(wire_type: w.WireType) -> int | None:
    """Return the size on the wire if it is constant for a correctly aligned start; else None."""
    match wire_type:
        case w.Primitive() | w.Opaque() | w.Enum() | w.Pointer():
            return wire_type.size
        case w.Struct(fields=fields):
            offset = 0
            for f in fields:
                size = static_size(f.type)
                if size is None:
                    return None
                offset += -offset % f.type.alignment + size
            return offset + (-offset % wire_type.alignment if wire_type.ndr64 else 0)
        case _:
            return None


def python_expression(expression: s.Expression, owner: str) -> str:
    """Convert an IDL expression over the fields of `owner` to Python. Dereferences are omitted: pointers are
    transparent."""
    match expression:
        case s.Number(value=value):
            return str(value)
        case s.Name(text=text):
            return f"{owner}.{text}"
        case s.Unary(operator="*", operand=operand):
            return python_expression(operand, owner)
        case s.Unary(operator="!", operand=operand):
            return f"(not {python_expression(operand, owner)})"
        case s.Unary(operator=operator, operand=operand):
            return f"({operator}{python_expression(operand, owner)})"
        case s.Binary(operator=operator, left=left, right=right):
            spelled = {"/": "//", "&&": "and", "||": "or"}.get(operator, operator)
            shift = "31 & " if operator in ("<<", ">>") else ""  # a shift by a received number must not exhaust memory
            return f"({python_expression(left, owner)} {spelled} ({shift}{python_expression(right, owner)}))"
        case s.Conditional(condition=a, then=b, otherwise=c):
            return (
                f"({python_expression(b, owner)} if {python_expression(a, owner)} else {python_expression(c, owner)})"
            )
    raise IdlError(f"{expression} is not an expression over fields")


class Symbols:
    """Names that the generated module must define or import besides its classes and functions."""

    def __init__(self, idl: str, module_of: Callable[[str], str]) -> None:
        """`module_of` returns the full name of the module of an IDL file."""
        self.idl, self._module_of = idl, module_of
        self.structs: dict[str, str] = {}
        self.foreign: dict[str, set[str]] = {}

    def struct(self, fmt: str, method: str) -> str:
        """Return the name of a module-level bound method of Struct(fmt)."""
        return self.structs.setdefault(f"Struct({fmt!r}).{method}", f"_S{len(self.structs)}")

    def use(self, struct: w.Struct | w.Union, name: str) -> str:
        """Refer to `name`, which is generated in the home module of `struct`."""
        return self.name(struct.home, name)

    def name(self, home: str, name: str) -> str:
        """Refer to `name`, which is generated in the module of the IDL file `home`."""
        if home != self.idl:
            self.foreign.setdefault(self._module_of(home), set()).update([name])
        return name


class Emitter(ABC):
    """Collects lines of code, and tracks the alignment of the current position: p % modulus == remainder."""

    def __init__(self, symbols: Symbols, order: str) -> None:
        self.symbols, self.order = symbols, order
        self.lines: list[str] = []
        self.depth = 1
        self.modulus, self.remainder = 1, 0
        self.run: list[tuple[str, str, str]] = []  # format, target or value, line to emit after it
        self.run_size = 0
        self.counter = 0
        self.suffix = "_be" if order == ">" else ""
        self.available: set[str] | None = None  # names to which size_is may refer; None: all fields
        self.late: list[str] = []
        self.preamble = 0  # position at which locals can be set to None

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def local(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def selector(self, union: w.Field, owner: str) -> str:
        """Return what selects the arm of a union that is a member of `owner`; a calculated one becomes a local, because
        each arm is compared with it."""
        if union.selector is None:
            return f"{owner}.{union.switch}"
        found = self.local("v")
        self.line(f"{found} = {python_expression(union.selector, owner)}")
        return found

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Emit an indented block that is executed conditionally: the alignment after it is unknown."""
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

    def scalar_of(self, wire_type: w.Primitive | w.Enum | w.Pointer, operand: str, after: str = "") -> None:
        """Add a scalar, or a pointer as its referent identifier, to the current run."""
        self.scalar(scalar_format(wire_type), wire_type.size, wire_type.alignment, operand, after)

    def count(self, array: w.Array, operand: str) -> None:
        """Add a maximum count, an offset or an actual count to the current run."""
        self.scalar(_UNSIGNED[array.count_size], array.count_size, array.count_size, operand)

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

    def align_elements(self, alignment: int, count: str) -> None:
        """Align the elements of an array. Without elements there is no gap: gaps precede primitives (C706 14.2.2)."""
        if alignment <= self.modulus and (self.remainder + self.run_size) % alignment == 0:
            return
        if count.isdecimal():
            self.align(alignment)
            return
        with self.block(f"if {count}:"):
            self.align(alignment)
        self.forget_alignment()

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
        size = static_size(wire_type)
        if size is None:
            self.modulus, self.remainder = 1, 0
        else:
            self.remainder = (self.remainder + size) % self.modulus

    @abstractmethod
    def skip(self, padding: int) -> None: ...

    @abstractmethod
    def pad(self, alignment: int) -> None: ...

    @abstractmethod
    def emit_run(self, fmt: str, operands: list[str], size: int) -> None: ...

    def arms(self, union: w.Union, switch: str) -> Iterator[w.ArmType]:
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
                yield w.ArmType([], w.Field("", w.Union("", union.discriminant, [])))
        self.forget_alignment()

    def resolvable(self, expression: s.Expression | None) -> bool:
        return expression is not None and (self.available is None or s.names_in(expression) <= self.available)


def is_missing_arm(arm: w.ArmType) -> bool:
    return arm.field is not None and isinstance(arm.field.type, w.Union) and not arm.field.type.arms
