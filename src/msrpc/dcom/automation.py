"""Objects for Automation ([MS-OAUT] 3.1): one table of operations, called by vtable or by name through IDispatch.

A class of objects specifies its coclass. Its methods have the names of the operations of the newest revision of its
interfaces: `Open`, `get_Label`, `put_Label`. Every revision is bound to them by opnum, because revisions only append
operations; they differ in calls by name and in the interfaces of returned objects. A method gets the context and the
arguments, None for omitted ones, and returns the result or an awaitable of it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final
from uuid import UUID

from msrpc.dcom import coercion
from msrpc.dcom.server import CallContext, is_awaitable
from msrpc.dcom.type_info import LibraryObject, TypeInfo
from msrpc.dcom.variant import EMPTY, VT, Variant, bstr, from_wire, text_of, to_wire
from msrpc.errors import ComError, HResultError
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_oaut as o
from msrpc.interfaces.ms_dcom import IUnknown
from msrpc.ndr import Interface, Operation
from msrpc.ndr.runtime import CoClass, Member, Parameter

logger = logging.getLogger(__name__)

METHOD, GET, PUT, PUTREF = 1, 2, 4, 8  # DISPATCH_METHOD and so on, 2.2.14
_KINDS: Final = {"method": METHOD, "propget": GET, "propput": PUT, "propputref": PUTREF}
_PREFIXES: Final = {"method": "", "propget": "get_", "propput": "put_", "propputref": "put_"}
DISPID_PROPERTYPUT: Final = -3
DISPID_UNKNOWN: Final = -1
_IID_NULL = bytes(16)
_FIRST_OPNUM: Final = 7  # after those of IUnknown and IDispatch
_INTEGERS: Final = {"long": VT.I4, "short": VT.I2, "HRESULT": VT.ERROR}


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


class _Slots:
    """Operations of an interface by opnum and by DISPID, and their names."""

    def __init__(self, interface: Interface, default: Interface) -> None:
        newest = {m.opnum: m for m in default.all_members} if _stem(default) == _stem(interface) else {}
        self.by_opnum: dict[int | None, Slot] = {}
        self.by_dispid: dict[int, list[Slot]] = {}
        self.dispids: dict[str, int] = {}
        for member in interface.all_members:
            bound = newest.get(member.opnum, member)
            slot = Slot(member, _PREFIXES[bound.kind] + bound.name, *_arguments(member.parameters))
            self.by_opnum[member.opnum] = slot
            self.by_dispid.setdefault(member.dispid, []).append(slot)
            self.dispids.setdefault(member.name.lower(), member.dispid)


@cache
def slots_of(interface: Interface, default: Interface) -> _Slots:
    """Return the table of an interface of a class with a default interface."""
    return _Slots(interface, default)


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


class AutomationObject:
    """An object with dual interfaces. Subclasses provide `coclass` and the methods; `interfaces_by_name` are the
    interfaces of parameters, `library` describes all classes; `not_implemented` are the methods that return E_NOTIMPL,
    as specified."""

    coclass: ClassVar[CoClass]
    interfaces_by_name: ClassVar[Mapping[str, Interface]]
    library: ClassVar[LibraryObject]
    not_implemented: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def interfaces(cls) -> tuple[Interface, ...]:
        """Return the dual interfaces."""
        return cls.coclass.interfaces

    @classmethod
    def missing(cls) -> Iterator[str]:
        """Yield the operations that should have a method but do not; for a check at startup."""
        for interface in cls.interfaces():
            for slot in slots_of(interface, cls.coclass.default).by_opnum.values():
                if slot.method not in cls.not_implemented and not hasattr(cls, slot.method):
                    yield f"{interface.name}::{slot.method}"

    def query(self, iid: UUID) -> bool:
        """Whether the object has an interface."""
        return iid in (IUnknown.uuid, o.IDispatch.uuid) or any(iid == i.uuid for i in self.interfaces())

    def released(self) -> None:
        """Called when the last reference to the object is released."""

    # -- calls -------------------------------------------------------------------------------------------------

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any:
        """See `server.ServedObject`."""
        if context.interface.members is None or operation.opnum < _FIRST_OPNUM:
            return getattr(self, operation.name)(context, request)
        slot = self._slots(context).by_opnum[operation.opnum]
        arguments = [_read(a, getattr(request, f"a{i}"), context) for i, a in enumerate(slot.inputs)]
        result = self.run(context, slot, arguments)
        if is_awaitable(result):
            return self._respond_later(context, operation, slot, result)
        return self._response(context, operation, slot, result)

    def run(self, context: CallContext, slot: Slot, arguments: list[Any]) -> Any:
        """Run an operation. Raises HResultError."""
        if slot.method in self.not_implemented:
            raise ComError(ComResult.E_NOTIMPL, f"{slot.member.name} is reserved")
        method: Callable[..., Any] = getattr(self, slot.method)
        return method(context, *arguments)

    async def _respond_later(
        self, context: CallContext, operation: Operation, slot: Slot, result: Awaitable[Any]
    ) -> Any:
        return self._response(context, operation, slot, await result)

    def _response(self, context: CallContext, operation: Operation, slot: Slot, result: Any) -> Any:
        assert operation.response is not None
        response = operation.response()
        if slot.output is not None:
            response.a0 = self._write(slot.output.kind, result, context)
        elif isinstance(result, int):  # a success that is not S_OK
            response.result = int(result)
        return response

    def _write(self, kind: str, value: Any, context: CallContext) -> Any:
        if kind == "BSTR":
            return bstr(value)
        if kind == "VARIANT":
            return to_wire(value, _marshal(context))
        if kind == "VARIANT_BOOL":
            return -1 if value else 0
        if kind in _INTEGERS:
            return _signed(kind, value)
        return context.marshal(value, self._iid(kind))

    def _iid(self, kind: str) -> UUID:
        """Return the interface of a result as declared by the called revision."""
        if kind in ("IDispatch", "IUnknown"):
            return o.IDispatch.uuid if kind == "IDispatch" else IUnknown.uuid
        return self.interfaces_by_name[kind].uuid

    def _slots(self, context: CallContext) -> _Slots:
        """Return the slots of the interface through which the object is called; plain IDispatch means the newest
        revision."""
        interface = context.interface if context.interface.members is not None else self.coclass.default
        return slots_of(interface, self.coclass.default)

    # -- IDispatch ---------------------------------------------------------------------------------------------

    def GetTypeInfoCount(self, context: CallContext, q: Any) -> Any:
        """3.1.4.1."""
        return o.IDispatch_GetTypeInfoCount_Response(pctinfo=1)

    def GetTypeInfo(self, context: CallContext, q: Any) -> Any:
        """3.1.4.2: for the interface through which the object is called; the language is ignored."""
        if q.iTInfo:
            raise ComError(ComResult.DISP_E_BADINDEX, f"there is one type information, not {q.iTInfo + 1}")
        interface = context.interface if context.interface.members is not None else self.coclass.default
        pointer = context.marshal(TypeInfo(interface, self.library), o.ITypeInfo.uuid)
        return o.IDispatch_GetTypeInfo_Response(ppTInfo=pointer)

    def GetIDsOfNames(self, context: CallContext, q: Any) -> Any:
        """3.1.4.3: the DISPID of a member, then those of its parameters, which are their positions.
        Case-insensitive."""
        if q.riid != _IID_NULL:
            raise ComError(ComResult.DISP_E_UNKNOWNINTERFACE, "riid is not IID_NULL")
        slots = self._slots(context)
        names = [(name or "").lower() for name in q.rgszNames]
        response = o.IDispatch_GetIDsOfNames_Response(rgDispId=[DISPID_UNKNOWN] * len(names))
        for index, name in enumerate(names):
            if index == 0:
                found = slots.dispids.get(name)
            else:
                member = slots.by_dispid.get(response.rgDispId[0], [])
                positions = {a.name.lower(): i for slot in member for i, a in enumerate(slot.inputs)}
                found = positions.get(name)
            if found is None:
                response.result = ComResult.DISP_E_UNKNOWNNAME
            else:
                response.rgDispId[index] = found
        return response

    def Invoke(self, context: CallContext, q: Any) -> Any:
        """3.1.4.4."""
        response = o.IDispatch_Invoke_Response(rgVarRef=q.rgVarRef)
        try:
            if q.riid != _IID_NULL:
                raise ComError(ComResult.DISP_E_UNKNOWNINTERFACE, "riid is not IID_NULL")
            slot = self._invoked(self._slots(context), q.dispIdMember, q.dwFlags)
            arguments = _invoked_arguments(slot, q, context, response)
        except ComError as error:
            response.result = error.hresult
            return response
        try:
            result = self.run(context, slot, arguments)
        except HResultError as error:
            return self._exception(response, slot, error)
        if is_awaitable(result):
            return self._invoke_later(context, slot, response, result)
        return self._invoke_result(context, slot, response, result)

    async def _invoke_later(self, context: CallContext, slot: Slot, response: Any, result: Awaitable[Any]) -> Any:
        try:
            value = await result
        except HResultError as error:
            return self._exception(response, slot, error)
        return self._invoke_result(context, slot, response, value)

    @staticmethod
    def _invoked(slots: _Slots, dispid: int, flags: int) -> Slot:
        """Return the operation for a DISPID and flags. Raises ComError DISP_E_MEMBERNOTFOUND."""
        wanted = flags & (METHOD | GET | PUT | PUTREF)
        if wanted & (PUT | PUTREF):  # revisions declare one or the other
            wanted |= PUT | PUTREF
        if wanted & (METHOD | GET):  # scripts cannot distinguish the two
            wanted |= METHOD | GET
        for slot in slots.by_dispid.get(dispid, ()):
            if _KINDS[slot.member.kind] & wanted:
                return slot
        raise ComError(ComResult.DISP_E_MEMBERNOTFOUND, f"no member {dispid} for flags {flags:#x}")

    def _exception(self, response: Any, slot: Slot, error: HResultError) -> Any:
        """Return a failure as an exception that contains its HRESULT (3.1.4.4 allows either; Windows objects do
        this)."""
        logger.debug("%s::%s failed: %s", self.coclass.name, slot.member.name, error)
        response.pExcepInfo = o.EXCEPINFO(
            bstrSource=bstr(self.coclass.name), bstrDescription=bstr(str(error)),
            bstrHelpFile=bstr(None), scode=error.hresult,
        )  # fmt: skip
        response.result = ComResult.DISP_E_EXCEPTION
        return response

    def _invoke_result(self, context: CallContext, slot: Slot, response: Any, value: Any) -> Any:
        if slot.output is None and isinstance(value, int):  # a success that is not S_OK
            response.result = int(value)
        result = EMPTY if slot.output is None else self._variant(slot.output.kind, value)
        response.pVarResult = to_wire(result, _marshal(context))
        return response

    @staticmethod
    def _variant(kind: str, value: Any) -> Variant:
        if kind == "VARIANT":
            found: Variant = value
            return found
        if kind == "BSTR":
            return Variant(VT.BSTR, value)
        if kind == "VARIANT_BOOL":
            return Variant(VT.BOOL, bool(value))
        if kind in _INTEGERS:
            return Variant(_INTEGERS[kind], _signed(kind, value))
        return Variant(VT.UNKNOWN if kind == "IUnknown" else VT.DISPATCH, value)


def _marshal(context: CallContext) -> Callable[[Any, bool], Any]:
    return lambda target, by_dispatch: context.marshal(target, o.IDispatch.uuid if by_dispatch else IUnknown.uuid)


def _signed(kind: str, value: int) -> int:
    """Convert an unsigned number of the model to a signed type: 0xFFFFFFFF becomes -1 for a long."""
    bits = 16 if kind == "short" else 32
    value &= (1 << bits) - 1
    return value if kind == "HRESULT" or value < 1 << (bits - 1) else value - (1 << bits)


def _read(argument: AutomationArgument, wire: Any, context: CallContext) -> Any:
    """Decode an argument of a vtable call."""
    kind = argument.kind
    if kind == "BSTR":
        return text_of(wire)
    if kind == "VARIANT":
        variant = from_wire(wire, context.unmarshal)
        return None if argument.optional and variant.is_missing else variant
    if kind == "VARIANT_BOOL":
        return wire != 0
    if kind in _INTEGERS:
        return wire
    return context.unmarshal(wire)


def _invoked_arguments(slot: Slot, q: Any, context: CallContext, response: Any) -> list[Any]:
    """Return the arguments of a call by name in parameter order. Raises ComError; sets pArgErr."""
    passed = _passed(q)
    named = q.pDispParams.rgdispidNamedArgs or []
    inputs = slot.inputs
    given: dict[int, int] = {}  # parameter -> index in rgvarg
    positional = len(passed) - len(named)
    for index, dispid in enumerate(named):
        position = len(inputs) - 1 if dispid == DISPID_PROPERTYPUT else dispid
        if not 0 <= position < len(inputs) or position in given:
            response.pArgErr = index
            raise ComError(ComResult.DISP_E_PARAMNOTFOUND, f"{slot.member.name} has no parameter {dispid}")
        given[position] = index
    for number in range(positional):  # they are in reverse order
        if number >= len(inputs) or number in given:
            raise ComError(ComResult.DISP_E_BADPARAMCOUNT, f"{slot.member.name} takes {len(inputs)} arguments")
        given[number] = len(passed) - 1 - number
    arguments: list[Any] = []
    for position, argument in enumerate(inputs):
        index = given.get(position, -1)
        if index < 0:
            if not argument.optional:
                raise ComError(ComResult.DISP_E_BADPARAMCOUNT, f"{slot.member.name}: {argument.name} is missing")
            arguments.append(None)
            continue
        try:
            arguments.append(_converted(argument, from_wire(passed[index], context.unmarshal)))
        except ComError:
            response.pArgErr = index
            raise
    return arguments


def _passed(q: Any) -> list[Any]:
    """Return rgvarg with arguments passed by reference inserted. Raises ComError."""
    parameters = q.pDispParams
    passed = list(parameters.rgvarg or [])
    named = parameters.rgdispidNamedArgs or []
    if len(passed) != parameters.cArgs or len(named) != parameters.cNamedArgs or len(named) > len(passed):
        raise ComError(ComResult.DISP_E_BADPARAMCOUNT, "cArgs and cNamedArgs do not match the arguments")
    for index, wire in zip(q.rgVarRefIdx, q.rgVarRef, strict=False):
        if not 0 <= index < len(passed):
            raise ComError(
                ComResult.E_INVALIDARG, f"rgVarRefIdx refers to argument {index}, but there are {len(passed)}"
            )
        passed[index] = wire
    return passed


def _converted(argument: AutomationArgument, variant: Variant) -> Any:
    """Convert an argument of a call by name to the type of its parameter. Raises ComError."""
    kind = argument.kind
    if kind == "VARIANT":
        resolved = variant.resolved
        return None if argument.optional and resolved.is_missing else resolved
    if variant.vt == VT.ERROR and variant.is_missing:
        raise ComError(ComResult.DISP_E_PARAMNOTOPTIONAL, f"{argument.name} is not optional")
    if kind == "BSTR":
        return coercion.to_text(variant)
    if kind == "VARIANT_BOOL":
        return coercion.to_boolean(variant)
    if kind in _INTEGERS:
        return coercion.to_integer(variant, _INTEGERS[kind])
    return coercion.to_object(variant)
