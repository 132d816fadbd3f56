"""MSMQEvent ([MC-MQAC] 3.16): notifications to sinks of the client, through connection points."""

from __future__ import annotations

import logging
from typing import Any, ClassVar, Final
from uuid import UUID

from msrpc.dcom.remote import TIME_LIMIT
from msrpc.dcom.server import CallContext, ForeignReference
from msrpc.hresults import ComResult
from msrpc.interfaces.ms_dcom import IUnknown
from msrpc.ndr import Interface, Operation
from msrpc.waiting import answered_within
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import ComError, MsmqError
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.mqac.objects import MqacObject
from openmsmq.protocols.mqac.sinks import Sink

logger = logging.getLogger(__name__)

MOST_SINKS: Final = 64
ARRIVED, ARRIVED_ERROR = 0, 1  # DISPIDs of _DMSMQEventEvents


class MSMQEvent(MqacObject):
    """See the module. `sinks` maps cookies to sinks."""

    coclass = m.MSMQEvent
    not_implemented: ClassVar[frozenset[str]] = frozenset(["get_Properties"])

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.sinks: dict[int, Sink] = {}
        self._unanswered: dict[int, int] = {}  # calls by cookie
        self._next_cookie = 1
        self._is_released = False
        self._point: ConnectionPoint | None = None

    def query(self, iid: UUID) -> bool:
        return iid == m.IConnectionPointContainer.uuid or super().query(iid)

    def released(self) -> None:
        self._is_released = True
        for cookie in list(self.sinks):
            self.unadvise(cookie)

    @property
    def point(self) -> ConnectionPoint:
        """The only connection point."""
        if self._point is None:
            self._point = ConnectionPoint(self)
        return self._point

    def advise(self, sink: Sink) -> int:
        """Add a sink; return its cookie. Raises ComError if the event has been released while the sink was looked up,
        or others have been added up to the limit."""
        if self._is_released or len(self.sinks) >= MOST_SINKS:
            self.environment.spawn(_closed(sink))
            if self._is_released:
                raise ComError(ComResult.CONNECT_E_CANNOTCONNECT, "the event was released")
            raise ComError(ComResult.CONNECT_E_ADVISELIMIT, f"an event has at most {MOST_SINKS} sinks")
        cookie, self._next_cookie = self._next_cookie, self._next_cookie + 1
        self.sinks[cookie] = sink
        return cookie

    def unadvise(self, cookie: int) -> bool:
        """Remove a sink; return whether it existed."""
        sink = self.sinks.pop(cookie, None)
        if sink is not None:
            self.environment.spawn(_closed(sink))
        return sink is not None

    # -- IConnectionPointContainer, 3.16.4.1 -------------------------------------------------------------------

    def EnumConnectionPoints(self, context: CallContext, q: Any) -> Any:
        """3.16.4.1.1."""
        points = Enumeration((self.point,), m.IEnumConnectionPoints, m.IConnectionPoint.uuid)
        pointer = context.marshal(points, m.IEnumConnectionPoints.uuid)
        return m.IConnectionPointContainer_EnumConnectionPoints_Response(ppEnum=pointer)

    def FindConnectionPoint(self, context: CallContext, q: Any) -> Any:
        """3.16.4.1.2."""
        if UUID(bytes_le=q.riid) != m._DMSMQEventEvents.uuid:
            raise ComError(ComResult.CONNECT_E_NOCONNECTION, f"no connection point for {UUID(bytes_le=q.riid)}")
        pointer = context.marshal(self.point, m.IConnectionPoint.uuid)
        return m.IConnectionPointContainer_FindConnectionPoint_Response(ppCP=pointer)

    # -- IMSMQPrivateEvent, 3.16.4.3 ---------------------------------------------------------------------------

    def get_Hwnd(self, context: CallContext) -> int:
        """3.16.4.3.1: there are no windows here."""
        return 0

    def FireArrivedEvent(self, context: CallContext, pq: Any, msgcursor: int) -> None:
        """3.16.4.3.2."""
        self.fire(context, ARRIVED, pq, [msgcursor])

    def FireArrivedErrorEvent(self, context: CallContext, pq: Any, hrStatus: int, msgcursor: int) -> None:
        """3.16.4.3.3."""
        self.fire(context, ARRIVED_ERROR, pq, [hrStatus, msgcursor])

    def fire(self, context: CallContext, dispid: int, queue: Any, arguments: list[int]) -> None:
        """Call all sinks: Arrived (0) or ArrivedError (1). A sink may leave one call unanswered; further ones count as
        notifications of the caller, and a sink that they would exceed the limit for is dropped."""
        budget, source = context.server.budgets.notifications, context.owner.source
        for cookie, sink in list(self.sinks.items()):
            is_counted = cookie in self._unanswered
            try:
                if is_counted:
                    budget.take(source)
            except MsmqError as error:
                self._drop(context, cookie, error)
                continue
            self._unanswered[cookie] = self._unanswered.get(cookie, 0) + 1
            self.environment.spawn(self._call_sink(context, cookie, sink, dispid, queue, arguments, is_counted))

    async def _call_sink(
        self,
        context: CallContext,
        cookie: int,
        sink: Sink,
        dispid: int,
        queue: Any,
        arguments: list[int],
        is_counted: bool,
    ) -> None:
        try:
            async with answered_within(TIME_LIMIT):
                await sink.invoke(context, dispid, queue, arguments)
        except Exception as error:  # a dead or failing sink must not affect others
            self._drop(context, cookie, error)
        finally:
            if is_counted:
                context.server.budgets.notifications.give_back(context.owner.source)
            self._unanswered[cookie] -= 1
            if not self._unanswered[cookie]:
                del self._unanswered[cookie]

    def _drop(self, context: CallContext, cookie: int, error: Exception) -> None:
        """Remove a sink, once."""
        if self.unadvise(cookie):
            logger.warning("an event sink of %s could not be called and is dropped: %s", context.call.peer, error)


