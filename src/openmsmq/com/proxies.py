"""Proxies of objects for programs: properties, methods and their documentation are generated from the interface
tables."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from inspect import Parameter as Formal
from inspect import Signature
from typing import Any, Final

from msrpc.dcom.activation import interface_pointer
from msrpc.dcom.persistence import ObjectState, SavedObject
from msrpc.dcom.slots import DISPID_PROPERTYPUT, GET, METHOD, PUT, PUTREF
from msrpc.dcom.variant import VT, Variant, from_wire, text_of, to_wire
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_oaut as o
from msrpc.interfaces.ms_dcom import MInterfacePointer
from msrpc.ndr.runtime import CoClass, Interface, Member
from openmsmq.com.apartment import Apartment, RemoteObject
from openmsmq.com.values import from_variant, to_variant
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.constants import MAXIMUM_MESSAGE_SIZE
from openmsmq.model.errors import ComError, error_for

CLASSES: Final = {value.name: value for value in vars(m).values() if isinstance(value, CoClass)}
INTERFACES: Final = {value.name: value for value in vars(m).values() if isinstance(value, Interface)}
# Interface -> newest revision of the interface, whose names a proxy has.
_NEWEST: Final = {
    name: max(other for other in INTERFACES if other.rstrip("0123456789") == name.rstrip("0123456789"))
    for name in INTERFACES
}
_RESULTS: Final = {
    "Destination": "IMSMQDestination", "ResponseDestination": "IMSMQDestination", "ITransaction": "IMSMQTransaction",
}  # fmt: skip
_DEFAULT, _NEW_ENUM = 0, -4  # DISPID_VALUE, DISPID_NEWENUM
_PIECE: Final = 64  # values requested per call of Next
_PUT_KINDS: Final = ("propput", "propputref")


class ComObject:
    """An automation object of a server. It has the properties and methods of the newest revision of its interface;
    `help` and `dir` show them. Arguments may be named; `...` omits an argument."""

    _interface: Interface = o.IDispatch
    _members: dict[str, list[Member]] = {}  # noqa: RUF012, overridden by each subclass

    def __init__(self, apartment: Apartment, target: RemoteObject) -> None:
        object.__setattr__(self, "_apartment", apartment)
        object.__setattr__(self, "_oleobj_", target)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(members[0].name for members in self._members.values())]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._apartment.place.host}>"

    def __getattr__(self, name: str) -> Any:
        member = self._find(name, ("propget",))
        if member is not None:
            return self._invoke(member, GET, (), {})
        method = self._find(name, ("method",))
        if method is None:
            raise AttributeError(f"{type(self).__name__} has no {name}; see dir()")
        raise AttributeError(f"{type(self).__name__} has no {name}; the method is called {method.name}")

    def __setattr__(self, name: str, value: Any) -> None:
        member = self._find(name, _PUT_KINDS)
        if member is None:
            allowed = ", ".join(sorted(found[0].name for found in self._members.values() if len(found) > 1))
            raise AttributeError(f"{type(self).__name__} has no property {name} that can be set; allowed: {allowed}")
        flags = PUTREF if member.kind == "propputref" else PUT
        self._invoke(member, flags, (value,), {})

    @classmethod
    def _find(cls, name: str, kinds: tuple[str, ...]) -> Member | None:
        for member in cls._members.get(name.lower(), ()):
            if member.kind in kinds:
                return member
        return None

    def _invoke(self, member: Member, flags: int, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call through IDispatch. Raises MsmqError with the HRESULT of the operation."""
        positions = _positions(member)
        unknown = [name for name in named if name not in positions]
        if unknown or len(arguments) > len(positions):
            formal = ", ".join(positions)
            raise TypeError(f"{member.name}({formal}): {f'no {unknown[0]}' if unknown else 'too many arguments'}")
        values = [*named.values(), *reversed(arguments)]
        dispids = [positions[name] for name in named]
        if flags & (PUT | PUTREF):
            dispids = [DISPID_PROPERTYPUT]
        return self._apartment.run(self._call(member, flags, values, dispids))

    async def _call(self, member: Member, flags: int, values: list[Any], dispids: list[int]) -> Any:
        dispid = await self._dispid(member.name)
        wires: list[o.wireVARIANTStr | None] = [to_wire(await self._variant(value), _marshal) for value in values]
        parameters = o.DISPPARAMS(wires or None, dispids or None, len(wires), len(dispids))  # type: ignore[arg-type]
        request = o.IDispatch_Invoke_Request(dispIdMember=dispid, dwFlags=flags, pDispParams=parameters)
        target: RemoteObject = self._oleobj_
        response = await target.exporter.call(o.IDispatch, target.ipid, o.IDispatch.operation("Invoke"), request)
        if response.result & 0x80000000:
            raise _failure(response)
        return from_variant(await self._received(response.pVarResult, member))

    async def _variant(self, value: Any) -> Variant:
        """Return the VARIANT of an argument. The state of an object is passed as an exported object, which the server
        reads."""
        if not isinstance(value, ObjectState):
            return to_variant(value)
        exported = await self._apartment.export(SavedObject(value), self._oleobj_.exporter)
        return Variant(VT.UNKNOWN, interface_pointer(exported))

    async def _dispid(self, name: str) -> int:
        """Return the server's DISPID of a member, which is queried once ([MS-OAUT] 3.1.4.3)."""
        target: RemoteObject = self._oleobj_
        known: dict[tuple[int, str, str], int] = self._apartment.dispids
        key = (target.exporter.oxid, self._interface.name, name)
        if key not in known:
            request = o.IDispatch_GetIDsOfNames_Request(rgszNames=[name], cNames=1)
            operation = o.IDispatch.operation("GetIDsOfNames")
            response = await target.exporter.call(o.IDispatch, target.ipid, operation, request)
            if response.result & 0x80000000:
                raise ComError(response.result, f"{self._interface.name} has no {name} at this server")
            known[key] = response.rgDispId[0]
        return known[key]

    async def _received(self, wire: o.wireVARIANTStr | None, member: Member) -> Variant:
        """Return a result with proxies for its objects, or with their state for message bodies."""
        pointers: list[MInterfacePointer | None] = []
        variant = from_wire(wire, lambda pointer: pointers.append(pointer) or len(pointers) - 1)  # type: ignore[func-returns-value]
        if not pointers:
            return variant
        left = iter([await self._adopted(pointer, member) for pointer in pointers])
        return from_wire(wire, lambda pointer: next(left))

    async def _adopted(self, pointer: MInterfacePointer | None, member: Member) -> Any:
        apartment: Apartment = self._apartment
        target = await apartment.adopt(self._oleobj_.exporter, pointer)
        if target is None:
            return None
        if member.name == "Body":
            return await apartment.state_of(target, MAXIMUM_MESSAGE_SIZE)
        return wrap(apartment, target, _result(member))


