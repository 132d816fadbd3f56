"""Rights on the command line, against a running daemon."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from command_line import add_user, at, checked, invoke
from daemon import Daemon, eventually

Run = Callable[..., str]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("rights") / "data") as running:
        for name in ("alice", "bob", "chief"):
            add_user(running.directory, name, "Secret#1", *(["--admin"] if name == "chief" else []))
        yield running


@pytest.fixture
def run(service: Daemon) -> Run:
    def call(*arguments: str, code: int = 0, user: str | None = None) -> str:
        who = ("--user", user) if user else ()
        environment = {**at(service), "OPENMSMQ_PASSWORD": "Secret#1", "OPENMSMQ_DATA_DIR": str(service.directory)}
        ended = invoke(*arguments, *who, **environment)
        assert ended.code == code, (arguments, *ended)
        return ended.stdout if code == 0 else ended.stderr

    return call


def test_a_user_gets_the_right_to_send_and_loses_it(run: Run) -> None:
    run("queue", "create", "orders", user="chief")
    run("queue", "revoke", "orders", "everyone", "--yes", user="chief")
    assert "ACCESS_DENIED" in run("send", "orders", "x", code=5, user="alice")
    before = run("queue", "permissions", "orders", "--sddl", user="chief")
    assert "would be changed: alice has WriteMessage" in run(
        "queue", "grant", "orders", "alice", "send", "--dry-run", user="chief"
    )
    assert run("queue", "permissions", "orders", "--sddl", user="chief") == before
    run("queue", "grant", "orders", "alice", "send", user="chief")
    run("send", "orders", "x", user="alice")
    run("send", "orders", "x", code=5, user="bob")
    assert run("queue", "permissions", "orders", "--for", "alice", user="chief").split() == ["WriteMessage"]
    run("queue", "revoke", "orders", "alice", user="chief")
    run("send", "orders", "x", code=5, user="alice")
    run("queue", "permissions", "orders", "--set", before.strip().partition("D:")[0] + "D:(A;;LC;;;AU)", user="chief")
    run("send", "orders", "x", user="bob")
    assert "allow  Authenticated" in run("queue", "permissions", "orders", user="chief")


def test_a_queue_is_shown_without_its_permissions_to_a_user_who_may_not_see_these(run: Run) -> None:
    run("queue", "create", "seen", "--label", "the label", user="chief")
    run("queue", "grant", "seen", "alice", "GetQueueProperties", user="chief")
    run("queue", "revoke", "seen", "everyone", "--yes", user="chief")
    assert "GetQueuePermissions is missing" in run("queue", "show", "seen", user="alice")
    shown = json.loads(run("queue", "show", "seen", "--json", user="alice"))
    assert shown["label"] == "the label" and "dacl" not in shown


def test_without_a_domain_a_domain_user_is_a_local_user_and_a_line_says_so(service: Daemon) -> None:
    environment = {**at(service), "OPENMSMQ_PASSWORD": "Secret#1", "OPENMSMQ_DATA_DIR": str(service.directory)}
    checked("queue", "create", "granted", "--user", "chief", **environment)
    ended = invoke("queue", "grant", "granted", "ELSE\\alice", "send", "--dry-run", "--user", "chief", **environment)
    assert ended.code == 0
    assert "looking up ELSE\\alice in" in ended.stderr and "directory_domain is set" in ended.stderr


def test_a_public_queue_is_created_protected_used_and_deleted_like_a_private_one(run: Run, service: Daemon) -> None:
    assert "would be created: .\\news" in run("queue", "create", "--public", "news", "--dry-run", user="chief")
    made = json.loads(run("queue", "create", "--public", "news", "--label", "of today", "--json", user="chief"))
    name = made["format_name"]
    assert made["path_name"] == ".\\news" and name.startswith("PUBLIC=")
    assert ".\\news exists" in run("queue", "create", "--public", "news", "--dry-run", user="chief")
    run("queue", "create", "--public", "news", code=7, user="chief")
    run("queue", "revoke", name, "everyone", "--yes", user="chief")
    assert "ACCESS_DENIED" in run("send", name, "x", code=5, user="alice")
    assert "ACCESS_DENIED" in run("queue", "grant", name, "alice", "send", "--yes", code=5, user="alice")
    run("queue", "grant", ".\\news", "alice", "send", user="chief")
    run("send", name, "x", user="alice")
    assert "ACCESS_DENIED" in run("queue", "set", name, "label=mine", code=5, user="alice")
    run("queue", "grant", name, "chief", "FullControl", user="chief")
    run("queue", "set", name, "label=old news", user="chief")
    assert "old news" in run("directory", "queues")
    assert json.loads(run("queue", "show", name, "--json", user="chief"))["label"] == "old news"
    with service.connect(user="chief", password="Secret#1") as manager, manager.open(name, "peek"):
        rows = [json.loads(line) for line in run("queue", "list", "--json", user="chief").splitlines()]
    assert [row["message_count"] for row in rows if row["path_name"].endswith("\\news")] == [1]
    assert run("queue", "owner", name, user="chief").strip() == "chief"
    run("queue", "owner", name, "bob", "--yes", user="chief")
    assert "old news" not in run("queue", "permissions", name, user="bob")
    assert "ACCESS_DENIED" in run("queue", "delete", name, "--yes", code=5, user="alice")
    run("queue", "delete", name, "--yes", user="chief")
    assert "old news" not in run("directory", "queues")
    entries = map(json.loads, (service.directory / "audit.jsonl").read_text().splitlines())
    done = [entry["action"] for entry in entries if entry["actor"]["name"] == "chief"]
    expected = ["queue.create", *["queue.permissions"] * 3, "queue.properties", "queue.owner", "queue.delete"]
    assert done[-len(expected) :] == expected


def test_a_right_that_a_group_has_counts_for_its_members(run: Run) -> None:
    run("user", "group", "add", "clerks", "alice")
    run("queue", "create", "counter", user="chief")
    run("queue", "revoke", "counter", "everyone", "--yes", user="chief")
    run("queue", "grant", "counter", "clerks", "send", user="chief")
    run("send", "counter", "x", user="alice")
    run("send", "counter", "x", code=5, user="bob")
    run("user", "group", "join", "clerks", "bob")
    run("send", "counter", "x", user="bob")
    run("queue", "grant", "counter", "alice", "send", "--deny", user="chief")
    run("send", "counter", "x", code=5, user="alice")
    run("user", "group", "leave", "clerks", "bob")
    run("send", "counter", "x", code=5, user="bob")
    assert json.loads(run("user", "group", "list", "--json"))["members"] == ["alice"]
    assert "exists" in run("user", "group", "add", "ALICE", code=1)
    run("user", "group", "remove", "clerks")
    assert "no group" in run("user", "group", "join", "clerks", "bob", code=1)


def test_a_user_about_to_lock_themselves_out_is_asked(run: Run) -> None:
    run("queue", "create", "locked", user="chief")
    said = run("queue", "revoke", "locked", "everyone", code=2, user="bob")  # no answer aborts
    assert "you may not change the permissions afterwards" in said
    dry = json.loads(run("queue", "revoke", "locked", "everyone", "--dry-run", "--json", user="bob"))
    assert len(dry["warnings"]) == 4 and not dry["done"]
    run("queue", "owner", "locked", "bob", user="bob")
    assert run("queue", "owner", "locked", user="bob").strip() == "bob"


def test_a_user_about_to_lock_out_owner_and_administrators_is_asked(run: Run) -> None:
    """The owner may always see and change the permissions, so there is no warning about them."""
    run("queue", "create", "hers", user="alice")
    run("queue", "revoke", "hers", "alice", "--yes", user="alice")
    said = run("queue", "revoke", "hers", "everyone", code=2, user="alice")
    assert "the owner, alice, may not use the queue afterwards" in said
    assert "administrators may not use the queue afterwards" in said
    assert "you may not" not in said
    assert "allow  Everyone" in run("queue", "permissions", "hers", user="alice")
    run("queue", "grant", "hers", "alice", "FullControl", user="alice")
    run("queue", "grant", "hers", "administrators", "FullControl", user="alice")
    run("queue", "revoke", "hers", "everyone", user="alice")
    run("queue", "permissions", "hers", user="alice")


def test_a_dry_run_of_a_grant_shows_words(run: Run) -> None:
    run("queue", "create", "worded", user="chief")
    shown = run("queue", "grant", "worded", "alice", "send", "--dry-run", user="chief")
    assert "after:  allow alice WriteMessage" in shown and "(A;" not in shown


def test_a_user_with_only_the_right_to_receive_or_to_send_can_use_it(run: Run) -> None:
    for name in ("lean", "lean-tx"):
        run("queue", "create", name, *(["--transactional"] if name == "lean-tx" else []), user="chief")
        run("queue", "grant", name, "chief", "FullControl", user="chief")
        run("queue", "grant", name, "alice", "ReceiveMessage", "PeekMessage", user="chief")
        run("queue", "grant", name, "bob", "WriteMessage", user="chief")
        run("queue", "revoke", name, "everyone", "--yes", user="chief")
        for _ in range(2):
            run("send", name, "x", *(["--transaction"] if name == "lean-tx" else []), user="bob")
        assert run("export", name, user="alice").count("identifier") >= 2
        run("receive", name, "--count", "0", user="alice")
        assert run("peek", name, user="chief") == ""


def test_mistakes_are_explained(run: Run) -> None:
    run("queue", "create", "mistaken")
    assert "'nobody' is not a user or group" in run("queue", "grant", "mistaken", "nobody", "send", code=2)
    assert "unknown right 'Fly'; allowed: FullControl" in run("queue", "grant", "mistaken", "alice", "Fly", code=2)
    assert "--set" in run("queue", "permissions", "mistaken", "--set", "D:(A)", code=2)


def test_rights_on_the_machine_are_granted_and_withdrawn(run: Run, service: Daemon) -> None:
    run("queue", "create", "allowed", user="bob")
    run("machine", "revoke", "everyone", "CreateQueue")
    numbers = itertools.count()
    eventually(lambda: invoke("queue", "create", f"no{next(numbers)}", **at(service)).code == 5)
    run("machine", "grant", "bob", "CreateQueue")
    eventually(lambda: not invoke("queue", "create", "bobs", "--user", "bob",
                                  **at(service), OPENMSMQ_PASSWORD="Secret#1").code)  # fmt: skip
    assert "bob" in run("machine", "permissions")
    (service.directory / "machine.sddl").write_text("D:broken")
    eventually(lambda: "machine.sddl can't be read" in service.log)
    run("queue", "create", "still", code=5)
    (service.directory / "machine.sddl").unlink()
    eventually(lambda: not invoke("queue", "create", "again", **at(service)).code)


def test_a_daemon_does_not_start_with_a_broken_users_file_or_machine_file(tmp_path: Path) -> None:
    for name, content in (("users.json", "{"), ("machine.sddl", "D:broken")):
        file = tmp_path / "data" / name
        file.parent.mkdir(exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(content)
        daemon = Daemon(tmp_path / "data")
        with pytest.raises(RuntimeError, match=name):
            daemon.start()
        file.unlink()


def test_help_names_the_rights() -> None:
    assert "ChangeQueuePermissions" in checked("queue", "grant", "--help")


def test_top_names_the_queues_it_cannot_show(run: Run, service: Daemon) -> None:
    run("queue", "create", "unseen", user="chief")
    run("queue", "revoke", "unseen", "everyone", "--yes", user="chief")
    ended = invoke("top", "--count", "1", "--user", "bob", OPENMSMQ_PASSWORD="Secret#1", **at(service))
    assert ended.code == 0 and "unseen" not in ended.stdout
    assert "not shown to this user (MQ_ERROR_ACCESS_DENIED)" in ended.stderr
    assert "unseen" in ended.stderr or " more" in ended.stderr
