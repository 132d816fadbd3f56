"""Operations of dual interfaces ([MS-OAUT] 3.1) by opnum, by DISPID and by name; conversion of their arguments and
results. It is compiled, unlike the objects (`automation`), which have subclasses that are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from msrpc.dcom import coercion
from msrpc.dcom.server import CallContext
from msrpc.dcom.variant import VT, Variant, from_wire, text_of
from msrpc.errors import ComError
from msrpc.hresults import ComResult
from msrpc.ndr import Interface
from msrpc.ndr.runtime import Member, Parameter

METHOD: Final = 1  # DISPATCH_METHOD and so on, 2.2.14
GET: Final = 2
PUT: Final = 4
PUTREF: Final = 8
_ALL_FLAGS: Final = 0xF
_KINDS: Final = {"method": METHOD, "propget": GET, "propput": PUT, "propputref": PUTREF}
_PREFIXES: Final = {"method": "", "propget": "get_", "propput": "put_", "propputref": "put_"}
DISPID_PROPERTYPUT: Final = -3
DISPID_UNKNOWN: Final = -1
_MISSING: Final = -1
#: Integer types of parameters -> types of VARIANTs.
INTEGERS: Final[dict[str, int]] = {"long": VT.I4, "short": VT.I2, "HRESULT": VT.ERROR}


@dataclass(frozen=True, slots=True)
class AutomationArgument:
    """A parameter: `kind` is its type without pointers; the name of an interface means an object."""

    name: str
    kind: str
    optional: bool


@dataclass(frozen=True, slots=True)
class Slot:
    """An operation of an interface. `method` is the name of the Python method that implements it."""

    member: Member
    method: str
    inputs: tuple[AutomationArgument, ...]
    output: AutomationArgument | None


class Slots:
    """Operations of an interface by opnum and by DISPID, and their names."""

    def __init__(self, interface: Interface, default: Interface) -> None:
        newest = {m.opnum: m for m in default.all_members} if _stem(default) == _stem(interface) else {}
        self.by_opnum: dict[int | None, Slot] = {}
        self.by_dispid: dict[int, list[Slot]] = {}
        self.dispids: dict[str, int] = {}
        self._invoked: list[dict[int, Slot]] = [{} for _ in range(_ALL_FLAGS + 1)]  # by flags, then by DISPID
        for member in interface.all_members:
            bound = newest.get(member.opnum, member)
            slot = Slot(member, _PREFIXES[bound.kind] + bound.name, *_arguments(member.parameters))
            self.by_opnum[member.opnum] = slot
            self.by_dispid.setdefault(member.dispid, []).append(slot)
            self.dispids.setdefault(member.name.lower(), member.dispid)
            for flags, found in enumerate(self._invoked):
                if _KINDS[member.kind] & _meant(flags):
                    found.setdefault(member.dispid, slot)

    def invoked(self, dispid: int, flags: int) -> Slot:
        """Return the operation for a DISPID and flags. Raises ComError DISP_E_MEMBERNOTFOUND."""
        slot = self._invoked[flags & _ALL_FLAGS].get(dispid)
        if slot is None:
            raise ComError(ComResult.DISP_E_MEMBERNOTFOUND, f"no member {dispid} for flags {flags:#x}")
        return slot


def _meant(flags: int) -> int:
    """Return the kinds of operations that the flags of a call admit."""
    if flags & (PUT | PUTREF):  # revisions declare one or the other
        flags |= PUT | PUTREF
    if flags & (METHOD | GET):  # scripts cannot distinguish the two
        flags |= METHOD | GET
    return flags


@cache
def slots_of(interface: Interface, default: Interface) -> Slots:
    """Return the table of an interface of a class with a default interface."""
    return Slots(interface, default)


def _stem(interface: Interface) -> str:
    """Return the name of an interface without the revision number."""
    return interface.name.rstrip("0123456789")


def _arguments(parameters: tuple[Parameter, ...]) -> tuple[tuple[AutomationArgument, ...], AutomationArgument | None]:
    made = [
        (AutomationArgument(p.name, p.type.rstrip("*"), "optional" in p.attributes), "in" in p.attributes)
        for p in parameters
    ]
    outputs = [argument for argument, is_input in made if not is_input]
    assert len(outputs) <= 1
    return tuple(argument for argument, is_input in made if is_input), outputs[0] if outputs else None


def signed(kind: str, value: int) -> int:
    """Convert an unsigned number of the model to a signed type: 0xFFFFFFFF becomes -1 for a long."""
    bits = 16 if kind == "short" else 32
    value &= (1 << bits) - 1
    return value if kind == "HRESULT" or value < 1 << (bits - 1) else value - (1 << bits)


def read_argument(argument: AutomationArgument, wire: Any, context: CallContext) -> Any:
    """Decode an argument of a vtable call."""
    kind = argument.kind
    if kind == "BSTR":
        return text_of(wire)
    if kind == "VARIANT":
        variant = from_wire(wire, context.unmarshal)
        return None if argument.optional and variant.is_missing else variant
    if kind == "VARIANT_BOOL":
        return wire != 0
    if kind in INTEGERS:
        return wire
    return context.unmarshal(wire)


Passed = Variant | ComError


def unmarshaled(wires: list[Any] | None, context: CallContext) -> list[Passed]:
    """Decode the arguments of a call by name before anything else ([MS-DCOM] 3.1.1.5.4): references in them belong to
    the server, also if the call fails. An argument that cannot be decoded is its error."""
    found: list[Passed] = []
    for wire in wires or ():
        try:
            found.append(from_wire(wire, context.unmarshal))
        except ComError as error:
            found.append(error)
    return found


def invoked_arguments(
    slot: Slot, q: Any, by_value: list[Passed], by_reference: list[Passed], response: Any
) -> list[Any]:
    """Return the arguments of a call by name in parameter order. Raises ComError; sets pArgErr."""
    passed, named = _passed(q, by_value, by_reference)
    inputs = slot.inputs
    given = [_MISSING] * len(inputs)  # index in rgvarg of each parameter
    positional = len(passed) - len(named)
    for index, dispid in enumerate(named):
        position = len(inputs) - 1 if dispid == DISPID_PROPERTYPUT else dispid
        if not 0 <= position < len(inputs) or given[position] != _MISSING:
            response.pArgErr = index
            raise ComError(ComResult.DISP_E_PARAMNOTFOUND, f"{slot.member.name} has no parameter {dispid}")
        given[position] = index
    for number in range(positional):  # they are in reverse order
        if number >= len(inputs) or given[number] != _MISSING:
            raise ComError(ComResult.DISP_E_BADPARAMCOUNT, f"{slot.member.name} takes {len(inputs)} arguments")
        given[number] = len(passed) - 1 - number
    arguments: list[Any] = []
    for position, argument in enumerate(inputs):
        index = given[position]
        if index == _MISSING:
            if not argument.optional:
                raise ComError(ComResult.DISP_E_BADPARAMCOUNT, f"{slot.member.name}: {argument.name} is missing")
            arguments.append(None)
            continue
        try:
            arguments.append(converted(argument, _decoded(passed[index])))
        except ComError:
            response.pArgErr = index
            raise
    return arguments


def _decoded(value: Passed) -> Variant:
    if isinstance(value, ComError):
        raise value
    return value


def _passed(
    q: Any, by_value: list[Passed], by_reference: list[Passed]
) -> tuple[list[Passed], list[int]]:  # fmt: skip
    """Return rgvarg with arguments passed by reference inserted, and the DISPIDs of named arguments. Raises
    ComError."""
    parameters = q.pDispParams
    passed = list(by_value)
    named: list[int] = parameters.rgdispidNamedArgs or []
    if len(passed) != parameters.cArgs or len(named) != parameters.cNamedArgs or len(named) > len(passed):
        raise ComError(ComResult.DISP_E_BADPARAMCOUNT, "cArgs and cNamedArgs do not match the arguments")
    if q.rgVarRefIdx:
        for index, value in zip(q.rgVarRefIdx, by_reference, strict=False):
            if not 0 <= index < len(passed):
                raise ComError(
                    ComResult.E_INVALIDARG, f"rgVarRefIdx refers to argument {index}, but there are {len(passed)}"
                )
            passed[index] = value
    return passed, named


def converted(argument: AutomationArgument, variant: Variant) -> Any:
    """Convert an argument of a call by name to the type of its parameter. Raises ComError."""
    kind = argument.kind
    if kind == "VARIANT":
        resolved = variant.resolved
        return None if argument.optional and resolved.is_missing else resolved
    if variant.is_missing and variant.vt != VT.EMPTY:
        raise ComError(ComResult.DISP_E_PARAMNOTOPTIONAL, f"{argument.name} is not optional")
    if kind == "BSTR":
        return coercion.to_text(variant)
    if kind == "VARIANT_BOOL":
        return coercion.to_boolean(variant)
    if kind in INTEGERS:
        return coercion.to_integer(variant, INTEGERS[kind])
    return coercion.to_object(variant)


def characters_of_longest_text(arguments: list[Any]) -> int:
    """Return the number of characters of the longest text; 0 if there is none."""
    most = 0
    for argument in arguments:
        value = argument.resolved.value if isinstance(argument, Variant) else argument
        if isinstance(value, str) and len(value) > most:
            most = len(value)
    return most


def variant_of(kind: str, value: Any) -> Variant:
    """Return the result of a call by name. `kind` is its type."""
    if kind == "VARIANT":
        found: Variant = value
        return found
    if kind == "BSTR":
        return Variant(VT.BSTR, value)
    if kind == "VARIANT_BOOL":
        return Variant(VT.BOOL, bool(value))
    if kind in INTEGERS:
        return Variant(INTEGERS[kind], signed(kind, value))
    return Variant(VT.UNKNOWN if kind == "IUnknown" else VT.DISPATCH, value)
