"""An independent client over TCP: impacket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from impacket.dcerpc.v5 import rpcrt, transport
from impacket.dcerpc.v5.rpcrt import DCERPCException
from impacket.uuid import uuidtup_to_bin
from rpc.accounts import SID, acceptor
from rpc.toys import ECHO, NULL, OTHER, REVERSE, WHO, Toy, running_server

from msrpc.rpc.credentials import filetime
from msrpc.rpc.dispatcher import SecurityPolicy
from msrpc.rpc.pdu import AuthLevel

# Level PKT is missing: impacket negotiates it and then sends requests without any verifier.
LEVELS = {
    "connect": rpcrt.RPC_C_AUTHN_LEVEL_CONNECT,
    "integrity": rpcrt.RPC_C_AUTHN_LEVEL_PKT_INTEGRITY,
    "privacy": rpcrt.RPC_C_AUTHN_LEVEL_PKT_PRIVACY,
}


@pytest.fixture
def port() -> Iterator[int]:
    with running_server(Toy(), Toy(OTHER), acceptor=acceptor(os.urandom, filetime)) as (_, port):
        yield port


def impacket_client(port: int, level: int = 0, password: str = "Passw0rd!", auth_type: int = 0) -> Any:
    rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:127.0.0.1[{port}]")
    rpc.set_connect_timeout(5)
    if level:
        rpc.set_credentials("tester", password, "WORKGROUP")
    dce = rpc.get_dce_rpc()
    if level:
        dce.set_auth_level(level)
    if auth_type:
        dce.set_auth_type(auth_type)
    dce.connect()
    return dce


def syntax(interface: Any) -> bytes:
    return uuidtup_to_bin((str(interface.uuid), ".".join(map(str, interface.version))))


def call(dce: Any, opnum: int, stub: bytes = b"") -> bytes:
    dce.call(opnum, stub)
    return dce.recv()


def test_an_anonymous_call_is_answered(port: int) -> None:
    dce = impacket_client(port)
    dce.bind(syntax(ECHO))
    assert call(dce, REVERSE, b"hello") == b"olleh"
    assert call(dce, NULL) == b""
    dce.disconnect()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fragment", [0, 24, 1000])
def test_calls_are_answered_at_every_level_with_fragments_of_any_size(port: int, level: str, fragment: int) -> None:
    dce = impacket_client(port, LEVELS[level])
    dce.bind(syntax(ECHO))
    if fragment:
        dce.set_max_fragment_size(fragment)
    stub = bytes(range(256)) * 13
    for length in (0, 1, 15, 16, 17, len(stub)):
        if length or not fragment:
            assert call(dce, REVERSE, stub[:length]) == stub[:length][::-1]
    assert call(dce, WHO, b"x") == f"WORKGROUP|tester|{SID}|{LEVELS[level]}|None".encode()
    dce.disconnect()


@pytest.mark.parametrize("level", LEVELS)
def test_a_wrong_password_is_refused(port: int, level: str) -> None:
    dce = impacket_client(port, LEVELS[level], "wrong")
    dce.bind(syntax(ECHO))
    with pytest.raises(DCERPCException, match="access_denied"):
        call(dce, REVERSE, b"x")
    dce.disconnect()


@pytest.mark.parametrize("level", [None, *LEVELS])
def test_alter_context_adds_an_interface(port: int, level: str | None) -> None:
    dce = impacket_client(port, LEVELS[level] if level else 0)
    dce.bind(syntax(ECHO))
    assert call(dce, REVERSE, b"abc") == b"cba"
    other = dce.alter_ctx(syntax(OTHER))
    assert call(other, REVERSE, b"def") == b"fed"
    assert call(dce, REVERSE, b"ghi") == b"ihg"
    dce.disconnect()


@pytest.mark.parametrize("level", ["connect", "integrity", "privacy"])
def test_a_second_bind_on_the_connection_is_served(port: int, level: str) -> None:
    dce = impacket_client(port, LEVELS[level])
    dce.bind(syntax(ECHO))
    assert call(dce, REVERSE, b"abc") == b"cba"
    dce.bind(syntax(OTHER))
    assert call(dce, REVERSE, b"abc") == b"cba"
    dce.disconnect()


def test_an_unknown_interface_and_an_unknown_operation_are_refused(port: int) -> None:
    dce = impacket_client(port)
    with pytest.raises(DCERPCException, match="syntax"):
        dce.bind(uuidtup_to_bin(("11111111-2222-3333-4444-555555555555", "1.0")))
    dce = impacket_client(port)
    dce.bind(syntax(ECHO))
    with pytest.raises(DCERPCException, match="op_rng_error"):
        call(dce, 99)


def test_an_interface_that_requires_privacy_refuses_lower_levels() -> None:
    toy = Toy(minimum_level=AuthLevel.PKT_PRIVACY)
    with running_server(toy, acceptor=acceptor(os.urandom, filetime)) as (_, port):
        dce = impacket_client(port, LEVELS["integrity"])
        dce.bind(syntax(ECHO))
        with pytest.raises(DCERPCException, match="access_denied"):
            call(dce, REVERSE, b"x")
        dce = impacket_client(port, LEVELS["privacy"])
        dce.bind(syntax(ECHO))
        assert call(dce, REVERSE, b"xy") == b"yx"


def test_without_anonymous_access_only_open_operations_are_answered() -> None:
    policy = SecurityPolicy(allow_anonymous=False)
    with running_server(Toy(), acceptor=acceptor(os.urandom, filetime), policy=policy) as (_, port):
        dce = impacket_client(port)
        dce.bind(syntax(ECHO))
        assert call(dce, NULL) == b""
        with pytest.raises(DCERPCException, match="access_denied"):
            call(dce, REVERSE, b"x")
