"""T24: every operation of every interface works or returns a specific error; only those that the specification names
may return E_NOTIMPL."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from dcom.world import ComWorld
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_oaut as o
from openmsmq.protocols.mqac.classes import CLASSES
from openmsmq.protocols.mqac.objects import MqacObject

# MC-MQAC: 11 x Properties, Security of a queue, the objects of the directory of a destination, and Transaction.
MAY_BE_MISSING = {
    "MSMQApplication": {"get_Properties"}, "MSMQTransactionDispenser": {"get_Properties"},
    "MSMQCoordinatedTransactionDispenser": {"get_Properties"}, "MSMQTransaction": {"get_Properties", "get_Transaction"},
    "MSMQQueueInfo": {"get_Properties", "get_Security", "put_Security"}, "MSMQQueue": {"get_Properties"},
    "MSMQDestination": {"get_IADs", "put_IADs", "get_Destinations", "put_Destinations", "get_Properties"},
    "MSMQQuery": {"get_Properties"}, "MSMQQueueInfos": {"get_Properties"}, "MSMQEvent": {"get_Properties"},
    "MSMQMessage": {"get_Properties"},
}  # fmt: skip


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_only_the_operations_named_by_the_specification_are_not_implemented(kind: type[MqacObject]) -> None:
    assert kind.not_implemented == MAY_BE_MISSING.get(kind.__name__, set())
    assert not list(kind.missing())


def test_18_operations_are_reserved() -> None:
    assert sum(map(len, MAY_BE_MISSING.values())) == 18


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_slot_answers_by_vtable(kind: type[MqacObject]) -> None:
    """With default arguments: zeros, NULLs and empty VARIANTs."""
    world = ComWorld()

    async def sweep() -> Counter[int]:
        results: Counter[int] = Counter()
        for interface in kind.interfaces():
            for operation in interface.operations:
                if not operation.used_on_wire:
                    continue
                target = kind(world.protocols.environment)
                reference = world.export(target, interface)
                arguments: dict[str, Any] = (
                    {"rgszNames": ["Label"], "cNames": 1} if operation.name == "GetIDsOfNames" else {}
                )
                if operation.name == "Invoke":
                    arguments = {"dwFlags": 2, "pDispParams": o.DISPPARAMS(None, None, 0, 0)}  # type: ignore[arg-type]
                response = await world.call(reference.ipid, interface, operation.name, **arguments)
                results[response.result] += 1
                if response.result == ComResult.E_NOTIMPL:
                    assert operation.name.replace("putref_", "put_") in kind.not_implemented
                assert response.result != ComResult.E_UNEXPECTED, operation.name
        return results

    assert sum(asyncio.run(sweep()).values()) > 6


def test_676_slots_are_bound() -> None:
    from msrpc.dcom.slots import slots_of
    from msrpc.ndr import Interface
    from openmsmq.interfaces import mc_mqac as m

    bound = 0
    for interface in vars(m).values():
        if isinstance(interface, Interface) and interface.name.startswith("IMSMQ"):
            bound += len(slots_of(interface, interface).by_opnum)
    assert bound == 676
