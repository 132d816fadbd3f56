"""RESULTS.md: figures of a run, their ratios, and whether they meet the targets."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import systems
from comparison import ROWS, Cell, Comparison, Row

if TYPE_CHECKING:
    from measures import Codec, Stored
    from run import Bench

SYSTEMS = (
    "openmsmq", "floor", "floor, thread", "floor, 20 µs", "rabbitmq classic", "rabbitmq quorum", "redis", "postgresql",
)  # fmt: skip
# Operations that are measured without other systems.
_ORDER = ("null", "express send", "durable send", "receive")
PEERS = tuple(system for system in SYSTEMS[1:] if not system.startswith("floor"))
OF_FLOOR = 0.7
NOTES = """\
Every server and the load generator are processes of their own on the same machine, so they share its processors. The
load generator is the same for all: its bytes are prepared before, answers only counted. A client has one request
under way, and *8 × 16 under way* are 8 connections with 16 each. *Send and receive* are senders and receivers at once
on a queue that has messages, as many of each as the row says; what is counted is both. Messages have 1 KiB of body.
*openmsmq*: rpc_ACSendMessageEx of a recoverable message, rpc_ACReceiveMessageEx of one, both answered after
`fdatasync`. *RabbitMQ*: durable queue, persistent messages, publisher confirms; a consumer that acknowledges each
message (not synced there) and whose prefetch is what may be under way. *Redis*: appendfsync always; XADD, and RPOP
from a list; LPUSH and RPOP in both at once. *PostgreSQL*: default configuration, 200 connections; INSERT, and DELETE
with SKIP LOCKED, as prepared statements. *Floor*: a program that only receives, appends, syncs and answers as many
bytes as openmsmq does (`floor.c`): in place, by a thread that writes and syncs, and in place with 20 µs of computing
for each message.
"""


def write(bench: Bench, comparison: Comparison, codec: Codec, stored: Stored) -> str:
    sections = [_head(bench, comparison), *_alone(bench), *_compared(comparison), *_rest(codec, stored)]
    return "\n".join([*sections, *_bars(bench, comparison, codec, stored)]) + "\n"


def _head(bench: Bench, comparison: Comparison) -> str:
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    absent = f" Not installed here, so not compared: {', '.join(comparison.missing)}." if comparison.missing else ""
    return (
        f"# Results\n\nMade by `make bench` on {when}; do not edit. {systems.machine()}, "
        f"Python {platform.python_version()}; {bench.seconds:g} s for each rate.{absent}\n\n{NOTES}"
    )


def _alone(bench: Bench) -> Iterator[str]:
    yield "## openmsmq\n\n| | clients | per second | p50 µs | p99 µs | p99.9 µs | server CPU µs |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for (what, connections), result in sorted(bench.results.items(), key=lambda item: _ORDER.index(item[0][0])):
        yield (
            f"| {what} | {connections} | {result['rate']:,.0f} | {result['p50']:,.0f} | {result['p99']:,.0f} "
            f"| {result['p999']:,.0f} | {result['server'] / result['count'] * 1e6:.0f} |"
        )
    yield ""
    for what, result in bench.delivered.items():
        yield (
            f"From {what} to the answer of a waiting receive: p50 {result['p50']:.0f} µs, p99 {result['p99']:.0f} µs."
        )
    under = bench.express_under_load
    yield (
        f"Express send while eight durable senders run: {under['rate']:,.0f}/s, p50 {under['p50']:.0f} µs, "
        f"p99 {under['p99']:.0f} µs."
    )
    p50s = sorted(p50 for p50, _ in bench.syncs)
    yield (
        f"A bare write and `fdatasync` of 1.2 KiB, measured {len(p50s)} times along the run: p50 {p50s[0]:.0f} to "
        f"{p50s[-1]:.0f} µs, median {_sync(bench):.0f} µs.\n"
    )


def _sync(bench: Bench) -> float:
    p50s = sorted(p50 for p50, _ in bench.syncs)
    return p50s[len(p50s) // 2]


def _compared(comparison: Comparison) -> Iterator[str]:
    def rate(row: Row, system: str, cell: Cell) -> str:
        ratio = comparison.ratio(row, system)
        return f"{cell.rate:,.0f}" + ("" if system == "openmsmq" else f" ({ratio:.2f}×)")

    def latency(row: Row, system: str, cell: Cell) -> str:
        return f"{cell.p50:,.0f} / {cell.p99:,.0f} / {cell.p999:,.0f}"

    def processor(row: Row, system: str, cell: Cell) -> str:
        return f"{cell.server:.0f} + {cell.generator:.0f}"

    yield "## In the same run\n\nMedians of rounds in which all systems took turns.\n"
    yield "Operations a second; in brackets how many times as many openmsmq does:\n"
    yield from _table(comparison, rate)
    yield "\nLatency of one in µs, p50 / p99 / p99.9:\n"
    yield from _table(comparison, latency)
    yield "\nProcessor time of one in µs, of the server with all its processes + of the load generator:\n"
    yield from _table(comparison, processor)
    yield ""


def _table(comparison: Comparison, text: Callable[[Row, str, Cell], str]) -> Iterator[str]:
    yield "| | clients | " + " | ".join(SYSTEMS) + " |\n|---|--:" + "|--:" * len(SYSTEMS) + "|"
    for row in ROWS:
        cells = [(system, comparison.median(row, system)) for system in SYSTEMS]
        texts = [text(row, system, cell) if cell else "–" for system, cell in cells]
        yield f"| {row.operation} | {row.clients} | {' | '.join(texts)} |"


def _rest(codec: Codec, stored: Stored) -> Iterator[str]:
    yield (
        "## Codec\n\nThe request of rpc_ACSendMessageEx with 1 KiB of body, the same bytes, CPU of one call; impacket "
        "with byte arrays that are faster than its own.\n\n| | encode µs | decode µs |\n|---|--:|--:|\n"
        f"| openmsmq | {codec.encode:.1f} | {codec.decode:.1f} |\n"
        f"| impacket | {codec.impacket_encode:,.0f} | {codec.impacket_decode:,.0f} |\n\n"
        f"Both together: {codec.ratio:.0f}×.\n"
    )
    yield (
        f"## {stored.messages:,} stored messages of 1 KiB\n\n| | recovery s | until it answers s |\n|---|--:|--:|\n"
        f"| by reading the log | {stored.scan:.2f} | {stored.scan_until_ready:.2f} |\n"
        f"| from a checkpoint | {stored.checkpoint:.2f} | {stored.checkpoint_until_ready:.2f} |\n\n"
        f"Memory {stored.memory:.0f} bytes a message, disk {stored.disk / 1024:.3f} KiB a message.\n"
    )


def _bars(bench: Bench, comparison: Comparison, codec: Codec, stored: Stored) -> Iterator[str]:
    send1, null1 = bench.results["durable send", 1], bench.results["null", 1]
    at_least, at_most = "≥", "≤"
    million = stored.messages >= 1_000_000
    rows: list[tuple[str, float | None, str, float, str]] = []
    for row in ROWS:
        rows.append((f"{_named(row)}: floor", comparison.ratio(row, "floor"), at_least, OF_FLOOR, "×"))
        ratios = {peer: comparison.ratio(row, peer) for peer in PEERS}
        fastest = min((ratio, peer) for peer, ratio in ratios.items() if ratio)
        rows.append((f"{_named(row)}: the fastest of the others, {fastest[1]}", fastest[0], at_least, 1, "×"))
    rows += [
        ("durable send, 1: p50 against bare `fdatasync`", send1["p50"] / _sync(bench), at_most, 1.5, "×"),
        ("null call p99", null1["p99"], at_most, 100, " µs"),
        (
            "express p99 under eight durable senders: bare `fdatasync`",
            bench.express_under_load["p99"] / _sync(bench),
            at_most,
            2,
            "×",
        ),
        ("codec against impacket", codec.ratio, at_least, 700, "×"),
        ("restart of a million with a checkpoint", stored.checkpoint if million else None, at_most, 0.3, " s"),
        ("restart of a million by reading the log", stored.scan if million else None, at_most, 1.5, " s"),
        ("disk a message", stored.disk / 1024, at_most, 1.1, " KiB"),
        ("memory a message", stored.memory, at_most, 64, " bytes"),
    ]
    yield "## The bars\n\n| | measured | bar | |\n|---|--:|--:|---|"
    yield from _judged(rows)
    steps: list[tuple[str, float | None, str, float, str]] = [
        ("restart of a million with a checkpoint", stored.checkpoint if million else None, at_most, 2, " s"),
        ("memory a message", stored.memory, at_most, 160, " bytes"),
    ]
    yield "\nTargets on the way there:\n\n| | measured | target | |\n|---|--:|--:|---|"
    yield from _judged(steps)


def _named(row: Row) -> str:
    return f"{row.operation}, {row.clients}"


def _judged(rows: list[tuple[str, float | None, str, float, str]]) -> Iterator[str]:
    for name, value, direction, bar, unit in rows:
        if value is None:
            yield f"| {name} | – | {direction} {bar:g}{unit} | not measured |"
        else:
            met = value >= bar if direction == "≥" else value <= bar
            yield f"| {name} | {value:.2f}{unit} | {direction} {bar:g}{unit} | {'met' if met else '**missed**'} |"
