"""RESULTS.md: the figures of one run, their ratios, and which bars they reach."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from measures import Codec, Stored
    from run import Bench

SYSTEMS = (
    "openmsmq", "floor", "floor, thread", "floor, 20 µs", "rabbitmq classic", "rabbitmq quorum", "redis", "postgresql",
)  # fmt: skip
# What the bars compare with: the floor in place, and every peer.
JUDGES = tuple(system for system in SYSTEMS[1:] if not system.startswith("floor,"))
NOTES = """\
Every server and the load generator are processes of their own on the same machine, so they share its processors. The
load generator is the same for all: one request under way on each connection, its bytes prepared before, answers only
counted. Messages have 1 KiB of body. *openmsmq*: rpc_ACSendMessageEx of a recoverable message, rpc_ACReceiveMessageEx
of one, both answered after `fdatasync`. *RabbitMQ*: durable queue, persistent messages, publisher confirms; a consumer
with prefetch 1 that acknowledges each message (not synced there). *Redis*: appendfsync always; XADD, and RPOP from a
list. *PostgreSQL*: default configuration; INSERT, and DELETE with SKIP LOCKED, as prepared statements. *Floor*: a
program that only receives, appends, syncs and answers as many bytes as openmsmq does (`floor.c`): in place, by a thread
that writes and syncs, and in place with 20 µs of computing for each message.
"""


def write(bench: Bench, codec: Codec, stored: Stored, machine: str) -> str:
    sections = [_head(bench, machine), *_rates(bench), *_others(bench), *_rest(bench, codec, stored)]
    return "\n".join([*sections, *_bars(bench, codec, stored)]) + "\n"


def _head(bench: Bench, machine: str) -> str:
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    absent = f" Not installed here, so not compared: {', '.join(bench.missing)}." if bench.missing else ""
    return (
        f"# Results\n\nMade by `make bench` on {when}; do not edit. {machine}, Python {platform.python_version()}; "
        f"{bench.seconds:g} s for each rate.{absent}\n\n{NOTES}"
    )


def _rates(bench: Bench) -> Iterator[str]:
    yield "## openmsmq\n\n| | connections | per second | p50 µs | p99 µs | server CPU µs |\n|---|--:|--:|--:|--:|--:|"
    for what, name in (
        ("null", "null call"), ("express send", "express send"), ("durable send", "durable send"),
        ("receive", "durable receive"),
    ):  # fmt: skip
        for connections in (1, 8, 64):
            result = bench.results.get(("openmsmq", what, connections))
            if result:
                spent = bench.server_cpu.get((what, connections))
                yield (
                    f"| {name} | {connections} | {result['rate']:,.0f} | {result['p50']:,.0f} | {result['p99']:,.0f} "
                    f"| {f'{spent:.0f}' if spent else ''} |"
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


def _others(bench: Bench) -> Iterator[str]:
    yield (
        "## In the same run\n\n| | connections | " + " | ".join(SYSTEMS) + " |\n|---|--:" + "|--:" * len(SYSTEMS) + "|"
    )
    for what, name in (("durable send", "durable send"), ("receive", "durable receive")):
        for connections in (1, 8, 64):
            ours = bench.rate("openmsmq", what, connections)
            cells = []
            for system in SYSTEMS:
                rate = bench.rate(system, what, connections)
                ratio = f" ({ours / rate:.2f}×)" if rate and system != "openmsmq" else ""
                cells.append(f"{rate:,.0f}{ratio}" if rate else "–")
            yield f"| {name}, per second | {connections} | {' | '.join(cells)} |"
    yield ("\nMedians of rounds in which all systems took turns. In brackets: how many times as many openmsmq does.\n")


def _rest(bench: Bench, codec: Codec, stored: Stored) -> Iterator[str]:
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


def _bars(bench: Bench, codec: Codec, stored: Stored) -> Iterator[str]:
    def ratio(system: str, what: str, connections: int) -> float | None:
        rate = bench.rate(system, what, connections)
        return bench.rate("openmsmq", what, connections) / rate if rate else None

    send1 = bench.results["openmsmq", "durable send", 1]
    null1 = bench.results["openmsmq", "null", 1]
    at_least, at_most = "≥", "≤"
    million = stored.messages >= 1_000_000
    rows: list[tuple[str, float | None, str, float, str]] = [
        *(
            (
                f"{name}, {connections}: {system}",
                ratio(system, what, connections),
                at_least,
                0.7 if system == "floor" else 1,
                "×",
            )
            for what, name in (("durable send", "durable send"), ("receive", "durable receive"))
            for connections in (1, 8, 64)
            for system in JUDGES
        ),
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


def _judged(rows: list[tuple[str, float | None, str, float, str]]) -> Iterator[str]:
    for name, value, direction, bar, unit in rows:
        if value is None:
            yield f"| {name} | – | {direction} {bar:g}{unit} | not measured |"
        else:
            met = value >= bar if direction == "≥" else value <= bar
            yield f"| {name} | {value:.2f}{unit} | {direction} {bar:g}{unit} | {'met' if met else '**missed**'} |"
