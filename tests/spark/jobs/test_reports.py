"""Report pages are self-contained, describe what was counted, and escape all text."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from openmsmq.model.look import look_css
from openmsmq.spark.jobs import plots
from openmsmq.spark.jobs.dead_letters import OTHERS, Count, DeadLetters
from openmsmq.spark.jobs.naming import common_beginning
from openmsmq.spark.jobs.reports import _percentiles, dead_letters_page, traffic_page
from openmsmq.spark.jobs.traffic import ALL, Figures, Traffic
from openmsmq.spark.jobs.units import COUNT, SECONDS, SIZE, Unit, count, seconds, size
from requirements import library, missing

NASTY = "vm\\private$\\a<script>alert('x')</script>&$b$"
START = datetime(2026, 11, 20, 6, tzinfo=UTC)


def traffic(queues: int = 9, hours: int = 30, times: bool = True) -> Traffic:
    """Queue q has 100 * (q + 1) messages in each hour."""

    def figures(name: str, hour: datetime | None, messages: int, source: str = "queue") -> Figures:
        stayed = (0.5, 90.0, 7200.0 + messages) if times else None
        return Figures(name, source, hour, messages, messages * 1000, (800.0, 2000.0, 70000.0), stayed)

    names = [NASTY if number == 8 else f"vm\\private$\\orders.{number}" for number in range(queues)]
    starts = [START + timedelta(hours=hour) for hour in range(hours)]
    each = {name: 100 * (number + 1) for number, name in enumerate(names)}
    return Traffic(
        total=figures(ALL, None, sum(each.values()) * hours, ""),
        queues=[figures(name, None, messages * hours) for name, messages in reversed(each.items())],
        hours=[figures(name, hour, messages) for hour in starts for name, messages in each.items()],
        all_hours=[figures(ALL, hour, sum(each.values()), "") for hour in starts],
    )


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def some_dead_letters() -> DeadLetters:
    return DeadLetters(3, 3000, START, {"label": [Count(NASTY, 2, 2000, START), Count("$x$ & y", 1, 1000, START)]})


# Several tests examine these pages, and each takes a second to draw.
@cache
def page_of_traffic() -> str:
    return traffic_page(traffic(), NASTY)


@cache
def page_of_dead_letters() -> str:
    return dead_letters_page(some_dead_letters(), NASTY)


@pytest.mark.parametrize("page_of", [page_of_traffic, page_of_dead_letters])
def test_a_page_needs_nothing_beside_it_and_escapes_every_text(page_of: Callable[[], str]) -> None:
    page = page_of()
    tags = Tags(page)
    names = {tag for tag, _ in tags.found}
    assert "svg" in names and not names & {"script", "link", "img", "iframe", "image", "object"}
    for _, attributes in tags.found:
        for name, value in attributes.items():
            assert name not in ("src", "onclick", "onload")
            if name.endswith("href"):
                assert value is not None and value.startswith("#")
    assert "url(http" not in page and "@import" not in page
    assert any(NASTY in text for text in tags.texts)
    identifiers = [attributes["id"] for tag, attributes in tags.found if tag == "clippath"]
    assert len(identifiers) == len(set(identifiers))
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(svg)


def test_totals_and_every_queue_are_on_the_page() -> None:
    page = page_of_traffic()
    assert f"{100 * 45 * 30:,}" in page
    for number in range(8):
        assert f"orders.{number}</td>" in page
    assert "other queues" in page and "p99" in page and "time in queue" in page
    for figure in ("Messages by hour", "Bytes by hour", "time in queue by hour", "Size by hour"):
        assert f"<title>{figure}</title>" in page
    assert "Not known" in traffic_page(traffic(times=False), "x")
    assert "There are no messages" in traffic_page(Traffic(), "x")


def test_a_common_prefix_is_shown_once() -> None:
    page = page_of_traffic()
    assert "All names begin with vm\\private$\\" in page
    assert ">vm\\private$\\orders.1<" not in page and ">orders.1<" in page
    alone = traffic_page(traffic(queues=1), "x")
    assert "All names begin" not in alone and ">vm\\private$\\orders.0<" in alone


@pytest.mark.parametrize(
    ("names", "beginning"),
    [
        (["DIRECT=OS:s\\private$\\a", "DIRECT=OS:s\\private$\\b"], "DIRECT=OS:s\\private$\\"),
        (["server\\orders", "server\\orders"], ""),
        (["server\\orders", "server\\orders;journal"], "server\\"),
        (["server\\", "server\\x"], ""),
        (["one", "two"], ""),
        (["a\\b", "a\\c"], ""),
        ([], ""),
    ],
)
def test_a_common_prefix_ends_at_a_separator_and_leaves_a_rest(names: list[str], beginning: str) -> None:
    assert common_beginning(names) == beginning


def test_one_hour_and_one_value_are_sentences_and_no_plots() -> None:
    page = traffic_page(traffic(hours=1), "x")
    assert "<svg" not in page and "All in one hour, 2026-11-20 06:00 UTC: 4,500 messages" in page
    one = DeadLetters(2, 2000, START, {"label": [Count("x", 2, 2000, START)]})
    page = dead_letters_page(one, "x")
    assert "<svg" not in page and "All have the same label." in page


def test_each_reason_is_explained_with_the_command_that_returns_its_messages() -> None:
    counts = [Count("NACK_RECEIVE_TIMEOUT", 2, 2000, START), Count("NACK_BAD_ENCRYPTION", 1, 10, START)]
    page = dead_letters_page(DeadLetters(3, 2010, START, {"class": [*counts, Count(OTHERS, 1, 1, START)]}), "x")
    assert "was not received in time" in page and "openmsmq dlq return --reason expired-unread --dry-run" in page
    assert "Unchanged, they would become dead letters again." in page


def marks(svg: str) -> list[str]:
    """Return the texts of a plot in their order."""
    return re.findall(r">([^<>\n]+)</text>", svg)


@pytest.mark.parametrize(
    ("unit", "highest", "expected"),
    [
        (SIZE, 4096, ["0 B", "1.0 KiB", "2.0 KiB", "3.0 KiB", "4.0 KiB"]),
        (SIZE, 3, ["0 B", "1 B", "2 B", "3 B"]),
        (COUNT, 4000, ["0", "1,500", "3,000"]),
        (COUNT, 2, ["0", "1", "2"]),
    ],
)
def test_marks_of_bytes_are_powers_of_two_and_those_of_counts_are_decimal(
    unit: Unit, highest: float, expected: list[str]
) -> None:
    assert marks(plots.bars([("queue", highest)], unit, "x"))[: len(expected)] == expected


def test_hours_without_times_are_left_out_of_lines() -> None:
    hours = traffic(queues=1, hours=3).all_hours
    hours[1] = replace(hours[1], times=None)
    series = _percentiles(hours, "times")
    assert list(series) == ["p50", "p95", "p99"]
    assert [list(values) for values in series.values()] == [[START, START + timedelta(hours=2)]] * 3
    assert [values[START] for values in series.values()] == [0.5, 90.0, 7300.0]


def test_overlapping_lines_are_all_visible() -> None:
    """The first line is the widest, so it is visible on both sides of the others."""
    values = {START + timedelta(hours=n): 5.0 for n in range(3)}
    svg = plots.lines({name: dict(values) for name in ("p50", "p95", "p99")}, SECONDS, "x")
    drawn = re.findall(r"stroke: (#[0-9a-f]{6}); stroke-width: ([\d.]+)", svg)
    breadths = [max(float(breadth) for color, breadth in drawn if color == c.lower()) for c in plots.COLORS[:3]]
    assert breadths == [4.5, 3.0, 1.5]


def test_bytes_by_hour_show_the_queues_with_most_bytes() -> None:
    """Queue `large` has most bytes but fewest messages; by messages, it would get no color."""
    small = [Figures(f"q\\{n}", "queue", None, 1000 - n, 10, (1.0,) * 3, None) for n in range(len(plots.COLORS) + 2)]
    large = Figures("q\\large", "queue", None, 1, 10**9, (1.0,) * 3, None)
    at = [START, START + timedelta(hours=1)]
    whole = Figures(ALL, "", None, 1, 1, (1.0,) * 3, None)
    found = Traffic(
        total=whole, queues=[*small, large], hours=[replace(f, hour=hour) for hour in at for f in (*small, large)],
        all_hours=[replace(whole, hour=hour) for hour in at],
    )  # fmt: skip
    messages, volume, *_ = re.findall(r"<svg.*?</svg>", traffic_page(found, "x"), re.DOTALL)
    assert "large" in volume and "large" not in messages
    assert "other queues" in messages and "other queues" in volume


def test_figures_have_units() -> None:
    sizes = [size(v) for v in (0, 1023, 1536, 200 * 1024, 5 * 2**40)]
    assert sizes == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "200 KiB",
        "5.0 TiB",
    ]
    assert [seconds(v) for v in (0, 0.5, 90, 7200, 90000 * 4)] == ["0 s", "0.5 s", "1.5 min", "2 h", "4.2 d"]
    assert count(1234567) == "1,234,567"


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
def test_all_columns_of_a_table_are_seen_on_a_screen_and_reached_on_a_phone(tmp_path: Path, width: int) -> None:
    program = shutil.which("chromium") or missing("Chromium is not installed: make browser")
    file = tmp_path / "page.html"
    file.write_text(traffic_page(traffic(), "x"))
    with library("playwright.sync_api", "make browser").sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.goto(file.as_uri())
        tables = page.evaluate(
            "[...document.querySelectorAll('.scroll')].map(e => [e.scrollWidth, e.clientWidth, "
            "e.getBoundingClientRect().left, e.getBoundingClientRect().right])"
        )
        whole = page.evaluate("document.documentElement.scrollWidth")
        browser.close()
    assert len(tables) == 2 and whole <= width, "the page itself does not scroll sideways"
    for inner, outer, left, right in tables:
        assert left >= 0 and right <= width
        assert inner <= outer or width < 1280, "p95 and p99 are visible"


def test_reports_have_the_look_of_the_console() -> None:
    tokens = re.findall(r"--[a-z-]+(?=:)", look_css())
    for page in (page_of_traffic(), page_of_dead_letters()):
        assert look_css() in page and page.count('<section class="panel">') == page.count("<header><h2>")
        used = set(re.findall(r"var\((--[a-z-]+)\)", page))
        assert used and used <= set(tokens), "no color or length that is not a token of the console"
    assert '<p class="empty">There are no messages.</p>' in traffic_page(Traffic(), "x")


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_read_a_report(tmp_path: Path, theme: str, width: int) -> None:
    program = shutil.which("chromium") or missing("Chromium is not installed: make browser")
    axe = library("axe_playwright_python.base", "make browser").AXE_SCRIPT
    counts = [Count("NACK_RECEIVE_TIMEOUT", 2, 2000, START), Count("NACK_BAD_ENCRYPTION", 1, 10, START)]
    died = DeadLetters(3, 2010, START, {"class": counts, "label": some_dead_letters().by["label"]})
    with library("playwright.sync_api", "make browser").sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        shown = browser.new_page(color_scheme=theme, viewport={"width": width, "height": 900})
        for page in (traffic_page(traffic(), NASTY), dead_letters_page(died, NASTY)):
            (tmp_path / "page.html").write_text(page)
            shown.goto((tmp_path / "page.html").as_uri())
            shown.evaluate(axe)
            found = shown.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
            assert not found, [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]
            assert shown.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
