"""Common parts of console pages, and rejected forms."""

from __future__ import annotations

import html
import re
from contextlib import nullcontext
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest

from console.browser import ADMINISTRATOR, PASSWORD, Browser, Client
from daemon import Daemon, eventually
from openmsmq.console.callers import WebSessions
from openmsmq.console.limits import IDLE_SECONDS
from openmsmq.console.message_search import MessageSearch, find_message, parse_identifier
from openmsmq.console.services import RecentValues


@pytest.fixture
def browser(daemon: Daemon) -> Browser:
    found = Browser(daemon)
    found.login()
    found.ask("GET", "/queues")
    return found


def navigation(page: str) -> str:
    found = re.search(r'<nav aria-label="Pages" id="pages">.*?</nav>', page, re.DOTALL)
    assert found is not None, page
    return found.group()


def hidden(page: str) -> list[tuple[str, str]]:
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)
    return [(name, html.unescape(value)) for name, value in found]


@pytest.mark.parametrize(
    ("path", "current"),
    [("/", "Overview"), ("/queues", "Queues"), ("/queues/deadletter", "Queues"), ("/alarms", "Alarms")],
)
def test_the_navigation_marks_the_page_that_is_shown(browser: Browser, path: str, current: str) -> None:
    links = re.findall(r'aria-current="page">([A-Za-z ]+)', navigation(browser.ask("GET", path).text))
    assert [link.strip() for link in links] == [current]


def test_the_navigation_counts_dead_letters_in_red(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, "late", deadletter=True, time_to_be_received=1)
    eventually(lambda: re.search(r'Dead letters <span class="count bad">', browser.ask("GET", "/tokens").text))


def test_pages_of_errors_have_the_navigation_of_the_user(browser: Browser, daemon: Daemon) -> None:
    answer = browser.ask("GET", "/queues/p999999")
    assert answer.status == 404 and "Users and groups" in navigation(answer.text)
    other = Browser(daemon)
    other.login("bob")
    answer = other.ask("GET", "/users")
    assert answer.status == 403 and "Users and groups" not in navigation(answer.text)


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_theme_that_was_chosen_is_kept_by_a_cookie(browser: Browser, theme: str) -> None:
    browser.cookie += f"; openmsmq-theme={theme}"
    assert f'<html lang="en" data-theme="{theme}">' in browser.ask("GET", "/queues").text


def test_a_cookie_with_another_theme_is_ignored(browser: Browser) -> None:
    browser.cookie += '; openmsmq-theme="x'
    assert '<html lang="en">' in browser.ask("GET", "/queues").text


def test_a_count_that_is_wrong_leaves_the_page_and_what_was_typed(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, "a", "b")
    csrf = browser.field("csrf")
    answer = browser.ask("POST", f"/queues/{queue}/purge", {"csrf": csrf, "count": "7"})
    assert answer.status == 412 and "holds 2 messages, not 7" in answer.text and 'role="alert"' in answer.text
    assert re.search(r'name="count"[^>]*value="7"', answer.text) and "Log out" in answer.text
    assert len(client.messages(queue)) == 2
    assert browser.ask("POST", f"/queues/{queue}/purge", {"csrf": browser.field("csrf"), "count": "2"}).status == 200


def test_a_dry_run_with_a_wrong_count_is_made_again_and_can_be_carried_out(
    browser: Browser, client: Client, queue: str
) -> None:
    client.send(queue, "a", "b", "c")
    plan = {"csrf": browser.field("csrf"), "queue": queue, "act": "delete", "label": "a"}
    browser.ask("POST", "/plan", plan)
    form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', browser.last.text))
    answer = browser.ask("POST", "/carry-out", {**form, "count": "3"})
    assert answer.status == 412 and 'value="3"' in answer.text and "Nothing was changed" in answer.text
    form["selection"] = browser.field("selection")
    assert "1 done" in browser.ask("POST", "/carry-out", {**form, "count": "1"}).text
    assert [message["label"] for message in client.messages(queue)] == ["b", "c"]


