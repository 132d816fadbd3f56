"""Trace context in the extension of a message: the lines `traceparent` and `tracestate` of W3C Trace Context.

An extension with any other contents belongs to the application and is not changed.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_LINES: Final = re.compile(
    rb"traceparent: (00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2})\r\n(?:tracestate: ([\x20-\x7e]{1,512})\r\n)?"
)
_LONGEST_STATE: Final = 512  # characters that W3C Trace Context 3.3.1.5 requires to be propagated


class TraceContext(NamedTuple):
    """A trace context. `parent` is the value of traceparent, version 00; `state` that of tracestate, empty if
    absent."""

    parent: str
    state: str = ""


def read(extension: bytes) -> TraceContext | None:
    """Return the context in an extension; None for other contents, and for identifiers of zero, which are invalid."""
    found = _LINES.fullmatch(extension)
    if found is None or not int(found[2], 16) or not int(found[3], 16):
        return None
    return TraceContext(found[1].decode(), (found[4] or b"").decode())


def may_write(extension: bytes) -> bool:
    """Whether an extension is empty or contains only a trace context."""
    return not extension or _LINES.fullmatch(extension) is not None


def write(context: TraceContext) -> bytes:
    """Return the extension for a context. A state that is too long or has invalid characters is left out."""
    text = f"traceparent: {context.parent}\r\n"
    state = context.state
    if state and len(state) <= _LONGEST_STATE and state.isascii() and state.isprintable():
        text += f"tracestate: {state}\r\n"
    return text.encode()
