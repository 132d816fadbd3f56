"""The semantic pass: resolves names to wire types, and attributes to pointer kinds, array levels, unions and ranges."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from msrpc.idl import syntax as s
from msrpc.idl import wiretypes as w
from msrpc.idl.lexer import IdlError

_PRIMITIVES: dict[str, w.Primitive] = {
    name: w.Primitive(name, fmt, size)
    for names, fmt, size in [
        (("unsigned char", "byte", "unsigned __int8", "boolean", "unsigned small"), "B", 1),
        (("char", "signed char", "small", "__int8", "signed __int8"), "b", 1),
        (("short", "signed short", "__int16", "short int", "signed short int"), "h", 2),
        (("unsigned short", "unsigned __int16", "unsigned short int"), "H", 2),
        (("long", "int", "signed long", "signed int", "__int32", "signed", "long int"), "i", 4),
        (
            (
                "unsigned long",
                "unsigned int",
                "unsigned",
                "unsigned __int32",
                "error_status_t",
                "unsigned long int",
                "HRESULT",
            ),
            "I",
            4,
        ),
        (("hyper", "__int64", "signed __int64", "long long"), "q", 8),
        (("unsigned hyper", "unsigned __int64"), "Q", 8),
        # 32 bits in NDR 2.0 ([MS-RPCE] 2.2.4.1.1 and 2.2.5.3.1 widen it in NDR64 only).
        (("__int3264", "signed __int3264"), "i", 4),
        (("unsigned __int3264",), "I", 4),
        (("float",), "f", 4),
        (("double",), "d", 8),
    ]
    for name in names
}
_WCHAR = w.Primitive("wchar_t", "H", 2)
_GUID = w.Opaque("GUID", 16, 4)
_CONTEXT_HANDLE = w.Opaque("context_handle", 20, 4)
# Types with a special Python form: a GUID is 16 bytes in little-endian order, an HRESULT is unsigned.
_OVERRIDES: dict[str, w.WireType] = {
    "GUID": _GUID, "UUID": _GUID, "uuid_t": _GUID, "wchar_t": _WCHAR, "HRESULT": _PRIMITIVES["HRESULT"],
}  # fmt: skip


class NotMarshalled(IdlError):
    """A type that only exists in memory, such as a C union. It is an error only if transferred data uses it."""


# DISPIDs that MIDL assigns to methods without id(): this, plus 0x10000 per interface in between, plus the index.
_METHODS = 0x60010000
_FLAGS = frozenset(["in", "out", "optional", "retval"])

_Levels = list[str | s.Expression | None]


class Analyzer:
    """Resolves IDL files in order of import. `load` turns a file name into its syntax tree."""

    def __init__(self, load: Callable[[str], s.File]) -> None:
        self._load = load
        self._seen: set[str] = set()
        self._typedefs: dict[str, tuple[s.TypeExpression, _Levels, s.Attributes, w.PointerKind]] = {}
        self._tags: dict[str, s.StructType | s.UnionType] = {}
        self._done: dict[str, w.WireType] = {}
        self._constants: dict[str, int] = {}
        self._interface_names: set[str] = {"IUnknown", "IDispatch"}
        self._objects: dict[str, w.InterfaceType] = {}
        self._pointer_default: w.PointerKind = "unique"
        self._own: w.LibraryType = w.LibraryType({}, [], [], [])
        self._file = ""

    def analyze(self, filename: str) -> w.LibraryType:
        """Return the declarations of `filename`; imported files are resolved but not included."""
        tree = self._import(filename)
        self._own = w.LibraryType({}, [], [], [])
        self._declare(tree, filename, own=True)
        return self._own

    def _import(self, filename: str) -> s.File:
        self._seen.add(filename)
        tree = self._load(filename)
        for imported in tree.imports:
            if imported not in self._seen:
                self._declare(self._import(imported), imported, own=False)
        return tree

    # -- declarations ----------------------------------------------------------------------------------------

    def _declare(self, tree: s.File, filename: str, own: bool) -> None:
        self._file = filename
        library, self._own = self._own, self._own if own else w.LibraryType({}, [], [], [])
        defaults = {i.name: _pointer_kind(i.attributes.get("pointer_default")) for i in tree.interfaces}
        self._interface_names.update(i.name for i in tree.interfaces if i.is_object)
        self._interface_names.update(tree.forward, (coclass.name for coclass in tree.coclasses))
        for interface, definition in tree.definitions:
            self._register(definition, defaults.get(interface, "unique"))
        for interface, definition in tree.definitions:
            self._pointer_default = defaults.get(interface, "unique")
            with contextlib.suppress(NotMarshalled):
                self._resolve_definition(definition)
        for parsed in tree.interfaces:
            self._pointer_default = defaults[parsed.name]
            if "uuid" not in parsed.attributes:
                continue
            resolved = self._object_interface(parsed) if parsed.is_object else self._interface(parsed)
            resolved.home = filename
            self._own.interfaces.append(resolved)
        self._own.coclasses += map(_coclass, tree.coclasses)
        self._own = library

    def _register(self, definition: s.Definition, default: w.PointerKind) -> None:
        if isinstance(definition, s.Constant):
            value = self._try_constant(definition.value)
            if value is not None:
                self._constants[definition.name] = self._own.constants[definition.name] = value
            return
        body = definition.type if isinstance(definition, s.Typedef) else definition
        if isinstance(definition, s.Typedef) and isinstance(body, s.StructType | s.UnionType | s.EnumType):
            body.tag = body.tag or _tag_for(definition)
        if (isinstance(body, s.StructType) and body.members is not None and body.tag) or (
            isinstance(body, s.UnionType) and body.arms is not None and body.tag
        ):
            self._tags[body.tag] = body
        elif isinstance(body, s.EnumType) and body.members:
            self._constants.update(self._enum_members(body))
        if isinstance(definition, s.Typedef):
            if isinstance(body, s.UnionType) and "switch_type" in definition.attributes:
                argument = definition.attributes["switch_type"][0]
                assert isinstance(argument, s.Name)
                body.switch_type = s.TypeName(argument.text)
            for declarator in definition.declarators:
                self._typedefs[declarator.name] = (body, declarator.levels, definition.attributes, default)

    def _resolve_definition(self, definition: s.Definition) -> None:
        if isinstance(definition, s.Constant):
            return
        if isinstance(definition, s.Typedef):
            for declarator in definition.declarators:
                if not declarator.levels:
                    self._named(declarator.name)
            return
        if isinstance(definition, s.TypeName):
            return
        tag = definition.tag if not isinstance(definition, s.SafeArrayType) else ""
        if tag:
            self._base(definition, tag)

    def _interface(self, parsed: s.InterfaceDecl) -> w.InterfaceType:
        version_attribute = parsed.attributes.get("version")
        text = version_attribute[0].value if version_attribute and isinstance(version_attribute[0], s.Text) else "0.0"
        major, _, minor = text.partition(".")
        operations = [self._operation(opnum, o) for opnum, o in enumerate(parsed.operations)]
        return w.InterfaceType(parsed.name, str(parsed.uuid), (int(major), int(minor or 0)), operations)

    def _object_interface(self, parsed: s.InterfaceDecl) -> w.InterfaceType:
        """Convert an interface of objects: it continues its base, and ORPCTHIS and ORPCTHAT precede the parameters of
        its calls ([MS-DCOM] 2.2.13.1)."""
        base = self._objects.get("IDispatch" if parsed.is_dispatch else parsed.base or "")
        if base is None and parsed.base:
            raise IdlError(f"{parsed.name}: unknown base {parsed.base!r}")
        interface = w.InterfaceType(parsed.name, str(parsed.uuid), (0, 0), [], is_object=True, base=base)
        self._objects[parsed.name] = interface
        first = interface.first_opnum
        if not parsed.is_dispatch:
            implicit = [
                w.Field(name, w.Pointer("ref", self._named(kind)), directions=frozenset([direction]))
                for name, kind, direction in (("orpcthis", "ORPCTHIS", "in"), ("orpcthat", "ORPCTHAT", "out"))
            ]
            for opnum, declared in enumerate(parsed.operations, first):
                operation = self._operation(opnum, declared)
                operation.parameters[:0] = implicit
                interface.operations.append(operation)
        if parsed.is_dispatch or {"dual", "odl"} & parsed.attributes.keys():
            methods = _METHODS + 0x10000 * (_depth(interface) - 1)
            interface.members = [
                self._member(None if parsed.is_dispatch else first + index, methods + index, declared)
                for index, declared in enumerate(parsed.operations)
            ]
        return interface

    def _member(self, opnum: int | None, dispid: int, parsed: s.OperationDecl) -> w.MemberType:
        kinds = [kind for kind in ("propget", "propput", "propputref") if kind in parsed.attributes]
        if "id" in parsed.attributes:
            argument = parsed.attributes["id"][0]
            assert argument is not None
            dispid = self._constant(argument)
        parameters = [
            w.ParameterType(
                p.declarator.name, _written(p.type) + "*" * len(p.declarator.levels), frozenset(p.attributes) & _FLAGS
            )
            for p in parsed.parameters
            if p.declarator is not None
        ]
        return w.MemberType(opnum, parsed.name, kinds[0] if kinds else "method", dispid, parameters)

    def _operation(self, opnum: int, parsed: s.OperationDecl) -> w.OperationType:
        members = [m for m in parsed.parameters if m.type != s.TypeName("handle_t")]
        parameters = self._members(members, parameter=True)
        for member, resolved in zip(members, parameters, strict=True):
            resolved.directions = frozenset(d for d in ("in", "out") if d in member.attributes)
        result = None
        if parsed.result != s.TypeName("void"):
            resolved_result = self._base(parsed.result, "")
            if not isinstance(resolved_result, w.Primitive | w.Enum):
                raise IdlError(f"line {parsed.line}: {parsed.name} returns something other than a scalar")
            result = resolved_result
        used = "NotUsedOnWire" not in parsed.name
        prefix = next(
            (f"{kind[4:]}_" for kind in ("propget", "propput", "propputref") if kind in parsed.attributes), ""
        )
        return w.OperationType(opnum, prefix + parsed.name, parameters, result, used)

    # -- types -----------------------------------------------------------------------------------------------

    def _named(self, name: str) -> w.WireType:
        if name in _OVERRIDES:
            return _OVERRIDES[name]
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        if name in self._done:
            return self._done[name]
        if name in ("void", "handle_t"):
            raise NotMarshalled(f"{name} is not data")
        if name not in self._typedefs:
            if name in self._tags:
                return self._base(self._tags[name], name)
            raise IdlError(f"unknown type {name!r}")
        body, levels, attributes, default = self._typedefs[name]
        if "context_handle" in attributes or self._is_context_handle(body):
            self._done[name] = _CONTEXT_HANDLE
            return _CONTEXT_HANDLE
        if levels:
            saved, self._pointer_default = self._pointer_default, default
            result = self._build(body, levels, attributes, parameter=False)
            self._pointer_default = saved
        else:
            result = self._base(body, name)
        self._done[name] = result
        return result

    def _is_context_handle(self, body: s.TypeExpression) -> bool:
        return (
            isinstance(body, s.TypeName)
            and body.name in self._typedefs
            and ("context_handle" in self._typedefs[body.name][2])
        )

    def _base(self, body: s.TypeExpression, name: str) -> w.WireType:
        match body:
            case s.TypeName(name=referred):
                return self._named(referred)
            case s.EnumType():
                return self._enum(body, name or body.tag)
            case s.StructType(members=None, tag=tag) | s.UnionType(arms=None, tag=tag):
                if tag in self._done:
                    return self._done[tag]
                if tag not in self._tags:
                    raise IdlError(f"unknown tag {tag!r}")
                return self._base(self._tags[tag], self._typedef_of(tag))
            case s.StructType():
                return self._struct(body, name)
            case s.UnionType():
                return self._union_type(body, name)
            case _:
                raise NotMarshalled(
                    "SAFEARRAY(type) is how type libraries write an array; [MS-OAUT] marshals SAFEARRAY"
                )

    def _typedef_of(self, tag: str) -> str:
        """Return the typedef name of a tagged type, which the specifications use; else the tag."""
        for name, (body, levels, _, _) in self._typedefs.items():
            if not levels and body is self._tags[tag]:
                return name
        return tag

    def _enum_members(self, body: s.EnumType) -> dict[str, int]:
        members: dict[str, int] = {}
        following = 0
        for member, expression in body.members:
            value = following if expression is None else self._constant(expression, members)
            members[member] = value
            following = value + 1
        return members

    def _enum(self, body: s.EnumType, name: str) -> w.Enum:
        key = f"enum {body.tag or name}"
        if key not in self._done:
            enum = w.Enum(name, self._enum_members(body), body.v1)
            self._done[key] = enum
            self._own.enums.append(enum)
        found = self._done[key]
        assert isinstance(found, w.Enum)
        return found

    def _struct(self, body: s.StructType, name: str) -> w.Struct:
        for key in (name, body.tag):
            if key and isinstance(found := self._done.get(key), w.Struct):
                return found
        struct = w.Struct(name or body.tag, home=self._file)
        for key in (name, body.tag):
            if key:
                self._done[key] = struct
        assert body.members is not None
        for member in body.members:  # a structure declared in place is named after its owner and its field
            if isinstance(member.type, s.StructType) and not member.type.tag and member.declarator:
                member.type.tag = f"{struct.name}_{member.declarator.name}"
            elif isinstance(member.type, s.UnionType):
                for arm in member.type.arms or []:
                    if isinstance(arm.member.type, s.StructType) and not arm.member.type.tag and arm.member.declarator:
                        arm.member.type.tag = f"{struct.name}_{arm.member.declarator.name}"
        try:
            struct.fields.extend(self._members(body.members, parameter=False))
        except NotMarshalled:
            self._forget(struct)
            raise
        for f in struct.fields:
            if isinstance(f.type, w.Struct) and f.type.conformant and len(struct.fields) > 1:
                raise IdlError(f"{struct.name}.{f.name}: a conformant structure inside another has no codec")
        struct.recursive = _reaches(struct, struct, set())
        self._own.structs.append(struct)
        return struct

    def _forget(self, struct: w.Struct) -> None:
        self._done = {key: value for key, value in self._done.items() if value is not struct}

    def _union_type(self, body: s.UnionType, name: str) -> w.WireType:
        if body.switch is not None:
            return self._encapsulated(body, name)
        key = name or body.tag
        if key and key in self._done:
            return self._done[key]
        if body.switch_type is None:
            raise NotMarshalled(f"union {key!r} has neither switch_is nor switch_type")
        union = self._arms(body, key, self._discriminant(body.switch_type))
        union.home = self._file
        if key:
            self._done[key] = union
            self._own.structs.append(union)
        return union

    def _encapsulated(self, body: s.UnionType, name: str) -> w.Struct:
        assert body.switch is not None
        key = name or body.tag
        if isinstance(found := self._done.get(key), w.Struct):
            return found
        discriminant = self._discriminant(body.switch[0])
        union = self._arms(body, "", discriminant)
        union.encapsulated = True
        switch = w.Field(body.switch[1], discriminant)
        struct = w.Struct(key, home=self._file, fields=[switch, w.Field(body.union_name, union, switch=switch.name)])
        self._done[key] = struct
        self._own.structs.append(struct)
        return struct

    def _discriminant(self, expression: s.TypeExpression) -> w.Primitive | w.Enum:
        resolved = self._base(expression, "")
        if not isinstance(resolved, w.Primitive | w.Enum):
            raise IdlError("the discriminant of a union is a scalar")
        return resolved

    def _arms(self, body: s.UnionType, name: str, discriminant: w.Primitive | w.Enum) -> w.Union:
        assert body.arms is not None
        arms = []
        for arm in body.arms:
            labels = [self._constant(label) for label in arm.labels]
            arms.append(w.ArmType(labels, self._members([arm.member], parameter=False)[0] if arm.member.type else None))
        return w.Union(name, discriminant, arms)

    # -- members and parameters ------------------------------------------------------------------------------

    def _members(self, members: list[s.MemberDecl], parameter: bool) -> list[w.Field]:
        """Resolve members; unions last, because one declared in place needs the type of its switch."""
        resolved: dict[int, w.Field] = {}
        for unions in (False, True):
            for index, member in enumerate(members):
                if ("switch_is" in member.attributes) is unions:
                    try:
                        siblings = list(resolved.values())
                        resolved[index] = (
                            self._union_member(member, siblings, parameter)
                            if unions
                            else self._plain(member, parameter)
                        )
                    except NotMarshalled:
                        raise
                    except IdlError as error:
                        raise IdlError(f"line {member.line}: {error}") from None
        fields = [resolved[index] for index in range(len(members))]
        names = [f.name for f in fields]
        for index, f in enumerate(fields):
            f.switch_follows = bool(f.switch) and names.index(f.switch) > index
        return fields

    def _plain(self, member: s.MemberDecl, parameter: bool) -> w.Field:
        assert member.type is not None
        declarator = member.declarator or s.Declarator("", [])
        built = self._build(member.type, declarator.levels, member.attributes, parameter)
        bounds = self._range(member.attributes)
        if bounds is None and not declarator.levels:
            bounds = self._typedef_range(member.type)
        return w.Field(declarator.name, built, range=bounds)

    def _typedef_range(self, body: s.TypeExpression) -> tuple[int, int] | None:
        """Return the range of a scalar typedef; None if there is none."""
        while isinstance(body, s.TypeName) and body.name in self._typedefs:
            body, levels, attributes, _ = self._typedefs[body.name]
            if levels:
                break
            if "range" in attributes:
                return self._range(attributes)
        return None

    def _union_member(self, member: s.MemberDecl, siblings: list[w.Field], parameter: bool) -> w.Field:
        selector = member.attributes["switch_is"][0]
        assert selector is not None
        names = s.names_in(selector)
        if len(names) != 1:
            raise IdlError("switch_is takes the name of a field, or an expression over one")
        switch = s.Name(names.pop())
        assert member.type is not None
        declarator = member.declarator or s.Declarator("", [])
        if isinstance(member.type, s.UnionType) and member.type.arms is not None:
            named = [f.type for f in siblings if f.name == switch.text and isinstance(f.type, w.Primitive | w.Enum)]
            if not named:
                raise IdlError(f"switch_is({switch.text}) names no scalar field next to it")
            discriminant: w.WireType = named[0]
            if "switch_type" in member.attributes:  # the selector may be wider than the field that it repeats
                wider = member.attributes["switch_type"][0]
                assert isinstance(wider, s.Name)
                discriminant = self._named(wider.text)
            assert isinstance(discriminant, w.Primitive | w.Enum)
            union: w.WireType = self._arms(member.type, "", discriminant)
        else:
            union = self._build(member.type, declarator.levels, member.attributes, parameter)
        calculated = None if isinstance(selector, s.Name) else selector
        return w.Field(declarator.name, union, switch=switch.text, selector=calculated)

    def _range(self, attributes: s.Attributes) -> tuple[int, int] | None:
        bounds = attributes.get("range")
        if not bounds:
            return None
        low, high = bounds
        assert low is not None and high is not None
        return self._constant(low), self._constant(high)

    def _build(self, body: s.TypeExpression, levels: _Levels, attributes: s.Attributes, parameter: bool) -> w.WireType:
        """Fold the levels of pointers and arrays, innermost first, distributing size_is, length_is and string."""
        flat, kinds, base, is_string_typedef = self._flatten(body, levels)
        if base is None:
            raise IdlError("void is not a type of data")
        sizes = self._level_arguments(attributes, ("size_is", "max_is"))
        lengths = self._level_arguments(attributes, ("length_is",))
        string = "string" in attributes or is_string_typedef
        result: w.WireType = base
        count = len(flat)
        for index in range(count - 1, -1, -1):
            level = flat[index]
            size = sizes[index] if index < len(sizes) else None
            length = lengths[index] if index < len(lengths) else None
            innermost_string = string and index == count - 1
            if level == "*":
                if innermost_string:
                    result = w.Array(result, varying=True, string=True)
                elif size is not None or length is not None:
                    result = w.Array(result, size=size, length=length, varying=length is not None)
                result = w.Pointer(self._kind(index, kinds[index], attributes, parameter), result)
            elif level is None or (isinstance(level, s.Number) and level.value == -1):
                result = w.Array(result, size=size, length=length, varying=length is not None or innermost_string,
                                 string=innermost_string)  # fmt: skip
            else:
                assert not isinstance(level, str)
                result = self._fixed(result, self._constant(level), innermost_string, length)
        if parameter and isinstance(result, w.Array) and ("unique" in attributes or "ptr" in attributes):
            result = w.Pointer("unique" if "unique" in attributes else "full", result)
        return result

    def _fixed(self, element: w.WireType, count: int, string: bool, length: s.Expression | None) -> w.WireType:
        if isinstance(element, w.Primitive) and element.format == "B" and not string and length is None:
            return w.Opaque("bytes", count, 1)
        return w.Array(element, fixed=count, string=string, length=length, varying=string or length is not None)

    def _flatten(
        self, body: s.TypeExpression, levels: _Levels
    ) -> tuple[_Levels, list[w.PointerKind | None], w.WireType | None, bool]:
        """Unfold typedefs that hide pointers or arrays (LPWSTR, PSID), so that attributes reach every level.

        The kinds are those that typedefs specify for their pointers, None if they specify none.
        """
        string = False
        levels = list(levels)
        kinds: list[w.PointerKind | None] = [None] * len(levels)
        while isinstance(body, s.TypeName):
            if body.name == "void":
                return levels, kinds, None, string
            if body.name in self._interface_names:  # a pointer to an object is an OBJREF on the wire and may be NULL
                pointers = [index for index, level in enumerate(levels) if level == "*"]
                if not pointers:
                    raise NotMarshalled(f"{body.name} is an interface, which can only be passed as a pointer")
                kinds[pointers[-1]] = "unique"
                body = s.TypeName("MInterfacePointer")
                break
            if body.name in _OVERRIDES or body.name in _PRIMITIVES or body.name not in self._typedefs:
                break
            inner, inner_levels, attributes, default = self._typedefs[body.name]
            if "context_handle" in attributes or self._is_context_handle(inner):
                break
            if "string" in attributes:
                string = True
            if not inner_levels and not isinstance(inner, s.TypeName):
                break
            levels += inner_levels
            kinds += [default if index else _explicit_kind(attributes) for index in range(len(inner_levels))]
            body = inner
        return levels, kinds, self._base(body, ""), string

    def _level_arguments(self, attributes: s.Attributes, names: tuple[str, ...]) -> list[s.Expression | None]:
        for name in names:
            if name in attributes:
                arguments = attributes[name]
                if name == "max_is":
                    return [None if a is None else s.Binary("+", a, s.Number(1)) for a in arguments]
                return arguments
        return []

    def _kind(
        self, index: int, of_typedef: w.PointerKind | None, attributes: s.Attributes, parameter: bool
    ) -> w.PointerKind:
        """Return the kind of a pointer. Attributes apply to the outermost pointer and override its typedef; parameters
        default to ref. Pointers to interfaces are always unique ([MS-DCOM] 2.2.14)."""
        if index > 0:
            return of_typedef or self._pointer_default
        explicit = _explicit_kind(attributes) or of_typedef
        return explicit or ("ref" if parameter else self._pointer_default)

    # -- constants -------------------------------------------------------------------------------------------

    def _try_constant(self, expression: s.Expression) -> int | None:
        try:
            return self._constant(expression)
        except IdlError:
            return None

    def _constant(self, expression: s.Expression, local: dict[str, int] | None = None) -> int:
        match expression:
            case s.Number(value=value):
                return value
            case s.Name(text=name):
                if local and name in local:
                    return local[name]
                if name in self._constants:
                    return self._constants[name]
                raise IdlError(f"unknown constant {name!r}")
            case s.Unary(operator="-", operand=operand):
                return -self._constant(operand, local)
            case s.Unary(operator="~", operand=operand):
                return ~self._constant(operand, local)
            case s.Binary(operator=operator, left=left, right=right):
                a, b = self._constant(left, local), self._constant(right, local)
                operations: dict[str, Callable[[], int]] = {
                    "|": lambda: a | b, "&": lambda: a & b, "^": lambda: a ^ b, "+": lambda: a + b,
                    "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a // b, "<<": lambda: a << b,
                    ">>": lambda: a >> b,
                }  # fmt: skip
                if operator in operations:
                    return operations[operator]()
        raise IdlError("not a constant expression")


def _tag_for(definition: s.Typedef) -> str:
    """Return a tag for a type declared without one, so that all its declarators find the same type."""
    for declarator in definition.declarators:
        if not declarator.levels:
            return declarator.name
    return f"_{definition.declarators[0].name}"


def _explicit_kind(attributes: s.Attributes) -> w.PointerKind | None:
    if "ref" in attributes:
        return "ref"
    if "unique" in attributes:
        return "unique"
    return "full" if "ptr" in attributes else None


def _pointer_kind(attribute: list[s.Expression | None] | None) -> w.PointerKind:
    if attribute and isinstance(attribute[0], s.Name):
        if attribute[0].text == "ref":
            return "ref"
        if attribute[0].text == "ptr":
            return "full"
    return "unique"


def _children(wire_type: w.WireType) -> list[w.WireType]:
    match wire_type:
        case w.Pointer(to=to):
            return [to]
        case w.Array(element=element):
            return [element]
        case w.Struct(fields=fields):
            return [f.type for f in fields]
        case w.Union(arms=arms):
            return [arm.field.type for arm in arms if arm.field]
        case _:
            return []


def _reaches(start: w.WireType, target: w.WireType, seen: set[int]) -> bool:
    for child in _children(start):
        if child is target:
            return True
        if id(child) not in seen:
            seen.add(id(child))
            if _reaches(child, target, seen):
                return True
    return False


def _depth(interface: w.InterfaceType) -> int:
    """Return the number of base interfaces of an interface of objects, including IUnknown."""
    return 0 if interface.base is None else 1 + _depth(interface.base)


def _written(body: s.TypeExpression | None) -> str:
    return body.name if isinstance(body, s.TypeName) else ""


def _coclass(parsed: s.CoClassDecl) -> w.CoClassType:
    names = [name for attributes, name in parsed.interfaces if "source" not in attributes]
    sources = [name for attributes, name in parsed.interfaces if "source" in attributes]
    default = next((name for attributes, name in parsed.interfaces if "default" in attributes and name in names), "")
    identifier = parsed.attributes["uuid"][0]
    assert isinstance(identifier, s.Text)
    return w.CoClassType(parsed.name, identifier.value.lower(), names, sources, default)
