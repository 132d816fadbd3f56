"""Bulk changes of messages by dry run and execution; dead letters, outgoing queues, rights, files."""

from __future__ import annotations

from typing import Any

import pytest

from console.browser import PASSWORD, Client, FreshDaemon
from console.test_api import refused
from daemon import Daemon, eventually
from openmsmq.model.sddl import from_sddl

BROKEN = "DIRECT=OS:nowhere.invalid\\private$\\q"


def plan(client: Client, act: str, queue: str, **values: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.post("/dry-runs", act=act, queue=queue, **values)
    return found


def carry_out(client: Client, found: dict[str, Any]) -> dict[str, Any]:
    done: dict[str, Any] = client.post("/operations", selection=found["selection"], count=found["count"])
    return done


def labels(client: Client, queue: str) -> list[str]:
    return [message["label"] for message in client.messages(queue)]


def other(client: Client, name: str, **properties: Any) -> str:
    return str(client.post("/queues", name=name, **properties)["id"])


def test_a_dry_run_changes_nothing_and_later_messages_are_not_selected(client: Client, queue: str) -> None:
    client.send(queue, "a1", "b", "a2")
    found = plan(client, "delete", queue, where={"label": "a?"})
    assert found["count"] == 2 and found["complete"] and [m["label"] for m in found["sample"]] == ["a1", "a2"]
    assert labels(client, queue) == ["a1", "b", "a2"]
    client.send(queue, "a3")
    done = carry_out(client, found)
    assert (done["done"], done["failed"], done["gone"]) == (2, 0, 0)
    assert labels(client, queue) == ["b", "a3"]
    again = carry_out(client, found)
    assert (again["done"], again["gone"]) == (0, 2), "the same token twice finds them gone"


def test_only_the_messages_of_the_dry_run_are_affected(daemon: Daemon, client: Client, queue: str) -> None:
    for label, priority in (("low", 1), ("high", 6), ("highest", 7)):
        client.post(f"/queues/{queue}/messages", text="x", label=label, priority=priority)
    found = plan(client, "delete", queue, all=True, limit=2)
    assert [each["label"] for each in found["sample"]] == ["highest", "high"]
    with daemon.connect() as manager, manager.open(client.get(f"/queues/{queue}")["queue"]["name"]) as reading:
        assert reading.receive(0).label == "highest"
    client.post(f"/queues/{queue}/messages", text="x", label="new", priority=7)
    done = carry_out(client, found)
    assert (done["done"], done["gone"]) == (1, 1)
    again = carry_out(client, found)
    assert (again["done"], again["gone"]) == (0, 2)
    assert labels(client, queue) == ["new", "low"]


def test_a_long_new_text_is_carried_out(client: Client, queue: str) -> None:
    client.send(queue, "x")
    text = "\u00e9" * 200_000
    done = carry_out(client, plan(client, "resend", queue, all=True, changes={"text": text}))
    assert (done["done"], done["failed"]) == (1, 0)
    refused(
        422,
        client,
        "POST",
        "/dry-runs",
        {"act": "resend", "queue": queue, "all": True, "changes": {"text": text + "x"}},
    )


def test_messages_move_copy_and_are_sent_again(client: Client, queue: str) -> None:
    target = other(client, "target")
    client.send(queue, "x", "y")
    moved = carry_out(client, plan(client, "move", queue, where={"label": "x"}, to="target"))
    assert moved["done"] == 1 and moved["ways"] == {"sent, then removed": 1}
    carry_out(client, plan(client, "copy", queue, all=True, to="target"))
    carry_out(client, plan(client, "resend", queue, all=True, to="target", changes={"label": "z", "text": "new"}))
    assert labels(client, queue) == [] and labels(client, target) == ["x", "y", "z"]
    (last,) = client.messages(target, limit=3)[2:]
    assert client.get(f"/queues/{target}/messages/{last['lookup']}")["body"]["text"] == "new"


def test_between_transactional_queues_a_move_is_one_transaction(client: Client) -> None:
    source, target = (other(client, name, transactional=True) for name in ("tsource", "ttarget"))
    client.send(source, "t")
    moved = carry_out(client, plan(client, "move", source, all=True, to="ttarget"))
    assert moved["ways"] == {"in one transaction": 1} and labels(client, target) == ["t"]


def test_one_message_is_chosen_by_its_identifier(client: Client, queue: str) -> None:
    client.send(queue, "a", "b", "c")
    chosen = client.messages(queue)[1]["id"]
    carry_out(client, plan(client, "delete", queue, where={"ids": [chosen]}))
    assert labels(client, queue) == ["a", "c"]


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"act": "delete"}, "/all"),
        ({"act": "delete", "all": True, "where": {"label": "x"}}, "/all"),
        ({"act": "move", "all": True}, "/to"),
        ({"act": "delete", "all": True, "to": "x"}, "/to"),
        ({"act": "return", "all": True}, "/act"),
        ({"act": "delete", "where": {"reason": "boredom"}}, "/where/reason"),
        ({"act": "delete", "where": {"color": 1}}, "/where/color"),
        ({"act": "burn", "all": True}, "/act"),
        ({"act": "delete", "all": True, "limit": 1001}, "/limit"),
    ],
)
def test_an_invalid_plan_is_refused(client: Client, queue: str, values: dict, pointer: str) -> None:
    problem = refused(422, client, "POST", "/dry-runs", {"queue": queue, **values})
    assert problem["errors"][0]["pointer"] == pointer


