"""Server side of one connection, without I/O.

`receive_data` takes bytes and returns events: `Call` objects to serve, `CallCancelled`, `AuthQueryNeeded`, and at the
end `ConnectionEnded`. While `more` is set, it must be called again with no bytes. After `AuthQueryNeeded`, no further
events are returned until the caller has got the answer to the query: it then calls `answered`, and `receive_data`
again. `data_to_send` returns pending output; `on_output` is called when a reply adds output.

A connection ([MS-RPCE] 3.3.3.4, C706 11.1) begins with a bind, which joins an association. Further binds and
alter_contexts add presentation contexts and security contexts; requests refer to both by id. Invalid data from the peer
is answered with a fault. If the following data can no longer be interpreted, the connection ends.
Binding is implemented in `server_binding`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msrpc.errors import AuthenticationError, RemoteProtocolError
from msrpc.rpc.assembly import Account, Assembly, ReassemblyBudget
from msrpc.rpc.association import Association, AssociationTable
from msrpc.rpc.bind_pdus import AlterContext, Auth3, Bind, BindNak, RejectReason
from msrpc.rpc.call import Call, CallConnection, InterfaceTable, RpcCaller
from msrpc.rpc.call_pdus import CALL_HEADER_SIZE, OBJECT_SIZE, CoCancel, FaultPdu, Orphaned, decode, stub_start
from msrpc.rpc.channel import Channel, fragments
from msrpc.rpc.faults import (
    NCA_S_FAULT_REMOTE_NO_MEMORY,
    NCA_S_PROTO_ERROR,
    NCA_S_SERVER_TOO_BUSY,
    NCA_S_UNK_IF,
    RPC_S_ACCESS_DENIED,
)
from msrpc.rpc.limits import RpcLimits
from msrpc.rpc.pdu import (
    HEADER_SIZE,
    PFC_DID_NOT_EXECUTE,
    PFC_FIRST_FRAG,
    PFC_LAST_FRAG,
    PFC_OBJECT_UUID,
    PFC_WHOLE,
    AuthLevel,
    Header,
    PacketType,
    read_uuid_bytes,
)
from msrpc.rpc.security import AcceptorFactory, LoginObserver, NullObserver, Question
from msrpc.rpc.server_binding import Binder, BoundContext
from msrpc.rpc.splitter import Splitter
from msrpc.rpc.throttle import PeerFailures
from msrpc.rpc.verification import strip_trailer
from msrpc.rpc.whole_pdus import request, response

if TYPE_CHECKING:
    from msrpc.rpc.requests import Request


@dataclass(frozen=True, slots=True)
class CallCancelled:
    """The client canceled the call, or orphaned it, which means that it will not read a reply. The call may be a
    request of a `requests.Source`; once that is served, `waiting_call` returns its `Call`."""

    call: Any
    orphaned: bool


@dataclass(frozen=True, slots=True)
class ConnectionEnded:
    """The peer violated the protocol: send the remaining output, then close."""

    reason: str


@dataclass(frozen=True, slots=True)
class AuthQueryNeeded:
    """A login requires a query to another server. It continues when the query has been answered."""

    question: Question


Event = Call | CallCancelled | ConnectionEnded | AuthQueryNeeded

_CALL_FIELDS: Final = {"<": struct.Struct("<IHH"), ">": struct.Struct(">IHH")}


_LATE: Final = 150  # distance from the latest call id within which a fragment may be late
# Maximum number of events of one `receive_data`. A client may send thousands of small requests in one segment. Serving
# them in portions keeps the number of pending requests and the size of unsent replies small.
MAX_EVENTS: Final = 64


class ServerConnection(CallConnection):
    """See the module docstring. `acceptor` creates security contexts; without it, only unauthenticated binds are
    accepted."""

    def __init__(
        self,
        interfaces: InterfaceTable,
        associations: AssociationTable,
        *,
        peer_host: str = "",
        local_host: str = "",
        secondary_address: bytes = b"",
        acceptor: AcceptorFactory | None = None,
        limits: RpcLimits | None = None,
        budget: ReassemblyBudget | None = None,
        failures: PeerFailures | None = None,
        logins: LoginObserver | None = None,
    ) -> None:
        super().__init__(peer_host, local_host, failures or PeerFailures(lambda: 0.0))
        self.limits = limits or RpcLimits()
        self.on_output: Callable[[], None] | None = None
        self._associations = associations
        self._binder = Binder(
            interfaces, associations, peer_host, secondary_address, acceptor, self.limits, self.failures,
            logins or NullObserver(),
        )  # fmt: skip
        self._channels = self._binder.channels
        self._contexts = self._binder.contexts
        self._splitter = Splitter(self.limits.max_fragment)
        self._max_fragment = self.limits.max_fragment
        self.output: list[bytes] = []  # data to be sent
        self.output_size = 0
        self.more = False
        self.pdus_received = 0
        #: Calls without a reply: call id -> `Call`, or the request if it is served by a `requests.Source`.
        self.unanswered: dict[int, Any] = {}
        #: Number of negotiations of presentation or security contexts so far.
        self.negotiations = 0
        self._assemblies: dict[int, Assembly] = {}
        self._latest = 0  # highest call id of a request in several fragments
        self._memory = Account(self.limits.max_call_size, budget)
        self._ended = False
        self._left = False
        self._asking = False  # whether a query is pending; data that arrives meanwhile is buffered
        self._held: Bind | Auth3 | None = None  # login PDU to process when the query has been answered

    @property
    def association(self) -> Association | None:
        """The association group; None before the bind. Kept after `leave`, for calls that end later."""
        return self._binder.association

    @property
    def bound(self) -> bool:
        """Whether a bind succeeded."""
        return self._binder.association is not None

    @property
    def pending(self) -> int:
        """The number of calls without a reply."""
        return len(self.unanswered)

    @property
    def waits_for_bytes(self) -> bool:
        """Whether a PDU or a fragmented request is incomplete."""
        return bool(self._splitter.partial or self._assemblies)

    @property
    def expects_whole_requests(self) -> bool:
        """Whether the next bytes begin a PDU and no earlier bytes are buffered."""
        return (
            not (self._splitter.partial or self._assemblies or self.more or self._asking or self._ended)
            and self._held is None
        )

    @property
    def default_caller(self) -> RpcCaller | None:
        """Caller of requests without a verifier; None if they are refused."""
        return self._channels.default_caller

    @property
    def users(self) -> list[str]:
        """Names of the users who have logged in on this connection, sorted, without duplicates."""
        found = (each.context.identity for each in self._channels.by_id.values() if each.usable)
        return sorted({who.user for who in found if who is not None and not who.anonymous})

    @property
    def contexts(self) -> dict[int, BoundContext]:
        """The negotiated presentation contexts: context id -> context."""
        return self._contexts

    @property
    def max_reply(self) -> int:
        """Maximum size in bytes of a fragment that the client accepts."""
        return self._binder.max_xmit_frag

    def call_of(self, request: Request) -> Call:
        """Return a `Call` for a request of a `requests.Source`. Such requests are in NDR 2.0
        (`Dispatcher.contexts_of`). If the request was orphaned, the call is canceled and a reply to it is ignored."""
        call = Call(
            self, request.interface, request.caller, None, request.call_id, request.context_id, request.opnum,
            request.stub,
        )  # fmt: skip
        if self.unanswered.get(request.call_id) is request:
            self.unanswered[request.call_id] = call
        else:
            call.cancel()
        return call

    def waiting_call(self, event: CallCancelled) -> Call | None:
        """Return the call to be canceled; None if it has been answered, or `call_of` has canceled it."""
        if isinstance(event.call, Call):
            return event.call
        call = None if event.orphaned else self.unanswered.get(event.call.call_id)
        return call if isinstance(call, Call) else None

    def awaits(self, call: Call) -> bool:
        """See `CallConnection`."""
        return self.unanswered.get(call.call_id) is call

    def data_to_send(self) -> bytes:
        """Return the pending output and clear it. `output_size` is its approximate size in bytes."""
        out = self.output
        self.output_size = 0
        if len(out) == 1:
            return out.pop()
        data = b"".join(out)
        out.clear()
        return data

    def receive_data(self, data: bytes) -> list[Event]:
        """Process received bytes, in portions of any size, and return events. After `ConnectionEnded`, bytes are
        ignored. If `more` is set afterwards, complete PDUs are still buffered: call again with `b""`.
        """
        events: list[Event] = []
        if self._ended:
            return events
        if self._asking:
            self._splitter.feed(data)
            return events
        if self._held is None and not self._splitter.partial and not self._assemblies:
            data = self._whole_requests(data, events)
            if not data and events:
                return events
        self._any_pdus(data, events)
        return events

    def answered(self) -> None:
        """Continue after the query of `AuthQueryNeeded` was answered or timed out."""
        self._asking = False

    def _whole_requests(self, data: bytes, events: list[Event]) -> bytes:
        """Process requests of one fragment without a verifier, the most frequent kind. Returns the bytes from the first
        other PDU on."""
        caller = self._channels.default_caller
        if caller is None:
            return data
        contexts, pending, at, most = self._contexts, self.unanswered, 0, self._max_fragment
        room = min(MAX_EVENTS, self.limits.max_pending - len(pending))
        while len(events) < room:
            found = request(data, at, most)
            if found is None:
                break
            call_id, context_id, opnum, object_uuid, stub = found
            context = contexts.get(context_id)
            if context is None or call_id in pending:
                break
            call = Call(
                self, context.interface, caller, None, call_id, context_id, opnum, stub, "<", object_uuid,
                context.is_ndr64,
            )  # fmt: skip
            pending[call_id] = call
            events.append(call)
            at += CALL_HEADER_SIZE + len(stub)
            if object_uuid is not None:
                at += OBJECT_SIZE
        self.pdus_received += len(events)
        return b"" if at == len(data) else data[at:]

    def _any_pdus(self, data: bytes, events: list[Event]) -> None:
        splitter = self._splitter
        self.more = False
        raw = data
        try:
            held, self._held = self._held, None
            if held is not None:
                self._log_in(held)
            found = splitter.feed_one(data)
            raw = b""
            # A request that is answered with a fault here creates no event, but takes as much time, so PDUs are
            # counted.
            for _ in range(MAX_EVENTS):
                found = found or splitter.next()
                if found is None:
                    return
                header, raw = found
                found = None
                self.pdus_received += 1
                self._handle(header, raw, events)
                if self._ended or self._asking:
                    return
                raw = b""
            self.more = True
        except RemoteProtocolError as error:
            self._refuse(raw or splitter.rest())
            events.append(self._end(str(error)))

    def connection_lost(self) -> list[Call]:
        """Process the end of the transport connection. Returns the calls to cancel; call `leave` afterwards to leave
        the association."""
        self._ended = True
        self._drop_assemblies()
        calls = [call for call in self.unanswered.values() if isinstance(call, Call)]
        self.unanswered.clear()
        return calls

    def leave(self) -> None:
        """Leave the association. If this was its last connection, its context handles are run down."""
        if self.bound and not self._left:
            self._left = True
            assert self._binder.association is not None
            self._associations.leave(self._binder.association)

    # --- replies ---------------------------------------------------------------------------------------------------

    def send_reply(self, call: Call, stub: bytes) -> None:
        """Send the response of a call (`Call.reply`); does nothing if the call was orphaned or the connection has
        ended."""
        if self.unanswered.get(call.call_id) is not call:
            return
        del self.unanswered[call.call_id]
        self.respond(call.call_id, call.context_id, stub, call.channel)

    def respond(self, call_id: int, context_id: int, stub: bytes, channel: Channel | None = None) -> None:
        """Add a response to the pending output. The call must have been removed from `unanswered`."""
        size, limit = CALL_HEADER_SIZE + len(stub), self._binder.max_xmit_frag
        if channel is None and size <= limit:
            self.output.append(response(call_id, context_id, stub))
        else:
            head = struct.pack("<HBB", context_id, 0, 0)
            self.output += fragments(PacketType.RESPONSE, 0, call_id, head, stub, limit, channel)
        self.output_size += size
        if self.on_output is not None:
            self.on_output()

    def send_fault(self, call: Call, status: int) -> None:
        """Send a fault for a call (`Call.fault`); does nothing in the cases of `send_reply`."""
        if self.unanswered.get(call.call_id) is not call:
            return
        del self.unanswered[call.call_id]
        self._fault(call.call_id, status, call.context_id)
        if self.on_output is not None:
            self.on_output()

    def _fault(self, call_id: int, status: int, context_id: int = 0, flags: int = 0) -> None:
        # Faults carry no verifier: they contain no secret, and clients accept them without one.
        self.output.append(FaultPdu(call_id, status, context_id, flags=PFC_WHOLE | flags).pack())

    def _refuse(self, raw: bytes) -> None:
        """Send the final fault to a peer that violated the protocol; `raw` begins with the offending header."""
        if len(raw) < HEADER_SIZE or raw[2] == PacketType.AUTH3:
            return  # no call to answer; and auth3 has no reply ([MS-RPCE] 3.3.1.5.2.1)
        call_id = int.from_bytes(raw[12:16], "little" if raw[4] & 0x10 else "big")
        if raw[2] == PacketType.BIND:
            self.output.append(BindNak(call_id, RejectReason.PROTOCOL_VERSION_NOT_SPECIFIED).pack())
        else:
            self._fault(call_id, NCA_S_PROTO_ERROR)

    def _end(self, reason: str) -> ConnectionEnded:
        self._ended = True
        self._drop_assemblies()
        return ConnectionEnded(reason)

    # --- PDUs ------------------------------------------------------------------------------------------------------

    def _handle(self, header: Header, raw: bytes, events: list[Event]) -> None:
        if header.packet_type == PacketType.REQUEST:
            self._request(header, raw, events)
            return
        pdu = decode(header, raw)
        if header.flags & PFC_WHOLE != PFC_WHOLE:
            raise RemoteProtocolError("only requests may be fragmented")
        match pdu:
            case Bind() | Auth3():  # an AlterContext is a Bind
                question = self._binder.question(pdu)
                if question is None:
                    self._log_in(pdu)
                else:
                    self._held, self._asking = pdu, True
                    events.append(AuthQueryNeeded(question))
            case CoCancel():
                call = self.unanswered.get(pdu.call_id)
                if call is not None:
                    events.append(CallCancelled(call, False))
            case Orphaned():
                self._drop_assembly(pdu.call_id)
                call = self.unanswered.pop(pdu.call_id, None)
                if call is not None:
                    events.append(CallCancelled(call, True))
            case _:
                raise RemoteProtocolError(f"received {pdu.packet_type.name}, which only servers send")

    def _log_in(self, pdu: Bind | Auth3) -> None:
        self.negotiations += 1
        if isinstance(pdu, Auth3):
            self._binder.auth3(pdu)
        elif isinstance(pdu, AlterContext):
            self.output.append(self._binder.alter(pdu))
        else:
            self.output.append(self._binder.bind(pdu))

    def _request(self, header: Header, raw: bytes, events: list[Event]) -> None:
        if not self.bound:
            raise RemoteProtocolError("request before bind")
        start = stub_start(header)  # the allocation hint is ignored (D-250)
        order, call_id, flags = header.byte_order, header.call_id, header.flags
        _, context_id, opnum = _CALL_FIELDS[order].unpack_from(raw, HEADER_SIZE)
        channel, status = self._channels.find(header, raw)
        stub = b""
        if not status:
            try:
                stub = channel.open(header, raw, start) if channel and header.auth_length else raw[start:]
            except AuthenticationError as error:
                # Later PDUs on this channel cannot be verified either, because its sequence and cipher state are lost.
                self._fault(call_id, RPC_S_ACCESS_DENIED, context_id, PFC_DID_NOT_EXECUTE)
                events.append(self._end(f"the security provider refused a request: {error}"))
                return
        bound = self._contexts.get(context_id)
        if not status and bound is not None and bound.is_ndr64 and order != "<":
            status = NCA_S_PROTO_ERROR  # [MS-RPCE] 2.2.5, 3.3.3.5.7
        assembly = self._assemblies.get(call_id)
        if flags & PFC_FIRST_FRAG:
            if assembly is not None or call_id in self.unanswered:
                raise RemoteProtocolError(f"call id {call_id} is in use")
            assembly = Assembly(context_id, opnum, channel)
            self._latest = max(self._latest, call_id)
            if not status and bound is None:
                status = NCA_S_UNK_IF
            if not status and len(self.unanswered) + len(self._assemblies) >= self.limits.max_pending:
                status = NCA_S_SERVER_TOO_BUSY
            if flags & PFC_OBJECT_UUID:
                assembly.object_uuid = read_uuid_bytes(raw, CALL_HEADER_SIZE, order)
            if not flags & PFC_LAST_FRAG:
                if len(self._assemblies) >= self.limits.max_pending:
                    raise RemoteProtocolError(f"more than {self.limits.max_pending} requests are incomplete")
                self._assemblies[call_id] = assembly
        elif assembly is None:
            if 0 <= self._latest - call_id < _LATE:
                return  # of an orphaned or answered call ([MS-RPCE] 3.3.3.5.6)
            raise RemoteProtocolError("fragment of a request whose first fragment was not received")
        elif (assembly.context_id, assembly.opnum) != (context_id, opnum):
            raise RemoteProtocolError("context id or opnum changes within a request")
        elif assembly.channel is not channel:
            raise RemoteProtocolError("security context changes within a request")
        if not status and not assembly.refused and not self._memory.allows(len(stub)):
            status = NCA_S_FAULT_REMOTE_NO_MEMORY
        if status and not assembly.refused:
            self._fault(call_id, status, context_id, PFC_DID_NOT_EXECUTE)
            self._memory.book(-assembly.refuse())
        self._memory.book(assembly.add(stub))
        if flags & PFC_LAST_FRAG:
            self._assemblies.pop(call_id, None)
            self._memory.book(-assembly.size)
            if not assembly.refused:
                self._deliver(header, raw, assembly, events)

    def _deliver(self, header: Header, raw: bytes, assembly: Assembly, events: list[Event]) -> None:
        stub = b"".join(assembly.pieces)
        context = self._contexts[assembly.context_id]
        channel, call_id = assembly.channel, header.call_id
        caller = self._channels.caller(channel)
        if channel is not None and channel.level >= AuthLevel.PKT:
            try:
                stub = strip_trailer(
                    stub,
                    abstract_syntax=context.abstract_syntax,
                    transfer_syntax=context.transfer_syntax,
                    header_signing=self._binder.header_signing,
                    call_id=call_id,
                    context_id=assembly.context_id,
                    opnum=assembly.opnum,
                    drep=raw[4:8],
                )
            except AuthenticationError:
                self._fault(call_id, RPC_S_ACCESS_DENIED, assembly.context_id, PFC_DID_NOT_EXECUTE)
                return
        # At level CONNECT nothing is protected: a client that sent a verifier gets one back, others get none.
        answer_channel = channel if header.auth_length else None
        call = Call(
            self,
            context.interface,
            caller,
            answer_channel,
            call_id,
            assembly.context_id,
            assembly.opnum,
            stub,
            header.byte_order,
            assembly.object_uuid,
            context.is_ndr64,
        )
        self.unanswered[call_id] = call
        events.append(call)

    def _drop_assemblies(self) -> None:
        self._assemblies.clear()
        self._memory.clear()

    def _drop_assembly(self, call_id: int) -> None:
        assembly = self._assemblies.pop(call_id, None)
        if assembly is not None:
            self._memory.book(-assembly.size)