class ComCollection(ComObject):
    """An object with _NewEnum. It can be iterated, called and subscripted, as in VBScript and PowerShell; the members
    for this have standard DISPIDs ([MS-OAUT] 2.2.32.1)."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self._apartment.run(self._enumerated(self._standard(_NEW_ENUM))))

    def __len__(self) -> int:
        count: int = self.Count
        return count

    def __bool__(self) -> bool:
        return True

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._invoke(self._standard(_DEFAULT), METHOD | GET, arguments, named)

    def __getitem__(self, key: Any) -> Any:
        return self._invoke(self._standard(_DEFAULT), METHOD | GET, (key,), {})

    def _standard(self, dispid: int) -> Member:
        return next(m for members in self._members.values() for m in members if m.dispid == dispid)

    async def _enumerated(self, member: Member) -> list[Any]:
        """Return all values (IEnumVARIANT, [MS-OAUT] 3.3)."""
        request = o.IDispatch_Invoke_Request(
            dispIdMember=member.dispid,
            dwFlags=METHOD | GET,
            pDispParams=o.DISPPARAMS(None, None, 0, 0),  # type: ignore[arg-type]
        )
        target: RemoteObject = self._oleobj_
        response = await target.exporter.call(o.IDispatch, target.ipid, o.IDispatch.operation("Invoke"), request)
        if response.result & 0x80000000:
            raise _failure(response)
        pointer = from_wire(response.pVarResult, lambda pointer: pointer).resolved.value
        unknown = await self._apartment.adopt(target.exporter, pointer)
        enumerator = await self._apartment.query(unknown, o.IEnumVARIANT.uuid)
        values: list[Any] = []
        while True:
            operation, wanted = o.IEnumVARIANT.operation("Next"), o.IEnumVARIANT_Next_Request(celt=_PIECE)
            answer = await enumerator.exporter.call(o.IEnumVARIANT, enumerator.ipid, operation, wanted)
            if answer.result & 0x80000000:
                raise ComError(answer.result, "IEnumVARIANT::Next")
            values += [from_variant(await self._received(wire, member)) for wire in answer.rgVar[: answer.pCeltFetched]]
            if answer.result or not answer.pCeltFetched:
                return values


def _marshal(target: Any, by_dispatch: bool) -> MInterfacePointer | None:
    if target is None or isinstance(target, MInterfacePointer):
        return target
    return interface_pointer(target._oleobj_.to_objref())


def _positions(member: Member) -> dict[str, int]:
    inputs = [p.name for p in member.parameters if "in" in p.attributes]
    return {name: index for index, name in enumerate(inputs)}


def _result(member: Member) -> str:
    """Return the interface of the objects that a member returns. If it is declared as IDispatch or VARIANT, the
    interface is from the text of the specification."""
    declared = next((p.type.rstrip("*") for p in member.parameters if "in" not in p.attributes), "")
    return declared if declared.startswith("IMSMQ") else _RESULTS.get(member.name, "IMSMQCollection")


def _failure(response: Any) -> Exception:
    hresult, text = response.result, ""
    if hresult == ComResult.DISP_E_EXCEPTION and response.pExcepInfo.scode:
        hresult, text = response.pExcepInfo.scode, text_of(response.pExcepInfo.bstrDescription) or ""
    if hresult >> 16 == 0xC00E:
        error = error_for(hresult)
        return error_for(hresult, text.removeprefix(f"{error.name}: "))
    return ComError(hresult, text)


@cache
def proxy_class(interface: Interface) -> type[ComObject]:
    """Return the proxy class for an interface; its methods have signatures and documentation."""
    members: dict[str, list[Member]] = {}
    for member in interface.all_members:
        members.setdefault(member.name.lower(), []).append(member)
    namespace: dict[str, Any] = {"_interface": interface, "_members": members, "__doc__": _documentation(interface)}
    for found in members.values():
        if found[0].kind == "method":
            namespace[found[0].name] = _method(found[0])
    is_collection = any(member.dispid == _NEW_ENUM for member in interface.all_members)
    return type(interface.name, (ComCollection if is_collection else ComObject,), namespace)


def _method(member: Member) -> Any:
    def call(self: ComObject, *arguments: Any, **named: Any) -> Any:
        return self._invoke(member, METHOD, arguments, named)

    formals = [Formal("self", Formal.POSITIONAL_OR_KEYWORD)]
    for p in member.parameters:
        if "in" in p.attributes:
            default = ... if "optional" in p.attributes else Formal.empty
            formals.append(Formal(p.name, Formal.POSITIONAL_OR_KEYWORD, default=default))
    call.__name__ = call.__qualname__ = member.name
    call.__doc__ = f"DISPID {member.dispid:#x}; {_types(member)}"
    call.__signature__ = Signature(formals)  # type: ignore[attr-defined]
    return call


def _types(member: Member) -> str:
    shown = [f"{p.name}: {p.type}" if "in" in p.attributes else f"returns {p.type[:-1]}" for p in member.parameters]
    return ", ".join(shown) or "no parameters"


def _documentation(interface: Interface) -> str:
    """Return the text for `help`: the properties and their types."""
    lines = [f"{interface.name} of MC-MQAC.", "", "Properties:"]
    writable = {member.name for member in interface.all_members if member.kind in _PUT_KINDS}
    for member in interface.all_members:
        if member.kind == "propget":
            access = "" if member.name in writable else " (read only)"
            lines.append(f"    {member.name}: {member.parameters[-1].type[:-1]}{access}")
    return "\n".join(lines)


def wrap(apartment: Apartment, target: RemoteObject, interface: str) -> ComObject:
    """Return a proxy for an object with an interface of this name or a later revision of it."""
    return proxy_class(INTERFACES[_NEWEST[interface]])(apartment, target)
