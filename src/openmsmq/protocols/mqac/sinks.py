"""Event sinks ([MC-MQAC] 3.16.4.4): client objects that this server calls."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msrpc.dcom.budget import Charge
from msrpc.dcom.remote import RemoteExporter, RemoteProcesses
from msrpc.dcom.server import CallContext, ForeignReference
from msrpc.dcom.variant import VT, Variant, to_wire
from msrpc.interfaces import ms_oaut as o
from msrpc.interfaces.ms_dcom import STDOBJREF
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import ComError

_METHOD = 1


class Sink:
    """An advised sink. This server holds a reference and pings it until `close`."""

    def __init__(self, remote: RemoteProcesses, exporter: RemoteExporter, reference: STDOBJREF, charge: Charge) -> None:
        self._remote, self._exporter, self._reference, self._charge = remote, exporter, reference, charge
        remote.hold(exporter, reference.oid, reference.flags)

    @classmethod
    async def of(cls, context: CallContext, target: ForeignReference) -> Sink:
        """Create a sink from the object's events interface, or from IDispatch if it has none. Raises ComError,
        InsufficientResources."""
        remote, given = context.server.remote, target.reference
        charge = Charge(context.server.budgets.sinks, context.owner.source)
        charge.set(1)
        try:
            async with remote.reached(given, target.host) as exporter:
                # Deviation D-234: an IDispatch is enough.
                found = await _first(exporter, given.ipid, (m._DMSMQEventEvents.uuid, o.IDispatch.uuid))
        except BaseException:
            charge.set(0)
            raise
        return cls(remote, exporter, found, charge)

    async def invoke(self, context: CallContext, dispid: int, queue: Any, numbers: list[int]) -> None:
        """Call an event method, with the causality identifier of `context`. Its result is ignored: the methods have
        none (3.16.4.4), and programs return errors for events that they do not handle. Raises ComError if the call does
        not reach the sink, RpcConnectionError."""
        arguments = [Variant(VT.DISPATCH, queue), *[Variant(VT.I4, _signed(number)) for number in numbers]]
        wires: list[o.wireVARIANTStr | None] = [
            to_wire(argument, lambda target, _: context.marshal(target, o.IDispatch.uuid))
            for argument in reversed(arguments)
        ]
        request = o.IDispatch_Invoke_Request(
            dispIdMember=dispid, dwFlags=_METHOD, pDispParams=o.DISPPARAMS(wires, None, len(wires), 0)
        )
        # Deviation D-85: the text specifies opnums 7 and 8, but the IDL a dispinterface, whose methods are called
        # through Invoke.
        operation = o.IDispatch.operation("Invoke")
        await self._exporter.call(o.IDispatch, self._reference.ipid, operation, request, context.causality)

    async def close(self) -> None:
        """Release the sink. Raises ComError, RpcConnectionError."""
        self._charge.set(0)
        self._remote.drop(self._exporter, self._reference.oid)
        if self._exporter.is_open:
            await self._exporter.release([(self._reference.ipid, self._reference.cPublicRefs)])


async def _first(exporter: RemoteExporter, ipid: bytes, iids: tuple[UUID, ...]) -> STDOBJREF:
    failure: ComError | None = None
    for iid in iids:
        try:
            return await exporter.query(ipid, iid)
        except ComError as error:
            failure = error
    assert failure is not None
    raise failure


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number
