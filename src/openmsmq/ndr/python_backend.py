"""The back end that emits Python: a dataclass a structure, straight-line code to decode and encode it.

Runs of members with a fixed layout become one `struct` call. Code is emitted twice for decoding (both byte orders) and
once for encoding. Pointees follow the outermost construct (C706 14.3.12.3), so each structure has a function for its
body, where pointers are referent identifiers, and one for what its pointers refer to.
"""

from __future__ import annotations

from openmsmq.ndr import wiretypes as w
from openmsmq.ndr.lexer import IdlError
from openmsmq.ndr.python_decoder import Decoder
from openmsmq.ndr.python_emitter import Symbols, class_fields, flatten_parameters, is_bytes, is_wchar
from openmsmq.ndr.python_encoder import Encoder
from openmsmq.ndr.table_backend import Tables

_HEADER = '''"""Generated from {idl} by openmsmq.ndr. Do not edit: change the IDL or the compiler."""
# mypy: ignore-errors
# fmt: off
from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct, unpack_from
from struct import pack as _pack
from uuid import UUID

from openmsmq.ndr.errors import BadStubData, NdrError
from openmsmq.ndr.runtime import (
    NULL, DecodeState, EncodeState, Interface, Null, Operation, PADDING as _PAD,
    guid_from_big_endian as _guid_be, handle_from_big_endian as _handle_be, short_of as _short_of,
)
from openmsmq.ndr.tables import announce as _announce, codec as _codec, declare as _declare

_new = object.__new__
'''


def generate(library: w.Library, idl: str) -> str:
    """Return the text of the Python module for what one IDL file declares."""
    return _Module(library, idl).text()


class _Module:
    def __init__(self, library: w.Library, idl: str) -> None:
        self.library, self.idl = library, idl
        self.symbols = Symbols(idl)
        self.tables = Tables(self.symbols)

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
        head = [_HEADER.format(idl=self.idl)]
        for module, names in sorted(self.symbols.foreign.items()):
            head.append(f"from openmsmq.interfaces.{module} import {', '.join(sorted(names))}")
        head += [f"{name} = {expression}" for expression, name in self.symbols.structs.items()]
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
                if is_bytes(element):
                    return "bytes"
                return "str" if is_wchar(element) else f"list[{self._annotation(element)}]"
            case w.Struct() | w.Union():
                return self.symbols.use(wire_type, wire_type.name)
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
                return 'b""' if is_bytes(element) else '""' if is_wchar(element) else "field(default_factory=list)"
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
            codecs = {}
            for letter, role, fields in (("q", "Request", o.inputs), ("r", "Response", [*o.outputs, *result])):
                name = f"{o.name}_{role}"
                body += self._class(name, flatten_parameters(fields))
                functions = {order: f"_d{letter}_{key}{suffix}" for suffix, order in (("", "<"), ("_be", ">"))}
                for order, function in functions.items():
                    body += Decoder(self.symbols, order).call(function, name, fields)
                functions[""] = f"_e{letter}_{key}"
                body += Encoder(self.symbols).call(functions[""], fields)
                if arguments := self.tables.arguments(name, fields):
                    body += ["", "", f"_t{letter}_{key} = {arguments}"]
                for order, function in functions.items():
                    by_table = f"_codec({order!r}, {function}, *_t{letter}_{key})"
                    codecs[letter + order] = by_table if arguments else function
            rows.append(
                f"Operation({o.opnum}, {o.name!r}, {o.name}_Request, {o.name}_Response, "
                f"({codecs['q<']}, {codecs['q>']}, {codecs['r<']}, {codecs['r>']}), ({codecs['q']}, {codecs['r']}))"
            )
        body += ["", "", f"{interface.name} = Interface({interface.name!r}, UUID({interface.uuid!r}), "
                         f"{interface.version!r}, ("]  # fmt: skip
        return [*body, *[f"    {row}," for row in rows], "))"]
