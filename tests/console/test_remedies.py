"""Last-resort operations: deleting an outgoing queue, forgetting an incoming sequence."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import CommandResult, invoke
from console.browser import ADMINISTRATOR, PASSWORD, USER, Browser, Client
from console.conftest import OPTIONS, users
from daemon import Daemon, eventually

FAR = "DIRECT=OS:nowhere.invalid\\private$\\far"
_numbers = itertools.count()
UNKNOWN = "00000000-0000-0000-0000-000000000001"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("remedies") / "data"
    users(directory)
    with Daemon(directory, *OPTIONS) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Client:
    return Client(daemon)


def run(client: Client, *arguments: str, user: str = ADMINISTRATOR, role: str = "administrator") -> CommandResult:
    token = Client(client.daemon, user).post("/tokens", name=f"t{next(_numbers)}", role=role, days=1)["secret"]
    return invoke(*arguments, OPENMSMQ_TOKEN=token, OPENMSMQ_DATA_DIR=str(client.daemon.directory))


def send_far(daemon: Daemon, queue: str = FAR) -> None:
    with daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager:
        with manager.open(queue, "send") as opened:
            opened.send("plain", label="plain", recoverable=True, journaling_requested=1)
            with manager.transaction() as transaction:
                opened.send("exact", label="exact", journaling_requested=1, transaction=transaction)
            opened.send("unwanted", label="unwanted")


def labels(client: Client, queue: str) -> list[str]:
    return [message["label"] for message in client.messages(queue)]


def test_an_outgoing_queue_is_deleted_and_its_messages_are_dead_letters(client: Client, daemon: Daemon) -> None:
    send_far(daemon)
    expected = {"queue": FAR, "messages": 3, "done": False}
    dry_run = ("outgoing", "delete", FAR, "--dry-run", "--json")
    eventually(lambda: (said := run(client, *dry_run).stdout) and json.loads(said) == expected)
    assert run(client, "outgoing", "delete", FAR).code == 2, "it asks"
    assert run(client, "outgoing", "delete", FAR, "--yes", role="operator").code == 5
    assert run(client, "outgoing", "delete", FAR, "--yes", user=USER).code != 0
    done = run(client, "outgoing", "delete", FAR, "--yes")
    assert done == (0, f"deleted {FAR}: 3 messages\n", "")
    eventually(lambda: client.get("/queues", filter="nowhere")["matching"] == 0)
    assert labels(client, "deadletter") == ["plain"] and labels(client, "xactdeadletter") == ["exact"]
    with daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager:
        assert FAR not in [row["format_name"] for row in manager.outgoing()]
    [record] = client.get("/audit", action="outgoing.delete")["records"]
    assert record["count"] == 3 and record["actor"]["name"] == ADMINISTRATOR
    assert run(client, "outgoing", "delete", FAR, "--yes").code == 3
    send_far(daemon)  # a send creates it again
    eventually(lambda: run(client, "outgoing", "delete", FAR, "--yes").code == 0)


def test_a_program_that_has_the_queue_open_learns_that_it_is_gone(client: Client, daemon: Daemon) -> None:
    with daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager, manager.open(FAR, "send") as opened:
        opened.send("x")
        eventually(lambda: run(client, "outgoing", "delete", FAR, "--yes").code == 0)
        with pytest.raises(Exception, match=r"QUEUE_DELETED|INVALID_HANDLE"):
            opened.send("y")


def test_only_outgoing_queues_are_deleted_so_and_only_with_the_right_count(client: Client, daemon: Daemon) -> None:
    queue = client.post("/queues", name="local")["id"]
    assert client.ask("DELETE", f"/outgoing/{queue}", count=0).status == 409
    assert run(client, "outgoing", "delete", "local").code == 2
    send_far(daemon)
    [found] = eventually(lambda: [each for each in client.get("/outgoing")["queues"] if each["messages"] == 3])
    assert client.ask("DELETE", f"/outgoing/{found['id']}", count=1).status == 412
    browser = Browser(daemon)
    csrf = browser.login().json["csrf"]
    assert f"/outgoing/{found['id']}/delete" in browser.ask("GET", f"/queues/{found['id']}").text
    answer = browser.ask("POST", f"/outgoing/{found['id']}/delete", {"csrf": csrf, "count": "3"})
    assert answer.status == 200 and "Deleted" in answer.text


def test_an_outgoing_queue_that_was_deleted_does_not_come_back_with_a_restart(tmp_path: Path) -> None:
    users(tmp_path / "data")
    with Daemon(tmp_path / "data", *OPTIONS) as daemon:
        send_far(daemon)
        assert run(Client(daemon), "outgoing", "delete", FAR, "--yes").code == 0
        daemon.kill()
        daemon.start()
        client = Client(daemon)
        assert client.get("/outgoing")["all"] == 0
        assert labels(client, "deadletter") == ["plain"] and labels(client, "xactdeadletter") == ["exact"]


def send_exactly_once(daemon: Daemon, queue: str) -> None:
    """Send from a temporary queue manager that exists only for this message."""
    port = str(daemon.ready["endpoints"]["messages"]["port"])
    to = f"DIRECT=TCP:127.0.0.1\\private$\\{queue}"
    ended = invoke("send", to, "x", "--transaction", "--message-port", port)
    assert ended.code == 0, ended


def test_sequences_are_listed_and_forgotten(client: Client, daemon: Daemon) -> None:
    client.post("/queues", name="exact", transactional=True)
    assert run(client, "sequence", "list", "exact").stdout.startswith("no other queue manager")
    send_exactly_once(daemon, "exact")
    send_exactly_once(daemon, "exact")

    def listed(*arguments: str) -> list[dict[str, Any]]:
        ended = run(client, "sequence", "list", *arguments, "--json", role="monitor")
        assert ended.code == 0, ended
        return [json.loads(line) for line in ended.stdout.splitlines()]

    found = eventually(lambda: listed("exact"))
    assert {row["number"] for row in found} == {1} and found == listed()
    source = found[0]["source"]
    assert run(client, "sequence", "forget", "exact", UNKNOWN, "--yes").code == 3
    assert run(client, "sequence", "forget", "exact", "x", "--yes").code == 2
    assert run(client, "sequence", "forget", "exact", source).code == 2, "it asks"
    assert run(client, "sequence", "forget", "exact", source, "--yes", role="operator").code == 5
    assert "would be forgotten" in run(client, "sequence", "forget", "exact", source, "--dry-run").stdout
    assert listed("exact") == found
    assert "forgotten: " in run(client, "sequence", "forget", "exact", source, "--yes").stdout
    assert source not in [row["source"] for row in listed("exact")] and len(listed("exact")) == len(found) - 1
    [record] = client.get("/audit", action="sequence.forget")["records"]
    assert record["before"]["source"] == source and record["before"]["sequences"].endswith(" at 1")
    assert run(client, "sequence", "list", user=USER, role="monitor").code == 5
    assert client.ask("DELETE", f"/sequences/p999999/{source}").status == 404


def test_a_forgotten_sequence_is_forgotten_on_the_disk(tmp_path: Path) -> None:
    users(tmp_path / "data")
    with Daemon(tmp_path / "data", *OPTIONS) as daemon:
        client = Client(daemon)
        client.post("/queues", name="exact", transactional=True)
        send_exactly_once(daemon, "exact")
        [found] = eventually(lambda: client.get("/sequences")["sequences"])
        client.act("DELETE", f"/sequences/{found['queue']}/{found['source']}")
        daemon.stop()
        daemon.start()
        assert Client(daemon).get("/sequences")["matching"] == 0
