"""The console in a browser without scripts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

import openmsmq
from console.browser import PASSWORD, Answer, Browser, Client
from daemon import Daemon, eventually
from openmsmq.model.look import look_css

TEMPLATES = Path(openmsmq.__file__).parent / "console" / "templates"
SCRIPTS = [{"src": f"/static/{name}.js", "defer": None} for name in ("console", "live", "login-link")]
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&lt;{{7*7}}"
UNSEEN = "a\u202eb\u200bc\x1b[31m"


class Elements(HTMLParser):
    """Collects the tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def of(self, name: str) -> Iterator[dict[str, str | None]]:
        return (attributes for tag, attributes in self.tags if tag == name)


@pytest.fixture
def browser(daemon: Daemon) -> Browser:
    found = Browser(daemon)
    found.login()
    return found


def good(answer: Answer) -> Elements:
    assert answer.status == 200, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    elements = Elements(answer.text)
    assert all(script in SCRIPTS for script in elements.of("script")) and not list(elements.of("img"))
    assert not [name for _, attributes in elements.tags for name in attributes if name.startswith("on")]
    assert "openmsmq " in answer.text, "each page shows the equal command"
    return elements


def test_an_anonymous_user_is_redirected_to_the_login_and_back(daemon: Daemon) -> None:
    browser = Browser(daemon)
    answer = browser.ask("GET", "/queues?filter=x")
    assert answer.status == 303 and answer.headers["location"] == "/login?next=%2Fqueues%3Ffilter%3Dx"
    assert browser.ask("GET", answer.headers["location"]).status == 200
    form = {"user": "alice", "password": PASSWORD, "next": html.unescape(browser.field("next"))}
    answer = browser.ask("POST", "/login", form)
    assert answer.status == 303 and answer.headers["location"] == "/queues?filter=x"
    good(browser.ask("GET", answer.headers["location"]))


@pytest.mark.parametrize(
    "next", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:1", "/\r\nX: y"]
)
def test_a_login_leads_to_pages_of_this_server_only(daemon: Daemon, next: str) -> None:
    form = {"user": "alice", "password": PASSWORD, "next": next}
    assert Browser(daemon).ask("POST", "/login", form).headers["location"] == "/"


def test_a_wrong_password_is_reported(daemon: Daemon) -> None:
    answer = Browser(daemon).ask("POST", "/login", {"user": HOSTILE, "password": "x"})
    assert answer.status == 401 and 'role="alert"' in answer.text and HOSTILE not in answer.text
    assert Browser(daemon).ask("POST", "/login", {}).status == 401
    assert Browser(daemon).ask("POST", "/login", {"user": "alice"}, Origin="http://evil.example").status == 403


@pytest.mark.parametrize("path", ["/", "/queues", "/queues?sort=-messages&nonempty=true", "/deadletters", "/outgoing",
                                  "/queues/deadletter", "/queues/journal"])  # fmt: skip
def test_a_page_can_be_read_by_everybody(browser: Browser, client: Client, queue: str, path: str) -> None:
    client.send(queue, "a")
    elements = good(browser.ask("GET", path))
    assert next(elements.of("html"))["lang"] == "en" and len(list(elements.of("h1"))) == 1
    assert len(list(elements.of("table"))) == len(list(elements.of("caption")))
    assert all("scope" in attributes for attributes in elements.of("th"))
    assert "viewport" in browser.last.text
    unlabelled = re.sub(r"<label\b[^>]*>.*?</label>", "", browser.last.text, flags=re.DOTALL)
    assert not re.search(r'<(select|textarea|input(?! type="hidden"))', unlabelled), "each field has a label"


def test_labels_and_bodies_are_text(browser: Browser, client: Client, queue: str) -> None:
    client.post(f"/queues/{queue}/messages", text=HOSTILE + UNSEEN, label=(HOSTILE + UNSEEN)[:249])
    client.patch(f"/queues/{queue}", label=HOSTILE)
    (message,) = client.messages(queue)
    for path in (f"/queues/{queue}", f"/queues/{queue}/messages/{message['lookup']}", "/queues?limit=500", "/"):
        page = browser.ask("GET", path)
        good(page)
        assert "<script>" not in page.text and "onerror=alert(1)>" not in page.text
        assert not any(character in page.text for character in "\u202e\u200b\x1b")
    page = browser.ask("GET", f"/queues/{queue}/messages/{message['lookup']}")
    assert "&lt;script&gt;" in page.text and "\\u202e" in page.text and "{{7*7}}" in page.text


