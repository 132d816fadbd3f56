"""Dry runs through HTTP report the effects of a change and change nothing."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from command_line import at, invoke
from console.browser import USER, Client
from console.test_remedies import run, send_exactly_once
from daemon import Daemon, eventually
from openmsmq.admin.tokens import TokensFileError
from openmsmq.console.derived import ACTIONS, action_errors
from openmsmq.console.problems import Problem

DRY: dict[str, Any] = {"dry_run": "true"}


def names(client: Client) -> list[str]:
    found = client.get("/queues", filter="planned")["queues"]
    return [queue["name"].rpartition("\\")[2] for queue in found]


def test_of_a_queue_that_would_be_created_it_is_said_whether_it_is_there(client: Client) -> None:
    for exists in (False, True):
        answer = client.ask("POST", "/queues", {"name": "planned"}, **DRY)
        assert answer.status == 200
        assert answer.json == {"path_name": ".\\private$\\planned", "exists": exists}
        assert ("planned" in names(client)) is exists
        if not exists:
            assert client.ask("POST", "/queues", {"name": "planned"}).status == 201


def test_a_queue_that_would_be_purged_or_deleted_stays_as_it_is(client: Client, queue: str) -> None:
    client.send(queue, "a", "b")
    path = f"/queues/{queue}"
    for method, where in (("POST", f"{path}/purge"), ("DELETE", path)):
        said = client.act(method, where, count=2, **DRY)
        assert (said["messages"], said["journal"], said["done"]) == (2, 0, False)
        assert client.ask(method, where, count=1, **DRY).status == 412, "the same checks are made"
    assert [message["label"] for message in client.messages(queue)] == ["a", "b"]
    assert client.act("POST", f"{path}/purge", count=2)["done"] is True
    assert client.messages(queue) == []


def test_a_dry_run_is_for_those_who_may_make_the_change(client: Client, bob: Client, queue: str) -> None:
    """A dry run makes the same checks as the change."""
    assert bob.ask("DELETE", "/queues/deadletter", count=0, **DRY).status in (404, 409)
    assert client.ask("DELETE", "/queues/deadletter", count=0, **DRY).status == 409


def test_an_outgoing_queue_that_would_be_deleted_stays(client: Client, daemon: Daemon) -> None:
    with daemon.connect() as manager, manager.open("DIRECT=OS:planned-nowhere\\private$\\x", "send") as opened:
        opened.send("x")
    [found] = eventually(lambda: client.get("/queues", kind="outgoing", filter="planned-nowhere")["queues"])
    said = client.act("DELETE", f"/outgoing/{found['id']}", count=found["messages"], **DRY)
    assert said["messages"] == 1 and said["done"] is False
    assert client.get("/queues", kind="outgoing", filter="planned-nowhere")["matching"] == 1
    assert client.get("/audit", action="outgoing.delete", object="*planned-nowhere*")["records"] == []
    client.act("DELETE", f"/outgoing/{found['id']}", count=1)


def test_a_sequence_that_would_be_forgotten_is_known_afterwards(client: Client, daemon: Daemon) -> None:
    queue = client.post("/queues", name="planned-exact", transactional=True)["id"]
    send_exactly_once(daemon, "planned-exact")
    [known] = eventually(lambda: client.get("/sequences", queue=queue)["sequences"])
    path = f"/sequences/{queue}/{known['source']}"
    assert client.act("DELETE", path, **DRY) == client.act("DELETE", path, **DRY)
    ended = run(client, "sequence", "forget", "planned-exact", known["source"], "--dry-run", role="monitor")
    assert ended.code == 0 and "would be forgotten" in ended.stdout, "looking is enough for a dry run"
    assert run(client, "sequence", "forget", "planned-exact", known["source"], "--yes", role="monitor").code == 5
    assert client.get("/sequences", queue=queue)["sequences"] == [known]
    gone = client.act("DELETE", path)
    assert gone["done"] is True and gone["sequence"] == known
    assert client.get("/sequences", queue=queue)["matching"] == 0
    assert client.ask("DELETE", path, **DRY).status == 404


@pytest.mark.parametrize("words", [("queue", "delete"), ("queue", "purge")])
def test_a_command_that_only_says_what_it_would_do_changes_nothing(
    daemon: Daemon, client: Client, words: tuple[str, str]
) -> None:
    name = f"dry-{words[1]}"
    queue = client.post("/queues", name=name)["id"]
    client.send(queue, "a")
    ended = invoke(*words, name, "--dry-run", "--json", **at(daemon))
    assert ended.code == 0 and json.loads(ended.stdout)["messages"] == 1 and json.loads(ended.stdout)["done"] is False
    assert [message["label"] for message in client.messages(queue)] == ["a"]


def test_by_the_command_a_sequence_of_nobody_is_not_found(client: Client) -> None:
    client.post("/queues", name="planned-none", transactional=True)
    unknown = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
    ended = run(client, "sequence", "forget", "planned-none", unknown, "--dry-run")
    assert ended.code == 3 and unknown in ended.stderr
    assert run(client, "sequence", "forget", "planned-none", unknown, "--dry-run", user=USER).code != 0


def test_an_action_without_space_on_the_disk_is_a_507() -> None:
    action = next(each for each in ACTIONS if each.name == "token.create")
    for number, status in ((errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EACCES, 409)):
        failed = TokensFileError("the tokens can't be written")
        failed.__cause__ = OSError(number, "x")
        with pytest.raises(Problem) as refused, action_errors(action):
            raise failed
        assert refused.value.status == status
