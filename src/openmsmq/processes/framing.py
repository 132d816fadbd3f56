"""Frames between the daemon and a child process: a number, a JSON object, and bytes.

The socket is a pair that only these two have. But the other process reads what clients send with code that may fail in
any way, so the daemon takes nothing from it unchecked: frames have limits, and the receiver checks what is in them.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

HEADER: Final = struct.Struct("<QII")  # number of the request, lengths of JSON and bytes
MAXIMUM_JSON: Final = 17 << 20  # bytes; the request of a client, with its caller
MAXIMUM_BYTES: Final = 64 << 20  # bytes; chunks of an upload have 1 MiB, or one row


def frame_head(number: int, values: dict[str, Any], length: int) -> bytes:
    """Encode the head of a frame that carries `length` bytes."""
    text = json.dumps(values).encode()
    return HEADER.pack(number, len(text), length) + text


def frame(number: int, values: dict[str, Any], data: bytes = b"") -> bytes:
    """A frame as bytes."""
    return frame_head(number, values, len(data)) + data
