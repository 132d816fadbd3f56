"""Authentication of partners in distributed transactions: logins between two daemons, and how they find each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import openmsmq
from command_line import add_user
from daemon import Daemon, eventually, free_port, partner_daemons
from interop import domain_controller as domain
from interop.domain_controller import DomainController, login
from msrpc.errors import RpcConnectionError
from msrpc.rpc.epm_client import port_of
from oletx_peer.peer import Peer, PeerError
from oletx_peer.rpc import PeerEndpointMapper, ept_map
from oletx_peer.wire import IXN_REMOTE
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.oletx.structures import decode_token
from openmsmq.server import oletx_link
from openmsmq.server.oletx_link import INTERFACE

QUEUE = r".\private$\x"


def move(near: Daemon, far: Daemon, logins: Sequence[dict[str, Any]] = ({}, {})) -> list[Any]:
    """Send to both in one transaction; returns the messages of the second one."""
    with near.connect(**logins[0]) as here, far.connect(**logins[1]) as there:
        for manager in (here, there):
            manager.create_queue(QUEUE, transactional=True)
        with here.open(QUEUE, "send") as first, there.open(QUEUE, "send") as second:
            with here.transaction() as transaction:
                first.send("a", transaction=transaction)
                second.send("b", transaction=transaction)
        with there.open(QUEUE, protocol="qmcomm") as queue:
            eventually(lambda: len(list(queue)) == 1)
            return [message.decode() for message in queue]


def with_users(directory: Path, passwords: dict[str, str]) -> list[Daemon]:
    """Two daemons at the level incoming; each logs in at the other as `peer`, whose password is `right`."""
    daemons = partner_daemons(directory, "near", "far")
    for daemon, name in zip(daemons, ("near", "far"), strict=True):
        password = directory / f"{name}.password"
        password.write_text(passwords[name])
        daemon.options = (*daemon.options, "--distributed-transactions", "incoming", "--peer-user", "peer",
                          "--peer-password-file", str(password))  # fmt: skip
        daemon.directory.mkdir()
        add_user(daemon.directory, "peer", "right")
        daemon.start()
    return daemons


def test_partners_log_in_as_users_of_each_other(tmp_path: Path) -> None:
    daemons = with_users(tmp_path, {"near": "right", "far": "right"})
    assert move(*daemons) == ["b"]
    for daemon in daemons:
        daemon.stop()
        assert "Traceback" not in daemon.log, daemon.log


@pytest.mark.parametrize("wrong", ["near", "far"])
def test_a_partner_that_cannot_log_in_is_refused_in_either_direction(tmp_path: Path, wrong: str) -> None:
    daemons = with_users(tmp_path, {"near": "right", "far": "right", wrong: "wrong"})
    with pytest.raises(MsmqError) as refused:
        move(*daemons)
    assert refused.value.hresult == HResult.MQ_ERROR_DTC_CONNECT
    for daemon in daemons:
        daemon.stop()
        assert "Traceback" not in daemon.log, daemon.log


@pytest.mark.parametrize(("security", "spnego"), [({}, False), ({"credentials": "of a user"}, True)])
def test_logins_at_partners_are_by_spnego(
    monkeypatch: pytest.MonkeyPatch, security: dict[str, Any], spnego: bool
) -> None:
    asked: dict[str, Any] = {}

    async def refuse(host: str, port: int, **how: Any) -> None:
        asked.update(how)
        raise RpcConnectionError("not now")

    monkeypatch.setattr(oletx_link.rpc, "connect", refuse)
    with pytest.raises(RpcConnectionError):
        asyncio.run(oletx_link.OleTxLink._bound("192.0.2.1", 1, security))
    assert asked["spnego"] is spnego


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with partner_daemons(tmp_path, "HERE")[0] as daemon:
        yield daemon


def test_the_endpoint_map_has_the_transaction_manager_by_its_contact_identifier(daemon: Daemon) -> None:
    """[MS-CMPO] 3.3.3; asked by our client and by the peer's."""
    with daemon.connect() as manager, manager.transaction() as transaction:
        cid = decode_token(transaction.token()).superior.cid
    assert asyncio.run(port_of("127.0.0.1", INTERFACE, cid, port=daemon.mapper_port)) == daemon.port
    with pytest.raises(RpcConnectionError, match="has no TCP endpoint"):
        asyncio.run(port_of("127.0.0.1", INTERFACE, UUID(int=9), port=daemon.mapper_port))
    assert ("127.0.0.1", daemon.port) in ept_map(("127.0.0.1", daemon.mapper_port), IXN_REMOTE, cid)


def test_a_foreign_endpoint_map_is_read() -> None:
    mapper = PeerEndpointMapper(("127.0.0.1", free_port("127.0.0.1")))
    peer = Peer("PEER", UUID(int=5), mapper=mapper)
    found = asyncio.run(port_of("127.0.0.1", INTERFACE, peer.cid, port=mapper.address[1]))
    assert found == peer.address[1]
    peer.close()
    mapper.server.close()


def test_a_queue_manager_without_any_protocol_names_the_setting(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon, daemon.connect() as manager, manager.transaction() as transaction:
        with pytest.raises(openmsmq.MsmqError, match="MQ_ERROR_DTC_CONNECT"):
            transaction.token()
        assert asyncio.run(_is_offered(daemon)) is False


async def _is_offered(daemon: Daemon) -> bool:
    try:
        await port_of("127.0.0.1", INTERFACE, UUID(int=1), port=daemon.mapper_port)
    except RpcConnectionError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.xdist_group("domain")
def test_computers_of_a_domain_prove_themselves_to_each_other(
    controller: DomainController, tickets: dict[str, Path], tmp_path: Path
) -> None:
    """T22, level mutual: both log in as NAME$ and call back host/NAME."""
    daemons = partner_daemons(tmp_path, "MQ1", "OTHER")
    for daemon, account in zip(daemons, (domain.SERVICE, domain.OTHER_SERVICE), strict=True):
        daemon.options = (
            *daemon.options, "--distributed-transactions", "mutual", "--peer-login", "kerberos", "--logins", "kerberos",
            "--kerberos-keytab", str(controller.keytab(account)), "--no-allow-anonymous",
        )  # fmt: skip
        daemon.start()
    logins = [login(tickets["alice"], service) for service in (domain.SERVICE_NAME, domain.OTHER_NAME)]
    assert move(*daemons, logins) == ["b"]
    stranger = Peer("OTHER", UUID(int=5), partners={"MQ1": ("127.0.0.1", daemons[0].port, UUID(int=1))})
    with pytest.raises(PeerError):
        stranger.session("MQ1", 3)
    stranger.close()
    for daemon in daemons:
        daemon.stop()
        assert "Traceback" not in daemon.log, daemon.log
    assert "was refused: its login (anonymous" in daemons[0].log
