"""impacket's DCOM client with an object resolver at any port."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from impacket.dcerpc.v5 import transport
from impacket.dcerpc.v5.dcom import oaut
from impacket.dcerpc.v5.dcom.oaut import IDispatch
from impacket.dcerpc.v5.dcomrt import INTERFACE, DCOMConnection
from impacket.dcerpc.v5.dtypes import NULL
from impacket.dcerpc.v5.rpcrt import RPC_C_AUTHN_LEVEL_NONE
from impacket.uuid import string_to_bin

from msrpc.dcom.variant import from_wire
from msrpc.interfaces import ms_oaut
from msrpc.interfaces.ms_dcom import COMVERSION, ORPCTHIS
from msrpc.ndr import Interface


class Connection(DCOMConnection):  # type: ignore[misc]
    """A client of one object resolver."""

    def __init__(
        self, host: str, port: int, user: str = "", password: str = "", level: int = RPC_C_AUTHN_LEVEL_NONE
    ) -> None:
        self._where, self._login, self._level = (host, port), (user, password), level
        super().__init__(host, user, password, authLevel=level)

    def initConnection(self) -> None:
        host, port = self._where
        link = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{host}[{port}]")
        link.set_credentials(*self._login)
        mapper = link.get_dce_rpc()
        mapper.set_auth_level(self._level)
        mapper.connect()
        self._DCOMConnection__portmap = mapper
        DCOMConnection.PORTMAPS[host] = mapper

    def create(self, clsid: str, iid: str) -> Any:
        """Create an object and return one of its interfaces."""
        return self.CoCreateInstanceEx(string_to_bin(clsid), (string_to_bin(iid) + b"\0\0\0\0"))

    def dispatch(self, clsid: str) -> IDispatch:
        """Create an object and return its IDispatch interface."""
        return IDispatch(self.create(clsid, "00020400-0000-0000-c000-000000000046"))

    def new(self, name: str) -> Object:
        """Create an object of one of our classes, named without the prefix MSMQ."""
        return Object(self.dispatch(CLSIDS[name]))

    def disconnect(self) -> None:
        super().disconnect()
        INTERFACE.CONNECTIONS.pop(self._where[0], None)


# -- objects by name ---------------------------------------------------------------------------------------------------

IID_IDISPATCH = "00020400-0000-0000-c000-000000000046"
METHOD, GET, PUT, PUTREF = 1, 2, 4, 8
MISSING = object()  # an omitted argument
CLASSES = {
    "Query": "d7d6e073", "Message": "d7d6e075", "Queue": "d7d6e079", "Event": "d7d6e07a", "QueueInfo": "d7d6e07c",
    "QueueInfos": "d7d6e07e", "Transaction": "d7d6e080", "CoordinatedTransactionDispenser": "d7d6e082",
    "TransactionDispenser": "d7d6e084", "Application": "d7d6e086",
}  # fmt: skip
CLSIDS = {name: f"{head}-dccd-11d0-aa4b-0060970debae" for name, head in CLASSES.items()} | {
    "Destination": "eba96b18-2168-11d3-898c-00e02c074f6b",
    "Collection": "f72b9031-2f0c-43e8-924e-e6052cdc493f",
    "Management": "39ce96fe-f4c5-4484-a143-4c2d5d324229",
    "OutgoingQueueManagement": "0188401c-247a-4fed-99c6-bf14119d7055",
    "QueueManagement": "33b6d07e-f27d-42fa-b2d7-bf82e11e9374",
}


@dataclass(frozen=True)
class TypedValue:
    """A value with its VARTYPE."""

    vt: int
    value: Any


class Refused(Exception):
    """A call failed. `hresult` is that of the operation, even if Invoke returned it as an exception."""

    def __init__(self, hresult: int, text: str) -> None:
        super().__init__(f"0x{hresult:08X} {text}")
        self.hresult = hresult


class Object:
    """An object used through IDispatch: `get`, `put` and `call` by name, with Python values."""

    def __init__(self, dispatch: IDispatch) -> None:
        self.dispatch = dispatch

    def get(self, name: str, *arguments: Any) -> Any:
        return self.invoke(name, GET, arguments)

    def put(self, name: str, value: Any, flags: int = PUT) -> None:
        self.invoke(name, flags, (value,), {-3: 0})

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call a method; named arguments are passed by the DISPIDs of the parameters."""
        if not named:
            return self.invoke(name, METHOD, arguments)
        dispids = self.ids(name, *named)[1:]
        values = (*named.values(), *reversed(arguments))
        return self.invoke(name, METHOD, tuple(reversed(values)), dict(zip(dispids, range(len(named)), strict=True)))

    def ids(self, *names: str) -> list[int]:
        try:
            found: list[int] = self.dispatch.GetIDsOfNames(names)
            return found
        except Exception as error:
            raise _refused(error) from None

    def invoke(self, name: str, flags: int, arguments: tuple[Any, ...], named: dict[int, int] | None = None) -> Any:
        """Call Invoke; `named` has the DISPIDs of the first values in rgvarg, in order."""
        return self.invoke_id(self.ids(name)[0], flags, arguments, named)

    def invoke_id(
        self, dispid: int, flags: int, arguments: tuple[Any, ...], named: dict[int, int] | None = None
    ) -> Any:
        parameters = oaut.DISPPARAMS(None, False)
        parameters["cArgs"] = len(arguments)
        parameters["cNamedArgs"] = len(named or {})
        parameters["rgvarg"] = [variant(a) for a in reversed(arguments)] if arguments else NULL
        parameters["rgdispidNamedArgs"] = [dispid & 0xFFFFFFFF for dispid in named] if named else NULL
        try:
            answer = self.dispatch.Invoke(dispid & 0xFFFFFFFF, 0x409, flags, parameters, 0, [], [])
        except Exception as error:
            raise _refused(error) from None
        return self._value(answer["pVarResult"])

    def array(self, name: str) -> Any:
        """Read an array result with our codec: impacket expects a SAFEARRAY where a pointer to one is sent."""
        dispid = self.ids(name)[0]
        none = ms_oaut.DISPPARAMS(None, None, 0, 0)
        request = ms_oaut.IDispatch_Invoke_Request(dispIdMember=dispid, dwFlags=METHOD | GET, pDispParams=none)
        answer = self.raw(ms_oaut.IDispatch, "Invoke", request)
        return from_wire(answer.pVarResult, lambda pointer: pointer).value.values

    def raw(self, interface: Interface, operation: str, request: Any) -> Any:
        """Send a stub of our codec through impacket."""
        mine = self.dispatch
        mine.connect(string_to_bin(str(interface.uuid)) + bytes(4))
        request.orpcthis = ORPCTHIS(version=COMVERSION(5, 7), cid=os.urandom(16))
        described = interface.operation(operation)
        link = mine.get_dce_rpc()
        link.call(described.opnum, described.encode_request(request), mine.get_iPid())
        response = described.decode_response(link.recv())
        if response.result & 0x80000000:
            raise Refused(response.result, operation)
        return response

    def _value(self, wire: Any) -> Any:
        vt = wire["vt"]
        union = wire["_varUnion"]
        if vt in (9, 13):
            pointer = union["pdispVal" if vt == 9 else "punkVal"]
            return None if isinstance(pointer, bytes) else self._object(b"".join(pointer["abData"]))
        if vt == 8:
            blob = union["bstrVal"]
            return None if blob["cBytes"] == 0xFFFFFFFF else blob["asData"]
        if vt in (0, 1):
            return None
        value = union[_ARMS[vt]]
        if vt == 6:
            return value["int64"]
        return value != 0 if vt == 11 else value

    def _object(self, reference: bytes) -> Object:
        mine = self.dispatch
        interface = INTERFACE(mine.get_cinstance(), reference, mine.get_ipidRemUnknown(), target=mine.get_target())
        return Object(IDispatch(interface))

    def query(self, iid: str) -> Object:
        """Query another interface of the object."""
        try:
            found = IDispatch(self.dispatch.RemQueryInterface(1, (string_to_bin(iid) + b"\0\0\0\0",)))
        except Exception as error:
            raise _refused(error) from None
        if not any(found.get_iPid()):  # impacket does not check the result of each interface
            raise Refused(0x80004002, iid)
        return Object(found)

    def release(self) -> None:
        self.dispatch.RemRelease()


