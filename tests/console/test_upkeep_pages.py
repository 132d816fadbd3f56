"""Pages for definitions, backups, clients, moves and sequences in a browser without scripts."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.browser import PASSWORD, USER, Browser, Client
from console.conftest import OPTIONS, users
from daemon import Daemon, eventually

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def browser(daemon: Daemon) -> Browser:
    found = Browser(daemon)
    found.login()
    return found


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Path]]:
    """A daemon with a backup directory."""
    directory = tmp_path_factory.mktemp("kept")
    (directory / "backups").mkdir()
    users(directory / "data")
    with Daemon(directory / "data", *OPTIONS, "--backup-directory", str(directory / "backups")) as daemon:
        found = Browser(daemon)
        found.login()
        yield found, directory / "backups"


def forms(page: str, path: str) -> list[dict[str, str]]:
    """Return the hidden fields of the forms that are sent to a path."""
    found = re.findall(rf'<form method="post" action="{re.escape(path)}".*?</form>', page, flags=re.DOTALL)
    fields = r'<input type="hidden" name="([^"]*)" value="([^"]*)"'
    return [{name: html.unescape(value) for name, value in re.findall(fields, form)} for form in found]


def test_definitions_are_exported_as_a_file(browser: Browser, client: Client, queue: str) -> None:
    answer = browser.ask("GET", "/definitions/export?local=true")
    assert answer.headers["content-disposition"].startswith('attachment; filename="definitions-')
    name = client.get(f"/queues/{queue}")["queue"]["name"].rpartition("\\")[2]
    assert name in [each["name"] for each in answer.json["queues"]]
    assert {"users", "groups"} <= answer.json.keys()


def test_an_import_shows_differences_and_then_makes_just_them(browser: Browser, client: Client) -> None:
    browser.ask("GET", "/definitions")
    document = json.dumps({"format": 1, "queues": [{"name": "by-page", "label": HOSTILE}]})
    page = browser.ask("POST", "/definitions/compare", {"csrf": browser.field("csrf"), "document": document})
    assert page.status == 200 and "create queue by-page" in page.text and "1 change would be made" in page.text
    assert not client.get("/queues", filter="by-page")["queues"]
    form = forms(page.text, "/definitions/import")[0] | {"document": document}
    other = document.replace("by-page", "another")
    assert browser.ask("POST", "/definitions/import", form | {"document": other}).status == 412
    page = browser.ask("POST", "/definitions/import", form)
    assert page.status == 200 and "1 change made" in page.text
    (made,) = client.get("/queues", filter="by-page")["queues"]
    assert made["label"] == HOSTILE
    changed = json.dumps({"format": 1, "queues": [{"name": "by-page", "label": "x"}]})
    page = browser.ask("POST", "/definitions/compare", {"csrf": form["csrf"], "document": changed})
    assert "label &#39;&lt;script&gt;" in page.text and "<script>alert" not in page.text


def test_what_is_no_definition_leaves_the_page_with_what_was_typed(browser: Browser) -> None:
    browser.ask("GET", "/definitions")
    for text in ("{nothing", "[1]", '{"queues": 7}'):
        page = browser.ask("POST", "/definitions/compare", {"csrf": browser.field("csrf"), "document": text})
        assert page.status == 422 and html.escape(text) in page.text.replace("&#34;", "&quot;")


def test_a_backup_is_made_and_verified_by_page(kept: tuple[Browser, Path]) -> None:
    browser, directory = kept
    assert "There are no backups yet" in browser.ask("GET", "/backups").text
    csrf = browser.field("csrf")
    assert browser.ask("POST", "/backups", {"csrf": csrf, "name": "nightly"}).status == 303
    eventually(lambda: "openmsmq restore" in browser.ask("GET", "/backups").text)
    assert f"openmsmq restore {directory}/nightly" in browser.last.text
    verify = "/backups/nightly/verify"
    assert browser.ask("POST", verify, {"csrf": csrf}).status == 303
    eventually(lambda: "sound" in browser.ask("GET", "/backups").text)
    (directory / "nightly" / "users.json").write_text("{}")
    browser.ask("POST", verify, {"csrf": csrf})
    eventually(lambda: "damaged" in browser.ask("GET", "/backups").text)
    client = Client(browser.daemon)
    (known,) = client.get("/backups")["backups"]
    assert known["bytes"] > 0 and known["state"] == "done"
    job = next(each for each in client.get("/jobs")["jobs"] if each["what"] == "verify backup")
    assert "users.json is not as the backup wrote it" in job["detail"]
    assert [each["action"] for each in client.get("/audit", action="backup.*")["records"]] == [
        "backup.verify", "backup.verify", "backup.make",
    ]  # fmt: skip
    assert browser.ask("POST", "/backups/missing/verify", {"csrf": csrf}).status == 404


def test_a_page_without_a_directory_of_backups_says_so(browser: Browser) -> None:
    page = browser.ask("GET", "/backups")
    assert page.status == 200 and "backup_directory is not set" in page.text


def test_clients_are_shown_with_what_they_use_and_have_open(
    browser: Browser, client: Client, daemon: Daemon, queue: str
) -> None:
    path = client.get(f"/queues/{queue}")["queue"]["name"]
    with daemon.connect(user=USER, password=PASSWORD) as manager, manager.open(path, "receive"):
        found = client.get("/connections")["connections"]
        (bob,) = [each for each in found if each["user"] == USER]
        assert (bob["door"], bob["address"]) == ("rpc", "127.0.0.1") and bob["interfaces"]
        assert bob["handles"] == 1 and bob["connections"] >= 1
        page = browser.ask("GET", "/clients")
        assert page.status == 200 and USER in page.text and "RPC" in page.text
        (handle,) = client.get("/handles", queue=queue)["handles"]
        assert f"/handles/{handle['id']}/close" in page.text
    eventually(lambda: not [one for one in client.get("/connections")["connections"] if one["user"] == USER])


def test_a_move_is_taken_on_after_a_page_that_says_what_that_does(browser: Browser, client: Client, queue: str) -> None:
    name = client.get(f"/queues/{queue}")["queue"]["name"].rpartition("\\")[2]
    client.post(f"/queues/{queue}/relay", host="elsewhere.invalid")
    page = browser.ask("GET", "/moves").text
    assert f"{name}</bdi>" in page and "shadow" in page and "elsewhere.invalid" in page
    eventually(lambda: "No messages are moved" in browser.ask("GET", "/moves").text)
    ask = next(each for each in forms(browser.last.text, "/moves/plan") if each["step"] == "switch")
    page = browser.ask("POST", "/moves/plan", ask).text
    assert "programs send to the queue here from now on" in page
    assert client.get("/relays")["relays"][0]["state"] == "shadow", "nothing was done yet"
    (step,) = forms(page, "/moves/step")
    assert browser.ask("POST", "/moves/step", step).status == 200
    assert client.get("/relays")["relays"][0]["state"] == "switched"
    page = browser.ask("POST", "/moves/plan", ask)
    assert page.status == 409 and "switch is not possible now" in page.text and "Moves" in page.text
    for last in ("done", "forget"):
        done = step | {"step": last, "force": "true"}
        assert browser.ask("POST", "/moves/step", done).status == 200
    assert client.get("/relays")["relays"] == []


def test_sequences_have_a_page(browser: Browser) -> None:
    page = browser.ask("GET", "/sequences")
    assert page.status == 200 and "No other queue manager has sent" in page.text


@pytest.mark.parametrize("path", ["/backups", "/clients", "/moves", "/sequences"])
def test_pages_for_administrators_are_not_for_others(daemon: Daemon, path: str) -> None:
    browser = Browser(daemon)
    browser.login(USER)
    assert browser.ask("GET", path).status == 403


def test_accounts_and_tokens_are_removed_only_after_a_question(browser: Browser, client: Client) -> None:
    client.post("/users", name="leaver", password="pw")
    client.post("/groups", name="leavers", members=["leaver"])
    token = client.post("/tokens", name="leaving <b>")["token"]["id"]
    for page, form, question, present in (
        ("/users", "/groups/leavers/remove", "Remove the group leavers?", "leavers"),
        ("/users", "/users/leaver/remove", "Remove the user leaver and revoke", "leaver"),
        ("/tokens", f"/tokens/{token}/revoke", "Revoke the token leaving &lt;b&gt;?", token),
    ):
        (hidden,) = forms(browser.ask("GET", page).text, form)
        asked = browser.ask("POST", form, hidden)
        assert asked.status == 200 and question in asked.text, asked.text
        (hidden,) = forms(asked.text, form)
        assert f"{present}<" in browser.ask("GET", page).text
        assert browser.ask("POST", form, hidden | {"sure": "true"}).status == 303
        assert f"{present}<" not in browser.ask("GET", page).text
