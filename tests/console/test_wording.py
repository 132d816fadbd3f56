"""Formatting of values on pages."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from openmsmq.actions.alarms import KnownAlarm
from openmsmq.actions.queues import QueueView
from openmsmq.admin.alarms import CONDITIONS
from openmsmq.console import wording

HOSTILE = "<b>\u202e"


def queue(**given: object) -> QueueView:
    values = dict.fromkeys(QueueView.__struct_fields__, 0) | {
        "id": "p1", "kind": "queue", "name": r"mq1\private$\orders", "label": "", "state": "", "quota": None,
        "exclusive": False, "transactional": False, "journaling": False,
    }  # fmt: skip
    return QueueView(**values | given)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (123, "2 min 3 s"), (11100, "3 h 5 min"), (187200, "2 d 4 h")],
)
def test_ages_have_two_units(seconds: float, text: str) -> None:
    assert wording.age(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (640, "640 B"), (1234, "1.2 kB"), (67_200_000_000, "67.2 GB"), (512_000, "512 kB")],
)
def test_sizes_have_three_digits(count: int, text: str) -> None:
    assert wording.size(count) == text


def test_today_has_a_time_of_day_and_other_days_have_a_date() -> None:
    noon = 1_795_521_600
    assert ">12:00:00</time>" in wording.when(noon, now=noon + 60)
    assert ">2026-11-24 12:00</time>" in wording.when(noon, now=noon + 86400)
    assert 'title="2026-11-24 12:00:00 UTC"' in wording.when(noon, now=noon)
    assert wording.when(0) == ""


def test_a_long_name_loses_its_middle_and_keeps_both_ends() -> None:
    name = "private$\\" + "a" * 50 + "z" * 50
    assert wording.short(name) == "private$\\" + "a" * 14 + "…" + "z" * 20
    assert wording.short("orders") == "orders" and "\u202e" not in wording.short(HOSTILE)


def test_names_of_this_machine_are_shown_without_it() -> None:
    assert wording.called(queue()) == "private$\\orders"
    assert wording.called(queue(kind="outgoing", name=r"DIRECT=OS:far\q")) == r"DIRECT=OS:far\q"


@pytest.mark.parametrize(
    ("given", "badges"),
    [
        ({"messages": 1}, [("warn", "no reader")]),
        ({"messages": 0}, []),
        ({"messages": 1, "readers": 1, "grown": -1}, [("good", "draining")]),
        ({"exclusive": True}, [("accent", "exclusive")]),
        ({"kind": "outgoing", "state": "WAITING", "messages": 2}, [("bad", "WAITING")]),
        ({"kind": "outgoing", "state": "WAITING"}, [("", "WAITING")]),
        ({"kind": "outgoing", "state": "ONHOLD"}, [("warn", "ONHOLD")]),
        ({"kind": "deadletter", "messages": 2}, []),
    ],
)
def test_badges_say_what_is_the_matter_with_a_queue(given: dict[str, object], badges: list[tuple[str, str]]) -> None:
    assert wording.states(queue(**given)) == badges


def test_a_bar_says_how_much_of_the_quota_is_used() -> None:
    assert wording.of_quota(queue(bytes=512, quota=1)) == 50 and wording.of_quota(queue()) is None
    assert 'width="46.0"' in wording.bar(50) and 'class="bad"' in wording.bar(95) and 'width="92.0"' in wording.bar(300)


@pytest.mark.parametrize("condition", [condition.name for condition in CONDITIONS])
@pytest.mark.parametrize("identifier", ["p/1", None])
def test_each_alarm_leads_to_a_page(condition: str, identifier: str | None) -> None:
    where = wording.attention(KnownAlarm(condition, "q", 1, 1, 1, "s", "a", "b", 1, []), identifier)
    assert where["badge"] != "" and where["page"].startswith("/") and "p/1" not in where["page"]
    assert wording.attention(KnownAlarm("oldest", "q", 1, 1, 1, "s", "a", "b", 1, []), "p/1")["page"] == "/queues/p%2F1"


class Fields(HTMLParser):
    """Collects the values of fields as a browser reads them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.values: list[str | None] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.values.append(dict(attrs)["value"])


@pytest.mark.parametrize("text", [HOSTILE, "a\u200db\u200c", "\r\n\t", "\x85\x9f", "\ufeff\U000e0001", "\"'&amp;"])
def test_a_field_has_exactly_its_value(text: str) -> None:
    written = str(wording.exact(text))
    assert Fields(f'<input value="{written}">').values == [text]
    assert "\u202e" not in written and "\u200d" not in written and "<" not in written
    assert wording.exact(wording.exact(text)) == wording.exact(text)


def test_control_characters_of_a_field_are_references() -> None:
    """Browsers accept these references (HTML 13.2.5.80), but Python's parser drops them."""
    assert wording.exact("a\r\n\t\x1b\x7f") == "a&#13;\n&#9;&#27;&#127;"
