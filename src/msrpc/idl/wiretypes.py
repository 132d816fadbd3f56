"""Wire types: the resolved types of NDR 2.0 (C706 chapter 14), with alignment, sizes and pointer kinds.

The semantic pass creates these from the syntax tree; back ends and test generators read them. `ndr64.Widening` converts
them to NDR64: types with another wire format have `ndr64` set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from msrpc.idl.syntax import Expression

PointerKind = Literal["ref", "unique", "full"]


@dataclass(eq=False, slots=True)
class Primitive:
    """A scalar with a fixed size. `format` is its `struct` format character."""

    name: str
    format: str
    size: int

    @property
    def alignment(self) -> int:
        return self.size


@dataclass(eq=False, slots=True)
class Opaque:
    """Data of fixed size that is `bytes` in Python: GUIDs, context handles, fixed arrays of bytes."""

    name: str  # "GUID", "context_handle" or "bytes"
    size: int
    alignment: int


@dataclass(eq=False, slots=True)
class Enum:
    name: str
    members: dict[str, int]
    v1: bool
    ndr64: bool = False

    @property
    def size(self) -> int:
        """Size in bytes. Values are read as unsigned integers (D-198)."""
        return 4 if self.v1 or self.ndr64 else 2

    @property
    def alignment(self) -> int:
        return self.size


@dataclass(eq=False, slots=True)
class Pointer:
    kind: PointerKind
    to: WireType
    ndr64: bool = False

    @property
    def size(self) -> int:
        return 8 if self.ndr64 else 4

    @property
    def alignment(self) -> int:
        return self.size


@dataclass(eq=False, slots=True)
class Array:
    """An array of `fixed` elements, or a conformant array; it is `varying` if offset and count precede the elements.

    `string` adds the terminator that `[string]` requires. `size` and `length` are the expressions of size_is/length_is.
    """

    element: WireType
    fixed: int | None = None
    size: Expression | None = None
    length: Expression | None = None
    varying: bool = False
    string: bool = False
    ndr64: bool = False

    @property
    def count_size(self) -> int:
        """Size and alignment of the maximum count, the offset and the actual count."""
        return 8 if self.ndr64 else 4

    @property
    def alignment(self) -> int:
        """Alignment as a member of a structure. In NDR64, the maximum count, which is transferred before the structure,
        is ignored: it would cause padding in structures of smaller members (D-197)."""
        if (self.fixed is not None or self.ndr64) and not self.varying:
            return self.element.alignment
        return max(self.count_size, self.element.alignment)


@dataclass(eq=False, slots=True)
class ArmType:
    labels: list[int]  # empty: default
    field: Field | None


@dataclass(eq=False, slots=True)
class Union:
    """A union. `name` is empty if it is declared in place: its arms become attributes of the enclosing structure."""

    name: str
    discriminant: Primitive | Enum
    arms: list[ArmType]
    encapsulated: bool = False
    home: str = ""  # the IDL file that declares it
    ndr64: bool = False

    @property
    def alignment(self) -> int:
        return max(self.discriminant.alignment, self.arm_alignment)

    @property
    def arm_alignment(self) -> int:
        """The largest alignment of an arm, which is that of all arms in NDR64."""
        return max((arm.field.type.alignment for arm in self.arms if arm.field), default=1)


@dataclass(eq=False, slots=True)
class Field:
    name: str
    type: WireType
    switch: str = ""  # for a union: name of the field that selects the arm
    range: tuple[int, int] | None = None
    directions: frozenset[str] = frozenset()
    selector: Expression | None = None  # for a union: expression over `switch` that selects the arm, if any
    switch_follows: bool = False  # for a union: the selecting field follows it


@dataclass(eq=False, slots=True)
class Struct:
    name: str
    fields: list[Field] = field(default_factory=list)
    recursive: bool = False
    home: str = ""  # the IDL file that declares it
    ndr64: bool = False

    @property
    def conformant(self) -> Array | None:
        """The trailing conformant array, whose count precedes the structure (C706 14.3.7.1)."""
        if self.fields and isinstance(last := self.fields[-1].type, Array) and last.fixed is None:
            return last
        return None

    @property
    def alignment(self) -> int:
        return max((f.type.alignment for f in self.fields), default=1)


WireType = Primitive | Opaque | Enum | Pointer | Array | Union | Struct


@dataclass(eq=False, slots=True)
class OperationType:
    opnum: int
    name: str
    parameters: list[Field]
    result: Primitive | Enum | None
    used_on_wire: bool

    @property
    def inputs(self) -> list[Field]:
        return [p for p in self.parameters if "in" in p.directions]

    @property
    def outputs(self) -> list[Field]:
        return [p for p in self.parameters if "out" in p.directions]


@dataclass(eq=False, slots=True)
class ParameterType:
    """A parameter as declared; Automation uses this information."""

    name: str
    type: str  # as written: "BSTR*", "IMSMQQueue4**"
    attributes: frozenset[str]  # of "in", "out", "optional", "retval"


@dataclass(eq=False, slots=True)
class MemberType:
    """A method or property accessor of an interface that Automation can call ([MS-OAUT] 2.2.49.4.3)."""

    opnum: int | None  # None: of a dispinterface, called through Invoke only
    name: str
    kind: str  # "method", "propget", "propput" or "propputref"
    dispid: int
    parameters: list[ParameterType]


@dataclass(eq=False, slots=True)
class InterfaceType:
    """An interface of procedures, or with `is_object` one of objects, which begins with the operations of its base."""

    name: str
    uuid: str
    version: tuple[int, int]
    operations: list[OperationType]  # its own
    home: str = ""  # the IDL file that declares it
    is_object: bool = False
    base: InterfaceType | None = None
    members: list[MemberType] | None = None  # its own; None for an interface that is not for Automation

    @property
    def first_opnum(self) -> int:
        return 0 if self.base is None else self.base.first_opnum + len(self.base.operations)


@dataclass(eq=False, slots=True)
class CoClassType:
    """A class of objects. Its objects call the interfaces in `sources` (events)."""

    name: str
    uuid: str
    interfaces: list[str]
    sources: list[str]
    default: str


@dataclass(eq=False, slots=True)
class LibraryType:
    """The declarations of an IDL file, without imported ones."""

    constants: dict[str, int]
    enums: list[Enum]
    structs: list[Struct | Union]
    interfaces: list[InterfaceType]
    coclasses: list[CoClassType] = field(default_factory=list)


def has_pointers(wire_type: WireType) -> bool:
    """Whether a type has pointees, which follow the outermost construct (C706 14.3.12.3)."""
    match wire_type:
        case Pointer():
            return True
        case Array(element=element):
            return has_pointers(element)
        case Struct(fields=fields):
            return any(has_pointers(f.type) for f in fields)
        case Union(arms=arms):
            return any(arm.field is not None and has_pointers(arm.field.type) for arm in arms)
        case _:
            return False


def minimum_size(wire_type: WireType, depth: int = 0) -> int:
    """Return the minimum size of an element in bytes, used to reject counts that exceed the remaining data."""
    match wire_type:
        case Primitive() | Opaque() | Enum() | Pointer():
            return wire_type.size
        case Array(varying=True):
            return 2 * wire_type.count_size
        case Array(fixed=fixed, element=element):
            return fixed * minimum_size(element, depth + 1) if fixed is not None else wire_type.count_size
        case Struct(fields=fields):
            return sum(minimum_size(f.type, depth + 1) for f in fields) if depth < 8 else 1
        case Union():
            return wire_type.discriminant.size
    raise TypeError(wire_type)
