"""Foreign sites of the configuration file: applications that send, and connector applications that forward."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

import openmsmq
from command_line import at, checked
from daemon import Daemon
from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import HResult

SITE = UUID("6a2c1f00-0000-0000-0000-00000000000a")
PLAIN, XACT = f"CONNECTOR={SITE}", f"CONNECTOR={SITE};XACTONLY"
PATH = r"SAPHOST\private$\orders"
ADMIN = r".\private$\admin"
CONNECTOR = UUID(int=77).bytes_le
SITES = f'[[foreign_site]]\nidentifier = "{SITE}"\nname = "mainframe"\nmachines = ["SAPHOST"]\n'


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Daemon]:
    (tmp_path / "sites.toml").write_text(SITES)
    with Daemon(tmp_path / "data", "--config", str(tmp_path / "sites.toml")) as running:
        yield running
    assert "Traceback" not in running.log


def send_both(service: Daemon) -> None:
    """Send a message, and one in a transaction, to a foreign queue; both request acknowledgments."""
    wishes = {"administration_queue_format_name": f"DIRECT=OS:{ADMIN}", "acknowledgements_requested": 0x0F}
    with service.connect() as manager, manager.open(PATH, "send") as sender:
        sender.send("plain", label="p", recoverable=True, connector_type_identifier=CONNECTOR, **wishes)
        with manager.transaction() as transaction:
            sender.send("exactly once", label="x", transaction=transaction, **wishes)


@pytest.mark.parametrize("protocol", ["remoteread", "qm2qm", "qmcomm"])
def test_a_connector_application_finds_both_kinds_after_the_daemon_was_killed(service: Daemon, protocol: str) -> None:
    send_both(service)
    service.kill()
    with service.start().connect() as manager:
        for name, body, connector in ((PLAIN, "plain", CONNECTOR), (XACT, "exactly once", bytes(16))):
            with manager.open(name, protocol=protocol) as queue:
                message = queue.receive()
                assert message.decode() == body
                assert message.destination_queue_format_name == f"DIRECT=OS:{PATH}"
                assert message.connector_type_identifier == connector
                with pytest.raises(openmsmq.ReceiveTimeout):
                    queue.receive(timeout=0)
        assert manager.outgoing() == []


def test_a_connector_application_receives_in_transactions_and_acknowledges(service: Daemon) -> None:
    with service.connect() as manager:
        manager.create_queue(ADMIN)
        send_both(service)
        with manager.open(XACT, protocol="qmcomm") as queue, manager.open(ADMIN, "send") as answers:
            aborted = manager.transaction()
            taken = queue.receive(transaction=aborted)
            aborted.abort()
            with manager.transaction() as transaction:
                again = queue.receive(transaction=transaction)
            assert again.identifier == taken.identifier
            answer = {"message_class": int(MessageClass.ACK_RECEIVE), "correlation_identifier": again.identifier}
            with pytest.raises(openmsmq.MsmqError) as error:
                answers.send("", **answer)
            assert error.value.hresult == HResult.MQ_ERROR_MISSING_CONNECTOR_TYPE
            answers.send("", connector_type_identifier=CONNECTOR, **answer)
        with manager.open(ADMIN) as queue:
            told = queue.receive()
            assert (told.message_class, told.correlation_identifier) == (MessageClass.ACK_RECEIVE, again.identifier)
            with pytest.raises(openmsmq.ReceiveTimeout):
                queue.receive(timeout=0)


def test_a_connector_queue_is_not_opened_for_sending(service: Daemon) -> None:
    with service.connect() as manager:
        for name in (PLAIN, XACT):
            with pytest.raises(openmsmq.MsmqError, match="UNSUPPORTED_ACCESS_MODE"):
                manager.open(name, "send")
        for protocol in ("remoteread", "qm2qm", "qmcomm"):
            with pytest.raises(openmsmq.QueueNotFound):
                manager.open(f"CONNECTOR={UUID(int=1)}", protocol=protocol)


def test_qmmgmt_reports_connector_queues(service: Daemon) -> None:
    send_both(service)
    with service.connect() as manager:
        assert sorted(manager.management()["active_queues"]) == [PLAIN, XACT]
        for name, transactional in ((PLAIN, "NO"), (XACT, "YES")):
            told = manager.management(name)
            assert (told["type"], told["foreign"], told["transactional"]) == ("CONNECTOR", "YES", transactional)
            assert (told["format_name"], told["path_name"], told["location"]) == (name, None, "LOCAL")
            assert (told["message_count"], told["state"], told["next_hops"]) == (1, "LOCAL CONNECTION", None)


def test_a_site_that_is_no_longer_in_the_file_keeps_its_messages(service: Daemon) -> None:
    send_both(service)
    service.stop()
    service.options = ()
    with service.start().connect() as manager:
        assert f"{XACT} keeps 1 messages" in service.log
        assert sorted(manager.management()["active_queues"]) == [PLAIN, XACT]
        with manager.open(PLAIN) as queue:
            assert queue.receive().decode() == "plain"


@pytest.fixture
def run(service: Daemon) -> Callable[..., str]:
    def call(*arguments: str) -> str:
        return checked(*arguments, **at(service))

    return call


def test_the_command_line_lists_shows_reads_and_purges_them(service: Daemon, run: Callable[..., str]) -> None:
    send_both(service)
    listed = [json.loads(line) for line in run("queue", "list", "--json").splitlines()]
    assert [(row["path_name"], row["message_count"]) for row in listed] == [(PLAIN, 1), (XACT, 1)]
    assert "CONNECTOR" in run("queue", "show", PLAIN)
    assert "exactly once" in run("peek", XACT)
    assert "exactly once" in run("receive", XACT)
    run("queue", "purge", PLAIN, "--yes")
    assert run("peek", PLAIN) == ""
