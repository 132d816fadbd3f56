"""Tracing of messages with OpenTelemetry, an extra: `pip install openmsmq[otel]`.

A send is a span whose context is transferred in the extension of the message (`context`); receives and transfers to
other queue managers are spans related to it. OpenTelemetry is imported only if a program calls `enable` or the daemon
has the setting `trace_endpoint`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openmsmq.client.observing import Watch

if TYPE_CHECKING:
    from openmsmq.model.message import Message


def enable(provider: Any = None) -> None:
    """Start tracing the sends and receives of this process.

    Args:
        provider: a TracerProvider of OpenTelemetry; the global one by default.

    Raises:
        ImportError: the extra `otel` is not installed.
    """
    from openmsmq.tracing.spans import ClientSpans, tracer_of

    Watch.observer = ClientSpans(tracer_of(provider))


def disable() -> None:
    """Stop tracing."""
    Watch.observer = None


def context_of(message: Message) -> Any:
    """Return the OpenTelemetry Context in which a message was sent, for a new span; an empty one if there is none.

    Raises ImportError if the extra `otel` is not installed.
    """
    from openmsmq.tracing.spans import sent_in

    return sent_in(message)
