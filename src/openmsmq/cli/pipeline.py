"""`openmsmq pipeline …`: archives, replays, dead letters and traffic, on Spark."""

from __future__ import annotations

import functools
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from openmsmq.cli.connection import FLIGHT_PORT, Address, flight_options, server_options
from openmsmq.cli.numbers import SECONDS, FiniteRange
from openmsmq.cli.output import dry_run_option, json_option, print_json, print_table, progress, report
from openmsmq.cli.pipeline_state import COMMANDS
from openmsmq.model.text import counted

if TYPE_CHECKING:
    from openmsmq.spark.jobs import DeadLetters, Server

Start = Callable[[], Any]  # name of the Spark session

_RPC_PORT = 2103
_MACHINE_SOURCES = ("deadletter", "xactdeadletter")
_PREVIEW = ("queue", "sent_time", "priority", "label", "body_size")  # columns in the output of a dry run
_FEW = 10
_EMPTY = "no messages"
_report_option = click.option(
    "--report", "report_file", type=click.Path(dir_okay=False, path_type=Path), help="Write a report as an HTML page."
)
_where_option = click.option(
    "--where", help="Only messages for which this Spark SQL expression over the columns is true."
)


@click.group()
def pipeline() -> None:
    """Archive and replay messages, explain dead letters and measure traffic on Spark (requires Java 17 or later).

    The commands that show and release claims and stages of streams work without Spark. In --where, use the columns of
    the data source and, for archives, also date, archived_at and removed.
    """


for _command in COMMANDS:
    pipeline.add_command(_command)


