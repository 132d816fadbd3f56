"""Query an endpoint mapper for the port of an interface (C706 Appendix O, [MS-RPCE] 2.2.1.2.5)."""

from __future__ import annotations

from uuid import UUID

from msrpc.errors import RpcConnectionError
from msrpc.interfaces import ms_rpce_epm as wire
from msrpc.rpc.aio import connect
from msrpc.rpc.epm import PORT
from msrpc.rpc.pdu import SyntaxId
from msrpc.rpc.tower import BadTower, Tower

_MOST_TOWERS = 4


async def port_of(
    host: str, interface: SyntaxId, object_uuid: UUID | None = None, *, port: int = PORT, timeout: float = 10.0
) -> int:
    """Return the TCP port of an interface on a host; with `object_uuid`, of the one registered for this object.

    Raises RpcConnectionError, RpcFault, also if the interface is not registered.
    """
    connection = await connect(host, port, timeout=timeout)
    try:
        await connection.bind(wire.ept.uuid, wire.ept.version)
        operation = wire.ept.operation("ept_map")
        octets = Tower(interface, 0).pack()
        request = wire.ept_map_Request(
            object_uuid.bytes_le if object_uuid else None, wire.twr_t(len(octets), octets), bytes(20), _MOST_TOWERS
        )
        answer = await connection.exchange(operation.opnum, operation.encode_request(request))
        response = operation.decode_response(answer.stub, answer.byte_order)
    finally:
        connection.close()
    for tower in response.ITowers or ():
        try:
            found = Tower.unpack(bytes(tower.tower_octet_string)) if tower is not None else None
        except BadTower:
            continue
        if found is not None and found.port and found.interface.uuid == interface.uuid:
            return found.port
    raise RpcConnectionError(f"{host}: the endpoint mapper has no TCP endpoint of {interface} for {object_uuid}")
