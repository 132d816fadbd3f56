"""The remote management interface, which every endpoint offers (C706 Appendix Q, [MS-RPCE] 2.2.1.3)."""

from __future__ import annotations

from typing import Final

from msrpc.interfaces import ms_rpce_mgmt as wire
from msrpc.rpc.call import Call, InterfaceTable
from msrpc.rpc.dispatcher import Statistics
from msrpc.rpc.faults import NCA_S_OP_RNG_ERROR, RPC_S_ACCESS_DENIED, Fault
from msrpc.rpc.pdu import NDR, NDR64, AuthLevel, AuthType

RPC_S_UNKNOWN_AUTHN_SERVICE: Final = 1747
_WITH_PRINCIPALS: Final = (AuthType.GSS_NEGOTIATE, AuthType.GSS_KERBEROS)


class Management:
    """The interface `mgmt` v1.0 for one endpoint, whose `interfaces` it lists.

    `principal` is the name of the service for Kerberos, empty if Kerberos logins are not possible. NTLM has no such
    name.
    """

    name = "mgmt"
    uuid = wire.mgmt.uuid
    version = wire.mgmt.version
    transfer_syntaxes = (NDR, NDR64)
    minimum_level = AuthLevel.NONE
    open_opnums = frozenset(range(5))

    def __init__(self, interfaces: InterfaceTable, statistics: Statistics, principal: str = "") -> None:
        self._interfaces = interfaces
        self._statistics = statistics
        self._principal = principal

    def accepts(self, opnum: int) -> bool:
        return opnum < len(wire.mgmt.operations)

    def call(self, call: Call) -> None:
        operation = call.in_syntax(wire.mgmt.operations[call.opnum])
        request = operation.decode_request(call.stub, call.byte_order)
        match operation.name:
            case "rpc_mgmt_inq_if_ids":
                stub = operation.encode_response(self._interface_ids())
            case "rpc_mgmt_inq_stats":
                values = self._values()[: request.count]
                stub = operation.encode_response(wire.rpc_mgmt_inq_stats_Response(len(values), values, 0))
            case "rpc_mgmt_is_server_listening":
                stub = operation.encode_response(wire.rpc_mgmt_is_server_listening_Response(0, 1))
            case "rpc_mgmt_stop_server_listening":
                # This server can't be stopped over the network.
                stub = operation.encode_response(wire.rpc_mgmt_stop_server_listening_Response(RPC_S_ACCESS_DENIED))
            case "rpc_mgmt_inq_princ_name":
                named = self._principal and request.authn_proto in _WITH_PRINCIPALS
                fits = named and len(self._principal) < request.princ_name_size
                name, status = (self._principal, 0) if fits else ("", RPC_S_UNKNOWN_AUTHN_SERVICE)
                size = max(request.princ_name_size, 1)
                response = wire.rpc_mgmt_inq_princ_name_Response(name, status, princ_name_size=size)
                stub = operation.encode_response(response)
            case _:
                raise Fault(NCA_S_OP_RNG_ERROR)
        call.reply(stub)

    def _interface_ids(self) -> wire.rpc_mgmt_inq_if_ids_Response:
        ids: list[wire.RPC_IF_ID | None] = [wire.RPC_IF_ID(i.uuid.bytes_le, *i.version) for i in self._interfaces]
        return wire.rpc_mgmt_inq_if_ids_Response(wire.rpc_if_id_vector_t(len(ids), ids), 0)

    def _values(self) -> list[int]:
        """Calls in, calls out, packets in, packets out (C706 Appendix Q)."""
        statistics = self._statistics
        return [n & 0xFFFFFFFF for n in (statistics.calls_in, 0, statistics.packets_in, statistics.packets_out)]