@pytest.mark.parametrize(
    ("path", "form", "kept"),
    [
        ("/queues", {"name": "taken", "label": "typed label", "quota": "12"}, ["taken", "typed label", "12"]),
        ("/queues", {"name": "other", "quota": "many"}, ["other", "many"]),
        ("/users", {"name": "alice", "password": "a password", "role": "monitor"}, ["alice"]),
        ("/groups", {"name": "alice"}, ["alice"]),
        ("/tokens", {"name": "script", "role": "monitor", "days": "9999"}, ["script", "9999"]),
        ("/queues/QUEUE/send", {"label": "my label", "text": "my text", "priority": "5", "time_to_be_received": "soon"},
         ["my label", "soon"]),
        ("/queues/QUEUE/settings", {"label": "new label", "quota": "-1"}, ["new label", "-1"]),
    ],
)  # fmt: skip
def test_a_form_that_is_refused_keeps_what_was_typed(
    browser: Browser, client: Client, queue: str, path: str, form: dict[str, str], kept: list[str]
) -> None:
    if not client.get("/queues", filter="taken")["matching"]:
        client.post("/queues", name="taken")
    answer = browser.ask("POST", path.replace("QUEUE", queue), {"csrf": browser.field("csrf"), **form})
    assert answer.status in (409, 422) and 'role="alert"' in answer.text
    assert all(f'value="{value}"' in answer.text for value in kept), answer.text
    assert 'value="a password"' not in answer.text and navigation(answer.text)


def test_a_refused_text_of_a_message_stays_and_is_text(browser: Browser, queue: str) -> None:
    form = {"csrf": browser.field("csrf"), "text": "</textarea><script>alert(1)</script>", "priority": "9"}
    answer = browser.ask("POST", f"/queues/{queue}/send", form)
    assert answer.status == 422 and "&lt;/textarea&gt;&lt;script&gt;" in answer.text and "<script>" not in answer.text


def test_a_refused_message_keeps_its_invisible_characters(browser: Browser, queue: str) -> None:
    text = "\r\nfirst\u200d line\u200c"
    form = {"csrf": browser.field("csrf"), "label": "a\u202eb", "text": text, "priority": "9"}
    page = browser.ask("POST", f"/queues/{queue}/send", form)
    assert page.status == 422 and 'value="a&#8238;b"' in page.text
    content = re.search(r'<textarea name="text"[^>]*>\n(.*?)</textarea>', page.text, re.DOTALL)
    assert content is not None and html.unescape(content[1]) == text


def test_messages_that_are_ticked_are_planned_together(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, "a", "b", "c")
    page = browser.ask("GET", f"/queues/{queue}").text
    found = [html.unescape(value) for value in re.findall(r'name="id" value="([^"]*)"', page)]
    assert found == [message["id"] for message in client.messages(queue)]
    csrf = browser.field("csrf")
    fields = [("csrf", csrf), ("queue", queue), ("act", "delete"), *(("id", value) for value in found[:2])]
    answer = browser.ask("POST", "/plan", fields)
    assert answer.status == 200 and "<strong>2</strong> messages" in answer.text
    form = {"csrf": csrf, "selection": browser.field("selection"), "count": "2"}
    assert "2 done" in browser.ask("POST", "/carry-out", form).text
    assert [message["label"] for message in client.messages(queue)] == ["c"]


def test_a_message_is_shown_beside_the_others_of_its_page(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, *(f"label {number}" for number in range(4)))
    page = browser.ask("GET", f"/queues/{queue}?limit=2").text
    link = html.unescape(re.findall(r'href="(/queues/[^"]*/messages/[^"]*)"', page)[1])
    page = browser.ask("GET", link).text
    assert "label 0" in page and "label 2" not in page
    assert re.search(r'<tr aria-current="true">.*?label 1', page, re.DOTALL)


def test_settings_of_a_queue_are_changed_by_page(browser: Browser, client: Client, queue: str) -> None:
    path = f"/queues/{queue}/settings"
    assert browser.ask("GET", path).status == 200
    form = {
        "csrf": browser.field("csrf"), "label": "Orders", "quota": "1,000", "journal_quota": "", "journal": "true",
        "authenticate": "false", "priv_level": "1", "delivery_limit": "3", "poison_to_deadletter": "false",
    }  # fmt: skip
    assert browser.ask("POST", path, form).headers["location"] == path
    found = client.get(f"/queues/{queue}")
    assert (found["queue"]["label"], found["queue"]["quota"], found["queue"]["journaling"]) == ("Orders", 1000, True)
    assert found["properties"]["delivery_limit"] == 3 and found["properties"]["journal_quota"] is None
    assert browser.ask("POST", path, {**form, "label": "", "quota": "", "journal": "false"}).status == 303
    found = client.get(f"/queues/{queue}")["queue"]
    assert (found["label"], found["quota"], found["journaling"]) == ("", None, False)


