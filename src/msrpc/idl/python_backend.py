"""The Python back end: a class for each structure, with straight-line code to decode and encode it.

Runs of members with a fixed layout become one `struct` call. Code is emitted twice for decoding (both byte orders) and
once for encoding. Pointees follow the outermost construct (C706 14.3.12.3), so each structure has a function for its
body, in which pointers are referent identifiers, and one for its pointees.

NDR64 is little-endian only ([MS-RPCE] 2.2.5). Its codecs for the same classes are in a separate module, which
`ndr.runtime` imports on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from msrpc.idl import wiretypes as w
from msrpc.idl.lexer import IdlError
from msrpc.idl.ndr64 import Widening
from msrpc.idl.python_decoder import Decoder
from msrpc.idl.python_emitter import (
    NDR64_SUFFIX,
    Symbols,
    announced_sizes,
    class_fields,
    flatten_parameters,
    is_bytes,
    is_wchar,
    module_name,
)
from msrpc.idl.python_encoder import Encoder
from msrpc.idl.table_backend import Tables

_HEADER = '''"""{content} by msrpc.idl. Do not edit: change the IDL or the compiler."""
# mypy: ignore-errors
# fmt: off
from __future__ import annotations

from struct import Struct, unpack_from
from struct import pack as _pack
from uuid import UUID

from msrpc.errors import BadStubData, NdrError
from msrpc.ndr.runtime import (
    NULL, UNSET as _UNSET, CoClass, DecodeState, EncodeState, Interface, Member, Null, Operation, PADDING as _PAD,
    Parameter, Structure, guid_from_big_endian as _guid_be, handle_from_big_endian as _handle_be, short_of as _short_of,
)
from msrpc.ndr.tables import announce as _announce, codec as _codec, declare as _declare

_new = object.__new__
'''


def generate(library: w.LibraryType, idl: str, module_of: Callable[[str], str] = module_name) -> str:
    """Return the text of the Python module for the declarations of an IDL file. `module_of` returns the full names of
    the modules of IDL files."""
    return _Module(library, idl, module_of).text()


def generate_ndr64(library: w.LibraryType, idl: str, module_of: Callable[[str], str] = module_name) -> str:
    """Return the text of the module with the NDR64 codecs for the declarations of an IDL file; arguments as for
    `generate`. Its name is that of the other module plus `NDR64_SUFFIX`."""
    return _Ndr64Module(library, idl, module_of).text()


class _Module:
    def __init__(self, library: w.LibraryType, idl: str, module_of: Callable[[str], str]) -> None:
        self.library, self.idl = library, idl
        self.symbols = Symbols(idl, module_of)
        self.tables = Tables(self.symbols)
        self.shared: dict[str, str] = {}  # signature -> class of arguments with this signature

    def head(self, content: str) -> list[str]:
        """Return the first lines of the module. Must be called last, when all imports are known."""
        head = [_HEADER.format(content=content)]
        for module, names in sorted(self.symbols.foreign.items()):
            head.append(f"from {module} import {', '.join(sorted(names))}")
        return head + [f"{name} = {expression}" for expression, name in self.symbols.structs.items()]

    def text(self) -> str:
        body: list[str] = []
        for name, value in self.library.constants.items():
            body.append(f"{name} = {value}")
        for enum in self.library.enums:
            body.extend(f"{name} = {value}" for name, value in enum.members.items())
        for struct in self.library.structs:
            body += self._class(struct.name, class_fields(struct))
            for order in "<>":
                body += Decoder(self.symbols, order).functions(struct)
            body += Encoder(self.symbols).functions(struct)
        body += ["", "", *self.tables.structures(self.library.structs)]
        for interface in self.library.interfaces:
            body += self._interface(interface)
        body += ["", "", *map(self._coclass, self.library.coclasses)]
        return "\n".join(self.head(f"Generated from {self.idl}") + body) + "\n"

    def _class(self, name: str, fields: list[w.Field], announced: Collection[str] = ()) -> list[str]:
        members = [(f.name, self._annotation(f.type), self._default(f.type)) for f in fields]
        members += [(size, "int | None", "None") for size in announced]
        names = "".join(f"{member!r}, " for member, _, _ in members)
        lines = ["", "", f"class {name}(Structure):", f"    __slots__ = ({names})"]
        if not members:
            return lines
        arguments, body = [], []
        for member, annotation, default in members:
            if default.endswith("()") or default == "[]":  # a new object for each structure
                arguments.append(f"{member}: {annotation} = _UNSET")
                body.append(f"        self.{member} = {default} if {member} is _UNSET else {member}")
            else:
                arguments.append(f"{member}: {annotation} = {default}")
                body.append(f"        self.{member} = {member}")
        return [*lines, "", f"    def __init__(self, {', '.join(arguments)}):", *body]

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
                if is_bytes(element):
                    return "bytes"
                return "str" if is_wchar(element) else f"list[{self._annotation(element)}]"
            case w.Struct() | w.Union():
                return self.symbols.use(wire_type, wire_type.name)
        raise IdlError(f"no class for {wire_type}")

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
                return 'b""' if is_bytes(element) else '""' if is_wchar(element) else "[]"
            case w.Struct() | w.Union():
                return f"{wire_type.name}()"
        raise IdlError(f"no default for {wire_type}")

    def _interface(self, interface: w.InterfaceType) -> list[str]:
        body: list[str] = []
        rows: list[str] = []
        base = ""
        if interface.base is not None:
            base = self.symbols.name(interface.base.home, interface.base.name)
            rows.append(f"*{base}.operations")
        for o in interface.operations:
            if not o.used_on_wire:
                rows.append(f"Operation({o.opnum}, {o.name!r}, None, None, None, None)")
                continue
            sides = []
            for letter, name, fields, is_new in self.arguments_of(interface, o):
                if is_new:
                    body += self._codecs(letter, name, fields)
                sides.append(f"_{letter}_{name}")
            request, response = sides
            rows.append(
                f"Operation({o.opnum}, {o.name!r}, {request[3:]}, {response[3:]}, "
                f"({request}[0], {request}[1], {response}[0], {response}[1]), ({request}[2], {response}[2]))"
            )
        members = "None" if interface.members is None else self._members(interface.members)
        body += ["", "", f"{interface.name} = Interface({interface.name!r}, UUID({interface.uuid!r}), "
                         f"{interface.version!r}, ("]  # fmt: skip
        return [*body, *[f"    {row}," for row in rows], f"), {base or None}, {members})"]

    def arguments_of(
        self, interface: w.InterfaceType, operation: w.OperationType
    ) -> Iterator[tuple[str, str, list[w.Field], bool]]:
        """Yield, for the request and the response of an operation: a letter for the direction, the name of the class of
        the arguments, the arguments, and whether the class is new."""
        result = [w.Field("result", operation.result)] if operation.result else []
        for letter, role, fields in (
            ("q", "Request", operation.inputs),
            ("r", "Response", [*operation.outputs, *result]),
        ):
            if interface.members is not None:
                yield letter, *self._by_signature(role, fields)
            else:
                prefix = f"{interface.name}_" if interface.is_object else ""
                yield letter, f"{prefix}{operation.name}_{role}", fields, True

    def _codecs(self, letter: str, name: str, fields: list[w.Field]) -> list[str]:
        """Return a class of arguments and its codecs: `_q_NAME` or `_r_NAME` = (decode, decode big-endian, encode)."""
        announced = announced_sizes(fields) if letter == "r" else ()
        body = self._class(name, flatten_parameters(fields), announced)
        functions = {order: f"_d{letter}_{name}{suffix}" for suffix, order in (("", "<"), ("_be", ">"))}
        for order, function in functions.items():
            body += Decoder(self.symbols, order).call(function, name, fields)
        functions[""] = f"_e{letter}_{name}"
        body += Encoder(self.symbols).call(functions[""], fields, announced)
        codecs = list(functions.values())
        if not announced and (arguments := self.tables.arguments(name, fields)):
            body += ["", "", f"_t{letter}_{name} = {arguments}"]
            codecs = [f"_codec({order!r}, {function}, *_t{letter}_{name})" for order, function in functions.items()]
        return [*body, f"_{letter}_{name} = ({', '.join(codecs)})"]

    def _by_signature(self, role: str, fields: list[w.Field]) -> tuple[str, list[w.Field], bool]:
        """Return the shared class for arguments of the same types; in it, arguments are numbered. Automation has many
        operations with few different signatures."""
        numbered = [
            f if f.name in _IMPLICIT else w.Field(f"a{index}", f.type, f.switch, f.range, f.directions)
            for index, f in enumerate(fields, -1 if fields and fields[0].name in _IMPLICIT else 0)
        ]
        key = role + ",".join(f"{f.name}:{_signature(f.type)}" for f in numbered)
        is_new = key not in self.shared
        name = self.shared.setdefault(key, f"{role}{len(self.shared)}")
        return name, numbered, is_new

    def _members(self, members: list[w.MemberType]) -> str:
        lines = []
        for m in members:
            parameters = "".join(
                f"Parameter({p.name!r}, {p.type!r}, {tuple(sorted(p.attributes))!r}), " for p in m.parameters
            )
            lines.append(f"    Member({m.opnum}, {m.name!r}, {m.kind!r}, {m.dispid}, ({parameters})),")
        return "\n".join(["(", *lines, ")"])

    def _coclass(self, coclass: w.CoClassType) -> str:
        return (
            f"{coclass.name} = CoClass({coclass.name!r}, UUID({coclass.uuid!r}), {_names(coclass.interfaces)}, "
            f"{_names(coclass.sources)}, {coclass.default})"
        )


class _Ndr64Module(_Module):
    def __init__(self, library: w.LibraryType, idl: str, module_of: Callable[[str], str]) -> None:
        super().__init__(library, idl, lambda name: module_of(name) + NDR64_SUFFIX)
        self._classes_of = module_of(idl)
        self._wide = Widening()

    def text(self) -> str:
        body: list[str] = []
        classes = [struct.name for struct in self.library.structs]
        structs = [self._wide.type(struct) for struct in self.library.structs]
        own = [struct for struct in structs if isinstance(struct, w.Struct | w.Union)]
        for struct in own:
            body += Decoder(self.symbols, "<").functions(struct)
            body += Encoder(self.symbols).functions(struct)
        body += ["", "", *self.tables.structures(own)]
        for interface in self.library.interfaces:
            for operation in interface.operations:
                if not operation.used_on_wire:
                    continue
                for letter, name, fields, is_new in self.arguments_of(interface, operation):
                    if is_new:
                        classes.append(name)
                        body += self._codecs(letter, name, fields)
        head = self.head(f"NDR64 codecs of {self._classes_of}, generated from {self.idl}")
        head += [f"from {self._classes_of} import {name}" for name in classes]
        return "\n".join(head + body) + "\n"

    def _codecs(self, letter: str, name: str, fields: list[w.Field]) -> list[str]:
        """Return the codecs of a class of arguments: `_q_NAME` or `_r_NAME` = (decode, encode)."""
        announced = announced_sizes(fields) if letter == "r" else ()
        wide = list(map(self._wide.field, fields))
        decoder, encoder = f"_d{letter}_{name}", f"_e{letter}_{name}"
        body = Decoder(self.symbols, "<").call(decoder, name, wide)
        body += Encoder(self.symbols).call(encoder, wide, announced)
        codecs = [decoder, encoder]
        if not announced and (arguments := self.tables.arguments(name, wide)):
            body += ["", "", f"_t{letter}_{name} = {arguments}"]
            codecs = [
                f"_codec({order!r}, {function}, *_t{letter}_{name}, True)"
                for order, function in zip(("<", ""), codecs, strict=True)
            ]
        return [*body, f"_{letter}_{name} = ({', '.join(codecs)})"]


_IMPLICIT = frozenset(["orpcthis", "orpcthat", "result"])


def _names(names: list[str]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def _signature(wire_type: w.WireType) -> str:
    """Return a text that is equal for types with the same wire format."""
    match wire_type:
        case w.Primitive(format=fmt):
            return fmt
        case w.Enum(size=size):
            return f"enum{size}"
        case w.Opaque(name=name, size=size):
            return f"{name}{size}"
        case w.Pointer(kind=kind, to=to):
            return f"{kind}*{_signature(to)}"
        case w.Array(element=element):
            return f"{_signature(element)}[{wire_type.fixed}|{wire_type.size}|{wire_type.length}|{wire_type.varying}]"
        case w.Struct(name=name) | w.Union(name=name):
            return name
    raise IdlError(f"no signature for {wire_type}")
