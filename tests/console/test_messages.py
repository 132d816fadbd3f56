"""Messages in the console: search, selection of the first ones, export, body formats, sending again."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from console.browser import ADMINISTRATOR, PASSWORD, Browser, Client, FreshDaemon
from console.test_api import refused
from daemon import Daemon, eventually
from openmsmq.actions import messages, resending
from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.site import OPERATOR_OF_FILES, ActionSite
from openmsmq.admin.message_json import from_json
from openmsmq.console.messages import changes_in
from openmsmq.model.message import Message

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&lt;{{7*7}}"


def logged_in(daemon: Daemon) -> Browser:
    found = Browser(daemon)
    found.login()
    found.ask("GET", "/queues")
    return found


@pytest.fixture
def browser(daemon: Daemon) -> Browser:
    return logged_in(daemon)


def labels(client: Client, queue: str, **query: Any) -> list[str]:
    return [message["label"] for message in client.messages(queue, **query)]


def lookup_of(client: Client, queue: str, label: str) -> str:
    return next(str(each["lookup"]) for each in client.messages(queue) if each["label"] == label)


def hidden(page: str) -> list[tuple[str, str]]:
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)
    return [(name, html.unescape(value)) for name, value in found]


def filled(page: str) -> dict[str, str]:
    """Return the fields of the form that sends a message again, as a browser would send them."""
    form = page[page.index('class="fields"') :]
    found = {name: html.unescape(value) for name, value in re.findall(r'<input name="(\w+)"[^>]*value="([^"]*)"', form)}
    found |= dict.fromkeys(re.findall(r'type="checkbox" name="(\w+)" value="true" checked', form), "true")
    for name, options in re.findall(r'<select name="(\w+)">(.*?)</select>', form, re.DOTALL):
        chosen = re.search(r'<option(?: value="([^"]*)")? selected>([^<]*)', options)
        assert chosen is not None, options
        found[name] = chosen.group(1) or chosen.group(2)
    text = re.search(r'<textarea name="text"[^>]*>\n(.*?)</textarea>', form, re.DOTALL)
    if text is not None:
        found["text"] = html.unescape(text.group(1)).replace("\n", "\r\n")
    return found


def test_half_a_surrogate_pair_in_labels_is_replaced(own: FreshDaemon) -> None:
    """Labels are UTF-16, so that programs can send what UTF-8 and JSON cannot express."""
    client = own.client
    with own.daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager:
        name = manager.create_queue(".\\private$\\halves", label="queue \ud800")
        with manager.open(name, "send") as opened:
            opened.send(
                Message(body="body \udc00".encode("utf-16-le", "surrogatepass"), label="half \ud800", body_type=8)
            )
    row = next(each for each in client.get("/queues")["queues"] if each["name"].endswith("halves"))
    (message,) = client.messages(row["id"])
    assert (row["label"], message["label"]) == ("queue \ufffd", "half \ufffd")
    path = f"/queues/{row['id']}/messages/{message['lookup']}"
    assert client.get(path)["properties"]["label"] == "half \ufffd"
    assert [each["label"] for each in client.get("/definitions")["queues"]] == ["queue \ufffd"]
    browser = logged_in(own.daemon)
    assert browser.ask("GET", "/queues").status == browser.ask("GET", path).status == 200
    page = browser.ask("GET", f"/queues/{row['id']}").text
    assert "queue " in page and "half " in page
    exported = json.loads(browser.ask("GET", "/definitions/export").text)  # the file has the label as it is
    assert [each["label"] for each in exported["queues"]] == ["queue \ud800"]


# -- searching -----------------------------------------------------------------------------------------------------


def test_a_message_with_a_queue_for_acknowledgments_gets_them(client: Client, queue: str) -> None:
    acknowledgments = client.post("/queues", name="acknowledgments")["id"]
    client.post(f"/queues/{queue}/messages", text="x", administration_queue="acknowledgments")
    assert [each["message_class"] for each in client.messages(acknowledgments)] == ["ACK_REACH_QUEUE"]


def test_messages_are_found_by_label_body_and_identifier(client: Client, queue: str) -> None:
    client.send(queue, "Order 1", "order 2", "refund")
    client.send(queue, "other", text="about ORDER 3")
    assert labels(client, queue, find="order") == ["Order 1", "order 2", "other"]
    assert labels(client, queue, label="order*") == ["Order 1", "order 2"]
    assert labels(client, queue, text="order") == ["Order 1", "order 2", "other"]
    chosen = client.messages(queue)[2]["id"]
    assert labels(client, queue, find=chosen) == ["refund"]
    assert labels(client, queue, find=chosen[1:8]) == [], "a short text is not searched in identifiers"
    assert labels(client, queue, newer=3600) != [] and labels(client, queue, older=3600) == []
    assert labels(client, queue, find="nothing") == []
    assert "msg find" in client.get(f"/queues/{queue}/messages", find="it's")["command"]


def test_dead_letters_are_found_by_reason_and_destination(client: Client, queue: str) -> None:
    client.send(queue, "late", deadletter=True, time_to_be_received=1)
    name = client.get(f"/queues/{queue}")["queue"]["name"].rpartition("\\")[2]
    dead: dict[str, Any] = {"reason": "expired-unread", "destination": name}
    eventually(lambda: labels(client, "deadletter", **dead) == ["late"])
    assert labels(client, "deadletter", destination=name, reason="purged") == []
    refused(422, client, "GET", "/queues/deadletter/messages?reason=boredom")


def test_a_search_stops_and_says_how_far_it_looked_and_continues_from_there(
    client: Client, queue: str, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page makes a bounded number of short calls, independent of the queue length."""
    client.send(queue, "a", "b", "c", "d", "wanted", "e")
    row = {"id": queue, "kind": "queue", "open": client.get(f"/queues/{queue}")["queue"]["name"]} | {"name": "q"}
    monkeypatch.setattr(messages, "SEARCHED", 3)
    calls = mock.Mock(seal=json.dumps, unseal=lambda text, what: json.loads(text))
    with daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager:
        site = ActionSite(
            Path("/nowhere"), Path("/nowhere"), OPERATOR_OF_FILES, mock.Mock(), manager=manager, daemon=calls, queue=row
        )
        first = messages.list_messages.run(site, messages.PageQuery(queue, find="wanted"))
        assert (first.messages, first.scanned) == ([], 3) and first.next
        second = messages.list_messages.run(site, messages.PageQuery(queue, find="wanted", cursor=first.next))
        assert [each.label for each in second.messages] == ["wanted"] and second.scanned == 3 and second.next is None
        monkeypatch.setattr(messages, "SEARCH_SECONDS", 0.0)
        assert messages.list_messages.run(site, messages.PageQuery(queue, find="wanted")).scanned == 1
        assert len(messages.list_messages.run(site, messages.PageQuery(queue)).messages) == 6, "no search, no bound"