def test_settings_that_were_not_changed_keep_the_values_of_others(browser: Browser, client: Client, queue: str) -> None:
    path = f"/queues/{queue}/settings"
    client.patch(f"/queues/{queue}", label="a\u202eb\nc", quota=100, journal=True)

    def form(page: str, **typed: str) -> dict[str, str]:
        """The fields as a browser sends them: a text field has no line ends."""
        was = {name: value for name, value in hidden(page) if name.startswith("was_")}
        return {"csrf": browser.field("csrf"), **was} | {
            name.removeprefix("was_"): re.sub("[\r\n]", "", value) for name, value in was.items()
        } | typed  # fmt: skip

    shown = form(browser.ask("GET", path).text, quota="200")
    assert len(shown) == 17 and shown["label"] == "a\u202ebc"
    client.patch(f"/queues/{queue}", journal_quota=300, delivery_limit=4)
    assert browser.ask("POST", path, {**shown, "delivery_limit": "x"}).status == 422
    again = form(browser.last.text, quota="200")
    assert {**again, "csrf": ""} == {**shown, "csrf": ""}, "a refused form is compared with what it showed first"
    assert browser.ask("POST", path, again).status == 303
    found = client.get(f"/queues/{queue}")["properties"]
    assert (found["label"], found["quota"], found["journal_quota"]) == ("a\u202eb\nc", 200, 300)
    assert found["delivery_limit"] == 4 and found["journal"] is True
    assert browser.ask("POST", path, form(browser.ask("GET", path).text)).status == 303, "nothing was changed"


def test_a_message_is_sent_with_its_properties(browser: Browser, client: Client, queue: str) -> None:
    form = {"csrf": browser.field("csrf"), "label": "l", "text": "t", "priority": "6", "time_to_be_received": "600",
            "time_to_reach_queue": "", "recoverable": "true", "response_queue": "replies", "correlation": "",
            "administration_queue": ""}  # fmt: skip
    assert browser.ask("POST", f"/queues/{queue}/send", form).status == 303
    (message,) = client.messages(queue)
    assert (message["label"], message["priority"], message["recoverable"]) == ("l", 6, True)
    properties = client.get(f"/queues/{queue}/messages/{message['lookup']}")["properties"]
    assert "replies" in str(properties)


def test_journal_and_subqueues_are_tabs_of_their_queue(
    browser: Browser, client: Client, queue: str, daemon: Daemon
) -> None:
    path = client.get(f"/queues/{queue}")["queue"]["name"]
    client.send(queue, "moved")
    with daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager, manager.open(path) as opened:
        opened.move(opened.peek(0).lookup_identifier, "late")
    page = browser.ask("GET", f"/queues/{queue}/subqueues").text
    assert ";late" in page and re.search(r'aria-current="page">Subqueues', page)
    (subqueue,) = client.get("/queues", kind="subqueue", filter=f"{path};late")["queues"]
    assert f'<a href="/queues/{queue}" title=' in browser.ask("GET", f"/queues/{subqueue['id']}").text
    page = browser.ask("GET", f"/queues/{queue}j").text
    assert re.search(r'aria-current="page">Journal', page) and f'href="/queues/{queue}/rights"' in page


@pytest.mark.parametrize("part", ["activity", "readers", "settings", "send", "subqueues", "rights"])
def test_parts_of_a_queue_are_not_there_where_the_queue_is_not(browser: Browser, part: str) -> None:
    assert browser.ask("GET", f"/queues/p999999/{part}").status == 404


def test_rights_are_said_in_words(browser: Browser, client: Client, queue: str) -> None:
    client.post(f"/queues/{queue}/permissions", change="grant", user="bob", rights=["WriteMessage"])
    assert "send messages" in browser.ask("GET", f"/queues/{queue}/rights").text


def test_a_page_that_asks_for_itself_is_no_use_of_a_session() -> None:
    now = 0.0
    sessions = WebSessions(lambda: now)
    secret, session = sessions.open("t", "S-1", "alice")
    now = IDLE_SECONDS - 1
    assert sessions.find(secret, used=False) is session
    now = IDLE_SECONDS + 1
    assert sessions.find(secret, used=False) is None


