"""One HTML file that needs nothing beside it: for a phone, a screen, and paper."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from openmsmq import __version__
from openmsmq.model.text import printable

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 46rem; padding: 1rem; background: #fff; color: #1a1a1a;
  font: 16px/1.45 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0 .75rem; }
.quiet { color: #555; font-size: .875rem; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin: 1rem 0; }
dl div { border-left: 3px solid #0072B2; padding-left: .6rem; }
dt { color: #555; font-size: .8rem; }
dd { margin: 0; font-size: 1.2rem; font-weight: 600; font-variant-numeric: tabular-nums; }
figure { margin: 0; }
figure svg { display: block; width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem .3rem 0; text-align: right; vertical-align: top; border-bottom: 1px solid #ddd;
  white-space: nowrap; }
th { color: #555; font-weight: 600; border-bottom-color: #777; }
th.text, td.text { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 8rem; }
@media print {
  @page { margin: 15mm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; }
  th { white-space: normal; }
  h2 { break-after: avoid; }
  figure, tr, dl { break-inside: avoid; }
  thead { display: table-header-group; }
  figure svg { max-width: 16cm; }
}
"""


def escape(text: str) -> str:
    """Text from outside as HTML: what is invisible as escapes first, see `printable`."""
    return html.escape(printable(text, multiline=True))


class Page:
    """Built from the top down; every text is escaped."""

    def __init__(self, title: str, about: str) -> None:
        self._title = title
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        self._parts = [
            f"<h1>{escape(title)}</h1>",
            f'<p class="quiet">{escape(about)} · {now} · openmsmq {escape(__version__)}</p>',
        ]

    def facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """A few figures that one sees first."""
        cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
        self._parts.append(f"<dl>{cells}</dl>")

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str) -> None:
        self._parts.append(f'<p class="quiet">{escape(text)}</p>')

    def figure(self, svg: str) -> None:
        """A plot of `plots`."""
        self._parts.append(f"<figure>{svg}</figure>")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], texts: int = 1) -> None:
        """The first `texts` columns are text, the others figures."""

        def row(cells: Sequence[Any], tag: str) -> str:
            kinds = [' class="text"' if number < texts else "" for number in range(len(cells))]
            inner = "".join(f"<{tag}{k}>{escape(str(c))}</{tag}>" for k, c in zip(kinds, cells, strict=True))
            return f"<tr>{inner}</tr>"

        body = "".join(row(cells, "td") for cells in rows)
        self._parts.append(
            f'<div class="scroll"><table><thead>{row(columns, "th")}</thead><tbody>{body}</tbody></table></div>'
        )

    def html(self) -> str:
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self._title)}</title><style>{_STYLE}</style></head>\n<body>\n"
            + "\n".join(self._parts)
            + "\n</body></html>\n"
        )
