"""The HTTP API as scripts use it."""

from __future__ import annotations

import base64
import json
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from console.browser import USER, Client, Refused, ask
from daemon import Daemon
from openmsmq.admin.metrics import FAMILIES
from openmsmq.model.sddl import from_sddl


def refused(status: int, client: Client, method: str, path: str, document: object = None, **query: object) -> dict:
    with pytest.raises(Refused) as caught:
        client._done(client.ask(method, path, document, **query))
    assert caught.value.status == status, caught.value.problem
    problem: dict = caught.value.problem
    return problem


def test_the_overview_has_the_user_and_the_queue_manager(client: Client, queue: str) -> None:
    client.send(queue, "a", "b")
    found = client.get("/overview")
    assert found["user"] == "alice" and found["administrator"] is True
    assert found["sums"]["queue"]["messages"] >= 2
    assert queue in [entry["id"] for entry in found["fullest"]]


def test_the_overview_sums_queues_messages_and_bytes_by_kind(client: Client) -> None:
    for number, bodies in enumerate((("a",), ("b", "c"))):
        client.send(client.post("/queues", name=f"summed{number}")["id"], *bodies)
    rows = client.get("/queues", limit=500)["queues"]
    expected: dict[str, dict[str, int]] = {}
    for row in rows:
        total = expected.setdefault(row["kind"], {"queues": 0, "messages": 0, "bytes": 0})
        for name, value in (("queues", 1), ("messages", row["messages"]), ("bytes", row["bytes"])):
            total[name] += value
    assert expected["queue"]["messages"] >= 3 and len(expected) > 1
    assert client.get("/overview")["sums"] == expected


def test_queues_are_filtered_sorted_and_paged(client: Client) -> None:
    names = [f"paged{n}" for n in range(7)]
    for name in names:
        client.send(client.post("/queues", name=name)["id"], *("x" * int(name[-1])))
    for sort, expected in (
        ("name", names), ("-name", names[::-1]), ("messages", names), ("-messages", names[::-1]),
    ):  # fmt: skip
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = client.get("/queues", filter="*\\paged?", sort=sort, limit=3, **cursor)
            assert page["matching"] == 7 and len(page["queues"]) <= 3
            found += [entry["name"].rpartition("\\")[2] for entry in page["queues"]]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
        assert found == expected
    assert len(client.get("/queues", filter="PAGED", nonempty="true")["queues"]) == 6


def test_no_list_of_queues_is_without_pages(client: Client) -> None:
    assert refused(400, client, "GET", "/queues", limit=10_001)["errors"][0]["pointer"] == "limit"
    assert len(client.get("/queues")["queues"]) <= 100


def test_a_cursor_takes_the_longest_names(client: Client) -> None:
    for letter in "äöü":
        client.post("/queues", name="\u0390" * 110 + letter)  # three characters each in lower case
    page = client.get("/queues", filter="\u0390", limit=2)
    rest = client.get("/queues", filter="\u0390", limit=2, cursor=page["next"])
    assert len(page["next"]) > 1024 and len({row["id"] for row in page["queues"] + rest["queues"]}) == 3


