"""Objects for Automation ([MS-OAUT] 3.1): one table of operations, called by vtable or by name through IDispatch.

A class of objects specifies its coclass. Its methods have the names of the operations of the newest revision of its
interfaces: `Open`, `get_Label`, `put_Label`. Every revision is bound to them by opnum, because revisions only append
operations; they differ in calls by name and in the interfaces of returned objects. A method gets the context and the
arguments, None for omitted ones, and returns the result or an awaitable of it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, ClassVar, Final
from uuid import UUID

from msrpc.dcom.activation import interface_pointer
from msrpc.dcom.server import CallContext, ForeignReference, is_awaitable
from msrpc.dcom.slots import (
    DISPID_UNKNOWN,
    INTEGERS,
    Passed,
    Slot,
    Slots,
    characters_of_longest_text,
    invoked_arguments,
    read_argument,
    signed,
    slots_of,
    unmarshaled,
    variant_of,
)
from msrpc.dcom.type_info import LibraryObject, TypeInfo
from msrpc.dcom.variant import EMPTY, VT, Variant, bstr, to_wire
from msrpc.errors import ComError, HResultError
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_oaut as o
from msrpc.interfaces.ms_dcom import IUnknown
from msrpc.ndr import Interface, Operation
from msrpc.ndr.runtime import CoClass

logger = logging.getLogger(__name__)

_IID_NULL = bytes(16)
_FIRST_OPNUM: Final = 7  # after those of IUnknown and IDispatch
# Flags of Invoke for what the client ignores ([MS-OAUT] 3.1.4.4).
_ZERO_RESULT, _ZERO_EXCEPINFO, _ZERO_ARGERR = 0x20000, 0x40000, 0x80000
_NO_RESULT: Final = to_wire(EMPTY, lambda target, by_dispatch: None)


class AutomationObject:
    """An object with dual interfaces. Subclasses provide `coclass` and the methods; `interfaces_by_name` are the
    interfaces of parameters, `library` describes all classes; `not_implemented` are the methods that return E_NOTIMPL,
    as specified; `longest_text` is the maximum number of characters of an argument, because objects keep arguments in
    memory."""

    coclass: ClassVar[CoClass]
    interfaces_by_name: ClassVar[Mapping[str, Interface]]
    library: ClassVar[LibraryObject]
    not_implemented: ClassVar[frozenset[str]] = frozenset()
    longest_text: ClassVar[int]

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
        arguments = [read_argument(a, getattr(request, f"a{i}"), context) for i, a in enumerate(slot.inputs)]
        result = self.run(context, slot, arguments)
        if is_awaitable(result):
            return self._respond_later(context, operation, slot, result)
        return self._response(context, operation, slot, result)

    def run(self, context: CallContext, slot: Slot, arguments: list[Any]) -> Any:
        """Run an operation. Raises HResultError."""
        size = characters_of_longest_text(arguments)
        if size > self.longest_text:
            raise self.text_too_long(slot, size)
        if slot.method in self.not_implemented:
            raise ComError(ComResult.E_NOTIMPL, f"{slot.member.name} is reserved")
        method: Callable[..., Any] = getattr(self, slot.method)
        return method(context, *arguments)

    def text_too_long(self, slot: Slot, size: int) -> HResultError:
        """Return the error for an argument of `size` characters, more than `longest_text`."""
        return ComError(ComResult.E_INVALIDARG, f"{slot.member.name}: {size} characters, limit {self.longest_text}")

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
        if kind in INTEGERS:
            return signed(kind, value)
        return context.marshal(value, self._iid(kind))

    def _iid(self, kind: str) -> UUID:
        """Return the interface of a result as declared by the called revision."""
        if kind in ("IDispatch", "IUnknown"):
            return o.IDispatch.uuid if kind == "IDispatch" else IUnknown.uuid
        return self.interfaces_by_name[kind].uuid

    def _slots(self, context: CallContext) -> Slots:
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
        by_value, by_reference = (unmarshaled(wires, context) for wires in (q.pDispParams.rgvarg, q.rgVarRef))
        response = o.IDispatch_Invoke_Response(rgVarRef=_returned(context, q.rgVarRef, by_reference))
        try:
            if q.riid != _IID_NULL:
                raise ComError(ComResult.DISP_E_UNKNOWNINTERFACE, "riid is not IID_NULL")
            slot = self._slots(context).invoked(q.dispIdMember, q.dwFlags)
            arguments = invoked_arguments(slot, q, by_value, by_reference, response)
        except ComError as error:
            response.result = error.hresult
            if q.dwFlags & _ZERO_ARGERR:
                response.pArgErr = 0
            return response
        try:
            result = self.run(context, slot, arguments)
        except HResultError as error:
            return self._exception(q.dwFlags, response, slot, error)
        if is_awaitable(result):
            return self._invoke_later(context, q.dwFlags, slot, response, result)
        return self._invoke_result(context, q.dwFlags, slot, response, result)

    async def _invoke_later(
        self, context: CallContext, flags: int, slot: Slot, response: Any, result: Awaitable[Any]
    ) -> Any:
        try:
            value = await result
        except HResultError as error:
            return self._exception(flags, response, slot, error)
        return self._invoke_result(context, flags, slot, response, value)

    def _exception(self, flags: int, response: Any, slot: Slot, error: HResultError) -> Any:
        """Return a failure as an exception that contains its HRESULT (3.1.4.4 allows either; Windows objects do
        this), or only as this HRESULT if the client ignores EXCEPINFO."""
        logger.debug("%s::%s failed: %s", self.coclass.name, slot.member.name, error)
        if flags & _ZERO_EXCEPINFO:
            response.result = error.hresult
            return response
        response.pExcepInfo = o.EXCEPINFO(
            bstrSource=bstr(self.coclass.name), bstrDescription=bstr(str(error)),
            bstrHelpFile=bstr(None), scode=error.hresult,
        )  # fmt: skip
        response.result = ComResult.DISP_E_EXCEPTION
        return response

    def _invoke_result(self, context: CallContext, flags: int, slot: Slot, response: Any, value: Any) -> Any:
        if slot.output is None and isinstance(value, int):  # a success that is not S_OK
            response.result = int(value)
        output = slot.output
        if output is None:
            response.pVarResult = _NO_RESULT
        elif flags & _ZERO_RESULT:  # the client ignores it: an object that nobody else has is released
            response.pVarResult = _NO_RESULT
            if isinstance(value, AutomationObject):
                context.release(value)
        else:
            response.pVarResult = to_wire(variant_of(output.kind, value), _marshal(context))
        return response


def _returned(context: CallContext, wires: list[Any], values: list[Passed]) -> list[Any]:
    """Return the arguments by reference for the response. Objects are marshaled again: unmarshaling has taken the
    references that the request had ([MS-DCOM] 3.1.1.5.3, 3.1.1.5.4)."""
    marshal = _marshal_back(context)
    return [
        to_wire(value, marshal)
        if isinstance(value, Variant) and value.resolved.vt in (VT.DISPATCH, VT.UNKNOWN)
        else wire
        for wire, value in zip(wires or (), values, strict=True)
    ]


def _marshal_back(context: CallContext) -> Callable[[Any, bool], Any]:
    marshal = _marshal(context)

    def back(target: Any, by_dispatch: bool) -> Any:
        if not isinstance(target, ForeignReference):
            return marshal(target, by_dispatch)
        # The references of the request are released after the call; the client has its own.
        return interface_pointer(target.reference.without_references().pack())

    return back


def _marshal(context: CallContext) -> Callable[[Any, bool], Any]:
    return lambda target, by_dispatch: context.marshal(target, o.IDispatch.uuid if by_dispatch else IUnknown.uuid)
