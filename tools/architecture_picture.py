#!/usr/bin/env python3
"""Draw docs/images/architecture.svg from the table of packages in docs/architecture.md.

A package is drawn one row above the highest package that it may import. Imports that follow from other arrows are left
out, and so are imports of `model`, which almost every package has. `--check` only compares, for `make lint`.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from import_contract import allowed_imports

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT, PICTURE = ROOT / "docs" / "architecture.md", ROOT / "docs" / "images" / "architecture.svg"
LEFT_OUT = {"cli"}  # imports everything
COMMON = "model"
GROUPS = {
    "process": {"console", "flight", "spark", "com", "bulk", "tracing", "client"},
    "daemon": {
        "server", "gateways", "protocols", "peering", "oletx", "relaying", "transport", "protection", "directory",
        "queueing", "store",
    },
}  # fmt: skip
WIDTH, BOX, HEIGHT, ROW, MARGIN = 1120, 92, 30, 74, 24
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2733; text-anchor: middle; }
.note { font-size: 12px; fill: #57636f; text-anchor: start; }
rect { rx: 6px; fill: #eef1f4; stroke: #8593a0; }
.daemon { fill: #dcebfa; stroke: #2f6fab; } .process { fill: #fdeed8; stroke: #b87a1d; }
path { fill: none; stroke: #9aa6b2; stroke-width: 1.2; }
.page { fill: #ffffff; stroke: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .note { fill: #9aa6b2; } .page { fill: #11161c; } path { stroke: #5c6975; }
  rect { fill: #232b33; stroke: #6d7a86; } .daemon { fill: #17324d; stroke: #5b9bd5; }
  .process { fill: #46321a; stroke: #d99b43; }
}
"""


def below(allowed: dict[str, set[str]], package: str) -> set[str]:
    """Return all packages that a package may import, directly or indirectly."""
    return allowed[package].union(*(below(allowed, each) for each in allowed[package]))


def arrows(allowed: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return the imports that do not follow from others."""
    return {
        package: [
            each for each in allowed if each in direct
            and not any(each in below(allowed, other) for other in direct - {each})
        ]
        for package, direct in allowed.items()
    }  # fmt: skip


def rows_of(allowed: dict[str, set[str]]) -> list[list[str]]:
    """Return packages by row, the top row first; in a row, sorted by the positions of their imports."""
    level: dict[str, int] = {}
    for package in reversed(allowed):
        level[package] = 1 + max((level[each] for each in allowed[package]), default=-1)
    rows = [[name for name in allowed if level[name] == number] for number in range(max(level.values()) + 1)]
    drawn = arrows(allowed)
    for _ in range(8):  # each package moves to the mean position of connected packages
        place = {name: (index + 0.5) / len(row) for row in rows for index, name in enumerate(row)}
        for row in rows:
            wanted = {
                name: [place[each] for each in drawn[name] if each != COMMON]
                + [place[each] for each in drawn if name in drawn[each] and name != COMMON]
                for name in row
            }
            row.sort(key=lambda name: sum(wanted[name]) / len(wanted[name]) if wanted[name] else place[name])
    return rows[::-1]


def picture(allowed: dict[str, set[str]]) -> str:
    rows = rows_of(allowed)
    height = MARGIN * 2 + len(rows) * ROW
    middle = {
        name: (WIDTH * (index + 0.5) / len(row), MARGIN + number * ROW + HEIGHT / 2)
        for number, row in enumerate(rows)
        for index, name in enumerate(row)
    }
    lines, boxes = [], []
    for package, imports in arrows(allowed).items():
        for each in imports:
            if each != COMMON:
                (x, y), (to_x, to_y) = middle[package], middle[each]
                y, to_y = y + HEIGHT / 2, to_y - HEIGHT / 2
                bend = (to_y - y) / 2
                curve = f"{x:.0f} {y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y:.0f}"
                lines.append(f'<path d="M{x:.0f} {y:.0f}C{curve}"/>')
    for name, (x, y) in middle.items():
        kind = next((kind for kind, names in GROUPS.items() if name in names), "common")
        boxes.append(
            f'<rect class="{kind}" x="{x - BOX / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{BOX}" height="{HEIGHT}"/>'
            f'<text x="{x:.0f}" y="{y + 4.5:.0f}">{escape(name)}</text>'
        )
    legend = [
        f'<rect class="{kind}" x="{x}" y="{height - 22}" width="14" height="14"/>'
        f'<text class="note" x="{x + 20}" y="{height - 10}">{text}</text>'
        for kind, x, text in (
            ("daemon", 24, "daemon"), ("process", 120, "other processes and programs"), ("common", 330, "common"),
        )
    ]  # fmt: skip
    text = "Imports of model, and those that follow from others, are not drawn."
    note = f'<text class="note" x="430" y="{height - 10}">{text}</text>'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Packages of openmsmq in layers, with arrows to the packages that they import">',
        f"<style>{STYLE}</style>", f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        *lines, *boxes, *legend, note, "</svg>", "",
    ])  # fmt: skip


def main(arguments: list[str]) -> int:
    allowed = allowed_imports(DOCUMENT.read_text(encoding="utf-8"))
    kept = {name: imports for name, imports in allowed.items() if name not in LEFT_OUT}
    drawn = picture(kept)
    if arguments != ["--check"]:
        PICTURE.write_text(drawn, encoding="utf-8")
    elif PICTURE.read_text(encoding="utf-8") != drawn:
        print(f"{PICTURE.relative_to(ROOT)} is not what docs/architecture.md says: {sys.argv[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