def test_the_audit_log_is_filtered_and_paged(browser: Browser, client: Client, queue: str) -> None:
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    client.patch(f"/queues/{queue}", label="<b>hostile</b>\u202e")
    page = browser.ask("GET", f"/audit?action=queue.*&object=*{name.rpartition(chr(92))[2]}").text
    assert "queue.create" in page and "&lt;b&gt;hostile" in page and "<b>hostile" not in page and "\u202e" not in page
    page = browser.ask("GET", "/audit?limit=1").text
    older = re.search(r'href="([^"]*)" rel="next"', page)
    assert older is not None and page.count('<th scope="row"') == 1
    following = browser.ask("GET", html.unescape(older.group(1))).text
    assert following.count('<th scope="row"') == 1 and "Newest" in following
    assert "No record matches" in browser.ask("GET", "/audit?action=nothing").text


def test_settings_say_where_they_come_from(browser: Browser) -> None:
    page = browser.ask("GET", "/settings?name=web*").text
    page = page.replace(' class="body"', "").replace(' class="wide"', "")
    assert re.search(r"<code>web</code></th><td>yes</td><td><span class=\"badge accent\">option", page)
    assert "minimum_free" not in page and "web_key" not in browser.ask("GET", "/settings?changed=true").text


@pytest.mark.parametrize("path", ["/audit", "/settings"])
def test_audit_log_and_settings_are_for_administrators(daemon: Daemon, path: str) -> None:
    browser = Browser(daemon)
    browser.login("bob")
    answer = browser.ask("GET", path)
    assert answer.status == 403 and path not in navigation(answer.text)


def test_a_form_that_is_sent_after_the_end_of_a_login_keeps_what_was_typed(
    browser: Browser, client: Client, queue: str
) -> None:
    """The page shows a login form; after the login, the filled form is shown again and can be sent."""
    form = [("csrf", browser.field("csrf")), ("label", "typed <b>"), ("text", "two\r\nlines"), ("priority", "5")]
    ask = f"/queues/{queue}/send"
    known = browser.cookie
    browser.ask("POST", "/logout", {"csrf": browser.field("csrf")})
    browser.cookie = known
    page = browser.ask("POST", ask, form)
    assert page.status == 401 and "your input is kept" in page.text and "<b>" not in page.text
    fields = [*hidden(page.text), ("user", ADMINISTRATOR)]
    assert not [name for name, _ in fields if "csrf" in name], "its token has ended, too"
    page = browser.ask("POST", "/login", [*fields, ("password", "wrong")])
    assert page.status == 401 and hidden(page.text) == fields[:-1], "a wrong password keeps it as well"
    page = browser.ask("POST", "/login", [*fields, ("password", PASSWORD)])
    assert page.status == 200 and f'action="{ask}"' in page.text and navigation(page.text)
    assert 'name="label" size="40" value="typed &lt;b&gt;"' in page.text and client.messages(queue) == []
    again = {"csrf": browser.field("csrf"), **dict(form[1:])}
    assert browser.ask("POST", ask, again).status == 303
    assert [message["label"] for message in client.messages(queue)] == ["typed <b>"]


def test_a_form_of_a_former_login_keeps_what_was_typed_if_another_tab_has_logged_in(
    browser: Browser, client: Client, queue: str
) -> None:
    form = [("csrf", browser.field("csrf")), ("label", "typed"), ("text", "two\r\nlines"), ("priority", "5")]
    ask = f"/queues/{queue}/send"
    browser.login()
    page = browser.ask("POST", ask, form)
    assert page.status == 403 and "was not sent" in page.text and f'action="{ask}"' in page.text
    assert 'name="label" size="40" value="typed"' in page.text and client.messages(queue) == []
    assert browser.ask("POST", ask, {"csrf": browser.field("csrf"), **dict(form[1:])}).status == 303
    assert [message["label"] for message in client.messages(queue)] == ["typed"]
    for headers in ({"Sec_Fetch_Site": "cross-site"}, {"Origin": "http://evil.example"}):
        page = browser.ask("POST", ask, form, **headers)
        assert page.status == 403 and "typed" not in page.text


