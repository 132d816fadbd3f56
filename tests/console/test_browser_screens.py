"""Screenshots of every console page, in both themes, wide and narrow, with accessibility checks.

SCREENSHOTS=1 writes the screenshots into docs/images/console.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from console.screenshot_daemon import shop
from console.tab import Tab
from daemon import Daemon
from requirements import library

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pictures of the console")]
IMAGES = Path(__file__).parents[2] / "docs" / "images" / "console"
WRITES = bool(os.environ.get("SCREENSHOTS"))
LARGEST = 80_000  # bytes of a screenshot
SIZES = {1280: 900, 390: 844}
_COLORS = 128


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, dict[str, str]]]:
    base = tmp_path_factory.mktemp("shop")
    if WRITES:  # screenshots must not show a path of this machine
        base = Path("/var/tmp/openmsmq")
        shutil.rmtree(base, ignore_errors=True)
    with shop(base / "data") as found:
        yield found


def picture(page: Any) -> bytes:
    """Return a screenshot as a PNG with a palette."""
    image = library("PIL.Image", "make browser")
    shown, out = image.open(BytesIO(page.screenshot())), BytesIO()
    shown.convert("RGB").quantize(_COLORS, dither=image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_readable_and_has_a_picture(
    chromium: Any, made: tuple[Daemon, dict[str, str]], theme: str, width: int
) -> None:
    daemon, paths = made
    tab = Tab(chromium, daemon, color_scheme=theme, viewport={"width": width, "height": SIZES[width]})
    wrong = []
    for name, path in paths.items():
        tab.page.goto(path)
        if name == "missing":
            tab.wrong.clear()
        tab.page.wait_for_timeout(100)
        shown = picture(tab.page)
        assert len(shown) <= LARGEST, f"{name}: {len(shown)} bytes"
        if WRITES:
            IMAGES.mkdir(parents=True, exist_ok=True)
            (IMAGES / f"{name}-{theme}-{width}.png").write_bytes(shown)
        try:
            tab.hold(path)
        except AssertionError as error:
            wrong.append(str(error))
    tab.context.close()
    assert not wrong, "\n".join(wrong)