def test_a_page_of_a_search_keeps_the_search_and_its_text_is_text(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, "a", HOSTILE[:200], "b")
    page = browser.ask("GET", f"/queues/{queue}?find={'%3Cscript%3E'}&reason=&newer=3600&older=").text
    assert "1 found among 3" in page and "<script>alert" not in page and 'value="&lt;script&gt;"' in page
    link = html.unescape(re.findall(r'href="(/queues/[^"]*/messages/[^"]*)"', page)[0])
    assert "find=%3Cscript%3E" in link and "newer=3600" in link
    page = browser.ask("GET", link).text
    assert "<script>alert" not in page and page.count('<th scope="row" class="name">') == 1
    assert "No message matches; 3 were examined." in browser.ask("GET", f"/queues/{queue}?find=nothing").text


def test_a_reason_that_does_not_exist_leaves_the_page(browser: Browser) -> None:
    answer = browser.ask("GET", "/queues/deadletter?reason=boredom")
    assert answer.status == 422 and "boredom" in answer.text and "Log out" in answer.text


# -- selecting the first ones, and exporting them ------------------------------------------------------------------


def test_the_first_messages_that_match_are_moved_and_the_answer_names_the_audit_record(
    browser: Browser, client: Client, queue: str
) -> None:
    client.send(queue, "x1", "y", "x2", "x3")
    target = client.post("/queues", name=f"{queue}-to")["id"]
    page = browser.ask("GET", f"/queues/{queue}?find=x").text
    assert ("find", "x") in hidden(page)
    form = {
        "csrf": browser.field("csrf"),
        "queue": queue,
        "find": "x",
        "first": "2",
        "act": "move",
        "to": f"{queue}-to",
    }
    page = browser.ask("POST", "/plan", form).text
    assert "<strong>2</strong> messages" in page and "A limit" not in page and "/in-background" not in page
    page = browser.ask("POST", "/carry-out", hidden(page[page.index('id="plan"') :])).text
    assert "Move: 2 done" in page
    assert labels(client, target) == ["x1", "x2"] and labels(client, queue) == ["y", "x3"]
    record = re.search(r'href="(/audit\?[^"]*)"', page)
    assert record is not None
    page = browser.ask("GET", html.unescape(record.group(1))).text
    assert "messages.move" in page and page.count('<th scope="row"') == 1


