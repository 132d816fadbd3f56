"""`Dispatch` and `WithEvents`: objects of a server, and their events."""

from __future__ import annotations

import atexit
import os
import re
import threading
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from msrpc.dcom.remote import PING_PERIOD, RESOLVER_PORT
from msrpc.dcom.server import CallContext, ForeignReference
from msrpc.dcom.slots import METHOD
from msrpc.dcom.variant import from_wire
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_dcom as d
from msrpc.interfaces import ms_oaut as o
from msrpc.ndr import Operation
from msrpc.rpc.credentials import Credentials
from msrpc.rpc.pdu import AuthLevel
from openmsmq.com.apartment import Apartment
from openmsmq.com.proxies import CLASSES, INTERFACES, ComObject, wrap
from openmsmq.com.values import from_variant
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import ComError

_apartments: dict[tuple[Any, ...], Apartment] = {}
_lock = threading.Lock()
_NAME: Final = re.compile(r"(msmq\.)?(?P<name>msmq[a-z]+)(\.[1-9])?")
_EVENTS: Final = {0: "Arrived", 1: "ArrivedError"}


def connect(
    host: str = "localhost",
    port: int = RESOLVER_PORT,
    *,
    user: str | None = None,
    password: str = "",
    domain: str = "",
    level: AuthLevel | None = None,
    ping_seconds: float = PING_PERIOD,
) -> Apartment:
    """Return the connection for all objects of a host; the same for equal arguments. `port` is that of the endpoint
    mapper. With `user`, calls are authenticated with NTLM at `level` (default: PKT_INTEGRITY, which Windows requires);
    otherwise they are anonymous. Objects are pinged every `ping_seconds`, which must not exceed the server's ping
    period."""
    key = (host, port, user, password, domain, level, ping_seconds)
    with _lock:
        if key not in _apartments:
            security: dict[str, Any] = {}
            if user is not None:
                security = {
                    "credentials": Credentials(user, password, domain), "level": level or AuthLevel.PKT_INTEGRITY,
                }  # fmt: skip
            _apartments[key] = Apartment(host, port, security, ping_seconds)
        return _apartments[key]


def _after_fork() -> None:
    """Drop the apartments: their threads are only in the parent, which keeps the objects."""
    for apartment in _apartments.values():
        apartment.forked()
    _apartments.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork)


@atexit.register
def close_all() -> None:
    """Release all objects of all hosts and close their connections; a later `connect` opens a new one."""
    with _lock:
        closing = list(_apartments.values())
        _apartments.clear()
    for apartment in closing:
        apartment.close()


def Dispatch(name: str, host: str = "localhost", port: int = RESOLVER_PORT, **security: Any) -> Any:
    """Create an object of the class `name`: "MSMQ.MSMQQueueInfo", "MSMQQueueInfo" or a CLSID. A version at the end, as
    in "MSMQ.MSMQQueueInfo.1", is ignored: objects have the interfaces of all versions. The other arguments are those of
    `connect`. Raises ComError, RpcConnectionError, ValueError for an unknown name."""
    coclass = _coclass(name)
    apartment = connect(host, port, **security)
    return wrap(apartment, apartment.create(coclass.uuid, o.IDispatch.uuid), coclass.default.name)


def _coclass(name: str) -> Any:
    match = _NAME.fullmatch(name.lower())
    wanted = match["name"] if match is not None else name.lower().strip("{}")
    for coclass in CLASSES.values():
        if wanted in (coclass.name.lower(), str(coclass.uuid)):
            return coclass
    raise ValueError(f"unknown class {name!r}; allowed: {', '.join(sorted(CLASSES))}, with or without MSMQ.")


def CastTo(target: ComObject, interface: str) -> Any:
    """Return the same object with another of its interfaces, such as "IMSMQQueueManagement" of an MSMQManagement after
    Init. Raises ComError E_NOINTERFACE if the object does not have it, ValueError for an unknown name."""
    if interface not in INTERFACES:
        raise ValueError(f"unknown interface {interface!r}; allowed: {', '.join(sorted(INTERFACES))}")
    apartment: Apartment = target._apartment
    found = apartment.run(apartment.query(target._oleobj_, INTERFACES[interface].uuid))
    return wrap(apartment, found, interface)


