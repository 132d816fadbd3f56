"""MSMQCollection ([MC-MQAC] 3.15): named values, and their enumerator (IEnumVARIANT, [MS-OAUT] 3.3)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msrpc.dcom import coercion
from msrpc.dcom.server import CallContext
from msrpc.dcom.variant import Variant, to_wire
from msrpc.interfaces import ms_oaut as o
from msrpc.interfaces.ms_dcom import IUnknown
from msrpc.ndr import Operation
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.protocols.environment import Environment
from openmsmq.protocols.mqac.objects import MqacObject

_MOST = 1024  # maximum number of values per call of Next


class MSMQCollection(MqacObject):
    """See the module. Keys are case-insensitive."""

    coclass = m.MSMQCollection

    def __init__(self, environment: Environment, values: dict[str, Variant] | None = None) -> None:
        super().__init__(environment)
        self._values = {key.lower(): value for key, value in (values or {}).items()}

    def Item(self, context: CallContext, Index: Variant | None) -> Variant:
        """3.15.4.1.1. Raises MsmqError MQ_ERROR_INVALID_PARAMETER."""
        key = (coercion.to_text(Index) or "") if Index is not None else ""
        if key.lower() not in self._values:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"the collection has no {key!r}")
        return self._values[key.lower()]

    def get_Count(self, context: CallContext) -> int:
        """3.15.4.1.2."""
        return len(self._values)

    def _NewEnum(self, context: CallContext) -> Enumerator:
        """3.15.4.1.3: enumerates the values in order."""
        return Enumerator(tuple(self._values.values()))


class Enumerator:
    """IEnumVARIANT over values that do not change."""

    def __init__(self, values: tuple[Variant, ...], position: int = 0) -> None:
        self._values, self._position = values, position

    def query(self, iid: UUID) -> bool:
        return iid in (IUnknown.uuid, o.IEnumVARIANT.uuid)

    def released(self) -> None:
        """Do nothing: it holds no resources."""

    def call(self, context: CallContext, operation: Operation, request: Any) -> Any:
        return getattr(self, operation.name)(context, request)

    def Next(self, context: CallContext, q: Any) -> Any:
        """[MS-OAUT] 3.3.4.1: S_FALSE if there are fewer values than requested."""
        found = self._values[self._position : self._position + min(q.celt, _MOST)]
        self._position += len(found)
        wires: list[o.wireVARIANTStr | None] = [
            to_wire(value, lambda target, by_dispatch: _marshal(context, target, by_dispatch)) for value in found
        ]
        return o.IEnumVARIANT_Next_Response(
            rgVar=wires, pCeltFetched=len(found), result=0 if len(found) == q.celt else 1, celt=q.celt
        )

    def Skip(self, context: CallContext, q: Any) -> Any:
        """[MS-OAUT] 3.3.4.2."""
        left = len(self._values) - self._position
        self._position += min(q.celt, left)
        return o.IEnumVARIANT_Skip_Response(result=0 if q.celt <= left else 1)

    def Reset(self, context: CallContext, q: Any) -> Any:
        """[MS-OAUT] 3.3.4.3."""
        self._position = 0
        return o.IEnumVARIANT_Reset_Response()

    def Clone(self, context: CallContext, q: Any) -> Any:
        """[MS-OAUT] 3.3.4.4."""
        pointer = context.marshal(Enumerator(self._values, self._position), o.IEnumVARIANT.uuid)
        return o.IEnumVARIANT_Clone_Response(ppEnum=pointer)


def _marshal(context: CallContext, target: Any, by_dispatch: bool) -> Any:
    return context.marshal(target, o.IDispatch.uuid if by_dispatch else IUnknown.uuid)
