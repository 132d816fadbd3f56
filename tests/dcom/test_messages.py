"""Each object through its vtable: properties can be read after they were set, queue names, collections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from dcom.world import ANONYMOUS, ComWorld
from msrpc.dcom.variant import VT, SafeArray, Variant, bstr, from_wire, text_of, to_wire
from msrpc.hresults import ComResult
from msrpc.interfaces import ms_oaut as o
from msrpc.ndr import Interface
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import HResult
from openmsmq.protocols.mqac.collection import MSMQCollection
from openmsmq.protocols.mqac.event import MSMQEvent
from openmsmq.protocols.mqac.message import PROPERTIES

Call = Callable[..., Awaitable[Any]]
OCTETS = VT.ARRAY | VT.UI1


def wire(vt: int, value: Any) -> o.wireVARIANTStr:
    return to_wire(Variant(vt, value), lambda target, by_dispatch: None)


def value_of(variant: o.wireVARIANTStr) -> Any:
    return from_wire(variant, lambda pointer: pointer).value


def caller(world: ComWorld, target: Any, interface: Interface) -> Call:
    """Return a function that calls operations of an object."""
    reference = world.export(target, interface)

    def call(name: str, **arguments: Any) -> Awaitable[Any]:
        return world.call(reference.ipid, interface, name, **arguments)

    return call


def test_a_property_that_was_put_is_returned_by_get() -> None:
    world = ComWorld()

    async def each() -> int:
        count = 0
        for wanted in PROPERTIES:
            if not wanted.is_writable:
                continue
            call = caller(world, world.new("Message"), m.IMSMQMessage4)
            name = wanted.names[0]
            read = "Class" if name == "MsgClass" else name
            if wanted.kind == "long":
                for value in wanted.allowed or (0, 1, -1, 0x7FFFFFFF):
                    assert not (await call(f"put_{name}", a0=value)).result
                    assert (await call(f"get_{read}")).a0 == value
                if wanted.allowed is not None:
                    refused = await call(f"put_{name}", a0=max(wanted.allowed) + 1)
                    assert refused.result == HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, name
            elif wanted.kind == "BSTR":
                assert not (await call(f"put_{name}", a0=bstr("tëxt"))).result
                assert text_of((await call(f"get_{read}")).a0) == "tëxt"
            elif wanted.kind == "guid":
                text = "{12345678-1234-1234-1234-123456789ABC}"
                assert not (await call(f"put_{name}", a0=bstr(text))).result
                assert text_of((await call(f"get_{read}")).a0) == text
                assert (await call(f"put_{name}", a0=bstr("x"))).result == HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
            else:
                data = bytes(range(20))
                assert not (await call(f"put_{name}", a0=wire(OCTETS, SafeArray.of(VT.UI1, data)))).result
                assert value_of((await call(f"get_{read}")).a0).values == data
                wrong = await call(f"put_{name}", a0=wire(VT.I4, 5))
                assert wrong.result == HResult.MQ_ERROR_ILLEGAL_PROPERTY_VT
            count += 1
        call = caller(world, world.new("Message"), m.IMSMQMessage4)
        for level in (0, 1, 2, 4, 8):
            assert not (await call("put_AuthLevel", a0=level)).result and (await call("get_AuthLevel")).a0 == level
        for name in ("SoapHeader", "SoapBody"):
            assert not (await call(f"put_{name}", a0=bstr("<x/>"))).result
        long = await call("put_Label", a0=bstr("x" * 250))
        assert long.result == HResult.MQ_ERROR_LABEL_TOO_LONG
        return count

    assert asyncio.run(each()) == sum(p.is_writable for p in PROPERTIES)


def test_the_context_of_the_caller_is_attached() -> None:
    world = ComWorld()
    message = world.new("Message")
    call = caller(world, message, m.IMSMQMessage4)

    async def both() -> None:
        for name in ("AttachCurrentSecurityContext", "AttachCurrentSecurityContext2"):
            message._attached = None
            assert not (await call(name)).result
            assert message._attached is not None and message._attached.sid is None  # an anonymous caller has no SID

    asyncio.run(both())


def test_properties_of_a_queue_are_put_and_updated() -> None:
    world = ComWorld()

    async def steps() -> None:
        call = caller(world, world.new("QueueInfo"), m.IMSMQQueueInfo4)
        await call("put_PathName", a0=bstr(".\\private$\\q"))
        service = "12345678-1234-1234-1234-123456789abc"
        values = {
            "Label": bstr("l"), "PrivLevel": 2, "Journal": 1, "Quota": 500, "Authenticate": 1, "JournalQuota": -1,
            "ServiceTypeGuid": bstr(service), "MulticastAddress": bstr("234.1.1.1:8001"),
        }  # fmt: skip
        for name, value in values.items():
            assert not (await call(f"put_{name}", a0=value)).result, name
        created = await call("Create", a0=wire(VT.BOOL, False), a1=None)
        assert not created.result
        other = caller(world, world.new("QueueInfo"), m.IMSMQQueueInfo4)
        await other("put_FormatName", a0=(await call("get_FormatName")).a0)
        for name, value in values.items():
            found = (await other(f"get_{name}")).a0
            assert (text_of(found), "text")[0] == text_of(value) if not isinstance(value, int) else found == value, name
        assert text_of((await other("get_PathName")).a0).endswith("\\private$\\q")  # type: ignore[union-attr]
        assert (await other("put_BasePriority", a0=3)).result == HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
        for name, value in (("Journal", 5), ("Authenticate", 7), ("Journal", -1)):  # 3.10.4.1.14: only 0 is false
            assert not (await other(f"put_{name}", a0=value)).result
            assert (await other(f"get_{name}")).a0 == 1
        await other("put_Label", a0=bstr("changed"))
        assert not (await other("Update")).result
        await call("Refresh")
        assert text_of((await call("get_Label")).a0) == "changed"
        assert (await call("get_IsWorldReadable2")).a0 == -1

    asyncio.run(steps())


def test_a_destination_is_opened_changed_and_closed() -> None:
    world = ComWorld()

    async def steps() -> None:
        info = caller(world, world.new("QueueInfo"), m.IMSMQQueueInfo4)
        for name in ("a", "b"):
            await info("put_PathName", a0=bstr(f".\\private$\\{name}"))
            assert not (await info("Create", a0=None, a1=None)).result
        target = world.new("Destination")
        call, private = caller(world, target, m.IMSMQDestination), caller(world, target, m.IMSMQPrivateDestination)
        assert (await call("Open")).result == HResult.MQ_ERROR_INVALID_PARAMETER
        await call("put_PathName", a0=bstr(".\\private$\\a"))
        assert text_of((await call("get_FormatName")).a0) == "DIRECT=OS:HERE\\private$\\a"
        assert ((await call("Open")).result, (await call("Open")).result) == (0, ComResult.S_FALSE)
        first = value_of((await private("get_Handle")).a0)
        await call("put_FormatName", a0=bstr("DIRECT=OS:.\\private$\\a,DIRECT=OS:.\\private$\\b"))
        assert (await call("get_IsOpen")).a0 == -1 and text_of((await call("get_PathName")).a0) == ""
        second = value_of((await private("get_Handle")).a0)
        assert first and second and first != second
        assert not (await private("put_Handle", a0=wire(VT.I8, second))).result
        assert (await private("put_Handle", a0=wire(VT.I8, first))).result == ComResult.E_INVALIDARG
        assert ((await call("Close")).result, (await call("Close")).result) == (0, ComResult.S_FALSE)
        assert (await call("put_ADsPath", a0=bstr("LDAP://x"))).result == HResult.MQ_ERROR_NO_DS
        assert text_of((await call("get_ADsPath")).a0) is None

    asyncio.run(steps())


def test_a_queue_that_was_closed_is_not_closed_again_when_it_is_released() -> None:
    """Otherwise it would count as two openings less, and others could share what must not be shared."""
    world = ComWorld()

    async def steps() -> None:
        world.new("Queue").released()  # it was never opened
        info = caller(world, world.new("QueueInfo"), m.IMSMQQueueInfo4)
        await info("put_PathName", a0=bstr(".\\private$\\a"))
        assert not (await info("Create", a0=None, a1=None)).result

        async def opened(share: int) -> tuple[int, Any, Any]:
            answer = await info("Open", a0=1, a1=share)
            if answer.result:
                return answer.result, None, None
            queue = world.exporter.find(world.unpack(answer.a0).ipid, ANONYMOUS)
            assert queue is not None
            return 0, caller(world, queue.object.target, m.IMSMQQueue4), queue.object.target

        for _ in range(2):
            _, call, target = await opened(0)
            assert not (await call("Close")).result
            target.released()
        _, _, reader = await opened(0)
        assert (await opened(1))[0] == HResult.MQ_ERROR_SHARING_VIOLATION, "one is open"
        reader.released()
        assert (await opened(1))[0] == 0

    asyncio.run(steps())


def test_a_collection_is_counted_and_enumerated() -> None:
    world = ComWorld()
    values = {"One": Variant(VT.I4, 1), "Two": Variant(VT.BSTR, "2"), "Three": Variant(VT.UI8, 3)}
    collection = MSMQCollection(world.protocols.environment, values)

    async def steps() -> None:
        call = caller(world, collection, m.IMSMQCollection)
        assert (await call("get_Count")).a0 == 3
        assert value_of((await call("Item", a0=wire(VT.BSTR, "tWO"))).a0) == "2"
        assert (await call("Item", a0=wire(VT.BSTR, "four"))).result == HResult.MQ_ERROR_INVALID_PARAMETER
        pointer = (await call("_NewEnum")).a0
        enumerator = world.exporter.find(world.unpack(pointer).ipid, ANONYMOUS)
        assert enumerator is not None
        each = caller(world, enumerator.object.target, o.IEnumVARIANT)
        found = await each("Next", celt=2)
        assert [value_of(v) for v in found.rgVar] == [1, "2"] and found.result == 0
        clone = world.exporter.find(world.unpack((await each("Clone")).ppEnum).ipid, ANONYMOUS)
        assert clone is not None
        found = await each("Next", celt=5)
        assert [value_of(v) for v in found.rgVar] == [3] and found.result == ComResult.S_FALSE
        assert (await each("Skip", celt=1)).result == ComResult.S_FALSE
        await each("Reset")
        assert (await each("Skip", celt=3)).result == 0
        other = caller(world, clone.object.target, o.IEnumVARIANT)
        assert [value_of(v) for v in (await other("Next", celt=9)).rgVar] == [3]

    asyncio.run(steps())


def test_connection_points_are_found_and_enumerated() -> None:
    world = ComWorld()
    event: MSMQEvent = world.new("Event")
    events, wrong = m._DMSMQEventEvents.uuid.bytes_le, m.IMSMQEvent.uuid.bytes_le

    def target(pointer: Any) -> Any:
        found = world.exporter.find(world.unpack(pointer).ipid, ANONYMOUS)
        assert found is not None
        return found.object.target

    async def steps() -> None:
        call = caller(world, event, m.IConnectionPointContainer)
        point = target((await call("FindConnectionPoint", riid=events)).ppCP)
        assert (await call("FindConnectionPoint", riid=wrong)).result == ComResult.CONNECT_E_NOCONNECTION
        all_points = caller(world, target((await call("EnumConnectionPoints")).ppEnum), m.IEnumConnectionPoints)
        clone = caller(world, target((await all_points("Clone")).ppEnum), m.IEnumConnectionPoints)
        found = await all_points("Next", cConnections=2)
        assert [target(p) for p in found.ppCP] == [point] and found.result == ComResult.S_FALSE
        assert (await all_points("Skip", cConnections=1)).result == ComResult.S_FALSE
        assert not (await all_points("Reset")).result
        assert len((await clone("Next", cConnections=1)).ppCP) == 1
        at = caller(world, point, m.IConnectionPoint)
        assert (await at("GetConnectionInterface")).pIID == events
        assert target((await at("GetConnectionPointContainer")).ppCPC) is event
        assert (await at("Unadvise", dwCookie=5)).result == ComResult.CONNECT_E_NOCONNECTION
        assert (await at("Advise", pUnkSink=None)).result == ComResult.E_POINTER
        event.sinks[7] = Sink()  # type: ignore[assignment]
        listed = caller(world, target((await at("EnumConnections")).ppEnum), m.IEnumConnections)
        assert [data.dwCookie for data in (await listed("Next", cConnections=1)).rgcd] == [7]
        assert not (await at("Unadvise", dwCookie=7)).result

    asyncio.run(steps())


class Sink:
    """A sink that records its calls."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    async def invoke(self, context: Any, dispid: int, queue: Any, numbers: list[int]) -> None:
        self.told.append((dispid, queue, numbers))

    async def close(self) -> None:
        """Release the sink."""


def test_a_private_event_calls_the_sinks() -> None:
    world = ComWorld()
    event, sink = world.new("Event"), Sink()
    event.sinks[1] = sink

    async def steps() -> None:
        call = caller(world, event, m.IMSMQPrivateEvent)
        assert (await call("get_Hwnd")).a0 == 0
        await call("FireArrivedEvent", a0=None, a1=2)
        await call("FireArrivedErrorEvent", a0=None, a1=0xC00E001B, a2=1)
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(steps())
    assert sink.told == [(0, None, [2]), (1, None, [0xC00E001B, 1])]
