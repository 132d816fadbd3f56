"""The CSS that the console and the reports of the pipeline share: tokens of both themes, panels, tiles, tables."""

from __future__ import annotations

from importlib.resources import files


def look_css() -> str:
    """Read `look.css` of this package."""
    return (files("openmsmq.model") / "look.css").read_text(encoding="utf-8")