class Events:
    """A sink that is connected to an event object; `close` disconnects it."""

    def __init__(self, apartment: Apartment, point: Any, cookie: int) -> None:
        self._apartment, self._point, self._cookie = apartment, point, cookie

    def close(self) -> None:
        """Disconnect the sink. Raises ComError, RpcConnectionError."""
        if self._point is not None:
            point, self._point = self._point, None
            request = m.IConnectionPoint_Unadvise_Request(dwCookie=self._cookie)
            self._apartment.run(_plain(point, m.IConnectionPoint, "Unadvise", request))

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def WithEvents(event: ComObject, handler: Any) -> Events:
    """Connect an MSMQEvent to `handler`, an object with `Arrived(queue, cursor)` and `ArrivedError(queue, error,
    cursor)`, or a class with these methods. They run in separate threads and may use the queue. Raises ComError,
    RpcConnectionError."""
    apartment: Apartment = event._apartment
    target = handler() if isinstance(handler, type) else handler
    return apartment.run(_advise(apartment, event, target))


async def _advise(apartment: Apartment, event: ComObject, handler: Any) -> Events:
    container = await apartment.query(event._oleobj_, m.IConnectionPointContainer.uuid)
    wanted = m.IConnectionPointContainer_FindConnectionPoint_Request(riid=m._DMSMQEventEvents.uuid.bytes_le)
    found = await _plain(container, m.IConnectionPointContainer, "FindConnectionPoint", wanted)
    point = await apartment.adopt(container.exporter, found.ppCP)
    if point is None:
        raise ComError(ComResult.CONNECT_E_NOCONNECTION, "the object has no connection point")
    sink = await apartment.export(_Sink(apartment, point.exporter, handler), point.exporter)
    request = m.IConnectionPoint_Advise_Request(pUnkSink=d.MInterfacePointer(len(sink), sink))
    answer = await _plain(point, m.IConnectionPoint, "Advise", request)
    return Events(apartment, point, answer.pdwCookie)


async def _plain(target: Any, interface: Any, name: str, request: Any) -> Any:
    """Call a method of an interface that is not for Automation. Raises ComError."""
    response = await target.exporter.call(interface, target.ipid, interface.operation(name), request)
    if response.result & 0x80000000:
        raise ComError(response.result, f"{interface.name}::{name}")
    return response


class _Sink:
    """The object that the server calls: _DMSMQEventEvents, through IDispatch."""

    def __init__(self, apartment: Apartment, exporter: Any, handler: Any) -> None:
        self._apartment, self._exporter, self._handler = apartment, exporter, handler

    def query(self, iid: UUID) -> bool:
        return iid in (d.IUnknown.uuid, o.IDispatch.uuid, m._DMSMQEventEvents.uuid)

    def released(self) -> None:
        """Do nothing when the server has released it."""

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any:
        return getattr(self, operation.name)(context, request)

    def GetTypeInfoCount(self, context: CallContext, q: Any) -> Any:
        return o.IDispatch_GetTypeInfoCount_Response(pctinfo=0)

    def GetTypeInfo(self, context: CallContext, q: Any) -> Any:
        raise ComError(ComResult.DISP_E_BADINDEX, "a sink has no type information")

    def GetIDsOfNames(self, context: CallContext, q: Any) -> Any:
        known = {name.lower(): dispid for dispid, name in _EVENTS.items()}
        found = [known.get((name or "").lower(), -1) for name in q.rgszNames]
        result = ComResult.DISP_E_UNKNOWNNAME if -1 in found else 0
        return o.IDispatch_GetIDsOfNames_Response(rgDispId=found, result=result)

    def Invoke(self, context: CallContext, q: Any) -> Any:
        """Deliver an event; the handler runs in a separate thread, so that it may call the server."""
        if q.dispIdMember not in _EVENTS or not q.dwFlags & METHOD:
            return o.IDispatch_Invoke_Response(rgVarRef=q.rgVarRef, result=ComResult.DISP_E_MEMBERNOTFOUND)
        self._apartment.spawn(self._handle(context, _EVENTS[q.dispIdMember], q.pDispParams.rgvarg or []))
        return o.IDispatch_Invoke_Response(rgVarRef=q.rgVarRef)

    async def _handle(self, context: CallContext, name: str, wires: list[Any]) -> None:
        arguments: list[Any] = []
        for wire in reversed(wires):
            value = from_wire(wire, context.unmarshal).resolved
            if isinstance(value.value, ForeignReference):
                pointer = d.MInterfacePointer(0, value.value.reference.pack())
                adopted = await self._apartment.adopt(self._exporter, pointer)
                arguments.append(None if adopted is None else wrap(self._apartment, adopted, "IMSMQQueue4"))
            else:
                arguments.append(from_variant(value))
        method: Callable[..., Any] | None = getattr(self._handler, name, None)
        if method is not None:
            threading.Thread(target=method, args=arguments, name=name, daemon=True).start()