@pytest.mark.parametrize("first", ["0", "x", "1.5"])
def test_a_wrong_number_of_first_messages_leaves_the_page_and_what_was_typed(
    browser: Browser, client: Client, queue: str, first: str
) -> None:
    client.send(queue, "x1")
    form = {"csrf": browser.field("csrf"), "queue": queue, "find": "x", "first": first, "act": "delete"}
    answer = browser.ask("POST", "/plan", form)
    assert answer.status == 422 and f'value="{first}"' in answer.text and 'value="x"' in answer.text
    assert labels(client, queue) == ["x1"]


def test_ticked_messages_are_meant_whatever_the_filter_says(browser: Browser, client: Client, queue: str) -> None:
    """Ticked messages are selected even if they do not match the filter by age."""
    client.send(queue, "a", "b")
    chosen = client.messages(queue)[0]["id"]
    form = {"csrf": browser.field("csrf"), "queue": queue, "older": "3600", "first": "1", "act": "delete", "id": chosen}
    assert "<strong>1</strong> messages" in browser.ask("POST", "/plan", form).text


def test_an_export_is_a_file_that_can_be_imported(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, "a1", "b", "a2")
    csrf = browser.field("csrf")
    answer = browser.ask("POST", f"/queues/{queue}/export", {"csrf": csrf, "find": "a"})
    assert answer.status == 200 and "attachment" in answer.headers["content-disposition"]
    found = [from_json(json.loads(line)) for line in answer.text.splitlines()]
    assert [message.label for message in found] == ["a1", "a2"] and found[0].decode() == "a1"
    chosen = [("csrf", csrf), *(("id", each["id"]) for each in client.messages(queue)[1:])]
    assert len(browser.ask("POST", f"/queues/{queue}/export", chosen).text.splitlines()) == 2
    assert len(browser.ask("POST", f"/queues/{queue}/export", {"csrf": csrf, "first": "1"}).text.splitlines()) == 1
    assert labels(client, queue) == ["a1", "b", "a2"], "a look takes nothing away"


def test_an_export_is_for_those_who_may_read(daemon: Daemon, client: Client, queue: str) -> None:
    client.send(queue, "secret")
    client.post(f"/queues/{queue}/permissions", change="revoke", user="everyone", rights=[], confirm=True)
    other = Browser(daemon)
    other.login("bob")
    other.ask("GET", "/queues")
    answer = other.ask("POST", f"/queues/{queue}/export", {"csrf": other.field("csrf")})
    assert answer.status in (403, 404) and "secret" not in answer.text