def test_nothing_is_done_without_the_token_of_the_users_own_dry_run(client: Client, bob: Client, queue: str) -> None:
    client.send(queue, "a")
    found = plan(client, "delete", queue, all=True)
    refused(412, client, "POST", "/operations", {"selection": found["selection"], "count": 2})
    refused(409, bob, "POST", "/operations", {"selection": found["selection"], "count": 1})
    for forged in ("", "AAAA", found["selection"][:-3] + "AAA", "é"):
        refused(400, client, "POST", "/operations", {"selection": forged, "count": 1})
    assert labels(client, queue) == ["a"]


def test_a_text_for_a_binary_body_leaves_the_message(client: Client, queue: str, daemon: Daemon) -> None:
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    with daemon.connect(user="alice", password=PASSWORD) as manager, manager.open(name, "send") as opened:
        opened.send(5, label="number")
    done = carry_out(client, plan(client, "resend", queue, all=True, changes={"text": "five"}))
    assert (done["done"], done["failed"]) == (0, 1) and "int" in done["failures"][0]["detail"]
    assert labels(client, queue) == ["number"]


def test_dead_letters_are_grouped_and_returned(client: Client, queue: str) -> None:
    client.send(queue, "late1", "late2", deadletter=True, time_to_be_received=1)
    name = client.get(f"/queues/{queue}")["queue"]["name"]

    def dead() -> list[dict[str, Any]]:
        groups = client.get("/deadletters/groups")["groups"]
        return [group for group in groups if group["messages"] == 2 and group["destination"].endswith(name)]

    (group,) = eventually(dead)
    assert group["queue"] == "deadletter" and "was not received" in group["sentence"] and group["remedy"]
    where = {"reason": group["reason"], "destination": group["destination"]}
    found = plan(client, "return", group["queue"], where=where, changes={"time_to_be_received": 3600})
    assert found["count"] == 2 and "dlq return" in found["command"]
    assert carry_out(client, found)["done"] == 2
    assert labels(client, queue) == ["late1", "late2"]
    assert not dead()


def test_what_is_done_is_in_the_audit_log_and_only_administrators_read_it(
    client: Client, bob: Client, queue: str
) -> None:
    client.send(queue, "a")
    carry_out(client, plan(client, "delete", queue, all=True))
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    (record,) = client.get("/audit", object=name, action="messages.*")["records"]
    assert record["action"] == "messages.delete" and record["count"] == 1 and record["result"] == "ok"
    assert record["origin"] == {"door": "http", "peer": "127.0.0.1"} and record["actor"]["name"] == "alice"
    assert record["after"] is None
    assert client.get("/audit", before=int(record["seq"]), object=name, action="messages.*")["records"] == []
    target = client.get(f"/queues/{other(client, 'audited')}")["queue"]["name"]
    client.send(queue, "b")
    carry_out(client, plan(client, "move", queue, all=True, to=target))
    last = client.get("/audit", object=name, action="messages.*")["records"][0]
    assert (last["action"], last["after"]) == ("messages.move", {"to": target})
    refused(403, bob, "GET", "/audit")
    refused(403, bob, "GET", "/settings")