def test_logging_out_after_the_end_of_a_login_needs_no_login(browser: Browser) -> None:
    csrf = browser.field("csrf")
    browser.cookie = ""
    page = browser.ask("POST", "/logout", {"csrf": csrf})
    assert page.status == 303 and page.headers["location"] == "/login"


def test_passwords_are_not_kept_by_a_login(browser: Browser) -> None:
    csrf = browser.field("csrf")
    browser.cookie = ""
    page = browser.ask("POST", "/users", {"csrf": csrf, "name": "carol", "password": "a secret of carol"})
    assert page.status == 401 and "carol" in page.text and "a secret of carol" not in page.text
    page = browser.ask("POST", "/password", {"csrf": csrf, "current": "the old one", "password": "the new one"})
    assert page.status == 401 and "the old one" not in page.text and "the new one" not in page.text


def test_a_form_of_another_site_gets_no_login_that_keeps_it(browser: Browser, queue: str) -> None:
    browser.cookie = ""
    for headers in ({"Sec_Fetch_Site": "cross-site"}, {"Origin": "http://evil.example"}):
        answer = browser.ask("POST", f"/queues/{queue}/purge", {"count": "1"}, **headers)
        assert answer.status == 403 and "kept_" not in answer.text


def test_columns_that_were_hidden_are_kept_by_a_cookie(browser: Browser) -> None:
    browser.cookie += "; openmsmq-hidden=quota.nothing.state"
    page = browser.ask("GET", "/queues").text
    assert 'data-columns="quota state"' in page and re.search(r'value="size" checked', page)
    assert re.search(r'value="quota">', page)


@pytest.mark.parametrize(
    ("typed", "to"),
    [("sought", "QUEUE"), (r"private$\SOUGHT", "QUEUE"), ("soug", "QUEUE"), ("zought-q", "/queues?filter=zought-q"),
     ("no such", "/queues?filter=no+such"), ("", "/queues")],
)  # fmt: skip
def test_the_search_at_the_top_opens_the_queue_that_is_meant(
    browser: Browser, client: Client, typed: str, to: str
) -> None:
    if not client.get("/queues", filter="sought")["queues"]:
        for name in ("sought", "zought-q1", "zought-q2"):
            client.post("/queues", name=name)
    queue = next(each["id"] for each in client.get("/queues", filter="sought")["queues"])
    found = browser.ask("GET", f"/find?{urlencode({'filter': typed})}")
    assert found.headers["location"] == to.replace("QUEUE", f"/queues/{queue}")


def test_the_search_at_the_top_opens_no_queue_that_the_user_may_not_see(daemon: Daemon, client: Client) -> None:
    queue = client.post("/queues", name="unseen-by-bob")["id"]
    client.post(f"/queues/{queue}/permissions", change="revoke", user="everyone", rights=[], confirm=True)
    browser = Browser(daemon)
    browser.login("bob")
    assert browser.ask("GET", "/find?filter=unseen-by-bob").headers["location"] == "/queues?filter=unseen-by-bob"


def test_the_search_at_the_top_opens_a_message_by_its_identifier(browser: Browser, client: Client, queue: str) -> None:
    client.send(queue, "first", "sought")
    sought = client.messages(queue)[1]
    query = urlencode({"filter": sought["id"]})
    eventually(lambda: browser.ask("GET", f"/find?{query}").status == 303)  # the queue list is cached for a second
    for typed in (sought["id"], sought["id"].upper(), sought["id"].replace("{", "").replace("}", "")):
        found = browser.ask("GET", f"/find?{urlencode({'filter': typed})}")
        assert found.headers["location"] == f"/queues/{queue}/messages/{sought['lookup']}"
    assert "sought" in browser.ask("GET", found.headers["location"]).text
    guid = sought["id"].partition("\\")[0]
    assert "/messages/" in browser.ask("GET", f"/find?{urlencode({'filter': guid})}").headers["location"]
    wrong = browser.ask("GET", f"/find?{urlencode({'filter': guid + chr(92) + '4000000000'})}")
    assert wrong.status == 200 and "was not found among" in wrong.text