async def _closed(sink: Sink) -> None:
    """Release a sink; ignore errors, because its client may be gone."""
    try:
        await sink.close()
    except (MsmqError, OSError) as error:
        logger.debug("a sink could not be released: %s", error)


class ConnectionPoint:
    """IConnectionPoint of an event, 3.16.4.2."""

    def __init__(self, event: MSMQEvent) -> None:
        self._event = event

    def query(self, iid: UUID) -> bool:
        return iid in (IUnknown.uuid, m.IConnectionPoint.uuid)

    def released(self) -> None:
        """Do nothing: the event still exists."""

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any:
        return getattr(self, operation.name)(context, request)

    def GetConnectionInterface(self, context: CallContext, q: Any) -> Any:
        """3.16.4.2.1."""
        return m.IConnectionPoint_GetConnectionInterface_Response(pIID=m._DMSMQEventEvents.uuid.bytes_le)

    def GetConnectionPointContainer(self, context: CallContext, q: Any) -> Any:
        """3.16.4.2.2."""
        pointer = context.marshal(self._event, m.IConnectionPointContainer.uuid)
        return m.IConnectionPoint_GetConnectionPointContainer_Response(ppCPC=pointer)

    def Advise(self, context: CallContext, q: Any) -> Any:
        """3.16.4.2.3."""
        target = context.unmarshal(q.pUnkSink)
        if target is None:
            raise ComError(ComResult.E_POINTER, "pUnkSink is NULL")
        if not isinstance(target, ForeignReference):
            raise ComError(ComResult.CONNECT_E_CANNOTCONNECT, "the sink is an object of this server")
        if len(self._event.sinks) >= MOST_SINKS:
            raise ComError(ComResult.CONNECT_E_ADVISELIMIT, f"an event has at most {MOST_SINKS} sinks")
        return self._advise(context, target)

    async def _advise(self, context: CallContext, target: ForeignReference) -> Any:
        try:
            sink = await Sink.of(context, target)
        except MsmqError as error:
            logger.warning("an event sink of %s can't be reached: %s", context.call.peer, error)
            raise ComError(ComResult.CONNECT_E_CANNOTCONNECT, f"the sink can't be reached: {error}") from None
        return m.IConnectionPoint_Advise_Response(pdwCookie=self._event.advise(sink))

    def Unadvise(self, context: CallContext, q: Any) -> Any:
        """3.16.4.2.4."""
        if not self._event.unadvise(q.dwCookie):
            raise ComError(ComResult.CONNECT_E_NOCONNECTION, f"there is no connection {q.dwCookie}")
        return m.IConnectionPoint_Unadvise_Response()

    def EnumConnections(self, context: CallContext, q: Any) -> Any:
        """3.16.4.2.5."""
        found = Enumeration(tuple(self._event.sinks.items()), m.IEnumConnections, IUnknown.uuid)
        return m.IConnectionPoint_EnumConnections_Response(ppEnum=context.marshal(found, m.IEnumConnections.uuid))


class Enumeration:
    """IEnumConnectionPoints or IEnumConnections over a snapshot of items (3.16.4.5, 3.16.4.6)."""

    def __init__(self, items: tuple[Any, ...], interface: Interface, iid: UUID, position: int = 0) -> None:
        self._items, self._interface, self._iid, self._position = items, interface, iid, position

    def query(self, iid: UUID) -> bool:
        return iid in (IUnknown.uuid, self._interface.uuid)

    def released(self) -> None:
        """Do nothing: it holds no resources."""

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any:
        return getattr(self, operation.name)(context, operation, request)

    def Next(self, context: CallContext, operation: Operation, q: Any) -> Any:
        wanted = q.cConnections
        found = self._items[self._position : self._position + wanted]
        self._position += len(found)
        status = ComResult.S_OK if len(found) == wanted else ComResult.S_FALSE
        if self._interface is m.IEnumConnections:
            data = [m.CONNECTDATA(None, cookie) for cookie, _ in found]  # deviation D-86: only the cookies
            return m.IEnumConnections_Next_Response(rgcd=data, pcFetched=len(found), result=status, cConnections=wanted)
        pointers = [context.marshal(item, self._iid) for item in found]
        return m.IEnumConnectionPoints_Next_Response(
            ppCP=pointers, pcFetched=len(found), result=status, cConnections=wanted
        )

    def Skip(self, context: CallContext, operation: Operation, q: Any) -> Any:
        left = len(self._items) - self._position
        self._position += min(q.cConnections, left)
        assert operation.response is not None
        return operation.response(result=ComResult.S_OK if q.cConnections <= left else ComResult.S_FALSE)

    def Reset(self, context: CallContext, operation: Operation, q: Any) -> Any:
        self._position = 0
        assert operation.response is not None
        return operation.response()

    def Clone(self, context: CallContext, operation: Operation, q: Any) -> Any:
        clone = Enumeration(self._items, self._interface, self._iid, self._position)
        assert operation.response is not None
        return operation.response(ppEnum=context.marshal(clone, self._interface.uuid))
