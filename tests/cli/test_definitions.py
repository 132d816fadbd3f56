"""Definitions: export, comparison, and import on another queue manager."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from com_client import Connection
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


def test_an_export_makes_another_queue_manager_identical(pair: tuple[Daemon, Daemon], tmp_path: Path) -> None:
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


def test_an_export_without_secrets_contains_none(pair: tuple[Daemon, Daemon]) -> None:
    document = json.loads(run_at(pair[0], "definitions", "export", "-", "--local"))
    assert "nt_hash" not in json.dumps(document)
    assert "users" not in json.loads(run_at(pair[0], "definitions", "export"))


def of_queue(**members: object) -> str:
    return json.dumps({"format": 1, "queues": [{"name": "fine"}, {"name": "a", **members}]})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "Expecting"),
        ("[" * 100_000, "nested too deeply"),
        ("{}", "format 1"),
        ("[1]", "format 1"),
        ('{"format": 1, "color": 1}', "'color' is unknown"),
        ('{"format": 1, "format": 1}', "'format' is given twice"),
        ('{"format": 1, "queues": [{"name": "a", "name": "b"}]}', "'name' is given twice"),
        ('{"format": 1, "queues": [{"name": "a"}, {"name": "A"}]}', "duplicate name"),
        ('{"format": 1, "queues": [5]}', "queues[0]: Expected `object`"),
        ('{"format": 1, "queues": {}}', "queues: Expected `array`"),
        ('{"format": 1, "settings": []}', "settings: Expected `object`"),
        ('{"format": 1, "settings": {"a": 1}}', "Expected `object`"),
        ('{"format": 1, "machine": {"permissions": 5}}', "machine.permissions: Expected `array`"),
        ('{"format": 1, "groups": [{"name": "g", "members": "all"}]}', "group 'g': members: Expected `array`"),
        ('{"format": 1, "users": [{"name": "a*b"}]}', "is not a valid name"),
        ('{"format": 1, "users": [{"name": "u", "nt_hash": "zz"}]}', "user 'u': nt_hash"),
        ('{"format": 1, "users": [{"name": "u", "administrator": "no"}]}', "Expected `bool`"),
        ('{"format": 1, "queues": [{"label": "a"}]}', "queues[0]: Object missing required field `name`"),
        (of_queue(lable=""), "queue 'a': 'lable' is unknown"),
        (of_queue(transactional="no"), "queue 'a': transactional: Expected `bool`"),
        (of_queue(journal=1), "queue 'a': journal: Expected `bool`"),
        (of_queue(quota=1e300), "queue 'a': quota: Expected `int"),
        (of_queue(quota=-1), "queue 'a': quota: Expected `int` >= 0"),
        (of_queue(quota=1 << 32), "queue 'a': quota: Expected `int` <= 4294967295"),
        (of_queue(priv_level=3), "queue 'a': priv_level: Invalid"),
        (of_queue(type="x"), "queue 'a': type: Invalid UUID"),
        (of_queue(label="x" * 125), "more than 124"),
        (of_queue(multicast_address="1.2.3.4:5"), "queue 'a': "),
        (of_queue(permissions=["allow everyone Fly"]), "is not a valid entry"),
        (of_queue(permissions=["allow nobody-knows-me WriteMessage"]), "'nobody-knows-me' is not a user"),
        (of_queue(owner="nobody-knows-me"), "'nobody-knows-me' is not a user"),
        (of_queue(sddl="D:(A)"), "queue 'a': "),
        (of_queue(sddl="D:", owner="everyone"), "specify either sddl, or owner and permissions"),
        (of_queue(name="x" * 5000), "5000 characters"),
        (of_queue(name="x\\y"), "not allowed"),
    ],
)  # fmt: skip
def test_an_invalid_document_changes_nothing_and_names_the_error(
    pair: tuple[Daemon, Daemon], tmp_path: Path, content: str, said: str
) -> None:
    (tmp_path / "f.json").write_text(content)
    for options in (("--dry-run",), ()):
        ended = invoke("definitions", "import", str(tmp_path / "f.json"), *options, **at(pair[0]))
        assert ended.code == 1 and said in ended.stderr and len(ended.stderr.splitlines()) == 1, ended
    assert "fine" not in run_at(pair[0], "queue", "list")


def test_the_dry_run_reports_unknown_members(pair: tuple[Daemon, Daemon], tmp_path: Path) -> None:
    groups = [{"name": "g", "members": ["unknown"]}]
    (tmp_path / "f.json").write_text(json.dumps({"format": 1, "groups": groups}))
    environment = {**at(pair[0]), "OPENMSMQ_DATA_DIR": str(pair[0].directory)}
    ended = invoke("definitions", "import", str(tmp_path / "f.json"), "--local", "--dry-run", **environment)
    assert ended.code == 1 and "there is no user 'unknown'" in ended.stderr


def test_a_queue_is_made_with_its_rights_or_not_at_all(tmp_path: Path) -> None:
    """The permissions are part of the creation, so that the queue is never open to others."""
    with Daemon(tmp_path / "data") as daemon:
        add_user(daemon.directory, "alice", "Secret#1")
        queues = [{"name": "closed", "permissions": ["allow administrators FullControl"]}]
        (tmp_path / "f.json").write_text(json.dumps({"format": 1, "queues": queues}))
        run_at(daemon, "definitions", "import", str(tmp_path / "f.json"))
        records = [json.loads(line) for line in (daemon.directory / "audit.jsonl").read_text().splitlines()]
        done = [record["action"] for record in records if "closed" in json.dumps(record["object"])]
        assert done == ["queue.create"], "never open to others in between"
        run_at(daemon, "send", "closed", "x", "--user", "alice", code=5, OPENMSMQ_PASSWORD="Secret#1")


def test_one_inaccessible_queue_does_not_fail_a_list(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data", "--system-queue-readers", "everyone") as daemon:
        add_user(daemon.directory, "alice", "Secret#1")
        add_user(daemon.directory, "chief", "Secret#1", "--admin")
        run_at(daemon, "queue", "create", "open", "--journal")
        run_at(daemon, "send", "open", "x")
        run_at(daemon, "receive", "open")
        as_alice = ("--user", "alice")
        run_at(daemon, "queue", "create", "hers", *as_alice, OPENMSMQ_PASSWORD="Secret#1")
        for who in ("everyone", "alice"):
            run_at(daemon, "queue", "revoke", "hers", who, "--yes", *as_alice, OPENMSMQ_PASSWORD="Secret#1")
        environment = {**at(daemon), "OPENMSMQ_DATA_DIR": str(daemon.directory), "OPENMSMQ_PASSWORD": "Secret#1"}
        exported = invoke("definitions", "export", "--user", "chief", **environment)
        assert exported.code == 1 and "hers" in exported.stderr
        queues = {queue["name"]: queue for queue in json.loads(exported.stdout)["queues"]}
        assert queues["open"]["journal"] is True
        assert queues["hers"] == {"name": "hers", "unreadable": "MQ_ERROR_ACCESS_DENIED"}
        listed = invoke("journal", "list", "--user", "chief", **environment)
        assert listed.code == 1 and "open" in listed.stdout and "hers (MQ_ERROR_ACCESS_DENIED)" in listed.stderr
        (tmp_path / "f.json").write_text(exported.stdout)
        planned = invoke(
            "definitions", "import", str(tmp_path / "f.json"), "--dry-run", "--user", "chief", **environment
        )
        assert planned.code == 0 and "can't be read by you" in planned.stdout


def test_an_export_says_that_it_leaves_out_public_queues(pair: tuple[Daemon, Daemon]) -> None:
    first, _ = pair
    connection = Connection("127.0.0.1", first.mapper_port)
    info = connection.new("QueueInfo")
    info.put("PathName", "one\\public")
    info.call("Create")
    connection.disconnect()
    with first.connect() as manager, manager.open("one\\public", "send"):
        ended = invoke("definitions", "export", **at(first))
    assert ended.code == 0 and "not included: 1 open public queue; the directory has public queues" in ended.stderr
    assert "public" not in ended.stdout
