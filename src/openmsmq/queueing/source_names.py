"""Queue names of data pipelines. Not part of the specifications; docs/bulk.md lists the names."""

from __future__ import annotations

from typing import Final

from openmsmq.model.errors import IllegalPropertyValue
from openmsmq.model.names import (
    DirectFormatName,
    FormatName,
    Suffix,
    is_format_name,
    parse_format_name,
    parse_path_name,
)
from openmsmq.model.queue_names import full_name

_SYSTEM_QUEUES: Final = {"journal": Suffix.JOURNAL, "deadletter": Suffix.DEADLETTER, "xactdeadletter": Suffix.DEADXACT}
SOURCES = ("queue", "journal", "deadletter", "xactdeadletter", "outgoing")


def source_name(text: str, source: str) -> FormatName:
    """Return the format name of a pipeline's source queue. Raises IllegalPropertyValue, IllegalFormatName,
    IllegalQueuePathName."""
    if source not in SOURCES:
        raise IllegalPropertyValue(detail=f"source {source!r}: one of {', '.join(SOURCES)}")
    if source in _SYSTEM_QUEUES and (source != "journal" or not text):
        return DirectFormatName("OS", ".", "SYSTEM$", _SYSTEM_QUEUES[source])
    name = queue_name(text)
    if source != "journal":
        return name
    return parse_format_name(f"{name};JOURNAL")


def queue_name(text: str) -> FormatName:
    """Return the format name for a path name, the name of a private queue, or a format name."""
    if is_format_name(text):
        return parse_format_name(text)
    path = parse_path_name(full_name(text))
    return parse_format_name(f"DIRECT=OS:{path}")
