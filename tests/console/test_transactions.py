"""Distributed transactions that wait for a machine that no longer exists: how administrators see and end them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from command_line import CommandResult, invoke
from console.browser import ADMINISTRATOR, PASSWORD, USER, Browser, Client
from console.conftest import OPTIONS, users
from daemon import Daemon, eventually
from openmsmq.model.constants import Access, ReceiveAction, Share
from openmsmq.model.message import Message
from openmsmq.model.names import parse_format_name
from openmsmq.oletx.records import Note, encode_decision, encode_note
from openmsmq.oletx.structures import Partner
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.server.config import Configuration
from openmsmq.server.daemon import Daemon as ServerHere
from openmsmq.store import Put

GONE = Partner(UUID(int=7), "GONE")
LATE = Partner(UUID(int=8), "LATE")
IN_DOUBT = bytes(range(16)).hex()
UNCONFIRMED = bytes(range(16, 32)).hex()
UNKNOWN = "ff" * 16
QUEUE = "DIRECT=OS:.\\private$\\q"
ON = ("--distributed-transactions", "none")
_tokens: dict[tuple[Path, str, str], str] = {}


def leave(directory: Path, **options: Any) -> None:
    """Write two transactions into the store of a stopped daemon: a prepared one of the superior GONE, which receives
    `old` and sends `new`, and a commit that LATE has not confirmed."""
    server = ServerHere(Configuration(data_dir=directory, **options))
    manager = server.manager
    transaction = manager.transactions.create(bytes.fromhex(IN_DOUBT))
    sender = manager.handles.open_queue(parse_format_name(QUEUE), Access.SEND, Share.DENY_NONE, SYSTEM)
    manager.sending.enqueue(sender, Message.of("new", label="new"), transaction)
    reader = manager.handles.open_queue(parse_format_name(QUEUE), Access.RECEIVE, Share.DENY_NONE, SYSTEM)
    manager.reading.read(
        reader, ReceiveAction.RECEIVE, 0, lambda message: 0, lambda status, message: None, transaction=transaction
    )
    transaction.superior = encode_note(Note(GONE))
    manager.transactions.prepare(transaction)
    server.store.append([Put(b"decision/" + bytes.fromhex(UNCONFIRMED), encode_decision([LATE]))])
    server.store.close()


@contextmanager
def waiting(directory: Path, *options: str) -> Iterator[Daemon]:
    """Run a daemon with both transactions."""
    users(directory)
    with Daemon(directory, *OPTIONS, *options) as daemon:
        client = Client(daemon)
        queue = client.post("/queues", name="q", transactional=True)["id"]
        client.send(queue, "old")
        daemon.stop()
        leave(directory)
        daemon.start()
        yield daemon


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with waiting(tmp_path / "data", *ON) as daemon:
        yield daemon


def run(daemon: Daemon, *words: str, user: str = ADMINISTRATOR, role: str = "administrator") -> CommandResult:
    key = daemon.directory, user, role
    if key not in _tokens:
        _tokens[key] = Client(daemon, user).post("/tokens", name=role, role=role, days=1)["secret"]
    return invoke("transaction", *words, OPENMSMQ_TOKEN=_tokens[key], OPENMSMQ_DATA_DIR=str(daemon.directory))


def labels(daemon: Daemon) -> list[str]:
    client = Client(daemon)
    [queue] = client.get("/queues", filter="*q", kind="queue")["queues"]
    return [message["label"] for message in client.messages(queue["id"])]


def states(daemon: Daemon) -> dict[str, str]:
    return {each["id"]: each["state"] for each in Client(daemon).get("/transactions")["transactions"]}


def test_transactions_that_wait_are_listed_with_their_partners_and_the_last_failure(daemon: Daemon) -> None:
    def listed() -> dict[str, Any]:
        ended = run(daemon, "list", "--json", role="monitor")
        assert ended.code == 0, ended
        return {row["id"]: row for row in map(json.loads, ended.stdout.splitlines())}

    def failed() -> dict[str, Any] | None:
        rows = listed()
        return rows if all(row["partners"][0]["failure"] for row in rows.values()) else None

    rows = eventually(failed)
    assert rows.keys() == {IN_DOUBT, UNCONFIRMED} and labels(daemon) == []
    doubt, late = rows[IN_DOUBT], rows[UNCONFIRMED]
    assert (doubt["role"], doubt["state"]) == ("branch", "in doubt")
    assert (late["role"], late["state"]) == ("began here", "unconfirmed")
    [superior], [subordinate] = doubt["partners"], late["partners"]
    assert (superior["host"], superior["role"], superior["state"]) == ("GONE", "superior", "in doubt")
    assert superior["trying"] == "asking it for the outcome" and "no address is known for GONE" in superior["failure"]
    assert (subordinate["host"], subordinate["role"]) == ("LATE", "subordinate")
    assert subordinate["trying"] == "telling it to commit" and "no address is known for LATE" in subordinate["failure"]
    [held] = doubt["held"]
    assert held["queue"].endswith("private$\\q") and (held["locked"], held["sent"]) == (1, 1) and late["held"] == []
    table = run(daemon, "list").stdout
    assert IN_DOUBT in table and "superior GONE: in doubt" in table and "no address is known" in table
    assert run(daemon, "list", user=USER, role="monitor").code == 5, "they are for administrators"


def test_one_transaction_is_explained_also_by_its_guid(daemon: Daemon) -> None:
    eventually(lambda: "no address is known" in run(daemon, "show", IN_DOUBT).stdout)
    shown = run(daemon, "show", IN_DOUBT, role="monitor")
    for said in (
        "waits for the decision of GONE: only GONE knows it. Until then 1 received message and 1 sent message stay",
        "The last attempt failed: GONE (", "no address is known for GONE", "What to do: make sure that GONE is running",
        f"openmsmq transaction resolve {IN_DOUBT} commit (or abort)", "private$\\q: 1 locked, 1 sent",
    ):  # fmt: skip
        assert said in shown.stdout, shown
    guid = str(UUID(bytes_le=bytes.fromhex(IN_DOUBT)))
    by_guid = Client(daemon).get(f"/transactions/{guid}")
    assert (by_guid["transaction"]["id"], by_guid["transaction"]["guid"]) == (IN_DOUBT, guid)
    late = run(daemon, "show", UNCONFIRMED).stdout
    assert "LATE has not confirmed the commit" in late and f"resolve {UNCONFIRMED} forget" in late
    for missing in (UNKNOWN, "x", "0-0"):
        assert run(daemon, "show", missing).code == 3


@pytest.mark.parametrize(("resolution", "left"), [("commit", ["new"]), ("abort", ["old"])])
def test_a_transaction_in_doubt_is_ended_by_hand_for_good(daemon: Daemon, resolution: str, left: list[str]) -> None:
    would = run(daemon, "resolve", IN_DOUBT, resolution, "--dry-run")
    assert f"would {resolution} {IN_DOUBT} here, which" in would.stdout and "may have decided otherwise" in would.stdout
    assert run(daemon, "resolve", IN_DOUBT, resolution, "--dry-run", role="monitor").code == 0
    asked = run(daemon, "resolve", IN_DOUBT, resolution)
    assert asked.code == 2 and "may have decided otherwise" in asked.stderr, "it asks"
    assert run(daemon, "resolve", IN_DOUBT, resolution, "--yes", role="operator").code == 5
    assert run(daemon, "resolve", IN_DOUBT, resolution, "--yes", user=USER).code == 5
    assert states(daemon)[IN_DOUBT] == "in doubt" and labels(daemon) == []
    client = Client(daemon)
    assert client.get("/audit", action="transaction.resolve", denied="false")["records"] == []
    done = json.loads(run(daemon, "resolve", IN_DOUBT, resolution, "--yes", "--json").stdout)
    assert (done["transaction"], done["before"], done["state"]) == (IN_DOUBT, "in doubt", "ended") and done["done"]
    assert states(daemon) == {UNCONFIRMED: "unconfirmed"} and labels(daemon) == left
    [record] = client.get("/audit", action="transaction.resolve", denied="false")["records"]
    assert (record["type"], record["object"]) == ("transaction", IN_DOUBT) and record["actor"]["name"] == ADMINISTRATOR
    assert record["after"] == {"resolution": resolution}
    assert record["before"] == {"state": "in doubt", "partners": f"superior {GONE}"}
    assert run(daemon, "resolve", IN_DOUBT, resolution, "--yes").code == 3
    daemon.kill()
    daemon.start()
    assert states(daemon) == {UNCONFIRMED: "unconfirmed"} and labels(daemon) == left


def test_a_decision_that_nobody_confirms_is_forgotten_for_good(daemon: Daemon) -> None:
    client = Client(daemon)
    path = f"/transactions/{UNCONFIRMED}/resolve"
    would = client._done(client.ask("POST", path, {"resolution": "forget"}, dry_run="true"))
    assert not would["done"] and "LATE still has it" in would["warning"] and UNCONFIRMED in states(daemon)
    assert client.post(path, resolution="forget")["state"] == "ended"
    assert states(daemon) == {IN_DOUBT: "in doubt"}
    daemon.kill()
    daemon.start()
    assert states(daemon) == {IN_DOUBT: "in doubt"}


@pytest.mark.parametrize(
    ("transaction", "resolution", "possible"),
    [(IN_DOUBT, "forget", "commit or abort"), (UNCONFIRMED, "commit", "forget"), (UNCONFIRMED, "abort", "forget")],
)
def test_what_the_state_does_not_allow_is_refused(
    daemon: Daemon, transaction: str, resolution: str, possible: str
) -> None:
    before = states(daemon)
    answer = Client(daemon).ask("POST", f"/transactions/{transaction}/resolve", {"resolution": resolution})
    assert answer.status == 409 and f"possible is {possible}" in answer.json["detail"]
    assert states(daemon) == before
    assert Client(daemon).ask("POST", f"/transactions/{UNKNOWN}/resolve", {"resolution": "abort"}).status == 404
    assert Client(daemon).ask("POST", f"/transactions/{IN_DOUBT}/resolve", {"resolution": "x"}).status == 422


def test_the_console_explains_a_transaction_and_ends_it(daemon: Daemon) -> None:
    browser = Browser(daemon)
    csrf = browser.login().json["csrf"]
    page = browser.ask("GET", "/transactions")
    assert page.status == 200
    assert all(text in page.text for text in (f"/transactions/{IN_DOUBT}", "superior GONE", "in doubt"))
    page = browser.ask("GET", f"/transactions/{IN_DOUBT}")
    assert page.text.count(f'action="/transactions/{IN_DOUBT}/resolve"') == 2 and "decided otherwise" in page.text
    assert f"openmsmq transaction show {IN_DOUBT}" in page.text
    answer = browser.ask("POST", f"/transactions/{IN_DOUBT}/resolve", {"csrf": csrf, "resolution": "abort"})
    assert answer.status == 200 and "Its state now: ended" in answer.text and labels(daemon) == ["old"]
    other = Browser(daemon)
    other.login(USER)
    assert other.ask("GET", "/transactions").status == 403


def test_a_queue_whose_messages_are_all_locked_is_not_shown_as_empty(daemon: Daemon) -> None:
    client = Client(daemon)
    [queue] = client.get("/queues", filter="*q", kind="queue")["queues"]
    browser = Browser(daemon)
    browser.login()
    page = browser.ask("GET", f"/queues/{queue['id']}").text
    assert "All are locked by a transaction" in page and "The queue is empty" not in page
    client.post(f"/transactions/{IN_DOUBT}/resolve", resolution="commit")
    client.ask("POST", f"/queues/{queue['id']}/purge", count=1)
    assert "The queue is empty" in browser.ask("GET", f"/queues/{queue['id']}").text


def test_metrics_count_transactions_by_state(daemon: Daemon) -> None:
    client = Client(daemon)

    def counted() -> set[str]:
        answer = Browser(daemon).ask("GET", "/metrics")
        return {line for line in answer.text.splitlines() if line.startswith("openmsmq_distributed_transactions{")}

    assert {
        'openmsmq_distributed_transactions{state="in_doubt"} 1',
        'openmsmq_distributed_transactions{state="unconfirmed"} 1',
        'openmsmq_distributed_transactions{state="active"} 0',
    } <= counted()
    client.post(f"/transactions/{IN_DOUBT}/resolve", resolution="abort")
    assert 'openmsmq_distributed_transactions{state="in_doubt"} 0' in counted()


def test_an_alarm_says_which_transaction_waits(tmp_path: Path) -> None:
    with waiting(tmp_path / "data", *ON, "--alarm-in-doubt-seconds", "1") as daemon:
        client = Client(daemon)

        def raised() -> list[dict[str, Any]] | None:
            found = [each for each in client.get("/alarms")["active"] if each["alarm"] == "indoubt"]
            return found if len(found) == 2 else None

        found = eventually(raised)
        assert {each["queue"] for each in found} == {f"Transaction {IN_DOUBT}", f"Transaction {UNCONFIRMED}"}
        assert all(each["steps"][0]["command"] == "openmsmq transaction list" for each in found)


def test_where_distributed_transactions_are_off_they_say_so_and_can_be_ended(tmp_path: Path) -> None:
    with waiting(tmp_path / "data") as daemon:
        for identifier in (IN_DOUBT, UNCONFIRMED):
            assert "because the setting distributed_transactions is off" in run(daemon, "show", identifier).stdout
        assert run(daemon, "resolve", IN_DOUBT, "commit", "--yes").code == 0
        assert states(daemon) == {UNCONFIRMED: "unconfirmed"} and labels(daemon) == ["new"]


def test_a_daemon_without_distributed_transactions_says_that_there_are_none(tmp_path: Path) -> None:
    users(tmp_path / "data")
    with Daemon(tmp_path / "data", *OPTIONS) as daemon:
        assert run(daemon, "list").stdout == "no transaction spans several queue managers now\n"
        assert "There are no transactions across several queue managers" in _page(daemon)


def _page(daemon: Daemon) -> str:
    browser = Browser(daemon)
    browser.login(ADMINISTRATOR, PASSWORD)
    return browser.ask("GET", "/transactions").text
