"""Structs and other values as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from openmsmq.model.text import json_line


def json_bytes(value: Any) -> bytes:
    """Return `value` as JSON. Unpaired surrogates, with which msgspec fails, become U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json_line(msgspec.to_builtins(value))
