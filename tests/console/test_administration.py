"""Administration through HTTP: open queues, definitions, backups."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import openmsmq
from console.browser import PASSWORD, USER, Browser, Client, Refused
from console.browser import ask as ask_without_login
from console.conftest import OPTIONS, users
from daemon import Daemon, eventually
from openmsmq.actions.definitions import MOST_STEPS
from openmsmq.admin.backup import MANIFEST, restore
from openmsmq.model.errors import MsmqError, QueueDeleted


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[Daemon, Path]]:
    """A daemon with a backup directory."""
    backups = tmp_path / "backups"
    backups.mkdir()
    users(tmp_path / "data")
    with Daemon(tmp_path / "data", *OPTIONS, "--backup-directory", str(backups)) as daemon:
        yield daemon, backups


def refusal(status: int, work: Any) -> str:
    with pytest.raises(Refused) as caught:
        work()
    assert caught.value.status == status, caught.value.problem
    return str(caught.value.problem["detail"])


# -- open queues ---------------------------------------------------------------------------------------------------


def test_an_exclusive_handle_is_listed_and_can_be_closed(client: Client, queue: str) -> None:
    path = client.get(f"/queues/{queue}")["queue"]["name"]
    with client.daemon.connect(user=USER, password=PASSWORD) as held, client.daemon.connect() as other:
        opened = held.open(path, "receive", exclusive=True)
        found = client.get("/handles", queue=queue, exclusive="true")["handles"]
        assert [(one["user"], one["access"], one["exclusive"]) for one in found] == [(USER, "receive", True)]
        assert found[0]["origin"] == "rpc 127.0.0.1" and abs(time.time() - found[0]["since"]) < 900
        assert client.get("/handles", waiting="true")["command"] == "openmsmq handle list --waiting"
        assert client.get("/handles", queue=queue)["command"] == f"openmsmq handle list '{path}'"
        assert client.get(f"/handles/{found[0]['id']}") == found[0]
        refusal(404, lambda: client.get("/handles/00"))
        with pytest.raises(openmsmq.SharingViolation):
            other.open(path, "receive")
        assert client.act("DELETE", f"/handles/{found[0]['id']}")["user"] == USER
        with pytest.raises(QueueDeleted):
            opened.receive(0)
        opened.close()
        with other.open(path, "receive", exclusive=True):
            assert client.get("/handles", queue=queue)["matching"] == 1
        assert refusal(404, lambda: client.act("DELETE", f"/handles/{found[0]['id']}")) == "this handle is closed"
        with held.open(path, "receive"):
            pass
    closed = client.get("/audit", action="handle.close")["records"][0]
    assert closed["before"]["user"] == USER and closed["object"].endswith(path.rpartition("\\")[2])


def test_a_read_that_waits_ends_when_it_is_closed(client: Client, queue: str) -> None:
    path = client.get(f"/queues/{queue}")["queue"]["name"]
    ended: list[MsmqError] = []

    def wait() -> None:
        with client.daemon.connect() as manager, manager.open(path, "receive") as opened:
            try:
                opened.receive(60)
            except MsmqError as error:
                ended.append(error)

    reader = Thread(target=wait)
    reader.start()
    found = eventually(lambda: client.get("/handles", queue=queue, waiting="true")["handles"])
    started = time.monotonic()
    client.act("DELETE", f"/handles/{found[0]['id']}")
    reader.join(30)
    assert ended and time.monotonic() - started < 20


def test_open_queues_are_for_administrators(bob: Client) -> None:
    refusal(403, lambda: bob.get("/handles"))
    refusal(403, lambda: bob.act("DELETE", "/handles/00"))


def test_the_page_of_open_queues_closes_one(daemon: Daemon, client: Client, queue: str) -> None:
    browser = Browser(daemon)
    csrf = browser.login().json["csrf"]
    path = client.get(f"/queues/{queue}")["queue"]["name"]
    with daemon.connect() as manager, manager.open(path, "peek", exclusive=True):
        assert path.rpartition("\\")[2] in browser.ask("GET", "/handles?exclusive=true").text
        [found] = client.get("/handles", queue=queue)["handles"]
        form = f"/handles/{found['id']}/close"
        asked = browser.ask("POST", form, {"csrf": csrf, "about": "alice"})
        assert asked.status == 200 and "Close the queue for alice?" in asked.text
        assert client.get("/handles", queue=queue)["matching"] == 1
        assert browser.ask("POST", form, {"csrf": csrf, "sure": "true"}).status == 303
        assert client.get("/handles", queue=queue)["matching"] == 0


# -- definitions ---------------------------------------------------------------------------------------------------


def test_definitions_go_to_another_queue_manager_after_a_dry_run(client: Client, kept: tuple[Daemon, Path]) -> None:
    client.post("/queues", name="defined", label="of definitions", transactional=True)
    document = client.get("/definitions", local="true")
    assert "nt_hash" not in json.dumps(document)
    other = Client(kept[0])
    wanted = {"format": 1, "queues": [one for one in document["queues"] if one["name"] == "defined"]}
    plan = other.post("/definitions/dry-runs", document=wanted)
    assert plan["steps"][0]["said"].partition(":")[0] == "create queue defined"
    assert "of definitions" not in json.dumps(other.get("/queues"))
    done = other.post("/definitions", document=wanted, token=plan["token"])
    assert done["failed"] == 0 and {step["result"] for step in done["steps"]} == {"done"}
    assert "of definitions" in json.dumps(other.get("/queues"))
    refusal(412, lambda: other.post("/definitions", document=wanted, token=plan["token"]))
    assert other.get("/audit", action="definitions.import")["records"]


def test_an_import_is_just_what_the_dry_run_has_said(kept: tuple[Daemon, Path]) -> None:
    client = Client(kept[0])
    wanted = {"format": 1, "queues": [{"name": "one"}]}
    token = client.post("/definitions/dry-runs", document=wanted)["token"]
    more = {"format": 1, "queues": [{"name": "one"}, {"name": "two"}]}
    assert "dry run" in refusal(412, lambda: client.post("/definitions", document=more, token=token))
    refusal(400, lambda: client.post("/definitions", document=wanted, token="x"))
    bob = Client(kept[0], USER)
    refusal(412, lambda: bob.post("/definitions", document=wanted, token=token))
    assert client.post("/definitions", document=wanted, token=token)["failed"] == 0


def test_a_step_of_an_import_that_fails_is_a_problem_and_the_others_are_done(bob: Client, client: Client) -> None:
    """The import creates one queue and tries to change another, which the user may not change."""
    queue = client.post("/queues", name="step-theirs")["id"]
    client.post(f"/queues/{queue}/permissions", change="revoke", user="everyone", confirm=True)
    client.post(f"/queues/{queue}/permissions", change="grant", user=USER, rights=["GetQueueProperties"])
    wanted = {"format": 1, "queues": [{"name": "step-theirs", "label": "his"}, {"name": "step-new"}]}
    token = bob.post("/definitions/dry-runs", document=wanted)["token"]
    said = refusal(409, lambda: bob.post("/definitions", document=wanted, token=token))
    assert "1 step of" in said and "ACCESS_DENIED" in said
    assert "step-new" in json.dumps(bob.get("/queues"))


def test_an_import_that_would_take_longer_than_a_request_is_refused(client: Client) -> None:
    wanted = {"format": 1, "queues": [{"name": f"many{number}"} for number in range(MOST_STEPS + 1)]}
    said = refusal(422, lambda: client.post("/definitions/dry-runs", document=wanted))
    assert f"a request at most {MOST_STEPS}: import it in parts" in said


def test_what_is_given_twice_is_refused(client: Client) -> None:
    body = b'{"document": {"format": 1, "queues": [{"name": "a", "name": "b"}]}}'
    answer = client.ask("POST", "/definitions/dry-runs", body)
    assert answer.status == 422 and "'name' is given twice" in answer.text


def test_users_of_definitions_are_for_administrators(bob: Client) -> None:
    assert "users" not in bob.get("/definitions")
    refusal(403, lambda: bob.get("/definitions", local="true"))
    refusal(403, lambda: bob.post("/definitions/dry-runs", document={"format": 1}, local=True))


@pytest.mark.parametrize(
    "document",
    [
        {}, {"format": 2}, {"format": 1, "more": 1}, {"format": 1, "queues": 5}, {"format": 1, "queues": [{}]},
        {"format": 1, "queues": [{"name": "a", "type": 5}]}, {"format": 1, "queues": [{"name": "a"}, {"name": "A"}]},
        {"format": 1, "users": [{"name": "x", "role": "king"}]}, {"format": 1, "settings": []},
    ],
)  # fmt: skip
def test_a_document_that_is_none_is_refused(client: Client, document: Any) -> None:
    refusal(422, lambda: client.post("/definitions/dry-runs", document=document, local=True))


# -- backups -------------------------------------------------------------------------------------------------------


def test_a_backup_is_made_beside_the_work(kept: tuple[Daemon, Path], tmp_path: Path) -> None:
    daemon, directory = kept
    client = Client(daemon)
    queue = client.post("/queues", name="orders")["id"]
    client.post(f"/queues/{queue}/messages", text="kept", recoverable=True)
    assert client.post("/backups", name="first")["state"] == "running"
    eventually(lambda: [one["state"] for one in client.get("/backups")["backups"]] == ["done"])
    [found] = client.get("/backups")["backups"]
    assert (found["name"], found["messages"]) == ("first", 1)
    restored = tmp_path / "restored"
    restored.mkdir(mode=0o700)
    assert restore(directory / "first", restored).messages == 1
    (job,) = client.get("/jobs")["jobs"]
    assert (job["kind"], job["state"], job["object"]) == ("backup", "done", str(directory / "first"))
    refusal(409, lambda: client.act("POST", f"/jobs/{job['id']}/pause"))
    refusal(409, lambda: client.post("/backups", name="first"))
    assert client.get("/audit", action="backup.make")["records"][0]["object"] == str(directory / "first")


def test_names_of_backups_cannot_leave_the_backup_directory(kept: tuple[Daemon, Path]) -> None:
    client = Client(kept[0])
    for name in ("..", "a/b", "/tmp/x", ".hidden", "a\0b", "-rf"):
        refusal(422, lambda name=name: client.post("/backups", name=name))
    refusal(403, lambda: Client(kept[0], USER).post("/backups"))
    assert list(kept[1].iterdir()) == []


def test_a_backup_without_its_manifest_is_not_done(kept: tuple[Daemon, Path]) -> None:
    (kept[1] / "broken").mkdir()
    (kept[1] / "broken" / MANIFEST).write_text("{")
    assert [one["state"] for one in Client(kept[0]).get("/backups")["backups"]] == ["unfinished"]


def test_a_directory_of_backups_that_is_not_there_is_named_with_what_to_do(kept: tuple[Daemon, Path]) -> None:
    kept[1].rmdir()
    client = Client(kept[0])
    for ask in (client.get, client.post):
        said = refusal(503, lambda ask=ask: ask("/backups"))
        assert f"backup_directory {kept[1]}: No such file or directory; make it" in said


def test_without_the_setting_there_are_no_backups(client: Client) -> None:
    assert "backup_directory" in refusal(409, lambda: client.post("/backups"))


def test_the_page_of_users_changes_who_is_in_a_group(daemon: Daemon, client: Client) -> None:
    client.post("/groups", name="painters", members=["bob"])
    browser = Browser(daemon)
    csrf = browser.login().json["csrf"]

    def members() -> list[str]:
        [found] = [group for group in client.get("/users")["groups"] if group["name"] == "painters"]
        return list(found["members"])

    for change, there in (("leave", []), ("join", ["bob"])):
        form = {"csrf": csrf, "user": "bob", "change": change}
        assert browser.ask("POST", "/groups/painters", form).status == 303
        assert members() == there


def test_forwarded_headers_are_ignored_and_requests_are_not_logged(daemon: Daemon, client: Client) -> None:
    name = "forwarded"
    body = json.dumps({"name": name}).encode()
    credentials = base64.b64encode(f"{client.user}:{client.password}".encode()).decode()
    headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/json",
               "X-Forwarded-For": "192.0.2.99", "X-Forwarded-Proto": "https"}  # fmt: skip
    answer = ask_without_login(daemon, "POST", "/api/v1/queues", body, headers)
    assert answer.status == 201 and answer.headers["server"] is None
    records = client.get("/audit", action="queue.create")["records"]
    [peer] = {record["origin"]["peer"] for record in records if record["object"].endswith(name)}
    assert peer.startswith("127.0.0.1")
    assert "POST /api/v1/queues" not in daemon.log