# -- body formats --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "view", "expected"),
    [
        ('{"a":1}', "auto", '"a": 1'), ('{"a":1}', "json", '"a": 1'), ('{"a":1}', "text", '{"a":1}'),
        ('{"a":1}', "hex", "7b 22 61"), ("<a><b/></a>", "xml", "  <b/>"), ("plain", "hex", "70 6c 61"),
    ],
)  # fmt: skip
def test_a_body_is_shown_in_the_form_that_is_asked_for(
    client: Client, queue: str, text: str, view: str, expected: str
) -> None:
    client.post(f"/queues/{queue}/messages", base64=b64encode(text.encode()).decode())
    lookup = client.messages(queue)[0]["lookup"]
    body = client.get(f"/queues/{queue}/messages/{lookup}", view=view)["body"]
    assert expected in body["text"] and not body["problem"]


@pytest.mark.parametrize(
    ("text", "view"), [("plain", "json"), ("plain", "xml"), ("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "xml")]
)
def test_a_body_that_does_not_have_a_form_says_so(
    browser: Browser, client: Client, queue: str, text: str, view: str
) -> None:
    client.post(f"/queues/{queue}/messages", text=text)
    lookup = client.messages(queue)[0]["lookup"]
    body = client.get(f"/queues/{queue}/messages/{lookup}", view=view)["body"]
    assert body["text"] == "" and f"is not {view.upper()}" in body["problem"]
    page = browser.ask("GET", f"/queues/{queue}/messages/{lookup}?view={view}&limit=5").text
    assert f"The body is not {view.upper()}" in page and re.search(r'aria-current="true">' + view.upper(), page)


def test_a_long_body_in_hexadecimal_is_cut(client: Client, queue: str) -> None:
    client.post(f"/queues/{queue}/messages", text="x" * 100_000)
    lookup = client.messages(queue)[0]["lookup"]
    body = client.get(f"/queues/{queue}/messages/{lookup}", view="hex")["body"]
    assert body["cut"] and body["size"] == 200_000 and len(body["text"]) < 100_000


# -- edit and send again -------------------------------------------------------------------------------------------


def test_a_message_is_edited_and_sent_again(browser: Browser, client: Client, queue: str) -> None:
    client.post(
        f"/queues/{queue}/messages", text="one\ntwo", label="old", priority=5, recoverable=True, deadletter=True,
        time_to_be_received=600, response_queue="replies", correlation=r"{6f9619ff-8b86-d011-b42d-00c04fc964ff}\7",
    )  # fmt: skip
    path = f"/queues/{queue}/messages/{lookup_of(client, queue, 'old')}"
    before = client.get(path)
    form = filled(browser.ask("GET", f"{path}/edit").text)
    assert (form["label"], form["priority"], form["time_to_be_received"]) == ("old", "5", "600")
    assert (
        form["text"] == "one\r\ntwo" and form["recoverable"] == form["deadletter"] == "true" and "journal" not in form
    )
    form |= {"csrf": browser.field("csrf"), "label": "new", "text": "one\r\nthree"}
    page = browser.ask("POST", f"{path}/edit", form).text
    assert before["summary"]["id"] in html.unescape(page) and "sent, then removed" in page
    (message,) = client.messages(queue)
    after = client.get(f"/queues/{queue}/messages/{message['lookup']}")
    changed = {name for name, value in after["properties"].items() if value != before["properties"].get(name)}
    assert after["body"]["text"] == "one\nthree" and "label" in changed
    assert not changed & {"priority", "delivery_guarantee", "time_to_be_received", "correlation_identifier",
                          "response_queue_format_name", "journaling_requested"}  # fmt: skip
    assert message["id"] != before["summary"]["id"]
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    (record,) = client.get("/audit", object=name, action="messages.resend")["records"]
    assert record["before"] == {"message": before["summary"]["id"]} and record["after"]["kept"] is False


@pytest.mark.parametrize("lookup", ["0", "00", "-1", "18446744073709551616", "x", "%D9%A3"])
def test_a_number_that_no_message_can_have_is_not_found(client: Client, queue: str, lookup: str) -> None:
    refused(404, client, "GET", f"/queues/{queue}/messages/{lookup}")


def test_a_message_that_is_kept_is_there_beside_the_new_one(client: Client, queue: str) -> None:
    client.send(queue, "a")
    path = f"/queues/{queue}/messages/{lookup_of(client, queue, 'a')}"
    done = client.post(f"{path}/resend", keep=True, label="b", time_to_be_received=60)
    assert labels(client, queue) == ["a", "b"] and done["id"] == client.messages(queue)[1]["id"]
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    [record] = client.get("/audit", object=name, action="messages.resend")["records"]
    assert done["record"] == record["seq"]
    done = client.post(f"{path}/resend", time_to_be_received=0)
    assert labels(client, queue) == ["b", "a"] and done["how"] == "sent, then removed"


def test_a_message_that_another_request_sends_again_is_not_sent_twice(
    daemon: Daemon, client: Client, queue: str
) -> None:
    client.send(queue, "a")
    name = client.get(f"/queues/{queue}")["queue"]["name"].partition("\\")[2]
    with (
        daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager,
        manager.open(f".\\{name}") as first,
        manager.open(f".\\{name}") as second,
    ):
        message = first.peek(0)
        refusing = pytest.raises(ActionRefused, match="nothing was sent: another client has")
        with resending._locked(first, message), refusing:
            resending._locked(second, message).__enter__()
    assert labels(client, queue) == []


def test_a_transactional_message_is_replaced_in_one_transaction(client: Client) -> None:
    queue = client.post("/queues", name="resent-exact", transactional=True)["id"]
    client.send(queue, "a", "b")
    path = f"/queues/{queue}/messages/{lookup_of(client, queue, 'a')}"
    assert client.post(f"{path}/resend", text="new")["how"] == "in one transaction"
    assert labels(client, queue) == ["b", "a"]


def test_a_dead_letter_goes_to_the_queue_that_it_was_meant_for(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, "late", deadletter=True, time_to_be_received=1)
    name = client.get(f"/queues/{queue}")["queue"]["name"].rpartition("\\")[2]
    (dead,) = eventually(lambda: client.messages("deadletter", destination=name))
    path = f"/queues/deadletter/messages/{dead['lookup']}"
    form = filled(browser.ask("GET", f"{path}/edit").text)
    assert name in form["to"]
    form |= {"csrf": browser.field("csrf"), "time_to_be_received": ""}
    assert browser.ask("POST", f"{path}/edit", form).status == 200
    assert labels(client, queue) == ["late"] and client.messages("deadletter", destination=name) == []


def test_a_message_sent_again_names_the_command_for_its_kind_of_queue(
    daemon: Daemon, client: Client, queue: str
) -> None:
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    path = f".\\{name.partition(chr(92))[2]}"
    client.patch(f"/queues/{queue}", journal=True)
    client.send(queue, "a", "b")
    with daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager, manager.open(path) as opened:
        opened.move(opened.peek(0).lookup_identifier, "later")
        opened.receive(0)
    subqueue = eventually(lambda: [row["id"] for row in client.get("/queues", filter=name)["queues"]
                                   if row["name"] == f"{name};later"])[0]  # fmt: skip
    for place, label, command in (
        (f"{queue}j", "b", f"openmsmq journal resend '{name};journal' --id"),
        (subqueue, "a", f"openmsmq msg resend '{name};later' --id"),
    ):
        done = client.post(f"/queues/{place}/messages/{lookup_of(client, place, label)}/resend")
        assert done["command"].startswith(command), done["command"]
    assert sorted(labels(client, queue)) == ["a", "b"]
    dry = {"act": "resend", "queue": f"{queue}j", "where": {"label": "b"}}
    assert client.post("/dry-runs", **dry)["command"].startswith(f"openmsmq journal resend '{name};journal' --remove")


def test_a_body_that_a_form_cannot_hold_is_sent_as_it_is(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, "hidden\u202elabel", text="a\u200bb")
    path = f"/queues/{queue}/messages/{client.messages(queue)[0]['lookup']}"
    page = browser.ask("GET", f"{path}/edit").text
    assert "is sent unchanged" in page and "\u200b" not in page and "\u202e" not in page
    form = filled(page) | {"csrf": browser.field("csrf"), "priority": "6", "text": "forged"}
    assert browser.ask("POST", f"{path}/edit", form).status == 200
    (message,) = client.messages(queue)
    assert (message["label"], message["priority"]) == ("hidden\u202elabel", 6)
    body = browser.ask("GET", f"/api/v1/queues/{queue}/messages/{message['lookup']}/body").body
    assert body == "a\u200bb".encode("utf-16-le")


def test_what_is_typed_wrong_stays_in_the_form_and_nothing_is_sent(
    browser: Browser, client: Client, queue: str
) -> None:
    client.send(queue, "a")
    path = f"/queues/{queue}/messages/{lookup_of(client, queue, 'a')}"
    form = filled(browser.ask("GET", f"{path}/edit").text) | {"csrf": browser.field("csrf"), "label": "typed"}
    for wrong in ({"to": "no-such-queue"}, {"time_to_be_received": "soon"}, {"correlation": "x"}):
        answer = browser.ask("POST", f"{path}/edit", {**form, **wrong})
        assert answer.status == 422 and 'value="typed"' in answer.text, answer.text
        assert f'value="{next(iter(wrong.values()))}"' in answer.text and 'role="alert"' in answer.text
    assert labels(client, queue) == ["a"]


def test_a_message_that_is_gone_is_not_sent_again(client: Client, queue: str) -> None:
    client.send(queue, "a")
    path = f"/queues/{queue}/messages/{lookup_of(client, queue, 'a')}"
    client.act("POST", f"/queues/{queue}/purge", count=1)
    refused(404, client, "POST", f"{path}/resend", {"label": "b"})
    assert labels(client, queue) == []


def test_only_changed_fields_of_a_form_are_changes() -> None:
    shown = {"label": "a\u202eb", "text": "x\ny", "recoverable": "true", "deadletter": "false", "journal": "false",
             "time_to_be_received": "5"}  # fmt: skip
    same = {"label": "a\u202eb", "text": "x\r\ny", "recoverable": "true", "time_to_be_received": "5"}
    assert changes_in(same, shown) == {}
    changed = changes_in({**same, "text": "x\r\nz", "time_to_be_received": ""}, shown)
    assert changed == {"text": "x\nz", "time_to_be_received": "0"}
    del same["recoverable"]
    assert changes_in(same, shown) == {"recoverable": "false"}
    crlf = changes_in({"text": "a\r\nc"}, {"text": "a\r\nb"})
    assert crlf["text"] == "a\r\nc"


@pytest.mark.parametrize(("label", "sent"), [("a\nb\r", "ab"), ("a\0", "a\ufffd"), ("\ud800", "\ufffd")])
def test_a_label_that_a_browser_cannot_send_back_is_no_change(label: str, sent: str) -> None:
    boxes = dict.fromkeys(("recoverable", "deadletter", "journal"), "false")
    assert changes_in({"label": sent}, {"label": label, **boxes}) == {}
    assert changes_in({"label": "c"}, {"label": label, **boxes}) == {"label": "c"}
    assert changes_in({"text": "ab"}, {"text": "a\nb", **boxes}) == {"text": "ab"}, "a line end that was removed"
