"""The syntax tree of an IDL file: the result of the parser, before names are resolved."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Name:
    text: str


@dataclass(frozen=True, slots=True)
class Number:
    value: int


@dataclass(frozen=True, slots=True)
class Text:
    value: str


@dataclass(frozen=True, slots=True)
class Unary:
    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Conditional:
    condition: Expression
    then: Expression
    otherwise: Expression


Expression = Name | Number | Text | Unary | Binary | Conditional

# Attribute name -> arguments; an omitted argument (`size_is(,n)`) is None.
Attributes = dict[str, list[Expression | None]]


@dataclass(slots=True)
class Declarator:
    """`levels` are ordered from the outside in: "*" for a pointer, an Expression or None (`[]`) for an array
    dimension."""

    name: str
    levels: list[str | Expression | None]


@dataclass(slots=True)
class TypeName:
    name: str


@dataclass(slots=True)
class EnumType:
    tag: str
    members: list[tuple[str, Expression | None]]
    v1: bool = False


@dataclass(slots=True)
class MemberDecl:
    """A member of a structure, an arm of a union or a parameter. `declarator` is None for an empty arm."""

    attributes: Attributes
    type: TypeExpression | None
    declarator: Declarator | None
    line: int


@dataclass(slots=True)
class ArmDecl:
    labels: list[Expression]  # empty: the default arm
    member: MemberDecl


@dataclass(slots=True)
class StructType:
    tag: str
    members: list[MemberDecl] | None  # None: a reference to a tag


@dataclass(slots=True)
class UnionType:
    tag: str
    arms: list[ArmDecl] | None
    switch: tuple[TypeExpression, str] | None = None  # encapsulated: discriminant type and name
    union_name: str = ""
    switch_type: TypeExpression | None = None  # from an attribute of its typedef


@dataclass(slots=True)
class SafeArrayType:
    element: TypeExpression


TypeExpression = TypeName | EnumType | StructType | UnionType | SafeArrayType


@dataclass(slots=True)
class Typedef:
    attributes: Attributes
    type: TypeExpression
    declarators: list[Declarator]
    line: int


@dataclass(slots=True)
class Constant:
    name: str
    value: Expression


@dataclass(slots=True)
class OperationDecl:
    name: str
    attributes: Attributes
    result: TypeExpression
    result_pointers: int
    parameters: list[MemberDecl]
    line: int


Definition = Typedef | Constant | TypeExpression


@dataclass(slots=True)
class InterfaceDecl:
    name: str
    attributes: Attributes
    base: str | None
    operations: list[OperationDecl] = field(default_factory=list)
    is_dispatch: bool = False

    @property
    def uuid(self) -> UUID | None:
        value = self.attributes.get("uuid")
        return UUID(value[0].value) if value and isinstance(value[0], Text) else None

    @property
    def is_object(self) -> bool:
        """Whether this is an interface of objects; Automation uses `odl` or `dual` instead of `object`."""
        return self.is_dispatch or self.base is not None or bool({"object", "odl", "dual"} & self.attributes.keys())


@dataclass(slots=True)
class CoClassDecl:
    name: str
    attributes: Attributes
    interfaces: list[tuple[Attributes, str]]


@dataclass(slots=True)
class File:
    imports: list[str] = field(default_factory=list)
    definitions: list[tuple[str, Definition]] = field(default_factory=list)  # (interface name or "", definition)
    interfaces: list[InterfaceDecl] = field(default_factory=list)
    coclasses: list[CoClassDecl] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)  # interfaces and coclasses announced as `interface IName;`


def names_in(expression: Expression) -> set[str]:
    """Return the names to which an expression refers."""
    match expression:
        case Name(text=text):
            return {text}
        case Unary(operand=operand):
            return names_in(operand)
        case Binary(left=left, right=right):
            return names_in(left) | names_in(right)
        case Conditional(condition=a, then=b, otherwise=c):
            return names_in(a) | names_in(b) | names_in(c)
    return set()
