"""Connections to the transaction managers of partners: with or without a login."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from msrpc.errors import HResultError
from msrpc.rpc.faults import RpcFault
from openmsmq.model.errors import LoginRefused
from openmsmq.oletx.structures import Partner
from openmsmq.protocols.transaction_security import TransactionSecurity
from openmsmq.server import oletx_link
from openmsmq.server.oletx_link import OleTxLink

LOGIN = {"credentials": "of this queue manager"}


class Connections:
    """Connections to the partner; it refuses binds with the given errors, in order."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.made: list[dict[str, Any]] = []
        self.open = 0

    async def connect(self, host: str, port: int, *, timeout: float, spnego: bool, **security: Any) -> Any:
        assert (host, port, spnego) == ("192.0.2.7", 2103, bool(security))
        self.made.append(security)
        self.open += 1
        return self

    async def bind(self, *_: object) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def close(self) -> None:
        self.open -= 1


@pytest.fixture
def session() -> Any:
    return SimpleNamespace(partner=Partner(UUID(int=1), "FAR"), source="")


def connected(
    monkeypatch: pytest.MonkeyPatch, session: Any, peer: Connections, level: TransactionSecurity, login: dict[str, Any]
) -> Any:
    monkeypatch.setattr(oletx_link.rpc, "connect", peer.connect)
    link = OleTxLink(level, {"far": ("192.0.2.7", 2103)}, lambda host: login)
    return asyncio.run(link._connect(session))


@pytest.mark.parametrize("refusal", [LoginRefused(detail="no"), HResultError(0x80070005, "no"), RpcFault(5)])
def test_a_refused_login_is_followed_by_a_connection_without_one_unless_the_partner_must_prove_itself(
    monkeypatch: pytest.MonkeyPatch, session: Any, refusal: Exception
) -> None:
    for level in (TransactionSecurity.NONE, TransactionSecurity.INCOMING):
        peer = Connections(refusal)
        assert connected(monkeypatch, session, peer, level, LOGIN) is peer
        assert peer.made == [LOGIN, {}] and peer.open == 1, level
    peer = Connections(refusal)
    with pytest.raises(type(refusal)):
        connected(monkeypatch, session, peer, TransactionSecurity.MUTUAL, LOGIN)
    assert peer.made == [LOGIN] and peer.open == 0


def test_a_connection_without_login_is_not_repeated(monkeypatch: pytest.MonkeyPatch, session: Any) -> None:
    peer = Connections(RpcFault(5))
    with pytest.raises(RpcFault):
        connected(monkeypatch, session, peer, TransactionSecurity.NONE, {})
    assert peer.made == [{}] and peer.open == 0
    peer = Connections(RpcFault(5), RpcFault(5))
    with pytest.raises(RpcFault):
        connected(monkeypatch, session, peer, TransactionSecurity.NONE, LOGIN)
    assert peer.made == [LOGIN, {}] and peer.open == 0


def test_a_login_that_this_queue_manager_lacks_is_the_reason(monkeypatch: pytest.MonkeyPatch, session: Any) -> None:
    def missing(host: str) -> dict[str, Any]:
        raise OSError(f"no password for {host}")

    link = OleTxLink(TransactionSecurity.MUTUAL, {}, missing)
    with pytest.raises(oletx_link._Unreachable, match="this queue manager can't log in: no password for FAR"):
        asyncio.run(link._connect(session))


def test_an_address_is_that_of_the_settings_or_of_the_name_or_without_authentication_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, session: Any
) -> None:
    addresses: dict[str, str] = {}

    async def resolved(name: str) -> str | None:
        return addresses.get(name)

    async def port_of(host: str, *_: object, timeout: float) -> int:
        return 1000

    def found(level: TransactionSecurity, source: str = "") -> tuple[str, int]:
        link = OleTxLink(level, {"near": ("192.0.2.1", 5)}, lambda host: {})
        return asyncio.run(link._find(session.partner, source))

    monkeypatch.setattr(oletx_link, "_resolved", resolved)
    monkeypatch.setattr(oletx_link, "port_of", port_of)
    assert found(TransactionSecurity.NONE, "192.0.2.9") == ("192.0.2.9", 1000)
    for level, source in ((TransactionSecurity.NONE, ""), (TransactionSecurity.INCOMING, "192.0.2.9"),
                          (TransactionSecurity.MUTUAL, "192.0.2.9")):  # fmt: skip
        with pytest.raises(oletx_link._Unreachable, match="no address is known for FAR"):
            found(level, source)
    addresses["FAR"] = "192.0.2.8"
    assert found(TransactionSecurity.NONE, "192.0.2.9") == ("192.0.2.8", 1000)
    session.partner = Partner(UUID(int=1), "Near")
    assert found(TransactionSecurity.MUTUAL) == ("192.0.2.1", 5)


@pytest.mark.parametrize(
    ("addresses", "host"),
    [
        (["127.0.0.1"], None), (["127.0.1.1", "192.0.2.7"], "192.0.2.7"), (["::1"], None), ([], None),
        (["fe80::1%eth0", "192.0.2.7"], "fe80::1%eth0"),
    ],
)  # fmt: skip
def test_a_partner_has_never_a_loopback_address(addresses: list[str], host: str | None) -> None:
    class Loop(asyncio.SelectorEventLoop):
        async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
            assert (host, port) == ("far", None)
            return [(0, 0, 0, "", (address, 0)) for address in addresses]

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(oletx_link._resolved("far")) == host
