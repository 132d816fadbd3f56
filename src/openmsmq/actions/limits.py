"""Limits for one request: messages examined and shown."""

from __future__ import annotations

from typing import Final

PAGE, LARGEST_PAGE = 100, 500
SHOWN_BODY: Final = 64 << 10  # bytes of a body that are decoded and shown; the whole body can be downloaded
HEX_BODY: Final = 16 << 10  # bytes of a body that are shown as hexadecimal digits
PAGE_BYTES: Final = 16 << 20  # bytes of bodies read for one page
SEARCHED: Final = 5_000  # messages examined for one page of a search
SEARCH_SECONDS: Final = 2.0  # approximate time of one page of a search
SCANNED: Final = 50_000  # messages examined by one request
FOUND_SECONDS: Final = 5.0  # approximate time of a search for a message identifier in all queues
