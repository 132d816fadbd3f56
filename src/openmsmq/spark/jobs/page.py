"""One HTML file that needs nothing beside it: for a phone, a screen, and paper."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from openmsmq import __version__
from openmsmq.model.text import printable

_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1a1a1a; --quiet: #555; --rule: #ddd; --edge: #777;
  --accent: #0072B2; --shade: rgba(0, 0, 0, .28); }
@media screen and (prefers-color-scheme: dark) {
  :root { --ground: #16181c; --ink: #e6e6e6; --quiet: #a8adb4; --rule: #33373d; --edge: #8a8f96; --accent: #56B4E9;
    --shade: rgba(0, 0, 0, .8); }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 46rem; padding: 1rem; background: var(--ground); color: var(--ink);
  font: 16px/1.45 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0 .75rem; }
.quiet { color: var(--quiet); font-size: .875rem; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin: 1rem 0; }
dl div { border-left: 3px solid var(--accent); padding-left: .6rem; }
dt { color: var(--quiet); font-size: .8rem; }
dd { margin: 0; font-size: 1.2rem; font-weight: 600; font-variant-numeric: tabular-nums; }
figure { margin: 0; }
figure svg { display: block; width: 100%; height: auto; }
/* Plots name these colours, and say nothing of text, which is that of the page. */
figure svg text { fill: var(--ink) !important; }
figure svg [stroke="#777777"], figure svg [style*="stroke: #777777"] { stroke: var(--edge) !important; }
figure svg [style*="stroke: #dddddd"] { stroke: var(--rule) !important; }
/* A table may be wider than the text, up to the window; only beyond that it scrolls. A shadow at each side where
  something is hidden lies under a cover that scrolls with the table. */
.scroll { position: relative; left: 50%; transform: translateX(-50%); width: max-content; min-width: 100%;
  max-width: calc(100vw - 3rem); overflow-x: auto; background:
  linear-gradient(to right, var(--ground) 30%, transparent) 0 / 2.5rem 100% no-repeat local,
  linear-gradient(to left, var(--ground) 30%, transparent) 100% / 2.5rem 100% no-repeat local,
  radial-gradient(farthest-side at 0 50%, var(--shade), transparent) 0 / .8rem 100% no-repeat scroll,
  radial-gradient(farthest-side at 100% 50%, var(--shade), transparent) 100% / .8rem 100% no-repeat scroll; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
code { font: .85em ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem .3rem 0; text-align: right; vertical-align: top; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th { color: var(--quiet); font-weight: 600; border-bottom-color: var(--edge); white-space: normal; }
th.text, td.text { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 8rem; }
@media print {
  @page { margin: 15mm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .scroll { position: static; transform: none; width: auto; max-width: none; overflow: visible; background: none; }
  table { font-size: 7.5pt; }
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

    def explained(self, heading: str, sentence: str, command: str) -> None:
        """A smaller heading, what it means, and a command that does something about it."""
        self._parts.append(
            f"<h3>{escape(heading)}</h3><p>{escape(sentence)}</p><p><code>{escape(command)}</code></p>"
        )  # fmt: skip

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
        table = f"<table><thead>{row(columns, 'th')}</thead><tbody>{body}</tbody></table>"
        self._parts.append(f'<div class="scroll" tabindex="0">{table}</div>')

    def html(self) -> str:
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self._title)}</title><style>{_STYLE}</style></head>\n<body>\n"
            + "\n".join(self._parts)
            + "\n</body></html>\n"
        )