def test_a_wrong_address_is_a_page_with_navigation(browser: Browser, daemon: Daemon) -> None:
    for method, path, status in (("GET", "/nosuchpage", 404), ("GET", "/logout", 405), ("POST", "/queues/x", 405)):
        page = browser.ask(method, path)
        assert page.status == status and f"{method} {path}: " in page.text and 'href="/queues"' in page.text
        assert page.headers["content-type"].startswith("text/html")
    assert page.headers["allow"]
    stranger = Browser(daemon).ask("GET", "/<b>nosuchpage")
    assert stranger.status == 404 and 'href="/"' in stranger.text and 'href="/queues"' not in stranger.text
    assert "<b>" not in stranger.text
    assert browser.ask("GET", "/api/v1/nosuchpage").json["status"] == 404


def test_names_of_queues_are_text_and_lead_to_their_pages(browser: Browser, client: Client) -> None:
    name = "<b>'& /?%#{{7*7}}\u202e"
    queue = client.post("/queues", name=name)["id"]
    page = browser.ask("GET", "/queues?limit=500")
    good(page)
    assert "<b>" not in page.text and f'href="/queues/{queue}"' in page.text and "\u202e" not in page.text
    client.send(queue, "x", deadletter=True, time_to_be_received=1)
    assert eventually(lambda: "&lt;b&gt;" in browser.ask("GET", "/deadletters").text)
    good(browser.last)
    good(browser.ask("GET", f"/queues/{queue}"))
    assert "<b>" not in browser.last.text


def test_a_queue_is_created_filled_emptied_and_deleted(browser: Browser) -> None:
    browser.ask("GET", "/queues")
    csrf = browser.field("csrf")
    created = browser.ask("POST", "/queues", {"csrf": csrf, "name": "bypage", "label": "made by hand"})
    path = created.headers["location"]
    for label in ("one", "two"):
        assert browser.ask("POST", f"{path}/send", {"csrf": csrf, "label": label, "text": "t"}).status == 303
    good(browser.ask("GET", path))
    assert browser.last.text.count("/messages/") == 2
    assert browser.ask("POST", f"{path}/purge", {"csrf": csrf, "count": "1"}).status == 412
    assert browser.ask("POST", f"{path}/purge", {"csrf": csrf, "count": "two"}).status == 422
    assert "2 messages" in browser.ask("POST", f"{path}/purge", {"csrf": csrf, "count": "2"}).text
    assert browser.ask("POST", f"{path}/delete", {"csrf": csrf, "count": "0"}).status == 200
    assert browser.ask("GET", path).status == 404


def test_pages_of_messages_follow_each_other(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, *(f"label number {number}" for number in range(5)))
    page = browser.ask("GET", f"/queues/{queue}?limit=3").text
    assert "label number 2" in page and "label number 3" not in page
    following = re.search(r'href="([^"]*)" rel="next"', page)
    assert following is not None
    page = browser.ask("GET", html.unescape(following.group(1))).text
    assert (
        "label number 3" in page and "label number 2" not in page and 'rel="next"' not in page and "First page" in page
    )


def test_a_dry_run_is_a_page_on_which_the_count_is_typed(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, "a", "b")
    browser.ask("GET", f"/queues/{queue}")
    csrf = browser.field("csrf")
    plan = {"csrf": csrf, "queue": queue, "act": "delete", "label": "", "text": "", "to": ""}
    good(browser.ask("POST", "/plan", plan))
    form = {"csrf": browser.field("csrf"), "selection": browser.field("selection"), "count": "1"}
    assert browser.ask("POST", "/carry-out", form).status == 412
    assert len(client.messages(queue)) == 2
    good(browser.ask("POST", "/carry-out", {**form, "count": "2"}))
    assert "2 done" in browser.last.text and client.messages(queue) == []