def test_settings_say_where_they_come_from(client: Client) -> None:
    found = {entry["name"]: entry for entry in client.get("/settings")["settings"]}
    assert found["web"] == {"name": "web", "value": True, "source": "option"}
    assert found["max_queues"]["source"] == "default"


def test_permissions_are_words(client: Client, bob: Client, queue: str) -> None:
    path = f"/queues/{queue}/permissions"
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    assert client.get(path)["entries"][0]["name"] == "Everyone" and client.get(path)["queue"] == name
    planned = client.post(path, change="deny", user="bob", rights=["PeekMessage"], dry_run=True)
    assert planned["done"] is False and "openmsmq queue grant" in planned["command"] and planned["queue"] == name
    bob.messages(queue)
    client.post(path, change="deny", user="bob", rights=["PeekMessage"])
    refused(403, bob, "GET", f"/queues/{queue}/messages")
    shown = client.get(path, **{"for": "bob"})
    assert "PeekMessage" not in shown["effective"] and shown["entries"][0]["kind"] == "deny"
    client.post(path, change="undeny", user="bob")
    bob.messages(queue)
    assert refused(422, client, "POST", path, {"change": "grant", "user": "bob", "rights": ["Fly"]})["errors"]
    assert refused(422, client, "POST", path, {"change": "grant", "user": "nobody", "rights": ["Look"]})["errors"]


def test_users_are_asked_before_locking_themselves_out(client: Client) -> None:
    queue = other(client, "locked")
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    with client.daemon.connect(user="alice", password=PASSWORD) as manager:
        manager.set_security(name, from_sddl("O:SYD:(A;;0xF003F;;;WD)").pack(), 4)
    path = f"/queues/{queue}/permissions"
    change = {"change": "revoke", "user": "everyone"}
    refused(412, Client(client.daemon, "bob"), "POST", path, change)
    assert client.post(path, **change, confirm=True)["done"] is True


def test_an_outgoing_queue_says_why_it_waits_and_is_paused(client: Client, bob: Client, daemon: Daemon) -> None:
    with daemon.connect(user="alice", password=PASSWORD) as manager, manager.open(BROKEN, "send") as opened:
        opened.send("far", label="far")

    def waiting() -> list[dict[str, Any]]:
        queues = client.get("/outgoing")["queues"]
        return [queue for queue in queues if queue["name"] == BROKEN and queue["messages"]]

    (found,) = eventually(waiting)
    assert found["explanation"][0].startswith("1 message for")
    assert client.get(f"/queues/{found['id']}/messages", find="x")["command"].startswith("openmsmq outgoing peek ")
    assert "not an application queue" in refused(409, client, "DELETE", f"/queues/{found['id']}", count=1)["detail"]
    refused(403, bob, "POST", f"/outgoing/{found['id']}/pause")
    paused = client.act("POST", f"/outgoing/{found['id']}/pause")
    assert paused["state"] == "ONHOLD" and "paused" in " ".join(paused["explanation"])
    assert client.act("POST", f"/outgoing/{found['id']}/resume")["state"] != "ONHOLD"
    assert [message["label"] for message in client.messages(found["id"])] == ["far"]
    refused(403, bob, "GET", f"/queues/{found['id']}/messages")
    refused(422, client, "POST", "/dry-runs", {"act": "delete", "queue": found["id"], "all": True})
    assert client.act("POST", f"/queues/{found['id']}/purge", count=1)["messages"] == 1


def test_an_operation_that_cannot_be_audited_is_executed_and_logged(own: FreshDaemon) -> None:
    client = own.client
    queue = other(client, "unrecorded")
    client.send(queue, "a")
    found = plan(client, "delete", queue, all=True)
    log = own.daemon.directory / "audit.jsonl"
    log.unlink()
    log.mkdir()
    assert carry_out(client, found)["done"] == 1
    assert "not recorded: messages.delete" in own.daemon.log
