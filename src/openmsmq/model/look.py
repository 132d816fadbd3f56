"""The CSS shared by the console and the pipeline reports: tokens of both themes, panels, tiles, tables."""

from __future__ import annotations

from importlib.resources import files


def look_css() -> str:
    """Return `look.css` of this package."""
    return (files("openmsmq.model") / "look.css").read_text(encoding="utf-8")
