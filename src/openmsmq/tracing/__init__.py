"""Traces of messages by OpenTelemetry, an extra: `pip install openmsmq[otel]`.

A send is a span, whose context travels in the message's extension (`context`); a receive and a transfer to another
queue manager are spans that know it. Nothing here is imported unless a program calls `enable`, or the daemon has the
setting `trace_endpoint`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openmsmq.client.observing import Watch

if TYPE_CHECKING:
    from openmsmq.model.message import Message


def enable(provider: Any = None) -> None:
    """Trace the sends and receives of this process from now on.

    Args:
        provider: a TracerProvider of OpenTelemetry; the global one by default.

    Raises:
        ImportError: the extra `otel` is not installed.
    """
    from openmsmq.tracing.spans import ClientSpans, tracer_of

    Watch.observer = ClientSpans(tracer_of(provider))


def disable() -> None:
    """Trace no longer."""
    Watch.observer = None


def context_of(message: Message) -> Any:
    """The Context of OpenTelemetry in which a message was sent, to begin a span in it; an empty one without any.

    Raises ImportError where the extra `otel` is not installed.
    """
    from openmsmq.tracing.spans import sent_in

    return sent_in(message)
