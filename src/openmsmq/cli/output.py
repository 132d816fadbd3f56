"""Lines and tables on a terminal, and JSON for machines. `rich` is loaded by what shows tables and bars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import combining, east_asian_width
from uuid import UUID

import click

from openmsmq.model.text import printable, printable_json, time_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show the changes, without making them.")
#: FILE, or None for standard output.
output_file = click.argument(
    "file", type=click.Path(dir_okay=False, path_type=Path), required=False,
    callback=lambda _, __, file: None if file == Path("-") else file,
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document per line.")

# characters that rich would interpret as markup
_PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}


def echo(text: str = "", *, err: bool = False, multiline: bool = False) -> None:
    """Write text that may come from outside to standard output, or to standard error."""
    click.echo(printable(text, multiline=multiline), err=err)


def print_json(value: Any) -> None:
    """Print a document as one line of JSON."""
    click.echo(printable_json(value, default=_plain))


def report(as_json: bool, text: str, document: Mapping[str, Any], err: bool = False) -> None:
    """Report a result: a line of text, or a JSON document on standard output."""
    if as_json:
        print_json(document)
    else:
        echo(text, err=err)


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    return value.hex() if isinstance(value, bytes) else str(value)


def management_rows(properties: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Show management properties for people: one line per list element, formatted times, no empty values."""
    rows = []
    for name, value in properties.items():
        values = value if isinstance(value, list) else [value]
        rows += [(name, _cell(name, element)) for element in values or ["none"]]
    return rows


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(key, element)}" for key, element in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    if name == "time" or name.endswith("_time"):
        return time_text(value) if value else "never"
    if name == "status":
        return f"{value:#x}"
    return str(value)


def print_table(columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table, folded to the width of a terminal. If the output is not a terminal, each row is one line."""
    if sys.stdout.isatty():
        _console().print(_table(columns, rows))
    else:
        _print_lines(columns, rows)


def _print_lines(columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> None:
    cells = [list(columns), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _width(text: str) -> int:
    """Return the number of columns of a text on a terminal."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(c) in "WF" else not combining(c) for c in text)


@contextmanager
def live_table(columns: Sequence[str], as_json: bool) -> Iterator[Callable[[Iterable[Sequence[Any]], str], None]]:
    """Yield a function that shows rows and a title in place of the previous ones; without a terminal, one table after
    the other."""
    if as_json or not sys.stdout.isatty():
        yield lambda rows, title: print_table(columns, rows)
        return
    from rich.live import Live

    with Live(console=_console(), auto_refresh=False) as live:
        yield lambda rows, title: live.update(_table(columns, rows, title), refresh=True)


def _table(columns: Iterable[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*[Text(printable(str(cell))) for cell in row])  # a Text is not searched for markup
    return table


def _console() -> Console:
    from rich.console import Console

    return Console(**_PLAIN)


def progress(description: str) -> Progress:
    """Return a progress bar with count and rate on standard error; invisible without a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    return Progress(
        SpinnerColumn(),
        TextColumn(description),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True, **_PLAIN),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
