"""A self-contained HTML page for phones, screens and print."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from openmsmq import __version__
from openmsmq.model.look import look_css
from openmsmq.model.text import printable

#: Styles in addition to those of the console: text column, plots, print.
_STYLE = """
body { padding: 20px 24px 48px; }
main { max-width: 76rem; margin: 0 auto; }
.head { margin-bottom: var(--gap); }
.tile .value { font-size: 18px; white-space: normal; }
.scroll table { font-size: 13px; }
.head p { margin: 4px 0 0; }
.panel > h3 { font-size: 14px; margin: 12px 16px 4px; }
.panel > figure { margin: 0; padding: 12px 16px; max-width: 38rem; }
figure svg { display: block; width: 100%; height: auto; }
/* Plots name these colors, and say nothing of text, which is that of the page. */
figure svg text { fill: var(--text) !important; }
figure svg [style*="#777777"] { stroke: var(--line-strong) !important; }
figure svg [style*="#dddddd"] { stroke: var(--line) !important; }
figure svg [style*="fill: #0072b2"] { fill: var(--in) !important; }
figure svg [style*="stroke: #0072b2"] { stroke: var(--in) !important; }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: -2px; }
.scroll th:not(.text), .scroll td:not(.text) { text-align: right; white-space: nowrap; }
.scroll td { font-variant-numeric: tabular-nums; }
.scroll thead th { white-space: normal; }
td.text { overflow-wrap: anywhere; min-width: 9rem; }
@media (max-width: 40rem) { body { padding: 14px 12px 40px; } th, td { padding: 8px; } }
@media print {
  @page { margin: 15mm; }
  body { padding: 0; font-size: 10pt; background: none; }
  main { max-width: none; }
  .panel, .tile { box-shadow: none; overflow: visible; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; }
  h2 { break-after: avoid; }
  figure, tr, .tiles { break-inside: avoid; }
  thead { display: table-header-group; }
  figure svg { max-width: 16cm; }
}
"""


def escape(text: str) -> str:
    """Return untrusted text as HTML. Invisible characters are escaped first; see `printable`."""
    return html.escape(printable(text, multiline=True))


class Page:
    """Builds a page from top to bottom. All texts are escaped. The content after a heading is in a panel."""

    def __init__(self, title: str, about: str) -> None:
        self._title = self._heading = title
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        self._top = [
            f'<div class="head"><h1>{escape(title)}</h1>'
            f'<p class="muted">{escape(about)} · {now} · openmsmq {escape(__version__)}</p></div>',
        ]
        self._panels: list[list[str]] = []

    def facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """Add a row of key figures."""
        tiles = "".join(
            f'<div class="tile"><span class="label">{escape(name)}</span>'
            f'<span class="value">{escape(value)}</span></div>'
            for name, value in facts
        )
        self._top.append(f'<div class="tiles">{tiles}</div>')

    def heading(self, text: str) -> None:
        self._heading = text
        self._panels.append([f"<header><h2>{escape(text)}</h2></header>"])

    def text(self, text: str) -> None:
        self._add(f'<p class="muted">{escape(text)}</p>')

    def empty(self, text: str) -> None:
        """Add a text in place of missing content."""
        self._panels.append([f'<p class="empty">{escape(text)}</p>'])

    def explained(self, heading: str, badge: str, sentence: str, command: str) -> None:
        """Add a subheading with a badge, an explanation and a command."""
        self._add(
            f'<h3>{escape(heading)} <span class="badge warn">{escape(badge)}</span></h3><p>{escape(sentence)}<br>'
            f"<code>{escape(command)}</code></p>"
        )

    def figure(self, svg: str) -> None:
        """Add a plot of `plots`."""
        self._add(f"<figure>{svg}</figure>")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], texts: int = 1) -> None:
        """Add a table. The first `texts` columns are text, the others numbers."""

        def row(cells: Sequence[Any], tag: str) -> str:
            kinds = [' class="text"' if number < texts else "" for number in range(len(cells))]
            inner = "".join(f"<{tag}{k}>{escape(str(c))}</{tag}>" for k, c in zip(kinds, cells, strict=True))
            return f"<tr>{inner}</tr>"

        body = "".join(row(cells, "td") for cells in rows)
        table = f"<table><thead>{row(columns, 'th')}</thead><tbody>{body}</tbody></table>"
        self._add(f'<div class="scroll" role="region" aria-label="{escape(self._heading)}" tabindex="0">{table}</div>')

    def _add(self, part: str) -> None:
        (self._panels[-1] if self._panels else self._top).append(part)

    def html(self) -> str:
        panels = [f'<section class="panel">{"".join(parts)}</section>' for parts in self._panels]
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self._title)}</title><style>{look_css()}{_STYLE}</style></head>\n<body>\n<main>\n"
            + "\n".join([*self._top, *panels])
            + "\n</main>\n</body></html>\n"
        )
