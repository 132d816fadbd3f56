"""MSMQQuery and MSMQQueueInfos ([MC-MQAC] 3.13, 3.14): public queues in the directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final
from uuid import UUID

from msrpc.dcom import coercion
from msrpc.dcom.server import CallContext
from msrpc.dcom.variant import VT, Variant
from msrpc.hresults import ComResult
from openmsmq.directory.lookup import Filter, Relation
from openmsmq.directory.provider import QueueRecord
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import ComError, HResult, MsmqError
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.mqac.objects import MqacObject, seconds_of
from openmsmq.protocols.mqac.queue_info import MSMQQueueInfo


def _guid(value: Variant) -> UUID:
    """Return the GUID in a BSTR, with or without braces (deviation D-112). Raises MsmqError, ComError."""
    text = coercion.to_text(value)
    try:
        return UUID(text or "")
    except ValueError:
        raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"{text!r} is no GUID") from None


def _text(value: Variant) -> str:
    return coercion.to_text(value) or ""


def _time(value: Variant) -> int:
    """Return a DATE in seconds since 1970 UTC. Raises MsmqError for an invalid time."""
    try:
        return seconds_of(value)
    except (ValueError, OverflowError):
        raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"{value.resolved.value} is not a date") from None


#: For each argument of LookupQueue: its index, the attribute, its conversion, and the index of its operator, if any.
_CRITERIA: Final[tuple[tuple[int, str, Callable[[Variant], Any], int | None], ...]] = (
    (0, "identifier", _guid, None),
    (1, "type", _guid, 5),
    (2, "label", _text, 6),
    (3, "create_time", _time, 7),
    (4, "modify_time", _time, 8),
    (9, "multicast_address", _text, 10),
)


class MSMQQuery(MqacObject):
    """3.13."""

    coclass = m.MSMQQuery
    not_implemented: ClassVar[frozenset[str]] = frozenset(["get_Properties"])

    async def LookupQueue(self, context: CallContext, *criteria: Variant | None) -> MSMQQueueInfos:
        """3.13.4.1.3, and 3.13.4.1.1 with fewer arguments."""
        found = MSMQQueueInfos(self.environment, filters_of(criteria))
        await found.probe(context)
        return found

    LookupQueue_v2 = LookupQueue


def filters_of(criteria: Sequence[Variant | None]) -> list[Filter]:
    """Return the query constraints, without those that are omitted or whose operator is REL_NOP (deviation D-111).
    Raises MsmqError, ComError."""
    filters = []
    for position, attribute, read, operator_position in _CRITERIA:
        value = criteria[position] if position < len(criteria) else None
        given = None if operator_position is None or value is None else criteria[operator_position]
        operator = m.REL_EQ if given is None or given.resolved.is_missing else coercion.to_integer(given, VT.I4)
        if operator not in (m.REL_NOP, *Relation):
            raise MsmqError(
                HResult.MQ_ERROR_INVALID_PARAMETER, f"the operator for {attribute} is {operator}, allowed: 0 to 6"
            )
        if value is not None and not value.resolved.is_missing and operator != m.REL_NOP:
            filters.append(Filter(attribute, Relation(operator), read(value)))
    return filters


class MSMQQueueInfos(MqacObject):
    """3.14: the queues found by a query. Each is read from the directory when the client requests it. An object that
    the client created itself has no query."""

    coclass = m.MSMQQueueInfos
    not_implemented: ClassVar[frozenset[str]] = frozenset(["get_Properties"])

    def __init__(self, environment: Environment, filters: list[Filter] | None = None) -> None:
        super().__init__(environment)
        self._filters = filters
        self._position = 0  # of the last returned queue

    async def probe(self, context: CallContext) -> None:
        """Raises MsmqError if the directory cannot answer the query."""
        await self._next(context)

    async def _next(self, context: CallContext) -> QueueRecord | None:
        if self._filters is None:
            raise _no_query()
        return await self.environment.public_queues.next(self._filters, self._position, self.caller(context))

    def Reset(self, context: CallContext) -> None:
        """3.14.4.1.1."""
        if self._filters is None:
            raise _no_query()
        self._position = 0

    async def Next(self, context: CallContext) -> MSMQQueueInfo | None:
        """3.14.4.1.2: NULL at the end. Deviation D-117: the directory is read now."""
        found = await self._next(context)
        if found is None:
            return None
        self._position = found.position
        info = MSMQQueueInfo(self.environment)
        info.take(found)
        return info


def _no_query() -> ComError:
    return ComError(ComResult.OLE_E_BLANK, "an MSMQQueueInfos is made by MSMQQuery.LookupQueue")