def test_dead_letters_are_returned_by_page(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, "late", deadletter=True, time_to_be_received=1)
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    found = eventually(lambda: [g for g in client.get("/deadletters/groups")["groups"] if name in g["destination"]])
    good(browser.ask("GET", "/deadletters"))
    plan = {"csrf": browser.field("csrf"), "queue": "deadletter", "act": "return", "reason": "expired-unread",
            "destination": found[0]["destination"], "ttl": "3600"}  # fmt: skip
    good(browser.ask("POST", "/plan", plan))
    form = {"csrf": browser.field("csrf"), "selection": browser.field("selection"), "count": "1"}
    good(browser.ask("POST", "/carry-out", form))
    assert [message["label"] for message in client.messages(queue)] == ["late"]


def test_an_outgoing_queue_is_paused_by_page(browser: Browser, client: Client, daemon: Daemon) -> None:
    name = "DIRECT=OS:elsewhere.invalid\\private$\\q"
    with daemon.connect(user="alice", password=PASSWORD) as manager, manager.open(name, "send") as opened:
        opened.send("x")
    queue = eventually(lambda: client.get("/queues", kind="outgoing", filter="elsewhere")["queues"])[0]["id"]
    good(browser.ask("GET", "/outgoing"))
    csrf = browser.field("csrf")
    assert browser.ask("POST", f"/outgoing/{queue}/pause", {"csrf": csrf}).status == 303
    assert "ONHOLD" in browser.ask("GET", "/outgoing").text
    browser.ask("POST", f"/outgoing/{queue}/resume", {"csrf": csrf})
    assert client.get(f"/queues/{queue}")["queue"]["state"] != "ONHOLD"
    good(browser.ask("GET", f"/queues/{queue}"))


@pytest.mark.parametrize(
    "path", ["/queues", "/queues/p1/purge", "/plan", "/carry-out", "/logout", "/outgoing/o1/pause"]
)
def test_no_form_does_anything_without_its_token(browser: Browser, path: str) -> None:
    assert browser.ask("POST", path, {"name": "forged", "csrf": "x"}).status == 403
    assert browser.ask("POST", path, {"name": "forged"}).status == 403
    assert browser.ask("POST", path, {}, Content_Type="text/plain").status == 415


def test_logging_out_ends_the_session(browser: Browser) -> None:
    browser.ask("GET", "/")
    cookie, csrf = browser.cookie, browser.field("csrf")
    assert browser.ask("POST", "/logout", {"csrf": csrf}).status == 303
    browser.cookie = cookie
    assert browser.ask("GET", "/").status == 303


def test_a_user_sees_what_is_refused_and_why(daemon: Daemon) -> None:
    browser = Browser(daemon)
    browser.login("bob")
    page = browser.ask("GET", "/queues/deadletter")
    assert page.status == 200 and "ACCESS_DENIED" in page.text
    assert browser.ask("GET", "/deadletters").status == 403 and 'role="alert"' in browser.last.text
    assert browser.ask("GET", "/queues/p999999").status == 404


def test_pages_need_nothing_from_elsewhere_and_no_script_but_three() -> None:
    pages = list(TEMPLATES.glob("*.html"))
    assert pages
    for path in pages:
        text = path.read_text()
        for script in SCRIPTS:
            text = text.replace(f'<script src="{script["src"]}" defer></script>', "")
        assert "//" not in text.replace("<!doctype html>", "") and "<script" not in text and "style=" not in text, path
        assert "|safe" not in text and "autoescape" not in text, path


def test_the_style_has_two_themes_and_fits_narrow_screens(daemon: Daemon) -> None:
    answer = Browser(daemon).ask("GET", "/static/style.css")
    assert answer.headers["content-type"].startswith("text/css") and "url(" not in answer.text
    assert "prefers-color-scheme: dark" in answer.text and "max-width: 40rem" in answer.text
    own = answer.text.removeprefix(look_css())
    assert own != answer.text, "the colors of charts"
    for name, text in (("style.css", own), ("console.js", Browser(daemon).ask("GET", "/static/console.js").text)):
        assert text == (files("openmsmq.console") / "static" / name).read_text()
