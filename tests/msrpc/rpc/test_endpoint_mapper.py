"""The endpoint mapper and the management interface, called by impacket and by our own client."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from impacket.dcerpc.v5 import epm as impacket_epm
from impacket.dcerpc.v5 import mgmt as impacket_mgmt
from impacket.dcerpc.v5 import transport
from impacket.uuid import uuidtup_to_bin
from rpc.toys import ECHO, OTHER, Toy, running_server

from msrpc.interfaces import ms_rpce_epm as wire
from msrpc.rpc.call import InterfaceTable
from msrpc.rpc.client import Connection, connect
from msrpc.rpc.dispatcher import SecurityPolicy, Statistics
from msrpc.rpc.epm import EPT_S_CANT_PERFORM_OP, EPT_S_NOT_REGISTERED, Endpoint, EndpointMapper
from msrpc.rpc.faults import NCA_S_FAULT_CONTEXT_MISMATCH, RPC_X_BAD_STUB_DATA, RpcFault
from msrpc.rpc.mgmt import RPC_S_UNKNOWN_AUTHN_SERVICE, Management
from msrpc.rpc.pdu import NDR, NDR64, SyntaxId
from msrpc.rpc.tower import BadTower, Tower

NULL = bytes(20)
THIRD = SyntaxId(UUID("0b5c9a52-6f0c-4c5e-9d7e-6c1d3b1f0a03"), (1, 0))


@pytest.fixture
def mapper() -> Iterator[tuple[EndpointMapper, int]]:
    mapper = EndpointMapper()
    mapper.register(Endpoint(ECHO, 2103, "Echo"))
    mapper.register(Endpoint(OTHER, 2105, "Other", "10.0.0.9"))
    toy = Toy()
    management = Management(InterfaceTable([mapper, toy]), Statistics(), "RIG$")
    with running_server(mapper, toy, management, policy=SecurityPolicy(allow_anonymous=False)) as (_, port):
        yield mapper, port


def impacket_client(port: int) -> object:
    rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:127.0.0.1[{port}]")
    rpc.set_connect_timeout(5)
    dce = rpc.get_dce_rpc()
    dce.connect()
    return dce


def test_impacket_lists_every_interface_with_its_binding(mapper: tuple[EndpointMapper, int]) -> None:
    entries = impacket_epm.hept_lookup(None, dce=impacket_client(mapper[1]))
    found = {}
    for entry in entries:
        floors = entry["tower"]["Floors"]
        found[str(floors[0])] = impacket_epm.PrintStringBinding(floors)
    assert found == {
        f"{str(ECHO.uuid).upper()} v1.0": "ncacn_ip_tcp:127.0.0.1[2103]",
        f"{str(OTHER.uuid).upper()} v2.3": "ncacn_ip_tcp:10.0.0.9[2105]",
    }
    assert [bytes(entry["annotation"]).rstrip(b"\0") for entry in entries] == [b"Echo", b"Other"]


def test_impacket_maps_an_interface_to_its_port(mapper: tuple[EndpointMapper, int]) -> None:
    interface = uuidtup_to_bin((str(ECHO.uuid), "1.0"))
    binding = impacket_epm.hept_map("127.0.0.1", interface, protocol="ncacn_ip_tcp", dce=impacket_client(mapper[1]))
    assert binding == "ncacn_ip_tcp:127.0.0.1[2103]"


def test_impacket_reads_the_management_interface(mapper: tuple[EndpointMapper, int]) -> None:
    dce = impacket_client(mapper[1])
    dce.bind(impacket_mgmt.MSRPC_UUID_MGMT)
    vector = impacket_mgmt.hinq_if_ids(dce)["if_id_vector"]
    ids = [vector["if_id"][i]["Data"]["Uuid"] for i in range(vector["count"])]
    assert ids == [wire.ept.uuid.bytes_le, ECHO.uuid.bytes_le]
    assert impacket_mgmt.his_server_listening(dce)["status"] == 0
    assert impacket_mgmt.hinq_stats(dce)["count"] == 4
    assert b"".join(impacket_mgmt.hinq_princ_name(dce, 16, 100)["princ_name"]) == b"RIG$\0"
    for protocol, room in ((10, 100), (16, 4)):  # no name for NTLM; the other name is too long
        assert impacket_mgmt.hinq_princ_name(dce, protocol, room)["status"] == RPC_S_UNKNOWN_AUTHN_SERVICE
    with pytest.raises(Exception, match="access_denied"):
        impacket_mgmt.hstop_server_listening(dce)


def bound(port: int) -> Connection:
    connection = connect("127.0.0.1", port)
    connection.bind(wire.ept.uuid, wire.ept.version)
    return connection


def lookup(connection: Connection, **fields: object) -> wire.ept_lookup_Response:
    request = wire.ept_lookup_Request(**{"object": None, "Ifid": None, "max_ents": 500, **fields})
    operation = wire.ept.operation("ept_lookup")
    return operation.decode_response(connection.call(operation.opnum, operation.encode_request(request)))


def interfaces(response: wire.ept_lookup_Response) -> list[SyntaxId]:
    return [Tower.unpack(bytes(entry.tower.tower_octet_string)).interface for entry in response.entries]


def test_an_interface_is_mapped_in_the_transfer_syntaxes_that_it_serves(mapper: tuple[EndpointMapper, int]) -> None:
    both = [Endpoint(THIRD, port, transfer_syntaxes=(NDR, NDR64)) for port in (2106, 2107)]
    for endpoint in both:
        mapper[0].register(endpoint)
    operation = wire.ept.operation("ept_map").ndr64
    with connect("127.0.0.1", mapper[1]) as connection:
        connection.bind(wire.ept.uuid, wire.ept.version, (NDR64,))

        def mapped(interface: SyntaxId, syntax: SyntaxId) -> list[Tower | None]:
            """Return the mapped towers, requested one at a time."""
            octets, handle, found = Tower(interface, 0, "", syntax).pack(), NULL, []
            while True:
                request = wire.ept_map_Request(None, wire.twr_t(len(octets), octets), handle, 1)
                answer = operation.decode_response(connection.call(operation.opnum, operation.encode_request(request)))
                found += [Tower.unpack(bytes(tower.tower_octet_string)) for tower in answer.ITowers]
                handle = answer.entry_handle
                if handle == NULL:
                    return found

        assert mapped(ECHO, NDR64) == []
        assert mapped(ECHO, NDR) == [Tower(ECHO, 2103, "127.0.0.1", NDR)]
        for syntax in (NDR, NDR64):
            assert mapped(THIRD, syntax) == [Tower(THIRD, port, "127.0.0.1", syntax) for port in (2106, 2107)]


def test_an_inquiry_of_several_pages_keeps_its_place_in_a_handle(mapper: tuple[EndpointMapper, int]) -> None:
    with bound(mapper[1]) as connection:
        first = lookup(connection, max_ents=1)
        assert (interfaces(first), first.status) == ([ECHO], 0)
        second = lookup(connection, max_ents=1, entry_handle=first.entry_handle)
        assert (interfaces(second), second.entry_handle) == ([OTHER], NULL)
        with pytest.raises(RpcFault) as fault:
            lookup(connection, max_ents=1, entry_handle=first.entry_handle)
        assert fault.value.status == NCA_S_FAULT_CONTEXT_MISMATCH


def test_an_inquiry_may_be_given_up(mapper: tuple[EndpointMapper, int]) -> None:
    free = wire.ept.operation("ept_lookup_handle_free")
    with bound(mapper[1]) as connection:
        handle = lookup(connection, max_ents=1).entry_handle
        stub = connection.call(free.opnum, free.encode_request(wire.ept_lookup_handle_free_Request(handle)))
        assert free.decode_response(stub) == wire.ept_lookup_handle_free_Response(NULL, 0)
        with pytest.raises(RpcFault) as fault:
            lookup(connection, max_ents=1, entry_handle=handle)
        assert fault.value.status == NCA_S_FAULT_CONTEXT_MISMATCH
        stub = connection.call(free.opnum, free.encode_request(wire.ept_lookup_handle_free_Request(NULL)))
        assert free.decode_response(stub) == wire.ept_lookup_handle_free_Response(NULL, 0)


@pytest.mark.parametrize(
    ("option", "version", "found"),
    [
        (1, (9, 9), True),
        (2, (2, 3), True),
        (2, (2, 4), False),
        (3, (2, 3), True),
        (3, (2, 2), False),
        (4, (2, 9), True),
        (4, (3, 3), False),
        (5, (2, 3), True),
        (5, (2, 2), False),
        (7, (2, 3), False),
    ],
)
def test_an_inquiry_for_an_interface_respects_the_version_option(
    mapper: tuple[EndpointMapper, int], option: int, version: tuple[int, int], found: bool
) -> None:
    with bound(mapper[1]) as connection:
        wanted = wire.RPC_IF_ID(OTHER.uuid.bytes_le, *version)
        response = lookup(connection, inquiry_type=1, Ifid=wanted, vers_option=option)
        assert (interfaces(response), response.status) == (([OTHER], 0) if found else ([], EPT_S_NOT_REGISTERED))


def test_map_finds_compatible_versions_only(mapper: tuple[EndpointMapper, int]) -> None:
    operation = wire.ept.operation("ept_map")
    with bound(mapper[1]) as connection:
        for version, ports in (((2, 0), [2105]), ((2, 4), []), ((1, 0), [])):
            octets = Tower(SyntaxId(OTHER.uuid, version), 0).pack()
            request = wire.ept_map_Request(bytes(16), wire.twr_t(len(octets), octets), NULL, 4)
            response = operation.decode_response(connection.call(operation.opnum, operation.encode_request(request)))
            towers = [Tower.unpack(bytes(tower.tower_octet_string)) for tower in response.ITowers]
            assert [tower.port for tower in towers] == ports
            assert response.status == (0 if ports else EPT_S_NOT_REGISTERED)


def test_registration_from_outside_and_malformed_stubs_are_faults(mapper: tuple[EndpointMapper, int]) -> None:
    with bound(mapper[1]) as connection:
        for opnum, stub, status in (
            (0, b"", EPT_S_CANT_PERFORM_OP),
            (1, b"", EPT_S_CANT_PERFORM_OP),
            (2, b"x", RPC_X_BAD_STUB_DATA),
            (3, b"x", RPC_X_BAD_STUB_DATA),
        ):
            with pytest.raises(RpcFault) as fault:
                connection.call(opnum, stub)
            assert fault.value.status == status
        operation = wire.ept.operation("ept_map")
        request = wire.ept_map_Request(bytes(16), wire.twr_t(3, b"\x05\0\0"), NULL, 4)
        with pytest.raises(RpcFault) as fault:
            connection.call(operation.opnum, operation.encode_request(request))
        assert fault.value.status == RPC_X_BAD_STUB_DATA


@given(st.uuids(), st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 65535))
def test_a_tower_reads_back(uuid: UUID, major: int, minor: int, port: int) -> None:
    tower = Tower(SyntaxId(uuid, (major, minor)), port, "192.0.2.7")
    assert Tower.unpack(tower.pack()) == tower


@given(st.binary(max_size=200))
def test_invalid_towers_are_a_typed_error(data: bytes) -> None:
    with contextlib.suppress(BadTower):
        Tower.unpack(data)


def test_a_tower_without_interface_or_with_another_syntax_is_mapped_to_nothing(
    mapper: tuple[EndpointMapper, int],
) -> None:
    operation = wire.ept.operation("ept_map")
    octets = Tower(ECHO, 0, transfer_syntax=SyntaxId(UUID("71710533-beba-4937-8319-b5dbef9ccc36"), (1, 0))).pack()
    with bound(mapper[1]) as connection:
        for tower in (None, wire.twr_t(len(octets), octets)):
            request = wire.ept_map_Request(bytes(16), tower, NULL, 4)
            stub = connection.call(operation.opnum, operation.encode_request(request))
            response = operation.decode_response(stub)
            assert (response.num_towers, response.status) == (0, EPT_S_NOT_REGISTERED)
