"""RESULTS.md: each benchmark writes its own section and keeps the others."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
MAIN = ""  # the text before the first section
CURVES = "## As something grows"
REMOTE, AUTOMATION = "## Reading from another machine", "## Automation objects"
BULK, SPARK, TRANSFER = "## The bulk plane", "## The data source in Spark", "## Between queue managers"
HARDENING = "## What the second hardening costs"  # written by hand, from results of `profiles.py` and `transfer.py`
_ORDER = (MAIN, CURVES, REMOTE, AUTOMATION, BULK, SPARK, TRANSFER, HARDENING)


def put(heading: str, text: str, file: Path = RESULTS) -> None:
    """Replace one section; `text` begins with its heading."""
    sections = _sections(file.read_text(encoding="utf-8")) if file.exists() else {}
    sections[heading] = text
    texts = (sections[name].strip() for name in _ORDER if name in sections)
    file.write_text("\n\n".join(part for part in texts if part) + "\n", encoding="utf-8")


def section(heading: str, file: Path = RESULTS) -> str:
    """Return the text of a section, with its heading; empty if there is none."""
    return _sections(file.read_text(encoding="utf-8")).get(heading, "") if file.exists() else ""


def _sections(text: str) -> dict[str, str]:
    found = sorted((at, name) for name in _ORDER[1:] if (at := text.find(f"{name}\n")) >= 0)
    return {name: text[at:end] for (at, name), (end, _) in pairwise([(0, MAIN), *found, (len(text), "")])}
