"""Metrics in the Prometheus text format."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.admin.metrics import (
    BUCKETS,
    FAMILIES,
    MOST_SERIES,
    QUEUE_FAMILIES,
    Histogram,
    render,
    render_queues,
)
from openmsmq.model.reasons import REASONS

_LABEL = r'[a-z]+="(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(rf"([a-z_]+)(?:{{({_LABEL}(?:,{_LABEL})*)}})? (-?[0-9.e+-]+|\+Inf|NaN)")


def samples(text: str) -> dict[str, float]:
    """Return the value of each series. Fails for an invalid line, a series without a type, and a duplicate series."""
    typed, found = set(), {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        elif not line.startswith("# HELP "):
            parsed = _SAMPLE.fullmatch(line)
            assert parsed, line
            name = parsed.group(1)
            assert name in typed or re.sub("_(bucket|sum|count)$", "", name) in typed, line
            series = line.rpartition(" ")[0]
            assert series not in found
            found[series] = float(parsed.group(3))
    return found


def test_a_family_that_is_given_has_all_its_labels_and_one_that_is_not_is_not_there() -> None:
    found = samples(render({"messages": {}, "messages_dead_total": {}}))
    assert found['openmsmq_messages{kind="queue"}'] == 0
    assert {f'openmsmq_messages_dead_total{{reason="{reason.slug}"}}' for reason in REASONS} <= set(found)
    assert not any("disk_free" in series for series in found), "not given, so left out"


def test_figures_are_shown_with_their_labels() -> None:
    found = samples(render({"messages": {("queue",): 12}, "disk_free_bytes": 5 << 40, "sessions": {("rpc",): 3}}))
    assert found['openmsmq_messages{kind="queue"}'] == 12 and found['openmsmq_messages{kind="journal"}'] == 0
    assert found["openmsmq_disk_free_bytes"] == 5 << 40 and found['openmsmq_sessions{protocol="rpc"}'] == 3


@given(st.lists(st.floats(0, 100), max_size=50))
def test_a_histogram_counts_what_is_within_each_bound(seconds: list[float]) -> None:
    histogram = Histogram()
    for value in seconds:
        histogram.observe(value)
    found = samples(render({"store_sync_duration_seconds": histogram}))
    name = "openmsmq_store_sync_duration_seconds"
    for bound in BUCKETS:
        assert found[f'{name}_bucket{{le="{bound!r}"}}'] == sum(value <= bound for value in seconds)
    assert found[f'{name}_bucket{{le="+Inf"}}'] == found[f"{name}_count"] == len(seconds)
    assert found[f"{name}_sum"] == pytest.approx(sum(seconds))


@given(st.text(max_size=20))
def test_any_name_of_a_queue_is_a_label(name: str) -> None:
    name = name.replace("\r", "").replace("\x0b", "").replace("\x0c", "")
    name = "".join(c for c in name if c == "\n" or c not in "\x1c\x1d\x1e\x85\u2028\u2029")
    found = samples(render_queues("messages", {"queue_messages": {(name, "queue"): 1}}))
    assert list(found.values()) == [1]


def test_the_names_of_windows_exporter_are_its_own() -> None:
    given = {"messages_in_queue": {("HOST\\private$\\orders",): 0}}
    assert samples(render_queues("windows", given)) == {
        'windows_msmq_messages_in_queue{name="HOST\\\\private$\\\\orders"}': 0
    }


def test_the_document_lists_all_metrics() -> None:
    text = (Path(__file__).parents[2] / "docs" / "web.md").read_text("utf-8")
    rows = [
        f"| `{family.name}` | {family.kind} | {', '.join(f'`{label}`' for label in family.labels)} | {family.help} |"
        for family in FAMILIES
    ]
    head = "| metric, after `openmsmq_` | type | labels | meaning |\n|---|---|---|---|\n"
    assert head + "\n".join(rows) + "\n\n" in text


def test_no_name_occurs_twice() -> None:
    names = [family.name for family in FAMILIES] + [f.name for part in QUEUE_FAMILIES.values() for f in part]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"color": 1}, "unknown metric .color."),
        ({"handles": {("a",): 1}}, "labels are none"),
        ({"sessions": 1}, "labels are protocol"),
        ({"store_sync_duration_seconds": 1}, "is a histogram"),
        ({"handles": Histogram()}, "is a gauge"),
    ],
)
def test_unknown_metrics_are_an_error(figures: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        render(figures)


def test_too_many_series_are_an_error_and_not_cut() -> None:
    many = {(f"q{number}", "queue"): 1 for number in range(MOST_SERIES + 1)}
    with pytest.raises(ValueError, match="more than 50000"):
        render_queues("messages", {"queue_messages": many})
    with pytest.raises(ValueError, match="unknown family"):
        render_queues("everything", {})
