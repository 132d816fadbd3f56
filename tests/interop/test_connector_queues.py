"""impacket as a connector application: it opens both queues of a foreign site by MS-MQMP and by MS-MQRR."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from daemon import Daemon
from interop.impacket_client import ACTION_RECEIVE, MQ_OK, RECEIVE_ACCESS, SEND_ACCESS, Client, connect
from interop.impacket_remote_read import REMOTE_READ
from interop.test_remote_read import RR_ACK, call, parsed, start

SITE = UUID("6a2c1f00-0000-0000-0000-00000000000a")
XACTONLY = 4  # QUEUE_SUFFIX_TYPE_XACTONLY
MQ_ERROR_UNSUPPORTED_ACCESS_MODE = 0xC00E0045


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory: Path = tmp_path_factory.mktemp("connector")
    (directory / "sites.toml").write_text(f'[[foreign_site]]\nidentifier = "{SITE}"\nmachines = ["SAPHOST"]\n')
    with Daemon(directory / "data", "--config", str(directory / "sites.toml")) as running:
        yield running
    assert "Traceback" not in running.log


@pytest.fixture(params=[0, XACTONLY], ids=["plain", "xactonly"])
def connector(request: pytest.FixtureRequest, service: Daemon) -> dict[str, Any]:
    """Return the QUEUE_FORMAT of a connector queue that holds one message."""
    with service.connect() as manager, manager.open(r"SAPHOST\private$\q", "send") as sender:
        if request.param:
            with manager.transaction() as transaction:
                sender.send("body", label="label", transaction=transaction)
        else:
            sender.send("body", label="label")
    return {"m_qft": 5, "m_SuffixAndFlags": request.param, "u": {"m_GConnectorID": SITE.bytes_le}}


def test_remote_read_returns_messages_of_a_connector_queue(service: Daemon, connector: dict[str, Any]) -> None:
    dce = connect(service.port)
    dce.bind(REMOTE_READ)
    handle = call(
        dce, "R_OpenQueue", pQueueFormat=connector, dwAccess=RECEIVE_ACCESS, dwShareMode=0, pClientId=bytes(16),
        fNonRoutingServer=1, Major=6, Minor=3, BuildNumber=9600, fWorkgroup=1,
    )["pphContext"]  # fmt: skip
    assert parsed(start(dce, handle)) == ("label", "body".encode("utf-16-le"))
    assert call(dce, "R_EndReceive", phContext=handle, dwAck=RR_ACK, dwRequestId=1)["result"] == MQ_OK
    dce.disconnect()


def test_qmcomm_reads_a_connector_queue_but_does_not_open_it_for_sending(
    service: Daemon, connector: dict[str, Any]
) -> None:
    client = Client(service.port)
    common = {"dwShareMode": 0, "pLicGuid": bytes(range(16)), "lpClientName": "client\0"}
    refused = client.call("rpc_QMOpenQueueInternal", pQueueFormat=connector, dwDesiredAccess=SEND_ACCESS, **common)
    assert refused["result"] == MQ_ERROR_UNSUPPORTED_ACCESS_MODE
    opened = client.done(
        "rpc_QMOpenQueueInternal", pQueueFormat=connector, dwDesiredAccess=RECEIVE_ACCESS, **common
    )  # fmt: skip
    received = client.read(opened["pdwQMContext"], ACTION_RECEIVE)
    assert received["result"] == MQ_OK
    assert bytes(received["ptb"]["old"]["ppBody"]).startswith("body".encode("utf-16-le"))
    client.close()
