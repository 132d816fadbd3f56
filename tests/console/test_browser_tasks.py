"""Urgent tasks of operators, done in Chromium with few clicks and little scrolling."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.browser import PASSWORD, USER, Client
from console.conftest import OPTIONS, users
from console.tab import Tab, says
from daemon import Daemon, eventually
from openmsmq.model.errors import AccessDenied

pytestmark = pytest.mark.slow
MOST_CLICKS = 6
WIDTH, HEIGHT = 1280, 900


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with twenty queues and 150 dead letters."""
    directory = tmp_path_factory.mktemp("tasks") / "data"
    users(directory)
    with Daemon(directory, *OPTIONS) as daemon:
        client = Client(daemon)
        for number in range(20):
            client.send(client.post("/queues", name=f"app{number:02}")["id"], "a")
        orders = client.post("/queues", name="orders")["id"]
        client.send(orders, *(f"order {number}" for number in range(150)), deadletter=True, time_to_be_received=1)
        eventually(lambda: sum(group["messages"] for group in client.get("/deadletters/groups")["groups"]) == 150)
        assert client.messages(orders) == []
        yield daemon


class Operator:
    """A user of the console: counts clicks and limits scrolling."""

    def __init__(self, chromium: Any, daemon: Daemon) -> None:
        self.tab = Tab(chromium, daemon, viewport={"width": WIDTH, "height": HEIGHT})
        self.page, self.clicks = self.tab.page, 0

    def click(self, place: Any) -> None:
        """Click an element, which must be at most one screen of scrolling away."""
        found = (self.page.locator(place) if isinstance(place, str) else place).first
        found.wait_for(state="visible")
        top = found.evaluate("it => it.getBoundingClientRect().top + it.ownerDocument.documentElement.scrollTop")
        assert top <= 2 * HEIGHT, f"{place} is {top:.0f} px down the page"
        found.click()
        self.clicks += 1

    def type(self, place: Any, text: str) -> None:
        """Click into a field and replace its text."""
        self.click(place)
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(text)

    def choose_file(self, place: str, path: Path) -> None:
        self.page.locator(place).set_input_files(path)
        self.clicks += 1

    def done(self) -> None:
        """End the task, and check the number of clicks."""
        print(f"{self.clicks} clicks")
        assert self.clicks <= MOST_CLICKS and not self.tab.wrong
        self.tab.context.close()


@pytest.fixture
def operator(chromium: Any, shop: Daemon) -> Operator:
    return Operator(chromium, shop)


def test_an_operator_finds_the_queue_that_grows(operator: Operator, shop: Daemon) -> None:
    Client(shop).send(_identifier(shop, "app07"), *map(str, range(200)))
    eventually(lambda: Client(shop).get("/overview")["growing"])
    operator.page.goto("/")
    operator.click(operator.page.locator("#growing tbody tr th a").first)
    says(operator.page.locator("h1"), "app07")
    operator.click(operator.page.locator(".tabs a", has_text="Activity"))
    operator.page.wait_for_url("**/activity")
    operator.done()


def _identifier(daemon: Daemon, name: str) -> str:
    found = Client(daemon).get("/queues", filter=name)["queues"]
    return next(str(queue["id"]) for queue in found if queue["name"].endswith("\\" + name))


def test_an_operator_learns_why_messages_died(operator: Operator) -> None:
    operator.click("nav >> text=Dead letters")
    says(operator.page.locator(".reason").first, "was not received in time")
    says(operator.page.locator(".reason").first, "whether the reader runs")
    operator.done()


def test_an_operator_finds_one_dead_letter(operator: Operator) -> None:
    operator.click("nav >> text=Dead letters")
    operator.type("[name=find]", "order 77")
    operator.page.keyboard.press("Enter")
    operator.click(operator.page.locator("tbody th a", has_text="order 77"))
    says(operator.page.locator("article"), "order 77")
    operator.done()


def test_an_operator_returns_100_of_150_dead_letters(operator: Operator, shop: Daemon) -> None:
    operator.click("nav >> text=Dead letters")
    group = operator.page.locator(".reason", has_text="orders")
    operator.type(group.locator("[name=first]"), "100")
    operator.click(group.locator("button[value=return]"))
    operator.click("dialog.plan form button")
    says(operator.page.locator(".toast"), "100 done")
    operator.done()


def test_an_operator_edits_a_message_and_sends_it_again(operator: Operator, shop: Daemon) -> None:
    Client(shop).send(_identifier(shop, "app09"), "wrong", text="wrong", deadletter=True, time_to_be_received=1)
    eventually(lambda: Client(shop).messages("deadletter", label="wrong"))
    operator.click("nav >> text=Dead letters")
    operator.click(operator.page.locator(".reason", has_text="app09").locator("text=Show messages"))
    operator.click(operator.page.locator("tbody th a", has_text="wrong"))
    operator.click("text=Edit and send again")
    operator.type("textarea[name=text]", "right")
    operator.click("main form button.primary")
    says(operator.page.locator("#result"), "was sent to")
    operator.done()


def test_an_operator_grants_a_right(operator: Operator, shop: Daemon) -> None:
    Client(shop).post(f"/queues/{_identifier(shop, 'app11')}/permissions", change="revoke", user="everyone", rights=[],
                      confirm=True)  # fmt: skip
    with shop.connect(user=USER, password=PASSWORD) as manager, pytest.raises(AccessDenied):
        manager.open(".\\private$\\app11", "send")
    operator.type("#find", "app11")
    operator.page.keyboard.press("Enter")
    operator.click(operator.page.locator(".tabs a", has_text="Rights"))
    operator.type("[name=user]", USER)
    operator.click("button[value=WriteMessage]")
    operator.tab.hold("dry run")
    operator.click("dialog.plan form button")
    says(operator.page.locator(".toast"), "WriteMessage")
    says(operator.page.locator("#rights"), USER)
    operator.tab.hold("granted")
    operator.done()
    with shop.connect(user=USER, password=PASSWORD) as manager:
        manager.open(".\\private$\\app11", "send").send("yes")


def test_an_operator_restores_a_definition(operator: Operator, shop: Daemon, tmp_path: Path) -> None:
    client = Client(shop)
    document = tmp_path / "definitions.json"
    document.write_text(json.dumps(client.get("/definitions")))
    client.act("DELETE", f"/queues/{_identifier(shop, 'app13')}", count=1)
    operator.click("nav >> text=Definitions")
    operator.choose_file("[type=file]", document)
    operator.click("text=Compare")
    says(operator.page.locator("dialog.plan"), "app13")
    operator.click("dialog.plan form button")
    says(operator.page.locator(".toast"), "1 change made")
    operator.done()
    assert _identifier(shop, "app13")
