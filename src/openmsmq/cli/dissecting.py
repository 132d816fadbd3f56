"""Decode bytes from the network: DCE/RPC PDUs with the fields of their calls (by the project's IDL), and message
packets.

A core without I/O; `decode` reads files and prints. Each PDU or packet yields a `DissectionFinding`. Bytes that cannot
be decoded yield one with an error; nothing is guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final
from uuid import UUID

from msrpc.interfaces import ms_rpce_epm, ms_rpce_mgmt
from msrpc.ndr import BadStubData, Interface, Operation, Structure
from msrpc.rpc.bind_pdus import Bind, BindAck, BindNak, ContextResult
from msrpc.rpc.call_pdus import FaultPdu, RequestPdu, Response, decode
from msrpc.rpc.pdu import HEADER_SIZE, NDR64, PFC_FIRST_FRAG, PFC_LAST_FRAG, AuthLevel, ByteOrder, Header
from msrpc.rpc.splitter import Splitter
from openmsmq.interfaces import ms_cmpo, ms_mqmp, ms_mqmr, ms_mqqp, ms_mqrr
from openmsmq.model.errors import RemoteProtocolError
from openmsmq.packet import BadPacket, MessagePacket, UserMessage
from openmsmq.packet.headers import SIGNATURE
from openmsmq.packet.reader import Reader

INTERFACES: Final = (
    ms_mqmp.qmcomm, ms_mqmp.qmcomm2, ms_mqmr.qmmgmt, ms_mqrr.RemoteRead, ms_mqqp.qm2qm,
    ms_cmpo.IXnRemote, ms_rpce_epm.ept, ms_rpce_mgmt.mgmt,
)  # fmt: skip
LARGEST_FRAGMENT: Final = 0xFFFF  # the largest that a header can declare; servers accept less
_ORDERS: Final = {"<": "little-endian", ">": "big-endian"}
_PACKET_SIGNATURE: Final = struct.pack("<I", SIGNATURE)


@dataclass(frozen=True, slots=True)
class DissectionFinding:
    """One PDU or packet: a one-line description, its fields, and the error, if any."""

    heading: str
    fields: Mapping[str, Any]
    error: str = ""


def find(data: bytes, interface: Interface | None = None) -> Iterator[DissectionFinding]:
    """Yield the contents of `data`: consecutive PDUs of both directions of one connection, or one message packet.

    Args:
        interface: interface of calls whose bind PDU is missing.
    """
    if not data:
        yield DissectionFinding("nothing", {}, "no bytes")
    elif data[4:8] == _PACKET_SIGNATURE:
        yield _packet(data)
    elif data[0] == 5:
        conversation = Conversation(interface)
        yield from conversation.feed("", data)
        yield from conversation.end()
    else:
        yield DissectionFinding(
            "unknown", {"data": data},
            "neither a DCE/RPC PDU (its first byte is 05) nor a message packet (bytes 4 to 7 are 4c494f52)",
        )  # fmt: skip


def find_stub(data: bytes, operation: Operation, is_response: bool, order: ByteOrder) -> DissectionFinding:
    """Decode a stub that has no header."""
    heading = f"{operation.name} {'response' if is_response else 'request'}, {_ORDERS[order]}, {len(data)} bytes"
    try:
        decoded = operation.decode_response(data, order) if is_response else operation.decode_request(data, order)
    except BadStubData as error:
        return DissectionFinding(heading, {"stub": data}, str(error))
    return DissectionFinding(heading, plain(decoded))


def _packet(data: bytes) -> DissectionFinding:
    try:
        return DissectionFinding("message packet", plain(MessagePacket.unpack(data)))
    except BadPacket as whole:
        try:
            cut = UserMessage.unpack(Reader(data), partial=True)
        except BadPacket:
            return DissectionFinding("message packet", {"data": data}, str(whole))
        return DissectionFinding("message packet", plain(cut), str(whole))


class Conversation:
    """The PDUs of one connection, in order. The binds show which interface a call belongs to."""

    def __init__(self, interface: Interface | None = None) -> None:
        self._interface = interface
        self._streams: dict[str, Splitter] = {}
        self._broken: set[str] = set()
        self._contexts: dict[int, UUID] = {}
        self._in_ndr64: set[int] = set()  # presentation contexts
        self._binds: dict[int, Bind] = {}  # calls without a response, by call identifier
        self._calls: dict[int, tuple[Interface, Operation]] = {}
        self._stubs: dict[tuple[bool, int], bytearray] = {}

    def feed(self, direction: str, data: bytes) -> Iterator[DissectionFinding]:
        """Add bytes of one direction and yield the findings that are now complete. A direction may have any name.

        After a framing error, the rest of that direction is skipped.
        """
        if direction in self._broken:
            return
        splitter = self._streams.setdefault(direction, Splitter(LARGEST_FRAGMENT))
        splitter.feed(data)
        while True:
            try:
                packet = splitter.next()
            except RemoteProtocolError as error:
                self._broken.add(direction)
                yield DissectionFinding("PDU", {"header": splitter.rest()}, str(error))
                return
            if packet is None:
                return
            yield self._finding(*packet)

    def end(self) -> Iterator[DissectionFinding]:
        """Yield the incomplete rest at the end of the data."""
        for direction, splitter in self._streams.items():
            if splitter.partial and direction not in self._broken:
                rest = splitter.rest()
                size = f" of {Header.unpack(rest, LARGEST_FRAGMENT).frag_length}" if len(rest) == HEADER_SIZE else ""
                yield DissectionFinding("PDU", {"header": rest}, f"it is truncated: the bytes end before its end{size}")
        for (is_request, call_id), stub in self._stubs.items():
            what = "request" if is_request else "response"
            yield DissectionFinding(f"{what}, call {call_id}", {"stub": bytes(stub)}, "its last fragment is missing")

    def _finding(self, header: Header, data: bytes) -> DissectionFinding:
        try:
            pdu = decode(header, data)
        except (RemoteProtocolError, struct.error) as error:
            return DissectionFinding(f"PDU of type {header.packet_type}", {"data": data}, str(error))
        name = type(pdu).__name__.removesuffix("Pdu")
        heading = f"{name}, call {header.call_id}, {_ORDERS[header.byte_order]}, {len(data)} bytes"
        match pdu:
            case RequestPdu() | Response():
                return self._call(heading, pdu, header.byte_order)
            case FaultPdu():
                _, operation = self._calls.pop(pdu.call_id, (None, None))
                of = f" of {operation.name}" if operation else ""
                return DissectionFinding(heading + of, {"status": f"{pdu.status:#010x}", "flags": pdu.flags})
            case Bind():
                self._contexts |= {each.context_id: each.abstract_syntax.uuid for each in pdu.contexts}
                self._binds[pdu.call_id] = pdu
                for each in pdu.contexts:
                    self._speaks(each.context_id, each.transfer_syntaxes[:1] == (NDR64,))
                asked = {
                    f"context {each.context_id}": f"{_name_of(each.abstract_syntax.uuid)}, {each.abstract_syntax}"
                    for each in pdu.contexts
                }
                return DissectionFinding(heading, asked | _sizes(pdu))
            case BindAck():
                bind = self._binds.pop(pdu.call_id, None)
                for each, granted in zip(bind.contexts if bind else (), pdu.answers, strict=False):
                    self._speaks(each.context_id, granted.transfer_syntax == NDR64)
                answers = [
                    ContextResult(each.result).name if each.result in tuple(ContextResult) else each.result
                    for each in pdu.answers
                ]
                return DissectionFinding(
                    heading, {"answers": answers, "secondary_address": pdu.secondary_address} | _sizes(pdu)
                )
            case BindNak():
                return DissectionFinding(heading, {"reason": pdu.reason})
        return DissectionFinding(heading, {})

    def _speaks(self, context_id: int, is_ndr64: bool) -> None:
        """Remember the transfer syntax of a presentation context."""
        if is_ndr64:
            self._in_ndr64.add(context_id)
        else:
            self._in_ndr64.discard(context_id)

    def _call(self, heading: str, pdu: RequestPdu | Response, order: ByteOrder) -> DissectionFinding:
        """Add a fragment of a call. The finding of the last one has the fields of the whole call."""
        if isinstance(pdu, RequestPdu):
            heading += f": {self._begin(pdu)}"
        else:
            _, operation = self._calls.get(pdu.call_id, (None, None))
            heading += f": {operation.name}" if operation else ""
        key = isinstance(pdu, RequestPdu), pdu.call_id
        shown: dict[str, Any] = {"context_id": pdu.context_id}
        if isinstance(pdu, RequestPdu) and pdu.object_uuid is not None:
            shown["object_uuid"] = pdu.object_uuid
        if pdu.verifier is not None and pdu.verifier.level == AuthLevel.PKT_PRIVACY:
            return DissectionFinding(heading, {**shown, "sealed": pdu.stub})
        if pdu.flags & PFC_FIRST_FRAG:
            self._stubs[key] = bytearray()
        elif key not in self._stubs:
            return DissectionFinding(heading, {**shown, "stub": pdu.stub}, "its first fragment is missing")
        self._stubs[key] += pdu.stub
        if not pdu.flags & PFC_LAST_FRAG:
            return DissectionFinding(heading, {**shown, "fragment": f"{len(pdu.stub)} bytes; more follow"})
        stub = bytes(self._stubs.pop(key))
        of = self._calls.get(pdu.call_id) if isinstance(pdu, RequestPdu) else self._calls.pop(pdu.call_id, None)
        if of is None:
            return DissectionFinding(heading, {**shown, "stub": stub}, self._why_unknown(pdu))
        read = of[1].decode_request if isinstance(pdu, RequestPdu) else of[1].decode_response
        try:
            return DissectionFinding(heading, {**shown, **plain(read(stub, order))})
        except BadStubData as error:
            return DissectionFinding(heading, {**shown, "stub": stub}, str(error))

    def _begin(self, pdu: RequestPdu) -> str:
        """Remember which operation a call is, and return its name."""
        uuid = self._contexts.get(pdu.context_id)
        interface = self._interface if uuid is None else _interfaces().get(uuid)
        if interface is None:
            return f"{_name_of(uuid) if uuid else 'unknown interface'}, opnum {pdu.opnum}"
        operations = interface.operations
        if pdu.opnum >= len(operations) or not operations[pdu.opnum].used_on_wire:
            return f"{interface.name}, opnum {pdu.opnum}, which does not exist"
        operation = operations[pdu.opnum]
        is_ndr64 = pdu.context_id in self._in_ndr64
        self._calls[pdu.call_id] = interface, operation.ndr64 if is_ndr64 else operation
        return f"{interface.name} {pdu.opnum} {operation.name}{' in NDR64' if is_ndr64 else ''}"

    def _why_unknown(self, pdu: RequestPdu | Response) -> str:
        if isinstance(pdu, Response):
            return "its request is missing or unknown"
        uuid = self._contexts.get(pdu.context_id)
        if uuid is not None:
            return f"unknown operation {pdu.opnum} of {_name_of(uuid)}"
        if self._interface is not None:
            return f"{self._interface.name} has no operation {pdu.opnum}"
        return f"the bind of context {pdu.context_id} is not in the input: give --interface"


@cache
def _interfaces() -> dict[UUID, Interface]:
    return {interface.uuid: interface for interface in INTERFACES}


def _name_of(uuid: UUID) -> str:
    interface = _interfaces().get(uuid)
    return interface.name if interface else str(uuid)


def _sizes(pdu: Bind | BindAck) -> dict[str, Any]:
    sizes = {"max_xmit_frag": pdu.max_xmit_frag, "max_recv_frag": pdu.max_recv_frag}
    return {**sizes, "assoc_group_id": pdu.assoc_group_id}


# -- values ------------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a decoded value as dictionaries, lists and scalars; bytes that are a message packet as its headers."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Structure):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    if isinstance(value, (list, tuple)):
        return [plain(element) for element in value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes) and value[4:8] == _PACKET_SIGNATURE:
        found = _packet(value)
        return {found.heading: found.fields} | ({"error": found.error} if found.error else {})
    return value