def _job(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `start`, which starts Spark, and report its failures in one line. Spark starts slowly, so check
    all arguments before.
    """

    @click.option(
        "--master", default="local[*]", show_default=True, help="Spark master: local[*], spark://HOST:PORT, yarn."
    )
    @functools.wraps(command)
    def wrapper(*args: Any, master: str, **kwargs: Any) -> Any:
        try:
            from openmsmq.spark import jobs
        except ModuleNotFoundError as missing:
            package = (missing.name or "").partition(".")[0]
            if package == "openmsmq":
                raise
            raise click.ClickException(f"openmsmq pipeline needs {package}: pip install openmsmq[spark]") from None
        try:
            return command(functools.partial(jobs.session, master), *args, **kwargs)
        except jobs.PipelineError as error:
            raise click.ClickException(str(error)) from error

    return wrapper


def _served(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `server`."""

    @server_options
    @flight_options
    @click.option(
        "--protocol",
        type=click.Choice(("auto", "flight", "remoteread")),
        default="auto",
        help="Protocol for reading: Arrow Flight, or MS-MQRR from any MSMQ server; auto uses Flight if the server "
        "offers it.",
    )
    @functools.wraps(command)
    def wrapper(
        start: Start,
        *args: Any,
        address: Address,
        flight_port: int | None,
        tls_root: str | None,
        protocol: str,
        **kwargs: Any,
    ) -> Any:
        from openmsmq.spark.jobs import Server

        server = Server(
            host=address.host,
            port=address.port or _RPC_PORT + address.port_offset,
            flight_port=flight_port or FLIGHT_PORT + address.port_offset,
            user=address.user,
            credential=_credential(address),
            protocol=protocol,
            tls_root=tls_root,
        )
        return command(start, server, *args, **kwargs)

    return wrapper


def _credential(address: Address) -> str:
    if address.user is not None and os.environ.get(address.password_env):
        return f"env:{address.password_env}"
    return address.password()


@pipeline.command()
@click.argument("queues", nargs=-1, metavar="QUEUE...")
@click.option("--to", required=True, help="Directory, on any file system that Spark supports.")
@click.option("--format", "format_", type=click.Choice(("parquet", "delta")), default="parquet", show_default=True)
@click.option("--once/--continuous", default=True, help="Archive the current messages only, or continue until Ctrl-C.")
@click.option("--interval", type=SECONDS, default=10.0, show_default=True, help="Seconds between continuous batches.")
@click.option(
    "--source",
    type=click.Choice(("queue", "journal", "deadletter", "xactdeadletter")),
    default="queue",
    show_default=True,
)
@click.option("--group", help="Receive messages as this consumer group (without it, they stay in the queue).")
@click.option("--checkpoint", help="Checkpoint directory; default: in the archive, by server, queues and group.")
@click.option("--batch-rows", type=click.IntRange(min=1), help="Messages per batch (default with Flight: 100,000).")
@json_option
@_job
@_served
def archive(
    start: Start,
    server: Server,
    queues: tuple[str, ...],
    to: str,
    format_: str,
    once: bool,
    interval: float,
    source: str,
    group: str | None,
    checkpoint: str | None,
    batch_rows: int | None,
    as_json: bool,
) -> None:
    """Write messages of QUEUEs to Parquet or Delta, by queue and date, each message once.

    With --group a message leaves its queue when its batch is in the archive. The next run resumes where this one ended,
    even after a crash.
    """
    from openmsmq.spark import jobs

    if not queues and source in ("queue", "journal"):
        raise click.UsageError(f"name at least one QUEUE, or give --source {' or '.join(_MACHINE_SOURCES)}")
    _check_writable(to)
    server.check(queues, source)
    spark = start()
    with _bar("archiving", as_json) as advance:
        rows = 0

        def on_batch(batch: jobs.ArchivedBatch) -> None:
            nonlocal rows
            rows += batch.rows
            if as_json:
                print_json({"batch": batch.number, "rows": batch.rows, "bytes": batch.bytes, "lag": batch.lag})
            advance(rows, "" if batch.lag is None else f"lag {batch.lag:,.0f} s")

        with _stopping() as stop:
            done = jobs.archive(
                spark, server, queues, to, format=format_, source=source, group=group, checkpoint=checkpoint,
                continuous=None if once else interval, batch_rows=batch_rows, on_batch=on_batch, stop=stop,
            )  # fmt: skip
    document = {"archived": done.rows, "batches": done.batches, "bytes": done.bytes, "to": to}
    text = f"archived {counted(done.rows, 'message')} in {counted(done.batches, 'batch', 'batches')} to {to}"
    if done.compacted is not None and done.compacted.before:
        document["compacted"] = asdict(done.compacted)
        text += f"; {done.compacted.before} small files were merged into {done.compacted.after}"
    report(as_json, text, document)
    if once and stop.is_set():
        raise click.Abort


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Return an event that Ctrl-C and SIGTERM set. Otherwise Spark would handle them within a call."""
    stop = threading.Event()
    former = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@pipeline.command()
@click.argument("directory", metavar="DIR")
@click.option("--target", type=click.IntRange(min=1), default=128, show_default=True, help="Target file size in MiB.")
@json_option
@_job
def compact(start: Start, directory: str, target: int, as_json: bool) -> None:
    """Merge the small files of an archive. An unfinished earlier compaction is completed first."""
    from openmsmq.spark import jobs

    _check_archive(directory)
    spark = start()
    with _bar("merging files", as_json) as advance:
        done = jobs.compact(spark, directory, target=target << 20, on_merge=lambda so_far: advance(so_far.before, ""))
    report(as_json, f"{done.before} small files were merged into {done.after}", asdict(done))


@pipeline.command()
@click.argument("directory", metavar="DIR")
@click.option("--to", required=True, help="Queue to send to.")
@_where_option
@click.option(
    "--rate", type=FiniteRange(min=0, min_open=True), help="Maximum messages per second; they are then sent one by one."
)
@dry_run_option
@json_option
@_job
@_served
def replay(
    start: Start, server: Server, directory: str, to: str, where: str | None, rate: float | None, dry_run: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Send the messages of an archive to a queue, in their order, with their properties.

    With Arrow Flight, all messages are sent or none; without it, or with --rate, one by one.
    """
    from openmsmq.spark import jobs

    _check_archive(directory)
    server.check_target(to)
    spark = start()
    chosen = jobs.selection(spark, directory, where)
    if dry_run:
        rows = chosen.count()
        if not as_json:
            first = chosen.orderBy("sequence").select(*_PREVIEW).limit(_FEW).collect()
            if first:
                print_table(_PREVIEW, [list(row) for row in first])
        report(as_json, f"would be sent to {to}: {rows}", {"messages": rows, "to": to, "done": False})
        return
    total = chosen.count()
    with _bar("replaying", as_json, total) as advance:
        done = jobs.replay(spark, server, directory, to, where=where, rate=rate, on_sent=lambda sent: advance(sent, ""))
    document = {"messages": done.rows, "to": to, "way": done.way, "done": True}
    report(as_json, f"sent {counted(done.rows, 'message')} to {to}", document)


@pipeline.command()
@_where_option
@_report_option
@click.option("--return", "return_", is_flag=True, help="Send the messages again to their destination queues.")
@dry_run_option
@json_option
@_job
@_served
def deadletters(
    start: Start, server: Server, where: str | None, report_file: Path | None, return_: bool, dry_run: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Dead letters by reason, destination, sender, label and age; --return sends them to their destinations again."""
    from openmsmq.spark import jobs

    if dry_run and not return_:
        raise click.UsageError("--dry-run requires --return")
    if return_ and report_file:
        raise click.UsageError("give --return or --report, not both")
    _check_report(report_file)
    server.check((), "deadletter")
    spark = start()
    if return_:
        _show_returned(jobs.return_to_source(spark, server, where, dry_run=dry_run), dry_run, as_json)
        return
    letters = jobs.dead_letters(spark, server, where)
    if report_file is not None:
        from openmsmq.spark.jobs.reports import dead_letters_page

        report_file.write_text(dead_letters_page(letters, f"dead-letter queues of {server.host}"), encoding="utf-8")
    _show_letters(letters, as_json)


def _show_letters(letters: DeadLetters, as_json: bool) -> None:
    if as_json:
        print_json(asdict(letters))
        return
    for aspect, counts in letters.by.items():
        if counts:
            print_table(
                [aspect, "messages", "last died"], [[c.value, c.messages, f"{c.last:%F %T} UTC"] for c in counts]
            )
            click.echo()
    click.echo(f"dead letters: {letters.messages:,}")


def _show_returned(letters: list[Any], dry_run: bool, as_json: bool) -> None:
    failed = sum(letter.error is not None for letter in letters)
    if as_json:
        for letter in letters:
            print_json({**asdict(letter), "done": not dry_run and letter.error is None})
    else:
        if letters:
            columns = ["id", "reason", "label", "to", "error"]
            print_table(columns, [[getattr(letter, c) or "" for c in columns] for letter in letters])
        click.echo(f"{'would be ' if dry_run else ''}returned: {len(letters) - failed}")
    if failed:
        raise click.ClickException(
            f"{failed} of {len(letters)} messages could not be returned and stay in their dead-letter queue"
        )


@pipeline.command()
@click.argument("names", nargs=-1, metavar="ARCHIVE | QUEUE...")
@click.option("--live", is_flag=True, help="Analyze the messages that are in queues now (default: all private queues).")
@click.option("--source", type=click.Choice(("queue", "journal")), default="queue", help="With --live.")
@_report_option
@json_option
@_job
@_served
def traffic(
    start: Start, server: Server, names: tuple[str, ...], live: bool, source: str, report_file: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Rates, sizes and time in queue (p50, p95, p99), by queue and hour."""
    from openmsmq.spark import jobs
    from openmsmq.spark.jobs.units import count, seconds, size

    if not live and len(names) != 1:
        raise click.UsageError("give one ARCHIVE, or --live")
    _check_report(report_file)
    if live:
        server.check(names, source)
    else:
        _check_archive(names[0])
    spark = start()
    figures = jobs.live_traffic(spark, server, names, source) if live else jobs.archived_traffic(spark, names[0])
    if report_file is not None:
        from openmsmq.spark.jobs.reports import traffic_page

        about = f"{source}s of {server.host}" if live else names[0]
        report_file.write_text(traffic_page(figures, about), encoding="utf-8")
    if as_json:
        print_json(asdict(figures))
        return
    if figures.total is None:
        click.echo(_EMPTY)
        return
    time_name = "age" if figures.is_age else "time in queue"
    rows = [
        [f.queue, f.source, count(f.messages), size(f.bytes), size(f.sizes[0]), size(f.sizes[-1])]
        + ([seconds(f.times[0]), seconds(f.times[-1])] if f.times else ["-", "-"])
        for f in [*figures.queues, figures.total]
    ]
    columns = ["queue", "source", "messages", "bytes", "size p50", "size p99", f"{time_name} p50", f"{time_name} p99"]
    print_table(columns, rows)


def _local(directory: str) -> Path | None:
    """Return the path of a directory on this machine; None for another file system, which only Spark can access."""
    if re.match(r"[a-z][a-z0-9+.-]*:", directory):
        return Path(directory.removeprefix("file:").replace("//", "/")) if directory.startswith("file:") else None
    return Path(directory)


def _check_writable(directory: str) -> None:
    """Raise BadParameter for a directory that cannot be written."""
    path = _local(directory)
    if path is None:
        return
    there = next((parent for parent in (path, *path.absolute().parents) if parent.exists()), None)
    if there is None or not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise click.BadParameter(f"{directory}: {there} is not a writable directory", param_hint="--to")


def _check_archive(directory: str) -> None:
    """Raise BadParameter if there is no archive."""
    path = _local(directory)
    if path is not None and not path.is_dir():
        raise click.BadParameter(f"{directory} is not a directory: there is no archive", param_hint="DIR")


def _check_report(file: Path | None) -> None:
    """Raise BadParameter, before any work is done, for a report that cannot be written."""
    if file is not None and not os.access(file.parent, os.W_OK | os.X_OK):
        raise click.BadParameter(f"{file}: {file.parent} is not a writable directory", param_hint="--report")


@contextmanager
def _bar(verb: str, as_json: bool, total: int | None = None) -> Iterator[Callable[[int, str], None]]:
    """Yield a callback for progress, which takes the count and a remark, and shows a bar. None with `as_json`."""
    started = time.monotonic()
    if as_json:
        yield lambda done, remark: None
        return
    with progress(verb) as bar:
        task = bar.add_task("", total=total, rate="")

        def advance(done: int, remark: str) -> None:
            rate = done / max(time.monotonic() - started, 0.001)
            bar.update(task, completed=done, rate=f"{rate:,.0f}/s {remark}".rstrip())

        yield advance
