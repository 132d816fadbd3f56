"""History and charts of the console, and events for open pages."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import time
from base64 import b64encode
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from console.browser import PASSWORD, Browser, Client, FreshDaemon, Refused, ask, port_of
from daemon import Daemon, eventually
from openmsmq.admin.series import Rates
from openmsmq.console import charts, history, limits, live
from openmsmq.console.callers import WebSessions
from openmsmq.console.derived import ConsoleDaemon, may_see_figures
from openmsmq.console.history import FigureHistory, Sample, sample_of
from openmsmq.console.limits import IDLE_SECONDS
from openmsmq.gateways.growth import DepthTrend
from openmsmq.model.errors import AccessDenied, HResult, MsmqError, ReceiveTimeout
from queueing.world import World

NOTHING = (None, None, None)  # no sync time, no call time, no free disk space


def test_rates_are_those_between_samples_and_none_is_across_a_restart() -> None:
    samples = [Sample(10, 5, 100, 95, 1), Sample(12, 7, 108, 101, 2), Sample(13, 0, 3, 3, 0), Sample(14, 1, 5, 4, 0)]
    assert history.rates(samples) == [
        Rates(12, 7, 4.0, 3.0, 0.5, *NOTHING), Rates(14, 1, 2.0, 1.0, 0.0, *NOTHING)
    ]  # fmt: skip
    assert history.rates([Sample(1, 0, 0, 0, 0)] * 2) == []


def test_times_are_means_of_what_was_done_meanwhile() -> None:
    def figures(syncs: list[float], calls: list[list[Any]]) -> dict[str, Any]:
        queue = {"queue": 0}
        return {"messages": queue, "messages_in_total": queue, "messages_out_total": queue, "messages_dead_total": {},
                "store_sync_duration_seconds": syncs, "rpc_duration_seconds": calls}  # fmt: skip

    samples = [
        sample_of(figures([1, 0, 0.5], []), 1, 1000),
        sample_of(figures([2, 3, 2.5], [["qmcomm", "a", 0, 16, 1.6], ["qmcomm", "b", 16, 0, 0.0]]), 2, 900),
        sample_of(figures([2, 3, 2.5], [["qmcomm", "a", 0, 16, 1.6], ["qmcomm", "b", 16, 0, 0.0]]), 3, None),
    ]
    first, second = history.rates(samples)
    assert (first.sync, first.free, second.sync, second.call, second.free) == (0.5, 900, None, None, None)
    assert first.call == pytest.approx(0.05)


def test_a_day_is_kept_by_the_minute_and_ten_minutes_by_the_second() -> None:
    kept = FigureHistory()
    assert kept.latest() is None
    for second in range(30 * 3600):
        kept.add(Sample(1000 + second, 0, 2 * second, 2 * second, 0))
    recent, day = kept.rates("10m"), kept.rates("24h")
    assert len(recent) == 600 and recent[-1].at - recent[0].at == 599 and {r.came for r in recent} == {2.0}
    assert len(day) == 1440 and {round(b.at - a.at) for a, b in pairwise(day)} == {60}
    assert kept.latest() == recent[-1]


def test_after_the_clock_is_set_back_charts_continue() -> None:
    kept = FigureHistory()
    for at in (90_000, 90_060, 90_059, 1000, 1060):
        kept.add(Sample(at, 0, at % 1000, 0, 0))
    assert [rates.at for rates in kept.rates("10m")] == [rates.at for rates in kept.rates("24h")] == [1060]


def test_samples_are_rarer_where_they_take_long() -> None:
    waits: list[float] = []

    class Link:
        def call(self, operation: str) -> dict[str, object]:
            assert operation == "figures"
            if len(waits) == 1:
                time.sleep(0.05)
            if len(waits) == 2:
                raise MsmqError(HResult.MQ_ERROR, "a defect")
            if len(waits) == 3:
                return {"messages": {}}  # an incomplete answer does not end the charts either
            if len(waits) == 5:
                raise ConnectionError("gone")
            return {
                "messages": {"queue": 1}, "messages_in_total": {"queue": 2}, "messages_out_total": {"queue": 1},
                "messages_dead_total": {"purged": 1}, "store_sync_duration_seconds": [0, 0.0],
                "rpc_duration_seconds": [],
            }  # fmt: skip

    kept = FigureHistory()
    history.record(Link(), kept, "/nowhere", waits.append)  # type: ignore[arg-type]
    assert waits[0] == 1.0 and waits[1] >= 2.5 and len(waits) == 5
    assert [rates.messages for rates in kept.rates("10m")] == [1, 1] and kept.rates("10m")[0].free is None
    assert kept.age is not None and kept.age < 30


def test_charts_have_few_points_and_say_what_they_show() -> None:
    assert charts.charts([Rates(1, 1, 1, 1, 1, *NOTHING)]) == []
    found = [Rates(1000 + n, n, float(n), 0.0, 0.25, *NOTHING) for n in range(600)]
    flow, depth, latency, disk = charts.charts(found)
    assert [line.drawn.field for line in flow.lines] == ["came", "left", "dead"] and flow.top == 1000
    assert all(len(line.values) == line.path.count(",") == charts.POINTS for line in flow.lines)
    assert flow.lines[0].values[-1] == 597 and flow.lines[0].path.endswith("L600.0,48.4")
    assert depth.lines[0].values[-1] == 599
    assert latency.sentence == "Now: sync of the disk none, call by RPC none." and not latency.lines[0].path
    assert disk.sentence == "Now: free none."
    assert flow.sentence == "Now: came 597/s (most 597), left 0/s (most 0), died 0.2/s (most 0.2)."
    assert flow.end == "00:26:39 UTC" and charts.seconds_of_a_point(found) == 5


def test_lines_have_gaps_for_missing_samples() -> None:
    syncs = (0.001, 0.0015, None, 0.002, None, 0.0005, 0.001)
    found = [Rates(n, 0, 0, 0, 0, sync, None, 3 << 30) for n, sync in enumerate(syncs)]
    _, _, latency, disk = charts.charts(found)
    sync = latency.lines[0]
    assert (sync.values[1:3], latency.top) == ([1.5, None], 2)
    assert sync.path == "M0.0,60.0h0L100.0,30.0M300.0,0.0h0M500.0,90.0h0L600.0,60.0"
    assert latency.sentence == "Now: sync of the disk 1 ms (most 2), call by RPC none."
    assert disk.lines[0].values == [3.0] * len(syncs) and disk.sentence == "Now: free 3 GB (most 3)."


@pytest.mark.parametrize(("most", "top"), [(0, 1), (1, 1), (1.1, 2), (4, 5), (99, 100), (100.5, 200), (3e6, 5e6)])
def test_scales_end_with_a_round_number(most: float, top: float) -> None:
    assert charts.nice(most) == top


def test_growth_is_that_of_five_minutes() -> None:
    world = World()
    queue = world.create()
    growth = DepthTrend(lambda: world.manager.registry.queues)
    found = []
    for minute in range(8):
        asyncio.run(growth.sample())
        found.append(growth.of(queue))
        for _ in range(minute):
            world.send()
    assert found == [0, 0, 1, 3, 6, 10, 14, 18]


def _events(daemon: Daemon, count: int) -> list[dict[str, float]]:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(daemon), timeout=30)
    credentials = b64encode(f"alice:{PASSWORD}".encode()).decode()
    connection.request("GET", "/api/v1/events", headers={"Authorization": f"Basic {credentials}"})
    response = connection.getresponse()
    assert response.status == 200 and response.headers["content-type"].startswith("text/event-stream")
    found: list[dict[str, float]] = []
    while len(found) < count:
        line = response.readline()
        if line.startswith(b"data: "):
            found.append(json.loads(line[6:]))
    connection.close()
    return found


def test_events_and_series_show_messages_that_come_and_go(client: Client, queue: str, daemon: Daemon) -> None:
    client.send(queue, *"abcdef")
    client.act("POST", f"/queues/{queue}/purge", count=6)
    eventually(lambda: sum(point["came"] for point in client.get("/series")["points"]) > 0)
    eventually(lambda: sum(point["dead"] for point in client.get("/series")["points"]) > 0)
    first, second = _events(daemon, 2)
    assert first.keys() == {"at", "messages", "came", "left", "dead", "sync", "call", "free"}
    assert second["at"] > first["at"] and first["free"] > 0
    client.send(queue, "durable", recoverable=True)
    eventually(lambda: any(0 < (point["sync"] or 0) < 60 for point in client.get("/series")["points"]))
    page = Browser(daemon)
    page.login()
    text = page.ask("GET", "/").text
    assert "Messages a second" in text and 'data-name="came"' in text and 'id="live"' in text
    assert "Messages in queues" in page.ask("GET", "/?range=24h").text or "Charts appear" in page.last.text
    assert page.ask("GET", "/?range=1y").status == 400


@pytest.mark.parametrize(("administrator", "public"), [(True, False), (False, True), (False, False)])
def test_figures_of_all_queues_are_for_administrators_unless_they_are_public(administrator: bool, public: bool) -> None:
    services = SimpleNamespace(settings=SimpleNamespace(open_metrics=public), history=FigureHistory())
    asked: Any = SimpleNamespace(
        caller=SimpleNamespace(administrator=administrator, name="alice", sid="S-1-5-21-1"),
        services=services,
    )
    assert may_see_figures(asked) == (administrator or public)
    for handler in (lambda asked: ConsoleDaemon(asked).rates("10m"), live.events):
        if administrator or public:
            handler(asked)
        else:
            with pytest.raises(AccessDenied):
                handler(asked)


@pytest.mark.parametrize("end", ["logout", "idle"])
def test_a_stream_ends_with_the_session(end: str) -> None:
    now = 0.0
    sessions, kept = WebSessions(lambda: now), FigureHistory()
    _, session = sessions.open("t", "S-1", "alice")
    for at in (1, 2):
        kept.add(Sample(at, 0, 0, 0, 0))
    services = SimpleNamespace(settings=SimpleNamespace(open_metrics=True), history=kept, sessions=sessions)
    asked: Any = SimpleNamespace(caller=SimpleNamespace(sid="S-1", session=session), services=services)

    async def read() -> list[bytes]:
        nonlocal now
        found = []
        async with asyncio.timeout(10):
            async for part in live._stream(asked):
                found.append(part)
                if end == "logout":
                    sessions.close(session)
                else:
                    now += IDLE_SECONDS + 1
        return found

    assert len(asyncio.run(read())) == 1


@pytest.mark.slow  # the login is checked every 15 s
def test_streams_are_limited_and_end_with_the_login(own: FreshDaemon) -> None:
    client = own.client
    open_streams = []
    try:
        for _ in range(limits.STREAMS_PER_USER):
            connection = http.client.HTTPConnection("127.0.0.1", port_of(own.daemon), timeout=60)
            credentials = b64encode(f"alice:{PASSWORD}".encode()).decode()
            connection.request("GET", "/api/v1/events", headers={"Authorization": f"Basic {credentials}"})
            response = connection.getresponse()
            response.readline()
            open_streams.append((connection, response))
        with pytest.raises(Refused) as caught:
            client.get("/events")
        assert caught.value.status == 503 and "of this user" in caught.value.problem["detail"]
        own.users.set_password("alice", "another")
        for _, response in open_streams:
            while response.readline():
                pass
    finally:
        for connection, _ in open_streams:
            connection.close()


def test_counters_have_enqueued_removed_and_dropped_messages(client: Client, queue: str, daemon: Daemon) -> None:
    def samples() -> dict[tuple[str, str], float]:
        families = text_string_to_metric_families(ask(daemon, "GET", "/metrics").text)
        return {
            (sample.name, "".join(sample.labels.values())): sample.value for f in families for sample in f.samples
        }  # fmt: skip

    before = samples()
    assert before["openmsmq_messages_dead_total", "expired-unread"] >= 0
    client.send(queue, *"abc", deadletter=True)
    client.act("POST", f"/queues/{queue}/purge", count=3)
    client.act("DELETE", f"/queues/{queue}", count=0)
    after = samples()

    def grown(name: str, label: str = "") -> float:
        return after[f"openmsmq_{name}", label] - before[f"openmsmq_{name}", label]

    assert grown("messages_in_total", "queue") == grown("messages_out_total", "queue") == 3
    assert grown("messages_dead_total", "purged") == 3
    assert grown("store_sync_duration_seconds_count") > 0
    flow = ask(
        daemon, "GET", "/metrics/queues?family=flow", None,
        {"Authorization": f"Basic {b64encode(f'alice:{PASSWORD}'.encode()).decode()}"},
    ).text  # fmt: skip
    assert "openmsmq_queue_messages_in_total{queue=" in flow


@pytest.mark.parametrize("name", ["live.js", "console.js"])
def test_a_script_makes_no_html_and_asks_only_its_own_server(name: str) -> None:
    text = (Path(charts.__file__).parent / "static" / name).read_text().replace('"https:"', "")
    assert not any(word in text for word in ("innerHTML", "outerHTML", "insertAdjacent", "eval", "Function(", "http"))


def test_latency_is_shown_by_operation_and_without_waiting(own: FreshDaemon) -> None:
    """The time that a receive waits for a message is not server latency."""
    queue = own.client.post("/queues", name="timed")["id"]
    path = own.client.get(f"/queues/{queue}")["queue"]["name"]
    with own.daemon.connect() as manager:
        with manager.open(path, "send") as opened:
            for _ in range(400):
                opened.send("x", recoverable=True)
        with manager.open(path, "receive") as opened:
            for _ in range(400):
                opened.receive(0)
        quick = _receive_seconds(own.daemon)
        with manager.open(path, "receive") as opened:
            for _ in range(3):
                with contextlib.suppress(ReceiveTimeout):
                    opened.receive(1)
    families = text_string_to_metric_families(ask(own.daemon, "GET", "/metrics").text)
    [family] = [family for family in families if family.name == "openmsmq_rpc_duration_seconds"]
    counts = {
        (sample.labels["interface"], sample.labels["operation"]): sample.value
        for sample in family.samples
        if sample.name.endswith("_count")
    }
    sends = sum(count for (_, operation), count in counts.items() if "Send" in operation)
    receives = sum(count for (_, operation), count in counts.items() if "Receive" in operation)
    assert 100 < sends < 1000 and receives < 1000, counts
    assert _receive_seconds(own.daemon) - quick < 3 / 2, "no wait is counted"


def _receive_seconds(daemon: Daemon) -> float:
    """Return the total seconds of receives according to the metrics."""
    families = text_string_to_metric_families(ask(daemon, "GET", "/metrics").text)
    [family] = [family for family in families if family.name == "openmsmq_rpc_duration_seconds"]
    return sum(
        sample.value
        for sample in family.samples
        if sample.name.endswith("_sum") and "Receive" in sample.labels["operation"]
    )
