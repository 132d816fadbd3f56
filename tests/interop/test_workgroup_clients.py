"""impacket reads without protection from the address of another machine, where the server allows this."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from impacket.dcerpc.v5.rpcrt import DCERPCException

import openmsmq
from command_line import add_user
from daemon import Daemon
from interop.impacket_client import MQ_OK, NONE, PASSWORD, PRIVACY, USER, connect
from interop.impacket_remote_read import REMOTE_READ
from interop.test_remote_read import RR_ACK, call, opened, parsed, start
from msrpc.rpc.pdu import AuthLevel
from openmsmq.server.addresses import local_addresses

SEALED: dict[str, Any] = {"user": USER, "password": PASSWORD, "level": AuthLevel.PKT_PRIVACY}


def off_loopback(directory: Path, *options: str) -> Daemon:
    everyone = ("--new-queue-access", "everyone")  # the right to receive, which these tests do not cover
    service = Daemon(directory / "data", "--listen", "0.0.0.0", *everyone, *options)
    service.start()
    add_user(service.directory, USER, PASSWORD)
    with service.connect(**SEALED) as manager:
        manager.create_queue(r".\private$\q")
        with manager.open(r".\private$\q", "send") as sender:
            sender.send("body", label="label")
    return service


def reader(service: Daemon, level: int) -> Any:
    own = [address for address in local_addresses("0.0.0.0") if not address.startswith("127.")]
    dce = connect(service.port, level, host=min(own, default="127.0.0.1"))
    dce.bind(REMOTE_READ)
    return dce


def test_a_client_without_protection_is_refused(tmp_path: Path) -> None:
    with off_loopback(tmp_path) as service:
        dce = reader(service, NONE)
        assert call(dce, "R_GetServerPort")["result"] == service.port
        with pytest.raises(DCERPCException, match="access_denied"):
            opened(dce, "q")
        sealed = reader(service, PRIVACY)
        assert parsed(start(sealed, opened(sealed, "q"))) == ("label", "body".encode("utf-16-le"))


@pytest.mark.parametrize("option", ["--allow-nonauthenticated-rpc", "--remote-read-allow-none-security-client"])
def test_a_client_without_protection_reads_where_that_is_allowed(tmp_path: Path, option: str) -> None:
    with off_loopback(tmp_path, option) as service:
        dce = reader(service, NONE)
        handle = opened(dce, "q")
        assert parsed(start(dce, handle)) == ("label", "body".encode("utf-16-le"))
        assert call(dce, "R_EndReceive", phContext=handle, dwAck=RR_ACK, dwRequestId=1)["result"] == MQ_OK
        with service.connect(**SEALED) as manager:
            assert manager.management(r".\private$\q")["message_count"] == 0
        assert "authentication" in service.log


def test_our_client_reports_that_it_is_in_a_workgroup(tmp_path: Path) -> None:
    """It authenticates but protects nothing: not enough for RemoteRead off loopback."""
    connected: dict[str, Any] = SEALED | {"level": AuthLevel.CONNECT}
    with off_loopback(tmp_path) as service:
        with (
            service.connect(**connected) as manager,
            pytest.raises(openmsmq.MsmqError, match="refuses this caller"),
            manager.open(r".\private$\q", protocol="remoteread"),
        ):
            pass
        service.stop()
        service.options = (*service.options, "--allow-nonauthenticated-rpc")
        with service.start().connect(**connected) as manager:
            manager.open(r".\private$\q", "peek", protocol="remoteread").close()
