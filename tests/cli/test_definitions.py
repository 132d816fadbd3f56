"""Definitions: written down, compared, and made on another queue manager."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from command_line import add_user, at, invoke
from daemon import Daemon

Run = Callable[..., str]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    directory = tmp_path_factory.mktemp("definitions")
    with Daemon(directory / "one", "--computer-name", "one") as first:
        with Daemon(directory / "two", "--computer-name", "two", "--log-level", "debug") as second:
            yield first, second


def run_at(daemon: Daemon, *arguments: str, code: int = 0, **environment: str) -> str:
    given = {**at(daemon), "OPENMSMQ_DATA_DIR": str(daemon.directory), **environment}
    ended = invoke(*arguments, **given)
    assert ended.code == code, (arguments, *ended)
    return ended.stdout if code != 2 else ended.stderr


def test_a_file_makes_another_queue_manager_the_same(pair: tuple[Daemon, Daemon], tmp_path: Path) -> None:
    first, second = pair
    add_user(first.directory, "alice", "Secret#1")
    run_at(first, "user", "role", "alice", "operator")
    run_at(first, "user", "group", "add", "clerks", "alice")
    run_at(first, "queue", "create", "orders", "--label", "Orders", "--transactional", "--quota", "500")
    run_at(first, "queue", "create", "Bills", "--journal")
    run_at(first, "queue", "grant", "orders", "clerks", "send", "peek")
    run_at(first, "machine", "grant", "clerks", "PeekDeadLetter")
    file = tmp_path / "definitions.json"
    run_at(first, "definitions", "export", str(file), "--local", "--secrets")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    document = json.loads(file.read_text())
    assert [queue["name"] for queue in document["queues"]] == ["Bills", "orders"]
    assert "allow clerks PeekMessage WriteMessage" in document["queues"][1]["permissions"]
    assert document["settings"]["computer_name"] == {"value": "one", "source": "option"}
    assert run_at(first, "definitions", "diff", str(file), "--local") == ""

    planned = run_at(second, "definitions", "import", str(file), "--local", "--dry-run")
    assert "create queue orders" in planned and "add user alice" in planned and "setting computer_name" in planned
    assert run_at(second, "queue", "list", "--json") == ""
    run_at(second, "definitions", "import", str(file), "--local")
    left = run_at(second, "definitions", "diff", str(file), "--local", code=1).splitlines()
    assert left and all(line.startswith("setting ") for line in left)
    run_at(second, "send", "orders", "x", "--transaction", "--user", "alice", OPENMSMQ_PASSWORD="Secret#1")
    assert "clerks" in run_at(second, "machine", "permissions")
    assert json.loads(run_at(second, "user", "list", "--json"))["role"] == "operator"
    run_at(second, "user", "role", "alice", "monitor")
    assert "user alice: role monitor -> operator" in run_at(second, "definitions", "import", str(file), "--local")

    run_at(second, "queue", "set", "orders", "label=other")
    run_at(second, "queue", "create", "extra")
    left = run_at(second, "definitions", "diff", str(file), code=1).splitlines()
    assert left == ["queue orders: label 'other' -> 'Orders'", "queue extra is here only: kept  [left]"]
    run_at(second, "definitions", "import", str(file))
    assert json.loads(run_at(second, "queue", "show", "orders", "--json"))["label"] == "Orders"


def test_without_secrets_there_are_none(pair: tuple[Daemon, Daemon]) -> None:
    document = json.loads(run_at(pair[0], "definitions", "export", "--local"))
    assert "nt_hash" not in json.dumps(document)
    assert "users" not in json.loads(run_at(pair[0], "definitions", "export"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "Expecting"),
        ("{}", "format 1"),
        ('{"format": 1, "colour": 1}', "'colour' is unknown"),
        ('{"format": 1, "queues": [{"name": "a"}, {"name": "A"}]}', "twice"),
        ('{"format": 1, "queues": [{"name": "a", "lable": ""}]}', "'lable' is unknown"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    pair: tuple[Daemon, Daemon], tmp_path: Path, content: str, said: str
) -> None:
    (tmp_path / "f.json").write_text(content)
    ended = invoke("definitions", "import", str(tmp_path / "f.json"), **at(pair[0]))
    assert ended.code == 1 and said in ended.stderr


def test_a_step_that_fails_leaves_the_others_done(pair: tuple[Daemon, Daemon], tmp_path: Path) -> None:
    queues = [{"name": "odd", "permissions": ["allow nobody WriteMessage"]}, {"name": "even"}]
    (tmp_path / "f.json").write_text(json.dumps({"format": 1, "queues": queues}))
    ended = invoke("definitions", "import", str(tmp_path / "f.json"), **at(pair[0]))
    assert ended.code == 1 and "'nobody' is no user" in ended.stdout and "1 step failed" in ended.stderr
    assert "even" in run_at(pair[0], "queue", "list")