_ARMS = {
    2: "iVal", 3: "lVal", 4: "fltVal", 5: "dblVal", 6: "cyVal", 7: "date", 10: "scode", 11: "boolVal", 16: "cVal",
    17: "bVal", 18: "uiVal", 19: "ulVal", 20: "llVal", 21: "ullVal", 22: "intVal", 23: "uintVal",
}  # fmt: skip


def variant(value: Any) -> Any:
    """Convert a Python value to impacket's VARIANT; use `TypedValue` for types other than int, str, bool and float."""
    wire = oaut.VARIANT(None, False)
    if value is MISSING:
        value = TypedValue(10, 0x80020004 - (1 << 32))
    if isinstance(value, Object):
        wire["clSize"], wire["vt"] = 20, 9
        union = wire["_varUnion"]
        union["tag"] = 9
        reference = value.dispatch.get_objRef()
        reference = reference[:28] + bytes(4) + reference[32:]  # does not transfer a reference
        union["pdispVal"]["ulCntData"] = len(reference)
        union["pdispVal"]["abData"] = list(reference)
        return wire
    if isinstance(value, bool):
        value = TypedValue(11, 0xFFFF if value else 0)
    elif isinstance(value, int):
        value = TypedValue(3, value)
    elif isinstance(value, float):
        value = TypedValue(5, value)
    elif isinstance(value, str):
        value = TypedValue(8, value)
    wire["clSize"], wire["vt"] = 5, value.vt
    wire["_varUnion"]["tag"] = value.vt
    if value.vt == 8:
        wire["_varUnion"]["bstrVal"]["asData"] = value.value
    elif value.vt == 6:
        wire["_varUnion"]["cyVal"]["int64"] = value.value
    elif value.vt:
        wire["_varUnion"][_ARMS[value.vt]] = value.value
    return wire


DISP_E_EXCEPTION = 0x80020009
# impacket omits rgVarRef, which precedes the result.
oaut.IDispatch_InvokeResponse.structure = (
    ("pVarResult", oaut.VARIANT), ("pExcepInfo", oaut.EXCEPINFO), ("pArgErr", oaut.UINT),
    ("rgVarRef", oaut.VARIANT_ARRAY), ("ErrorCode", oaut.error_status_t),
)  # fmt: skip


def _refused(error: Exception) -> Exception:
    """Return the error of the operation; with DISP_E_EXCEPTION, its HRESULT is in EXCEPINFO."""
    code = getattr(error, "error_code", None)
    if code is None:
        return error
    packet = error.get_packet() if hasattr(error, "get_packet") else None
    if code & 0xFFFFFFFF == DISP_E_EXCEPTION and packet is not None:
        info = packet["pExcepInfo"]
        return Refused(info["scode"] & 0xFFFFFFFF, info["bstrDescription"]["asData"])
    return Refused(code & 0xFFFFFFFF, str(error))
