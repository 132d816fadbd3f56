"""Endpoint mapper: reports the ports of interfaces to clients (C706 Appendix O, [MS-RPCE] 2.2.1.2).

It answers before any authentication, because clients call it before they know which server to authenticate to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from msrpc.interfaces import ms_rpce_epm as wire
from msrpc.rpc.association import NULL_HANDLE
from msrpc.rpc.call import Call
from msrpc.rpc.faults import NCA_S_OP_RNG_ERROR, RPC_X_BAD_STUB_DATA, Fault
from msrpc.rpc.pdu import NDR, NDR64, AuthLevel, SyntaxId
from msrpc.rpc.tower import BadTower, Tower

PORT: Final = 135

EPT_S_CANT_PERFORM_OP: Final = 0x6D8
EPT_S_NOT_REGISTERED: Final = 0x16C9A0D6

ANNOTATION_SIZE: Final = 64
_HANDLE_KIND: Final = "endpoint map inquiry"
# Both replies have an array whose conformance follows the handle and the number of elements.

# inquiry_type and vers_option, [MS-RPCE] 2.2.1.2.4.
MATCH_BY_INTERFACE: Final = 1
MATCH_BY_OBJECT: Final = 2
MATCH_BY_BOTH: Final = 3
_VERSIONS: Final[dict[int, Callable[[tuple[int, int], tuple[int, int]], bool]]] = {
    1: lambda have, want: True,
    2: lambda have, want: have[0] == want[0] and have[1] >= want[1],
    3: lambda have, want: have == want,
    4: lambda have, want: have[0] == want[0],
    5: lambda have, want: have <= want,
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An element of the endpoint map. An empty `host` means the address at which the client reached the mapper. A tower
    has the first of the transfer syntaxes."""

    interface: SyntaxId
    port: int
    annotation: str = ""
    host: str = ""
    object_uuid: UUID | None = None
    transfer_syntaxes: tuple[SyntaxId, ...] = (NDR,)

    def tower(self, reached_at: str) -> Tower:
        # A tower has an IPv4 address ([C706] appendix L); 0.0.0.0 has no meaning for a client that connected through
        # IPv6.
        host = self.host or ("" if ":" in reached_at else reached_at)
        return Tower(self.interface, self.port, host, self.transfer_syntaxes[0])


class EndpointMapper:
    """The interface `ept` v3.0. Endpoints are registered in the process; remote registration is refused."""

    name = "ept"
    uuid = wire.ept.uuid
    version = wire.ept.version
    transfer_syntaxes = (NDR, NDR64)
    minimum_level = AuthLevel.NONE
    open_opnums = frozenset(range(7))

    def __init__(self) -> None:
        self.endpoints: list[Endpoint] = []

    def register(self, endpoint: Endpoint) -> None:
        """Register an endpoint."""
        self.endpoints.append(endpoint)

    def accepts(self, opnum: int) -> bool:
        return opnum < len(wire.ept.operations)

    def call(self, call: Call) -> None:
        operation = call.in_syntax(wire.ept.operations[call.opnum])
        request = operation.decode_request(call.stub, call.byte_order)
        match operation.name:
            case "ept_lookup":
                stub = operation.encode_response(self._lookup(call, request))
            case "ept_map":
                stub = operation.encode_response(self._map(call, request))
            case "ept_lookup_handle_free":
                if request.entry_handle != NULL_HANDLE:
                    call.handles.close(request.entry_handle, _HANDLE_KIND)
                stub = operation.encode_response(wire.ept_lookup_handle_free_Response(NULL_HANDLE, 0))
            case "ept_insert" | "ept_delete" | "ept_inq_object" | "ept_mgmt_delete":
                # [MS-RPCE] 2.2.1.2.6-10: the method raises this as an exception.
                raise Fault(EPT_S_CANT_PERFORM_OP)
            case _:
                raise Fault(NCA_S_OP_RNG_ERROR)
        call.reply(stub)

    def _lookup(self, call: Call, request: wire.ept_lookup_Request) -> wire.ept_lookup_Response:
        found, handle = self._page(call, request.entry_handle, request.max_ents, lambda: self._inquire(request))
        entries = [_entry(endpoint, call.connection.local_host) for endpoint in found]
        status = 0 if entries else EPT_S_NOT_REGISTERED
        return wire.ept_lookup_Response(handle, len(entries), entries, status, max_ents=request.max_ents)

    def _map(self, call: Call, request: wire.ept_map_Request) -> wire.ept_map_Response:
        def matching() -> list[Endpoint]:
            try:
                asked = Tower.unpack(bytes(request.map_tower.tower_octet_string)) if request.map_tower else None
            except BadTower:
                raise Fault(RPC_X_BAD_STUB_DATA) from None
            if asked is None:
                return []
            syntax = asked.transfer_syntax
            wanted = asked.interface
            return [
                replace(e, transfer_syntaxes=(syntax,))
                for e in self.endpoints
                if syntax in e.transfer_syntaxes
                and e.interface.uuid == wanted.uuid
                and _VERSIONS[2](e.interface.version, wanted.version)
                and (e.object_uuid is None or request.obj == e.object_uuid.bytes_le)
            ]

        found, handle = self._page(call, request.entry_handle, request.max_towers, matching)
        towers: list[wire.twr_t | None] = [_tower(endpoint, call.connection.local_host) for endpoint in found]
        status = 0 if towers else EPT_S_NOT_REGISTERED
        return wire.ept_map_Response(handle, len(towers), towers, status, max_towers=request.max_towers)

    def _inquire(self, request: wire.ept_lookup_Request) -> list[Endpoint]:
        by_interface = request.inquiry_type in (MATCH_BY_INTERFACE, MATCH_BY_BOTH)
        by_object = request.inquiry_type in (MATCH_BY_OBJECT, MATCH_BY_BOTH)
        fits = _VERSIONS.get(request.vers_option)
        found = []
        for endpoint in self.endpoints:
            if by_interface:
                wanted = request.Ifid
                if wanted is None or fits is None or wanted.Uuid != endpoint.interface.uuid.bytes_le:
                    continue
                if not fits(endpoint.interface.version, (wanted.VersMajor, wanted.VersMinor)):
                    continue
            if by_object:
                object_uuid = endpoint.object_uuid.bytes_le if endpoint.object_uuid else None
                if object_uuid != request.object:
                    continue
            found.append(endpoint)
        return found

    def _page(
        self, call: Call, handle: bytes, size: int, begin: Callable[[], list[Endpoint]]
    ) -> tuple[list[Endpoint], bytes]:
        """Return the next `size` endpoints of an inquiry, and the handle for the rest, null if there is none."""
        handles = call.handles
        remaining: list[Endpoint] = begin() if handle == NULL_HANDLE else handles.close(handle, _HANDLE_KIND)
        page, rest = remaining[:size], remaining[size:]
        return page, handles.create(_HANDLE_KIND, rest) if rest else NULL_HANDLE


def _tower(endpoint: Endpoint, reached_at: str) -> wire.twr_t:
    octets = endpoint.tower(reached_at).pack()
    return wire.twr_t(len(octets), octets)


def _entry(endpoint: Endpoint, reached_at: str) -> wire.ept_entry_t:
    annotation = endpoint.annotation.encode("ascii", "replace")[: ANNOTATION_SIZE - 1].ljust(ANNOTATION_SIZE, b"\0")
    object_uuid = endpoint.object_uuid.bytes_le if endpoint.object_uuid else bytes(16)
    return wire.ept_entry_t(object_uuid, _tower(endpoint, reached_at), 0, ANNOTATION_SIZE, annotation)
