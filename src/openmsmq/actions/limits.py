"""How much one request looks at and shows."""

from __future__ import annotations

from typing import Final

PAGE, LARGEST_PAGE = 100, 500
SHOWN_BODY: Final = 64 << 10  # bytes of a body that are decoded and shown; the rest is a download
PAGE_BYTES: Final = 16 << 20  # of bodies that are read for one page
SCANNED: Final = 50_000  # messages that one request looks at
