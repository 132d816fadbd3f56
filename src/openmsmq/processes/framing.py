"""Frames between the daemon and a child process: a number, a JSON object, and bytes.

Only these two processes have the socket pair. But the child process parses client data and may be compromised, so the
daemon trusts nothing from it: frames have limits, and the receiver checks their contents.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

HEADER: Final = struct.Struct("<QII")  # number of the request, lengths of JSON and bytes
MAXIMUM_JSON: Final = 17 << 20  # bytes; a client request with its caller
MAXIMUM_BYTES: Final = 64 << 20  # bytes; a chunk of an upload has 1 MiB, or one row


def frame_head(number: int, values: dict[str, Any], length: int) -> bytes:
    """Encode the head of a frame with `length` bytes."""
    text = json.dumps(values).encode()
    return HEADER.pack(number, len(text), length) + text


def frame(number: int, values: dict[str, Any], data: bytes = b"") -> bytes:
    """Encode a frame."""
    return frame_head(number, values, len(data)) + data
