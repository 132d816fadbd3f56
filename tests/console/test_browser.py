"""The console in Chromium: use and accessibility of pages, both themes, a narrow screen, hostile content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.browser import ADMINISTRATOR, PASSWORD, USER, Client, port_of
from console.conftest import OPTIONS, users
from console.tab import Tab, says
from daemon import Daemon, eventually
from openmsmq.accounts.login_links import create_link
from openmsmq.model.errors import AccessDenied

pytestmark = pytest.mark.slow
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}\u202e"
MANY = 10_000  # queues
FIRST_PAINT = 500  # milliseconds
LARGEST_PAGE = 250_000  # bytes
LISTS = (
    "/queues?sort=-messages", "/", "/outgoing", "/alarms", "/handles", "/clients", "/deadletters", "/jobs", "/audit",
    "/transactions", "/sequences", "/moves", "/users", "/tokens", "/settings", "/backups", "/queues?limit=500",
)  # fmt: skip


@pytest.fixture(scope="module")
def paths(daemon: Daemon) -> dict[str, str]:
    """A page of each kind, with realistic and with hostile content."""
    client = Client(daemon)
    queue = client.post("/queues", name="orders", label=HOSTILE[:120])["id"]
    client.send(queue, HOSTILE, "order 1", "order 2", deadletter=True)
    client.post(f"/queues/{queue}/messages", text='{"order": 7}', label="order 7", priority=5, recoverable=True)
    client.send(queue, "\u0639\u0631\u0628\u0649", text="y" * 10_000)
    lost = client.post("/queues", name="lost")["id"]
    client.send(lost, *(f"order {n}" for n in range(12)), deadletter=True, time_to_be_received=1)
    eventually(lambda: client.get("/deadletters/groups")["groups"])
    job = client.post(f"/queues/{queue}/jobs", act="copy", label="order*", to="orders")["job"]["id"]
    eventually(lambda: client.get(f"/jobs/{job}")["job"]["state"] == "done")
    client.post("/tokens", name=HOSTILE[:60] + "x")
    client.post("/groups", name="clerks", members=["bob"])
    client.post(f"/queues/{lost}/relay", host="oldserver.invalid")
    lookup = next(message["lookup"] for message in client.messages(queue) if message["label"] == HOSTILE)
    return {
        "overview": "/", "day": "/?range=24h", "queues": "/queues?filter=o&sort=-messages", "queue": f"/queues/{queue}",
        "rights": f"/queues/{queue}/rights?for=bob", "journal": f"/queues/{queue}j", "new-queue": "/new-queue",
        **{name: f"/queues/{queue}/{name}" for name in ("subqueues", "activity", "readers", "settings", "send")},
        "message": f"/queues/{queue}/messages/{lookup}", "hex": f"/queues/{queue}/messages/{lookup}?view=hex",
        "no-json": f"/queues/{queue}/messages/{lookup}?view=json", "edit": f"/queues/{queue}/messages/{lookup}/edit",
        "search": f"/queues/{queue}?find=%3Cscript",
        "dead-search": "/queues/deadletter?reason=expired-unread&newer=3600",
        "deadletters": "/deadletters", "outgoing": "/outgoing",
        "users": "/users", "handles": "/handles", "alarms": "/alarms", "tokens": "/tokens",
        "jobs": "/jobs", "job": f"/jobs/{job}",
        "definitions": "/definitions", "backups": "/backups", "clients": "/clients", "moves": "/moves",
        "sequences": "/sequences",
        "transactions": "/transactions", "machine": "/settings", "audit": "/audit",
        "missing": "/queues/p999999",
    }  # fmt: skip


PAGES = [
    "overview", "day", "queues", "new-queue", "queue", "journal", "subqueues", "activity", "readers", "rights",
    "settings", "send", "message", "hex", "no-json", "edit", "search",
    "dead-search", "deadletters", "outgoing", "users", "tokens", "handles", "alarms",
    "definitions", "backups", "clients", "moves", "sequences", "transactions", "machine", "audit", "jobs", "job",
]  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_a_page(
    chromium: Any, daemon: Daemon, paths: dict[str, str], name: str, scheme: str
) -> None:
    tab = Tab(chromium, daemon, color_scheme=scheme, viewport={"width": 1200, "height": 900})
    tab.visit(paths[name])
    tab.context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_narrow_screen(chromium: Any, daemon: Daemon, paths: dict[str, str], name: str) -> None:
    tab = Tab(chromium, daemon, viewport={"width": 320, "height": 700})
    tab.visit(paths[name])
    tab.context.close()


@pytest.mark.parametrize("name", ["clients", "outgoing", "tokens", "handles"])
def test_no_column_is_cut_off_on_a_phone(chromium: Any, daemon: Daemon, paths: dict[str, str], name: str) -> None:
    tab = Tab(chromium, daemon, viewport={"width": 390, "height": 844})
    page = tab.visit(paths[name])
    hidden = page.locator(".scroll").evaluate_all("all => all.filter(one => one.scrollWidth > one.clientWidth).length")
    assert hidden == 0
    tab.context.close()


def test_hostile_names_labels_and_bodies_are_text(chromium: Any, daemon: Daemon, paths: dict[str, str]) -> None:
    tab = Tab(chromium, daemon)
    for name in ("queue", "message", "edit", "search", "hex"):
        page = tab.visit(paths[name])
        assert page.locator("main img, main script[src='x']").count() == 0
        assert "{{7*7}}" in page.content()
    tab.context.close()


def test_the_keyboard_reaches_content_and_the_first_control(chromium: Any, daemon: Daemon) -> None:
    tab = Tab(chromium, daemon)
    page = tab.visit("/queues")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")
    tab.context.close()


def test_a_chart_shows_the_part_that_was_dragged_over(chromium: Any, daemon: Daemon) -> None:
    tab = Tab(chromium, daemon)
    page = tab.visit("/")
    figure = page.locator("figure.chart").first
    eventually(lambda: page.reload() is not None and figure.count() > 0, 60)
    eventually(lambda: len(json.loads(figure.get_attribute("data-at"))) >= 8, 60)
    page.click("#pause")
    whole, clocks = (
        figure.locator("path[data-name]").first.get_attribute("d"),
        figure.locator(".x li").all_inner_texts(),
    )
    box = figure.locator("svg[role=img]").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 20, steps=4)
    assert figure.locator("rect.dragged").count() == 1
    page.mouse.up()
    part = figure.locator("path[data-name]").first.get_attribute("d")
    assert 2 <= part.count(",") < whole.count(",") and figure.locator(".x li").all_inner_texts() != clocks
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    assert clocks[0] < figure.locator(".reading").inner_text() < clocks[-1] + "Z"
    tab.hold("a zoomed chart")
    figure.locator("button.zoom").click()
    assert figure.locator("path[data-name]").first.get_attribute("d") == whole
    assert not figure.locator("button.zoom").is_visible()
    tab.context.close()


def test_a_chart_that_was_refreshed_still_shows_values(
    chromium: Any, daemon: Daemon, client: Client, queue: str
) -> None:
    tab = Tab(chromium, daemon)
    page = tab.visit(f"/queues/{queue}/activity")
    eventually(lambda: page.reload() is not None and page.locator("figure.chart").count() > 0, 60)
    page.evaluate("document.querySelector('figure.chart').dataset.old = 'yes'")
    page.mouse.move(1, 1)
    eventually(lambda: page.locator("figure.chart[data-old]").count() == 0, 60)
    page.locator("figure.chart svg[role=img]").first.hover()
    assert "UTC: " in page.locator(".reading").first.inner_text()
    tab.context.close()


def test_the_overview_is_live_and_can_be_paused(chromium: Any, daemon: Daemon, client: Client, queue: str) -> None:
    tab = Tab(chromium, daemon)
    page = tab.visit("/")
    says(page.locator("#live [data-state]"), "Live")
    before = page.locator("figure.chart path[data-name]").first.get_attribute("data-values")

    def shows_a_rate() -> bool:
        client.send(queue, "a")  # again and again: a busy browser may skip a sample
        return float(page.locator("[data-live=came]").inner_text()) > 0

    eventually(shows_a_rate)
    eventually(lambda: page.locator("figure.chart path[data-name]").first.get_attribute("data-values") != before)
    page.click("#pause")
    says(page.locator("#live [data-state]"), "Paused at")
    tab.hold("paused")
    page.click("#pause")
    says(page.locator("#live [data-state]"), "Live")
    tab.context.close()


def test_ticked_messages_are_moved_in_a_dialog_and_a_toast_says_so(
    chromium: Any, daemon: Daemon, client: Client, queue: str
) -> None:
    client.send(queue, HOSTILE, "b", "c")
    target = client.post("/queues", name=f"{queue}-moved")["id"]
    tab = Tab(chromium, daemon)
    page = tab.visit(f"/queues/{queue}")
    for box in page.locator("td [type=checkbox]").all()[:2]:
        box.check()
    assert page.locator("[data-chosen]").inner_text() == "2 selected"
    page.fill(".selection [name=to]", f"{queue}-moved")
    page.click(".selection button[value=move]")
    says(page.locator("dialog.plan"), "2 messages")
    tab.hold("dry run in a dialog")
    assert len(client.messages(queue)) == 3
    page.click("dialog.plan form button")
    says(page.locator(".toast"), "2 done")
    eventually(lambda: page.locator("td [type=checkbox]").count() == 1)
    tab.hold("toast")
    assert page.locator("dialog").count() == 0 and page.locator("main img").count() == 0
    assert len(client.messages(target)) == 2
    page.click(".toast a")
    assert "messages.move" in page.locator("main").inner_text()
    tab.context.close()


def test_a_dialog_shows_what_was_wrong_and_the_page_keeps_what_was_typed(
    chromium: Any, daemon: Daemon, client: Client, queue: str
) -> None:
    client.send(queue, "a", "b")
    tab = Tab(chromium, daemon)
    page = tab.visit(f"/queues/{queue}")
    page.fill(".selection [name=first]", "1")
    page.fill(".selection [name=to]", "no-such-queue")
    page.click(".selection button[value=move]")
    says(page.locator("dialog.plan"), "there is no queue no-such-queue")
    page.click("dialog.plan header button")
    assert page.locator("dialog").count() == 0 and page.input_value(".selection [name=first]") == "1"
    page.click(".selection button[value=delete]")
    says(page.locator("dialog.plan"), "1 messages")
    page.fill("dialog.plan [name=count]", "7")
    page.click("dialog.plan button.danger")
    says(page.locator("dialog.plan"), "the dry run found 1 messages, not 7")
    page.fill("dialog.plan [name=count]", "1")
    page.click("dialog.plan button.danger")
    says(page.locator(".toast"), "1 done")
    assert [message["label"] for message in client.messages(queue)] == ["b"]
    tab.context.close()


def test_a_job_is_started_in_a_dialog_and_its_page_shows_its_progress(
    chromium: Any, daemon: Daemon, client: Client
) -> None:
    source = client.post("/queues", name="many-messages")["id"]
    client.post("/queues", name="many-archived")
    with (
        daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager,
        manager.open(".\\private$\\many-messages", "send") as opened,
    ):
        for number in range(1_200):
            opened.send("x", label=f"m{number}")
    tab = Tab(chromium, daemon)
    page = tab.visit(f"/queues/{source}")
    page.fill(".selection [name=to]", "many-archived")
    page.click(".selection button[value=move]")
    says(page.locator("dialog.plan"), "A background job")
    tab.hold("dry run of more than a request takes")
    page.click("dialog.plan form[action='/in-background'] button")
    says(page.locator(".toast"), "running in the background")
    page.click(".toast a")
    says(page.locator("#job"), "1,200 of 1,200", 120)
    says(page.locator("#job .badge"), "done", 60)
    tab.hold("job")
    assert client.get(f"/queues/{source}")["queue"]["messages"] == 0
    tab.context.close()


def logged_out_at(chromium: Any, daemon: Daemon, client: Client, queue: str) -> tuple[Tab, Any]:
    """Open a queue of two messages, choose the first, and end the login."""
    client.send(queue, "a", "b")
    tab = Tab(chromium, daemon)
    page = tab.visit(f"/queues/{queue}")
    page.fill(".selection [name=first]", "1")
    tab.context.clear_cookies()
    return tab, page


def test_an_expired_login_is_renewed_in_a_dialog_and_the_page_stays(
    chromium: Any, daemon: Daemon, client: Client, queue: str
) -> None:
    tab, page = logged_out_at(chromium, daemon, client, queue)
    page.click(".selection button[value=delete]")
    says(page.locator("dialog.plan"), "Your session has expired")
    page.fill("dialog [name=user]", ADMINISTRATOR)
    page.fill("dialog [name=password]", "wrong")
    page.click("dialog form button.primary")
    says(page.locator("dialog.plan"), "wrong")
    page.fill("dialog [name=user]", ADMINISTRATOR)
    page.fill("dialog [name=password]", PASSWORD)
    page.click("dialog form button.primary")
    says(page.locator(".toast"), "logged in again")
    assert page.input_value(".selection [name=first]") == "1"
    page.click(".selection button[value=delete]")
    says(page.locator("dialog.plan"), "1 messages")
    page.fill("dialog.plan [name=count]", "1")
    page.click("dialog.plan button.danger")
    eventually(lambda: [message["label"] for message in client.messages(queue)] == ["b"])
    tab.context.close()


def test_a_page_continues_with_the_login_of_another_tab(
    chromium: Any, daemon: Daemon, client: Client, queue: str
) -> None:
    tab, page = logged_out_at(chromium, daemon, client, queue)
    other = tab.context.new_page()
    other.goto("/login")
    other.fill("[name=user]", ADMINISTRATOR)
    other.fill("[name=password]", PASSWORD)
    other.click("main button")
    other.close()
    page.click(".selection button[value=delete]")
    says(page.locator(".toast"), "logged in again")
    assert page.input_value(".selection [name=first]") == "1"
    page.click(".selection button[value=delete]")
    says(page.locator("dialog.plan"), "1 messages")
    tab.context.close()


def test_figures_are_stale_as_soon_as_there_are_none(chromium: Any, daemon: Daemon) -> None:
    tab = Tab(chromium, daemon)
    page = tab.visit("/queues")
    says(page.locator("#live [data-state]"), "Live")
    tab.context.set_offline(True)
    says(page.locator("#live [data-state]"), "Stale since")
    tab.context.set_offline(False)
    says(page.locator("#live [data-state]"), "Live")
    tab.context.close()


@pytest.mark.parametrize("path", ["/", "/queues?kind=queue"])
def test_a_page_whose_login_has_ended_has_a_link_to_log_in_again(chromium: Any, daemon: Daemon, path: str) -> None:
    """The stream of figures and the refreshed parts are refused, for example after a restart of the daemon."""
    tab = Tab(chromium, daemon)
    page = tab.visit(path)
    says(page.locator("#live [data-state]"), "Live")
    tab.context.clear_cookies()
    if path == "/":
        page.click("#pause")
        page.click("#pause")  # opens another stream
    says(page.locator("#live [data-state]"), "Your login has ended. Log in again")
    assert "Stale" not in page.inner_text("#live")
    page.click("#live a")
    page.fill("[name=user]", ADMINISTRATOR)
    page.fill("[name=password]", PASSWORD)
    page.click("main button")
    assert page.url.endswith(path)
    says(page.locator("#live [data-state]"), "Live")
    tab.context.close()


def test_a_refused_stream_of_figures_is_opened_again(chromium: Any, daemon: Daemon) -> None:
    tab = Tab(chromium, daemon)
    asked: list[Any] = []

    def answer(route: Any) -> None:
        asked.append(route)
        route.fulfill(status=503) if len(asked) == 1 else route.continue_()

    tab.page.route("**/api/v1/events", answer)
    tab.page.goto("/")
    says(tab.page.locator("#live [data-state]"), "Live", 60)
    assert len(asked) == 2
    tab.context.close()


def test_an_alarm_is_silenced_in_a_dialog_and_the_silence_is_ended(chromium: Any, tmp_path: Path) -> None:
    users(tmp_path / "data")
    with Daemon(tmp_path / "data", *OPTIONS, "--alarm-disk-megabytes", str(1 << 30)) as daemon:
        eventually(lambda: Client(daemon).get("/alarms")["active"])
        tab = Tab(chromium, daemon)
        page = tab.visit("/alarms")
        page.click("#alarms li button")
        says(page.locator("dialog.plan h2"), "Silence an alarm")
        tab.hold("dialog")
        page.fill("dialog [name=reason]", HOSTILE)
        page.click("dialog form button.primary")
        says(page.locator(".toast"), "is silenced until")
        says(page.locator("#silenced"), "by alice: <script>")
        says(page.locator("#alarms"), "No active alarms")
        tab.hold("silenced")
        page.click("#silenced li button")
        says(page.locator("#alarms li"), "MB free")
        assert page.locator("#silenced").inner_text() == ""
        tab.context.close()


def test_a_user_is_removed_after_a_question_in_a_dialog(chromium: Any, daemon: Daemon, client: Client) -> None:
    client.post("/users", name="leaving", password="pw")
    tab = Tab(chromium, daemon)
    page, form = tab.page, "form[action='/users/leaving/remove']"
    page.goto("/users")
    page.click(f"{form} button")
    says(page.locator("dialog.plan"), "Remove the user leaving and revoke the user's tokens?")
    tab.hold("question in a dialog")
    page.click("dialog.plan header button")
    assert page.locator(form).count() == 1 and page.locator("dialog").count() == 0
    page.click(f"{form} button")
    page.click("dialog.plan form button")
    page.wait_for_function("document.querySelector(`form[action='/users/leaving/remove']`) === null")
    assert "leaving" not in [user["name"] for user in client.get("/users")["users"]]
    assert not tab.wrong
    tab.context.close()


def test_columns_are_chosen_and_stay(chromium: Any, daemon: Daemon, client: Client, queue: str) -> None:
    tab = Tab(chromium, daemon, viewport={"width": 1280, "height": 900})
    page = tab.visit("/queues")
    assert page.locator("th[data-column=growth]").is_visible()
    page.click("#columns summary")
    page.uncheck("#columns [value=growth]")
    tab.hold("columns")
    assert not page.locator("th[data-column=growth]").is_visible()
    page = tab.visit("/queues")
    assert not page.locator("th[data-column=growth]").is_visible()
    assert page.locator("th[data-column=size]").is_visible()
    tab.context.close()


def test_dead_letters_are_returned_after_a_dry_run(chromium: Any, daemon: Daemon, client: Client) -> None:
    name = client.post("/queues", name="returned")["id"]
    client.send(name, "a", "b", deadletter=True, time_to_be_received=1)
    client.send(name, "stays")
    eventually(lambda: [
        group
        for group in client.get("/deadletters/groups")["groups"]
        if "returned" in group["destination"] and group["messages"] == 2
    ])  # fmt: skip
    tab = Tab(chromium, daemon)
    page = tab.visit("/deadletters")
    group = page.locator(".reason", has_text="returned")
    group.locator("[name=first]").fill("2")
    group.locator("button[value=return]").click()
    says(page.locator("dialog.plan"), "2 messages")
    tab.hold("dry run")
    assert len(client.messages(name)) == 1
    page.click("dialog.plan form button")
    says(page.locator(".toast"), "2 done")
    tab.hold("result")
    eventually(lambda: len(client.messages(name)) == 3)
    tab.context.close()


def test_a_right_is_denied_after_a_dry_run(chromium: Any, daemon: Daemon, client: Client) -> None:
    name = client.post("/queues", name="guarded")["id"]
    tab = Tab(chromium, daemon)
    page = tab.visit(f"/queues/{name}/rights")
    page.click("text=Other rights, denials and revoking")
    page.select_option("select[name=change]", "deny")
    page.fill("details [name=user]", USER)
    page.select_option("select[name=right]", "WriteMessage")
    page.click("text=Dry run")
    page.click("dialog form button")
    says(page.locator(".toast"), "WriteMessage")
    says(page.locator("#rights"), USER)
    tab.hold("rights")
    with daemon.connect(user=USER, password=PASSWORD) as manager, pytest.raises(AccessDenied):
        manager.open(".\\private$\\guarded", "send")
    tab.context.close()


def test_lists_are_painted_at_once_with_ten_thousand_queues(chromium: Any, daemon: Daemon, client: Client) -> None:
    with daemon.connect() as manager:
        for number in range(MANY):
            manager.create_queue(f".\\private$\\many{number}")
    tab = Tab(chromium, daemon)
    slow = {}
    for path in LISTS:
        paints, sizes = [], []
        for _ in range(3):
            answer = tab.page.goto(path)
            painted = "performance.getEntriesByName('first-contentful-paint')"
            eventually(lambda: tab.page.evaluate("performance.getEntriesByName('first-contentful-paint').length"))
            paints.append(tab.page.evaluate(f"{painted}[0].startTime"))
            sizes.append(len(answer.body()))
        print(f"{path} with {MANY} queues: first paint after {min(paints):.0f} ms, {max(sizes):,} bytes")
        if min(paints) > FIRST_PAINT or max(sizes) > LARGEST_PAGE:
            slow[path] = min(paints), max(sizes)
    assert "10,0" in tab.visit("/queues").locator("main").inner_text() and not slow
    tab.context.close()


def test_a_list_keeps_names_and_numbers_on_a_narrow_screen(chromium: Any, daemon: Daemon) -> None:
    long = "n" * 100
    Client(daemon).post("/queues", name=long)
    tab = Tab(chromium, daemon, viewport={"width": 390, "height": 844})
    page = tab.visit(f"/queues?filter={long}")
    row = page.locator("table.queues tbody tr")
    box = row.locator("td.n").first.bounding_box()
    assert box is not None and box["x"] + box["width"] <= 390 and row.locator("td.n").first.inner_text() == "0"
    assert "…" in row.locator("th a").inner_text() and long in (row.locator("th a").get_attribute("title") or "")
    tab.context.close()


def test_lists_refresh_themselves(chromium: Any, daemon: Daemon, client: Client, queue: str) -> None:
    name = client.get(f"/queues/{queue}")["queue"]["name"]
    tab = Tab(chromium, daemon)
    page = tab.visit(f"/queues?filter={name}")
    number = page.locator("#queues tbody td.n").first
    says(number, "0")
    client.send(queue, "a", "b", "c")
    says(number, "3", 60)
    tab.hold("refreshed")
    tab.context.close()


def test_the_theme_that_a_user_chooses_stays(chromium: Any, daemon: Daemon) -> None:
    tab = Tab(chromium, daemon, color_scheme="light")
    page = tab.visit("/queues")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 18, 23)"
    page = tab.visit("/alarms")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    tab.context.close()


def test_keys_find_a_queue_and_go_through_a_list(chromium: Any, daemon: Daemon, paths: dict[str, str]) -> None:
    tab = Tab(chromium, daemon)
    page = tab.visit(paths["message"])
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find"
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    before = page.url
    with page.expect_navigation():
        page.keyboard.press("k" if page.locator("main tbody tr").first.get_attribute("aria-current") is None else "j")
    assert page.url != before and "/messages/" in page.url
    page.keyboard.press("?")
    says(page.locator("dialog"), "find a queue")
    tab.hold("keys")
    tab.context.close()


def test_a_login_link_logs_in_by_itself_and_leaves_no_secret(chromium: Any, daemon: Daemon) -> None:
    secret = create_link(daemon.directory, ADMINISTRATOR)
    context = chromium.new_context(base_url=f"http://127.0.0.1:{port_of(daemon)}")
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"/login-link#{secret}")
    page.wait_for_url("**/")
    says(page.locator("header.side"), "Queues")
    assert not [url for url in asked if secret in url.partition("#")[0]]
    assert not daemon.log.count(secret)
    context.close()
