"""Frames between the daemon and its Flight process: a number, a JSON object, and bytes.

The socket is a pair that only these two have, so nothing here defends against strangers.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

HEADER: Final = struct.Struct("<QII")  # number of the request, lengths of JSON and bytes


def frame_head(number: int, values: dict[str, Any], length: int) -> bytes:
    """A frame but for its bytes, which are so many."""
    text = json.dumps(values).encode()
    return HEADER.pack(number, len(text), length) + text


def frame(number: int, values: dict[str, Any], data: bytes = b"") -> bytes:
    """A frame as bytes."""
    return frame_head(number, values, len(data)) + data
