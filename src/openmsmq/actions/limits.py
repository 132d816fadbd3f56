"""How much one request looks at and shows."""

from __future__ import annotations

from typing import Final

PAGE, LARGEST_PAGE = 100, 500
SHOWN_BODY: Final = 64 << 10  # bytes of a body that are decoded and shown; the rest is a download
HEX_BODY: Final = 16 << 10  # bytes of a body that are shown as hexadecimal digits
PAGE_BYTES: Final = 16 << 20  # of bodies that are read for one page
SEARCHED: Final = 5_000  # messages that one page of a search looks at
SEARCH_SECONDS: Final = 2.0  # that one page of a search takes, about
SCANNED: Final = 50_000  # messages that one request looks at
FOUND_SECONDS: Final = 5.0  # that looking for a message by its identifier in all queues takes, about