def test_the_search_at_the_top_finds_no_message_that_the_user_may_not_read(
    daemon: Daemon, client: Client, queue: str
) -> None:
    client.send(queue, "secret")
    sought = client.messages(queue)[0]
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    client.post(f"/queues/{queue}/permissions", change="revoke", user="everyone", rights=[], confirm=True)
    client.post(f"/queues/{queue}/permissions", change="grant", user="bob", rights=["GetQueueProperties"])
    browser = Browser(daemon)
    browser.login("bob")

    def looked() -> str:
        """Return the page once the queue list, cached for a second, contains this queue; otherwise an empty text."""
        found = browser.ask("GET", f"/find?{urlencode({'filter': sought['id']})}")
        assert found.status == 200 and "was not found" in found.text
        return found.text if name in found.text else ""

    assert "you may not read them" in eventually(looked)


def test_a_search_for_a_message_stops_at_its_limit_and_names_the_queues_that_are_left(
    daemon: Daemon, client: Client
) -> None:
    rows = []
    for name, count in (("long", 4), ("short", 1)):
        queue = client.post("/queues", name=f"limited-{name}")["id"]
        client.send(queue, *"abcd"[:count])
        rows.append({**client.get(f"/queues/{queue}")["queue"], "open": f".\\private$\\limited-{name}"})
    last = client.messages(rows[0]["id"])[3]

    def found(identifier: str, most: int) -> MessageSearch:
        with daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager:
            asked = SimpleNamespace(
                services=SimpleNamespace(rows=SimpleNamespace(of=lambda ticket: rows)),
                caller=SimpleNamespace(ticket=""), queue_manager=lambda: nullcontext(manager),
            )  # fmt: skip
            return find_message(asked, identifier, most=most)  # type: ignore[arg-type]

    limited = found(last["id"], 3)
    assert (limited.queue, limited.scanned, limited.searched, limited.left) == ("", 3, 1, [rows[0]])
    whole = found(last["id"], 5)
    assert (whole.queue, whole.lookup, whole.left) == (rows[0]["id"], last["lookup"], [])


@pytest.mark.parametrize("text", ["orders", "6f9619ff", "x" * 36, "", "6f9619ff-8b86-d011-b42d-00c04fc964ff\\\\x"])
def test_a_text_that_is_no_identifier_searches_no_messages(text: str) -> None:
    assert parse_identifier(text) is None


def test_a_right_is_granted_by_page_and_the_page_says_so(browser: Browser, client: Client, queue: str) -> None:
    form = {"csrf": browser.field("csrf"), "change": "grant", "user": "bob", "right": "WriteMessage"}
    assert 'id="plan"' in browser.ask("POST", f"/queues/{queue}/rights", form).text
    assert "Done." in browser.ask("POST", f"/queues/{queue}/rights", {**form, "carry_out": "true"}).text
    entries = client.get(f"/queues/{queue}/permissions")["entries"]
    assert any(entry["name"] == "bob" and "WriteMessage" in entry["rights"] for entry in entries)


def test_the_navigation_counts_what_a_user_may_see(daemon: Daemon, client: Client, queue: str) -> None:
    browser = Browser(daemon)
    browser.login("bob")

    def counted() -> int:
        found = re.findall(r'Queues <span class="count">([0-9,]+)', navigation(browser.ask("GET", "/queues").text))
        return int(found[0].replace(",", "")) if found else 0

    def is_counted(seen: bool) -> bool:
        found = Client(daemon, "bob").get("/queues", kind="queue", limit=500)
        return seen is any(each["id"] == queue for each in found["queues"]) and counted() == found["matching"]

    eventually(lambda: is_counted(True), 60)
    client.post(f"/queues/{queue}/permissions", change="revoke", user="everyone", rights=[], confirm=True)
    eventually(lambda: is_counted(False), 60)


def test_counts_of_a_user_are_kept_for_seconds_and_bounded() -> None:
    now, made = 0.0, []
    recent = RecentValues(lambda: now)

    def make() -> int:
        made.append(now)
        return len(made)

    assert [recent.of("a", make, 10), recent.of("a", make, 10)] == [1, 1]
    now = 10
    assert recent.of("a", make, 10) == 2
    for number in range(2000):
        recent.of(str(number), make, 10)
    assert len(recent._kept) == 1000


def test_a_page_of_clients_continues_behind_five_hundred(browser: Browser, daemon: Daemon) -> None:
    with daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager:
        assert manager.machine_id
        assert browser.ask("GET", "/clients?start=1").status == 200 and "First page" in browser.last.text
    assert browser.ask("GET", "/clients?start=x").status == 400
