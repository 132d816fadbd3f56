"""Sending without a local queue manager, testing connections, and explaining why messages wait."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import command_line
import openmsmq
from daemon import Daemon, eventually
from openmsmq.admin.explaining import explanation
from openmsmq.cli.administering import _show_machine
from openmsmq.cli.connection import Address, is_here
from openmsmq.cli.exit_codes import UNREACHABLE
from openmsmq.cli.root import cli

HOST = "127.0.72.1"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("remote") / "data", "--listen", HOST) as running:
        with openmsmq.connect(HOST, running.port) as qm:
            qm.create_queue(".\\private$\\plain")
            qm.create_queue(".\\private$\\tx", transactional=True)
        yield running


@pytest.fixture
def port(daemon: Daemon) -> str:
    return str(daemon.ready["endpoints"]["messages"]["port"])


def invoke(*arguments: str, **environment: str) -> Result:
    # No queue manager listens at this port offset.
    return CliRunner().invoke(cli, arguments, env={"OPENMSMQ_PORT_OFFSET": "9", **environment})


def send(port: str, queue: str, *options: str, host: str = HOST) -> Result:
    name = f"DIRECT=TCP:{host}\\private$\\{queue}"
    return invoke("send", name, "hello", "--message-port", port, *options)


def test_a_message_goes_to_another_machine_without_a_queue_manager_here(daemon: Daemon, port: str) -> None:
    done = send(port, "plain", "--label", "l", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["fate"] == "saved" and document["address"] == HOST
    with openmsmq.connect(HOST, daemon.port) as qm, qm.open(".\\private$\\plain", "receive") as queue:
        message = queue.receive(timeout=5)
        assert message.decode() == "hello" and message.label == "l" and message.id == document["id"]
    assert "it is unknown whether the queue accepts the message" in send(port, "plain").stderr


def test_a_transactional_queue_reports_whether_it_accepted_the_message(daemon: Daemon, port: str) -> None:
    done = send(port, "tx", "--transaction", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["fate"] == "accepted"
    refused = send(port, "plain", "--transaction")
    assert refused.exit_code == 1 and "NACK_NOT_TRANSACTIONAL_Q" in refused.stderr
    missing = send(port, "missing", "--transaction")
    assert missing.exit_code == 1 and "NACK_BAD_DST_Q" in missing.stderr


def test_failures_are_explained(port: str) -> None:
    unknown = invoke("send", "DIRECT=OS:no-such-host.invalid\\private$\\q", "x")
    assert unknown.exit_code == 1 and "does not resolve" in unknown.stderr
    closed = send("1", "plain")
    assert closed.exit_code == 1 and "refused" in closed.stderr and "Is Message Queuing running there" in closed.stderr
    with socket.create_server((HOST, 0)) as silent:
        done = send(str(silent.getsockname()[1]), "plain", "--timeout", "1")
        assert done.exit_code == 1 and "does not answer as a queue manager" in done.stderr


def test_connect_test_names_the_reachable_protocols(port: str) -> None:
    done = invoke("connect-test", HOST, "--message-port", port, "--json")
    assert done.exit_code == 0, done.output
    checks = json.loads(done.stdout)
    assert checks[f"TCP port {port}"]["result"] == "open" and checks["session"]["result"] == "open"
    assert "messages can be sent to" in checks["session"]["meaning"]
    closed = invoke("connect-test", HOST, "--message-port", "1", "--timeout", "2")
    assert closed.exit_code == 1 and "failed" in closed.stdout


def test_outgoing_show_explains_why_messages_wait(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as daemon:
        names = ("DIRECT=OS:no-such-host.invalid\\private$\\q", "DIRECT=TCP:127.0.72.9\\private$\\q")

        def shown(name: str) -> str:
            return invoke("outgoing", "show", name, "--port", str(daemon.port)).stdout

        with daemon.connect() as qm:
            for name in names:
                with qm.open(name, "send") as queue:
                    queue.send("x")
        eventually(lambda: "name does not resolve" in " ".join(shown(names[0]).split()))
        eventually(lambda: "no connection to 127.0.72.9" in " ".join(shown(names[1]).split()))
        assert "openmsmq connect-test" in shown(names[1])


@pytest.mark.parametrize(
    ("values", "connected", "said"),
    [
        ({"state": "ONHOLD", "message_count": 2}, None, "outgoing resume"),
        ({"state": "DISCONNECTED", "message_count": 2}, "DISCONNECTED", "machine connect"),
        ({"state": "INACTIVE", "message_count": 0}, None, "Nothing waits"),
        ({"state": "CONNECTED", "message_count": 1, "eod_no_ack_count": 1}, None, "acknowledgment of their order"),
        ({"state": "WAITING", "message_count": 1, "connection_history": []}, None, "No connection was tried"),
        ({"state": "INACTIVE", "message_count": 0, "eod_no_read_count": 1}, None, "1 message of transactions arrived"),
        (
            {"state": "WAITING", "message_count": 1,
             "connection_history": [{"status": 0x8000000B, "time": 1, "addresses": ["192.0.2.1"]}]},
            None, "192.0.2.1 has refused the session",
        ),
        (
            {"state": "WAITING", "message_count": 1,
             "connection_history": [{"status": -1, "time": 1, "addresses": []}]},
            None, "the connection failed",
        ),
        (
            {"state": "WAITING", "message_count": 1,
             "connection_history": [{"status": 0, "time": 1, "addresses": ["192.0.2.1"]},
                                    {"status": -2**31, "time": 2, "addresses": ["192.0.2.1"]}]},
            None, "the session with 192.0.2.1 ended before messages could be sent",
        ),
    ],
)  # fmt: skip
def test_an_explanation_names_the_cause(values: dict[str, object], connected: object, said: str) -> None:
    assert said in " ".join(explanation({"format_name": "DIRECT=OS:x\\q", **values}, connected))


@pytest.mark.parametrize(("host", "where"), [("localhost", "here"), ("127.0.0.2", "there")])
@pytest.mark.parametrize("command", [("peek", "orders"), ("copy", "orders", "others")])
def test_an_error_without_a_queue_manager_has_the_options_that_choose_one(
    host: str, where: str, command: tuple[str, ...]
) -> None:
    ended = command_line.invoke(*command, "--host", host, "--port", "1")
    assert ended.code == UNREACHABLE and ended.stderr == (
        f"openmsmq: {host}:1: Connection refused; does a queue manager run {where}? See --host, --port, --port-offset\n"
    )


def test_an_error_names_only_options_that_the_command_has() -> None:
    ended = command_line.invoke("adopt", "inventory", "127.0.0.2", "--port", "1")
    assert ended.code == UNREACHABLE
    assert ended.stderr.endswith("does a queue manager run there? See --port, --port-offset\n"), ended.stderr


def test_kerberos_is_refused_with_a_user_and_for_arrow_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = invoke("queue", "list", "--user", "alice", "--kerberos")
    assert refused.exit_code == 2 and "--kerberos works for RPC calls only" in refused.output, refused.output
    with pytest.raises(click.UsageError, match="not together with --user or Arrow Flight"):
        Address("localhost", None, 0, None, "", True, None).password()
    monkeypatch.setitem(sys.modules, "gssapi", None)
    refused = invoke("queue", "list", "--kerberos")
    assert "openmsmq[domain]" in str(refused.exception)


@pytest.mark.parametrize(
    ("host", "here"), [("localhost", True), ("127.0.0.1", True), ("::1", True), ("192.0.2.1", False), ("mq", False)]
)
def test_the_loopback_addresses_are_this_machine(host: str, here: bool) -> None:
    address: Any = SimpleNamespace(host=host)
    assert is_here(address) is here


@pytest.mark.parametrize("count", [20, 21, 2000])
def test_a_machine_with_many_queues_is_shown_on_few_lines(capsys: pytest.CaptureFixture[str], count: int) -> None:
    class Machine:
        machine_id, version = "m", "1"

        def management(self) -> dict[str, object]:
            return {"private_queues": [f"q{number}" for number in range(count)], "connected": "CONNECTED"}

    _show_machine(Machine(), as_json=False)  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert ("more (openmsmq queue list" in said) == (count > 20) and said.count("\n") < 30 and "CONNECTED" in said
    assert count < 2000 or "and 1,980 more" in said
    _show_machine(Machine(), as_json=True)  # type: ignore[arg-type]
    assert f"q{count - 1}" in capsys.readouterr().out