def test_a_cursor_of_another_order_or_by_somebody_else_is_refused(client: Client) -> None:
    for number in range(3):
        client.post("/queues", name=f"cursor{number}")
    cursor = client.get("/queues", limit=1)["next"]
    refused(400, client, "GET", "/queues", limit=1, sort="messages", cursor=cursor)
    refused(400, client, "GET", "/queues", limit=1, cursor=cursor[:-2] + "AA")
    refused(400, client, "GET", "/queues", limit=1, cursor="é")


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({"name": "x", "color": "red"}, "/color"),
        ({"name": "x", "transactional": 1}, "/transactional"),
        ({"name": "x", "quota": True}, "/quota"),
        ({"name": "x", "quota": "1"}, "/quota"),
        ({"name": "x", "quota": 1e300}, "/quota"),
        ({"name": "x", "quota": -1}, "/quota"),
        ({"name": 5}, "/name"),
        ({}, "/name"),
        ([], ""),
    ],
)
def test_invalid_members_of_a_document_are_named(client: Client, document: object, pointer: str) -> None:
    assert refused(422, client, "POST", "/queues", document)["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("text", [b'{"name": "x", "quota": NaN}', b"{", b"\xff", b""])
def test_text_that_is_not_json_is_refused(client: Client, text: bytes) -> None:
    refused(400, client, "POST", "/queues", text)


def test_unknown_and_repeated_parameters_are_refused(client: Client) -> None:
    assert refused(400, client, "GET", "/queues", color="red")["errors"][0]["pointer"] == "color"
    assert client.ask("GET", "/queues?limit=1&limit=2").status == 400
    assert client.ask("GET", "/overview?x=1").status == 400


def test_a_queue_is_created_changed_purged_and_deleted(client: Client, daemon: Daemon) -> None:
    created = client.post("/queues", name="life", label="one", transactional=False, quota=100)
    path = f"/queues/{created['id']}"
    assert (created["label"], created["quota"]) == ("one", 100)
    changed = client.patch(path, label="two", quota=None)
    assert (changed["queue"]["label"], changed["queue"]["quota"]) == ("two", None)
    client.send(created["id"], "a", "b", "c")
    assert refused(412, client, "POST", f"{path}/purge", count=2)["messages"] == 3
    assert client.act("POST", f"{path}/purge", count=3)["messages"] == 3
    client.send(created["id"], "d")
    refused(412, client, "DELETE", path, count=0)
    client.act("DELETE", path, count=1)
    refused(404, client, "GET", path)
    again = client.post("/queues", name="life")
    assert again["id"] != created["id"], "a queue that is made again is another one"
    records = [json.loads(line) for line in (daemon.directory / "audit.jsonl").read_text().splitlines()]
    of_life = [record for record in records if record["object"]["name"].endswith("\\life")]
    actions = ["queue.create", "queue.properties", "messages.purge", "queue.delete", "queue.create"]
    assert [record["action"] for record in of_life] == actions
    assert {json.dumps(record["from"]) for record in of_life} == {'{"door": "http", "peer": "127.0.0.1"}'}
    assert {record["actor"]["name"] for record in of_life} == {"alice"}


def test_an_error_of_the_queue_manager_has_its_hresult(client: Client) -> None:
    client.post("/queues", name="twice")
    problem = refused(409, client, "POST", "/queues", {"name": "twice"})
    assert problem["hresult"] == "0xC00E0005" and re.fullmatch("[0-9a-f]{16}", problem["request_id"])
    assert ask(client.daemon, "GET", problem["type"]).status == 200


def test_messages_come_in_pages_and_stay_where_they_are(client: Client, queue: str) -> None:
    labels = [f"m{number}" for number in range(7)]
    client.send(queue, *labels)
    for _ in range(2):
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = client.get(f"/queues/{queue}/messages", limit=3, **cursor)
            found += [message["label"] for message in page["messages"]]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
        assert found == labels


def test_a_page_continues_after_a_removed_message(client: Client, queue: str, daemon: Daemon) -> None:
    client.send(queue, "a", "b", "c")
    page = client.get(f"/queues/{queue}/messages", limit=1)
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    with daemon.connect() as manager, manager.open(name) as opened:
        opened.receive(0)
    rest = client.get(f"/queues/{queue}/messages", cursor=page["next"])
    assert [message["label"] for message in rest["messages"]] == ["b", "c"]


def test_one_message_has_every_property_and_its_body(client: Client, queue: str) -> None:
    body = b"\x00\x01\xff<script>alert(1)</script>"
    client.post(f"/queues/{queue}/messages", base64=base64.b64encode(body).decode(), label="l", priority=5)
    (summary,) = client.messages(queue)
    path = f"/queues/{queue}/messages/{summary['lookup']}"
    found = client.get(path)
    assert found["properties"]["priority"] == 5 and found["properties"]["lookup_identifier"] == summary["lookup"]
    assert found["body"]["kind"] == "binary" and found["body"]["size"] == len(body)
    answer = client.ask("GET", f"{path}/body")
    assert answer.body == body
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    later = str(int(summary["lookup"]) + 1000)  # beyond the last message
    for wrong in (later, "x", "-1", "1" * 30, "%F0%9F%98%80"):
        refused(404, client, "GET", f"/queues/{queue}/messages/{wrong}")


def test_only_the_beginning_of_a_large_body_is_decoded(client: Client, queue: str) -> None:
    text = "ä" * 100_001
    client.post(f"/queues/{queue}/messages", base64=base64.b64encode(text.encode()).decode())
    (summary,) = client.messages(queue)
    body = client.get(f"/queues/{queue}/messages/{summary['lookup']}")["body"]
    assert body["cut"] is True and body["kind"] == "text" and body["size"] == 200_002
    assert set(body["text"]) == {"ä"}


def test_a_body_is_given_in_one_of_two_ways(client: Client, queue: str) -> None:
    for wrong in ({}, {"text": "a", "base64": "YQ=="}, {"base64": "%"}, {"text": "a", "correlation": "7"}):
        refused(422, client, "POST", f"/queues/{queue}/messages", wrong)
    assert client.messages(queue) == []


def test_a_message_to_a_transactional_queue_goes_in_a_transaction(client: Client) -> None:
    queue = client.post("/queues", name="transactional", transactional=True)["id"]
    client.send(queue, "a")
    assert client.messages(queue)[0]["transactional"] is True


def test_a_user_sees_and_does_what_descriptors_grant(client: Client, bob: Client, queue: str, daemon: Daemon) -> None:
    client.send(queue, "secret")
    refused(403, bob, "GET", "/queues/deadletter/messages")
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    with daemon.connect(user="alice", password="s3cret") as manager:
        manager.set_security(name, from_sddl("D:(A;;0xF003F;;;BA)").pack(), 4)
    refused(404, bob, "GET", f"/queues/{queue}")
    assert queue not in [entry["id"] for entry in bob.get("/queues", limit=500)["queues"]]
    for method, path in (("DELETE", ""), ("POST", "/purge")):
        refused(404, bob, method, f"/queues/{queue}{path}", count=1)
    assert client.messages(queue)[0]["label"] == "secret"


def test_metrics_are_what_prometheus_reads(client: Client, queue: str, daemon: Daemon) -> None:
    client.send(queue, "a")
    answer = ask(daemon, "GET", "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    known = {f"openmsmq_{family.name.removesuffix('_total')}" for family in FAMILIES}
    events = {"openmsmq_messages_refused", "openmsmq_list_items_failed", "openmsmq_rpc_duration_seconds"}
    assert known - events <= families.keys() <= known, "these appear with their first event"
    messages = {sample.labels["kind"]: sample.value for sample in families["openmsmq_messages"].samples}
    assert messages["queue"] >= 1 and messages["outgoing"] >= 0
    assert families["openmsmq_disk_free_bytes"].samples[0].value > 0
    assert families["openmsmq_store_epoch"].samples[0].value == 0
    assert families["openmsmq_store_size_bytes"].samples[0].value > 0
    assert "private$" not in answer.text, "queue names are only for users with access to the queues"


@pytest.mark.parametrize("family", ["messages", "windows", "readers"])
def test_metrics_of_queues_are_for_who_may_see_them(client: Client, queue: str, daemon: Daemon, family: str) -> None:
    assert ask(daemon, "GET", "/metrics/queues").status == 401
    client.send(queue, "a")
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    credentials = base64.b64encode(b"alice:s3cret").decode()
    answer = ask(
        daemon, "GET", f"/metrics/queues?family={family}&queue=*", None, {"Authorization": f"Basic {credentials}"}
    )
    samples = [s for f in text_string_to_metric_families(answer.text) for s in f.samples]
    mine = {sample.name: sample.value for sample in samples if name in sample.labels.values()}
    first = {"messages": "openmsmq_queue_messages", "windows": "windows_msmq_messages_in_queue",
             "readers": "openmsmq_queue_handles"}[family]  # fmt: skip
    assert mine[first] == (0 if family == "readers" else 1)


def test_health_has_liveness_and_readiness(daemon: Daemon) -> None:
    assert ask(daemon, "GET", "/livez").text == "ok\n"
    assert ask(daemon, "GET", "/readyz").text == "ok\n"
    *checks, figures = ask(daemon, "GET", "/readyz?verbose").text.splitlines()
    assert checks == ["daemon: ok", "disk: ok", "store: ok", "rpc: ok"]
    assert re.fullmatch(r"figures: \d+ s old", figures)


def test_there_is_nothing_without_a_login_but_health_sums_and_the_description(daemon: Daemon) -> None:
    for path in ("/api/v1/overview", "/api/v1/queues", "/api/v1/queues/journal", "/api/v1/session"):
        answer = ask(daemon, "GET", path)
        assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Bearer")
    assert ask(daemon, "GET", "/api/v1/nothing").status == 404
    assert ask(daemon, "PUT", "/api/v1/queues").status == 405
    assert Client(daemon, USER, "").ask("GET", "/overview").status == 401
