"""Commands that use the HTTP API of a daemon: top and handles, their authorization, and how they find the server."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from command_line import CommandResult, at, invoke
from console.browser import PASSWORD, USER, Client, FreshDaemon, Refused, port_of
from console.certificate import self_signed
from console.conftest import OPTIONS, users
from daemon import Daemon, eventually
from openmsmq.actions import by_http
from openmsmq.admin import http_requests
from openmsmq.admin.web_address import ADDRESS_FILE, read_address
from openmsmq.cli import top
from openmsmq.cli.exit_codes import DENIED, NOT_FOUND, TIMED_OUT, UNREACHABLE
from openmsmq.model.errors import MsmqError

WRONG_USAGE = 2


@pytest.fixture(scope="module")
def operator(daemon: Daemon) -> str:
    """A token with the role operator."""
    return str(Client(daemon).post("/tokens", name="commands", role="operator")["secret"])


@pytest.fixture(scope="module")
def monitor(daemon: Daemon) -> str:
    """A token with the role monitor."""
    return str(Client(daemon).post("/tokens", name="looks", role="monitor")["secret"])


def url(daemon: Daemon) -> str:
    return f"http://127.0.0.1:{port_of(daemon)}"


def run(daemon: Daemon, token: str, *arguments: str, **environment: str) -> CommandResult:
    return invoke(*arguments, **{"OPENMSMQ_URL": url(daemon), "OPENMSMQ_TOKEN": token, **environment})


@pytest.fixture
def path(client: Client, queue: str, operator: str, monitor: str) -> str:
    """The path name of a new queue that both tokens see: the server caches the queue list of a user for a second."""
    path = str(client.get(f"/queues/{queue}")["queue"]["name"])
    for token in (operator, monitor):
        eventually(lambda token=token: run(client.daemon, token, "handle", "list", path).code == 0)  # type: ignore[misc]
    return path


def documents(ended: CommandResult) -> list[dict[str, Any]]:
    assert ended.code == 0, ended
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.fixture
def waiting(client: Client, path: str) -> Iterator[Thread]:
    """A client waiting for a message of the queue."""

    def wait() -> None:
        with client.daemon.connect(user=USER, password=PASSWORD) as manager, manager.open(path, "receive") as opened:
            try:
                opened.receive(60)
            except MsmqError:
                return

    reader = Thread(target=wait)
    reader.start()
    yield reader
    with client.daemon.connect() as manager, manager.open(path, "send") as opened:
        opened.send("so that it ends")
    reader.join(30)
    assert not reader.is_alive()


# -- top -----------------------------------------------------------------------------------------------------------


def test_top_shows_waiting_reads(daemon: Daemon, monitor: str, path: str, waiting: Thread) -> None:
    look = ("top", "--count", "1", "--empty", "--rows", "1000", "--filter", path, "--json")
    eventually(lambda: documents(run(daemon, monitor, *look))[0]["waiting"] == 1)


def test_top_shows_incoming_and_outgoing_rates(daemon: Daemon, monitor: str, path: str) -> None:
    """If as many messages leave as arrive, only the rates show the traffic."""
    done = False

    def work() -> None:
        with daemon.connect() as manager, manager.open(path, "send") as out, manager.open(path, "receive") as into:
            while not done:
                out.send("x")
                into.receive(10)

    with daemon.connect() as manager, manager.open(path, "send") as opened:
        opened.send("stays")
    worker = Thread(target=work)
    worker.start()
    try:
        look = ("top", "--count", "2", "--interval", "0.2", "--filter", path, "--empty", "--rows", "1000")
        first, second = documents(run(daemon, monitor, *look, "--json"))
        shown = run(daemon, monitor, *look).stdout
    finally:
        done = True
        worker.join(30)
    assert (first["in"], first["out"], first["change"]) == (None, None, None)
    assert second["in"] > 1 and second["out"] > 1 and abs(second["change"]) < 2 and second["oldest"] > 0
    assert "in/s" in shown and "s old" in shown
    assert set(second) == {"queue", "messages", "bytes", "journal", "state", "change", "in", "out", "waiting", "grown",
                           "oldest"}  # fmt: skip


@pytest.mark.parametrize(("away", "code"), [(1, 0), (99, UNREACHABLE)])
def test_top_waits_for_a_daemon_that_restarts_but_not_for_long(
    daemon: Daemon, monitor: str, monkeypatch: pytest.MonkeyPatch, away: int, code: int
) -> None:
    answers = iter([{}, *[http_requests.ApiUnreachable("it does not answer")] * away, {}])

    def sample(depths: object) -> dict[str, Any]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(top._HttpDepths, "sample", sample)
    monkeypatch.setattr(top, "RECONNECT", 1.5)
    ended = run(daemon, monitor, "top", "--count", "2", "--interval", "0.2")
    assert ended.code == code and "it does not answer; trying again" in ended.stderr, ended


def test_top_without_a_token_says_what_is_missing_and_has_the_same_fields(daemon: Daemon, path: str) -> None:
    look = ("top", "--count", "1", "--empty", "--rows", "1000", "--filter", path, "--json")
    ended = invoke(*look, **at(daemon))
    [row] = documents(ended)
    assert (row["messages"], row["in"], row["out"], row["waiting"]) == (0, None, None, None)
    assert len([line for line in ended.stderr.splitlines() if "not shown to this user" not in line]) == 1
    assert "in/s, out/s, growth and waiting are not shown" in ended.stderr and "token create" in ended.stderr
    other = invoke(*look, **at(daemon), OPENMSMQ_TOKEN="omq_x", OPENMSMQ_DATA_DIR="/nowhere")
    assert documents(other) == [row] and "--url" in other.stderr


# -- finding the server, and the token -------------------------------------------------------------------------------


def test_on_the_daemons_machine_a_token_is_enough(daemon: Daemon, monitor: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(monitor + "\n")
    given = {"OPENMSMQ_DATA_DIR": str(daemon.directory), "OPENMSMQ_TOKEN_FILE": str(file)}
    assert invoke("handle", "list", **given).code == 0
    ended = invoke("top", "--count", "1", "--json", **given)
    assert ended.code == 0 and ended.stderr == ""


def test_a_command_for_another_machine_does_not_query_the_local_daemon(daemon: Daemon, monitor: str) -> None:
    given = {"OPENMSMQ_DATA_DIR": str(daemon.directory), "OPENMSMQ_TOKEN": monitor}
    ended = invoke("top", "--count", "1", "--host", "other.invalid", **given)
    assert ended.code == UNREACHABLE and "--url" in ended.stderr


def test_the_address_is_there_while_the_server_is(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", *OPTIONS) as daemon:
        found = read_address(daemon.directory)
        assert found is not None and found.url == url(daemon)
        assert (daemon.directory / ADDRESS_FILE).stat().st_mode & 0o777 == 0o600
        assert invoke("backup", str(tmp_path / "backup"), "--data-dir", str(daemon.directory)).code == 0
        assert (tmp_path / "backup" / "settings.json").exists()
        assert not (tmp_path / "backup" / ADDRESS_FILE).exists()
        daemon.kill()
        assert read_address(daemon.directory) is not None
        daemon.options = tuple(option for option in daemon.options if option != "--web")
        daemon.start()
        assert read_address(daemon.directory) is None
        daemon.stop()
        daemon.options = (*daemon.options, "--web")
        daemon.start()
        assert read_address(daemon.directory) is not None
        daemon.stop()
        assert read_address(daemon.directory) is None


@pytest.mark.parametrize("text", ["", "secret", "omq_", "omq_a b", "omq_a\r\nX: y", "omq_é", "omq_" + "a" * 1000])
def test_an_invalid_token_is_neither_sent_nor_shown(daemon: Daemon, text: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    ended = invoke("handle", "list", "--url", url(daemon), "--token-file", str(file))
    assert ended.code == WRONG_USAGE and f"{file} contains no token" in ended.stderr
    assert "secret" not in ended.stderr


def test_a_file_of_a_token_that_is_not_there_is_named(daemon: Daemon, tmp_path: Path) -> None:
    ended = invoke("handle", "list", "--url", url(daemon), "--token-file", str(tmp_path / "no"))
    assert ended.code == WRONG_USAGE and "No such file" in ended.stderr


def test_a_url_without_a_token_says_how_to_get_one(daemon: Daemon) -> None:
    for command in (("handle", "list"), ("top", "--count", "1")):
        ended = invoke(*command, "--url", url(daemon))
        assert ended.code == WRONG_USAGE and "openmsmq token create" in ended.stderr


def test_a_token_that_is_not_known_is_refused(daemon: Daemon) -> None:
    ended = run(daemon, "omq_wrong", "handle", "list")
    assert ended.code == DENIED and "openmsmq token list" in ended.stderr and "omq_wrong" not in ended.stderr


def test_a_server_that_says_nothing_is_left_at_the_time_limit(monitor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_requests, "SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"http://127.0.0.1:{silent.getsockname()[1]}"
        ended = invoke("handle", "list", "--url", where, OPENMSMQ_TOKEN=monitor)
    assert ended.code == TIMED_OUT and "has not answered within 0.3 s" in ended.stderr


def test_a_text_url_of_another_machine_gets_no_token(monitor: str) -> None:
    ended = invoke("top", "--url", "http://192.0.2.1:18021", OPENMSMQ_TOKEN=monitor)
    assert ended.code == WRONG_USAGE and "use https" in ended.stderr


def test_a_certificate_that_nobody_trusts_gets_no_token(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    (tmp_path / "other").mkdir()
    other, _ = self_signed(tmp_path / "other")
    users(tmp_path / "data")
    options = ("--web-certificate", str(certificate), "--web-key", str(key))
    with Daemon(tmp_path / "data", *OPTIONS, *options) as daemon:
        made = invoke("token", "create", "x", "--user", "alice", OPENMSMQ_DATA_DIR=str(daemon.directory))
        given = {"OPENMSMQ_TOKEN": made.stdout.strip()}
        named, address = (f"https://{host}:{port_of(daemon)}" for host in ("localhost", "127.0.0.1"))
        for extra in ((), ("--tls-root", str(other))):
            ended = invoke("handle", "list", "--url", named, *extra, **given)
            assert ended.code == UNREACHABLE and "its certificate is not trusted" in ended.stderr
        trusted = ("--tls-root", str(certificate))
        assert invoke("handle", "list", "--url", named, *trusted, **given).code == 0
        ended = invoke("handle", "list", "--url", address, *trusted, **given)
        assert ended.code == UNREACHABLE and "IP address mismatch" in ended.stderr
        plain = invoke("handle", "list", "--url", address.replace("https", "http"), **given)
        assert plain.code == UNREACHABLE and "are scheme, host and port right" in plain.stderr
        # The certificate that the daemon writes into its address file is trusted, and no other.
        local = {**given, "OPENMSMQ_DATA_DIR": str(daemon.directory)}
        assert invoke("handle", "list", **local).code == 0
        file = daemon.directory / ADDRESS_FILE
        file.write_text(json.dumps({"url": address, "certificate": str(other)}))
        ended = invoke("handle", "list", **local)
        assert ended.code == UNREACHABLE and "its certificate is not trusted" in ended.stderr
        file.write_text("{")
        assert "restart the daemon to write it again" in invoke("handle", "list", **local).stderr


# -- handles -------------------------------------------------------------------------------------------------------


def test_handles_are_listed_and_closed(daemon: Daemon, client: Client, operator: str, path: str) -> None:
    with daemon.connect(user=USER, password=PASSWORD) as manager:
        opened = manager.open(path, "receive", exclusive=True)
        short = path.rpartition("\\")[2]
        [row] = documents(run(daemon, operator, "handle", "list", short, "--exclusive", "--json"))
        assert (row["user"], row["access"], row["exclusive"], row["origin"]) == (USER, "receive", True, "rpc 127.0.0.1")
        assert abs(time.time() - row["since"]) < 900
        shown = run(daemon, operator, "handle", "list", path).stdout
        assert row["id"] in shown and "deny receive" in shown and " UTC" in shown
        assert documents(run(daemon, operator, "handle", "close", row["id"], "--dry-run", "--json")) == [row]
        assert "would be closed: 1" in run(daemon, operator, "handle", "close", row["id"], "--dry-run").stdout
        opened.purge()
        assert "\nclosed: 1" in run(daemon, operator, "handle", "close", row["id"]).stdout
        with pytest.raises(MsmqError):
            opened.purge()
    again = run(daemon, operator, "handle", "close", row["id"])
    assert again.code == NOT_FOUND and row["id"] in again.stderr and "closed: 0" in again.stdout
    recorded = client.get("/audit", action="handle.close")["records"][0]
    assert (recorded["before"]["user"], recorded["origin"]["door"]) == (USER, "http")
    assert recorded["object"].endswith(short)


def test_of_several_handles_those_that_are_there_are_closed(daemon: Daemon, operator: str, path: str) -> None:
    with daemon.connect() as manager, manager.open(path, "peek"), manager.open(path, "receive"):
        ids = [row["id"] for row in documents(run(daemon, operator, "handle", "list", path, "--json"))]
        assert len(ids) == 2
        limited = run(daemon, operator, "handle", "list", path, "--limit", "1")
        assert "1 of 2 handles are shown" in limited.stderr
        ended = run(daemon, operator, "handle", "close", ids[0], "00" * 8, ids[1], "--json")
        assert ended.code == NOT_FOUND and [json.loads(line)["id"] for line in ended.stdout.splitlines()] == ids
        assert documents(run(daemon, operator, "handle", "list", path, "--json")) == []


def test_a_list_of_handles_continues_over_pages(
    daemon: Daemon, client: Client, operator: str, queue: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = by_http._all_pages
    monkeypatch.setattr(
        by_http, "_all_pages", lambda http, row, of, given: whole(http, row, of._replace(largest=2), given)
    )
    with daemon.connect() as manager, contextlib.ExitStack() as opened:
        for access in ("peek", "receive", "send", "peek", "receive"):
            opened.enter_context(manager.open(path, access))
        everything = [row["id"] for row in documents(run(daemon, operator, "handle", "list", path, "--json"))]
        assert len(set(everything)) == 5
        for limit, count in (("0", 5), ("3", 3), ("4", 4), ("5", 5), ("1", 1)):
            ended = run(daemon, operator, "handle", "list", path, "--limit", limit, "--json")
            assert [row["id"] for row in documents(ended)] == everything[:count]
            assert (f"{count} of 5 handles are shown" in ended.stderr) is (count < 5)
        page = client.get("/handles", queue=queue, limit=2)
        assert [row["id"] for row in page["handles"]] == everything[:2] and page["matching"] == 5
        client.act("DELETE", f"/handles/{everything[1]}")  # the cursor remains valid without this handle
        rest = client.get("/handles", queue=queue, cursor=page["next"])
        assert [row["id"] for row in rest["handles"]] == everything[2:] and rest["next"] is None
        for wrong in ("x", client.get("/queues", limit=1)["next"]):
            with pytest.raises(Refused) as caught:
                client.get("/handles", cursor=wrong)
            assert caught.value.status == 400


def test_top_shows_and_sorts_by_growth(own: FreshDaemon) -> None:
    token = own.client.post("/tokens", name="top", role="monitor")["secret"]
    with own.daemon.connect() as manager:
        for name, count in (("few", 1), ("many", 3)):
            manager.create_queue(f".\\private$\\{name}")
            with manager.open(f".\\private$\\{name}", "send") as opened:
                for _ in range(count):
                    opened.send("x")
    look = ("top", "--count", "1", "--sort", "grown", "--filter", "*private$*")
    rows = documents(run(own.daemon, token, *look, "--json"))
    assert [(row["queue"].rpartition("\\")[2], row["grown"]) for row in rows] == [("many", 3), ("few", 1)]
    shown = run(own.daemon, token, *look).stdout
    assert "in 5 min" in shown and "+3" in shown
    ended = invoke(*look, **at(own.daemon))
    assert ended.code == WRONG_USAGE and "--sort grown requires the HTTP API" in ended.stderr


def test_waiting_reads_are_listed(daemon: Daemon, monitor: str, path: str, waiting: Thread) -> None:
    look = ("handle", "list", path, "--waiting", "--json")
    [row] = eventually(lambda: documents(run(daemon, monitor, *look)))
    assert (row["waiting"], row["user"], row["exclusive"]) == (1, USER, False)


def test_a_read_only_token_closes_nothing(daemon: Daemon, monitor: str, path: str) -> None:
    with daemon.connect() as manager, manager.open(path, "receive"):
        [row] = documents(run(daemon, monitor, "handle", "list", path, "--json"))
        ended = run(daemon, monitor, "handle", "close", row["id"])
        assert ended.code == DENIED and "this needs the role operator" in ended.stderr and "--role" in ended.stderr
        assert len(documents(run(daemon, monitor, "handle", "list", path, "--json"))) == 1


def test_handles_are_for_administrators(bob: Client) -> None:
    secret = bob.post("/tokens", name="curious", role="administrator")["secret"]
    ended = run(bob.daemon, secret, "handle", "list")
    assert ended.code == DENIED and "administrators of the queue manager" in ended.stderr


def test_handles_of_a_queue_that_is_not_there(daemon: Daemon, monitor: str) -> None:
    ended = run(daemon, monitor, "handle", "list", "nosuchqueue")
    assert ended.code == NOT_FOUND and "there is no queue nosuchqueue" in ended.stderr


def test_a_daemon_that_is_gone_is_not_reached(own: FreshDaemon) -> None:
    token = own.client.post("/tokens", name="x", role="monitor")["secret"]
    where = url(own.daemon)
    own.daemon.stop()
    ended = invoke("handle", "list", "--url", where, OPENMSMQ_TOKEN=token)
    assert ended.code == UNREACHABLE and "does the daemon run with the setting web" in ended.stderr
