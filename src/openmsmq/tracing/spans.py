"""OpenTelemetry spans for sends, receives and transfers, named according to its semantic conventions for messaging."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from openmsmq import __version__
from openmsmq.model.message import Message
from openmsmq.tracing.context import TraceContext, may_write, read, write

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_MOST_TRANSFERS: Final = 10_000  # maximum traced transfers in progress


def tracer_of(provider: Any = None) -> Tracer:
    """Return the tracer of a provider, by default of the global one."""
    return trace.get_tracer("openmsmq", __version__, tracer_provider=provider)


def sent_in(message: Message) -> Context:
    """Return the context in which a message was sent; an empty one if it has none."""
    found = read(message.extension)
    if found is None:
        return Context()
    return _PROPAGATOR.extract({"traceparent": found.parent, "tracestate": found.state}, Context())


class ClientSpans:
    """See `client.observing.Observer`."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer: Final = tracer

    def sending(self, queue: str, message: Message) -> SendingSpan:
        """Start a child span of the caller's span. The context is added to a copy of the message. A signed message is
        not changed, because an MSMQ 3.0 signature covers the extension ([MS-MQMQ] 2.5.3)."""
        span = self._tracer.start_span(f"send {queue}", kind=SpanKind.PRODUCER, attributes=_attributes(queue, "send"))
        signed = message.signature or message.multiple_destination_signature or message.authentication_level
        if may_write(message.extension) and not signed and span.get_span_context().is_valid:
            message = message.copy()
            message.extension = write(_context_of(span))
        return SendingSpan(span, message)

    def received(self, queue: str, message: Message) -> None:
        """Create a child span of the caller's span, with a link to the span of the send."""
        sent = trace.get_current_span(sent_in(message)).get_span_context()
        attributes = {**_attributes(queue, "receive"), "messaging.message.id": message.id}
        links = [Link(sent)] if sent.is_valid else []
        self._tracer.start_span(
            f"receive {queue}", kind=SpanKind.CONSUMER, attributes=attributes, links=links
        ).end()  # fmt: skip


class SendingSpan:
    """See `client.observing.SendObservation`."""

    def __init__(self, span: Span, message: Message) -> None:
        self._span: Final = span
        self.message: Final = message

    def end(self, error: BaseException | None) -> None:
        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
            self._span.set_attribute("error.type", type(error).__name__)
        self._span.end()


class TransferSpans:
    """See `peering.options.Transfers`. Messages without a context are not traced."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer: Final = tracer
        self._spans: Final[OrderedDict[bytes, Span]] = OrderedDict()

    def sent(self, queue: str, message: Message) -> None:
        if read(message.extension) is None:
            return
        self._end(message, "sent again")
        attributes = {**_attributes(queue, "transfer"), "messaging.message.id": message.id}
        span = self._tracer.start_span(
            f"transfer {queue}", sent_in(message), kind=SpanKind.PRODUCER, attributes=attributes
        )
        self._spans[message.identifier] = span
        if len(self._spans) > _MOST_TRANSFERS:
            self._spans.popitem(last=False)[1].end()

    def acknowledged(self, message: Message) -> None:
        self._end(message, "")

    def lost(self, message: Message) -> None:
        self._end(message, "the session ended before it was acknowledged")

    def _end(self, message: Message, error: str) -> None:
        span = self._spans.pop(message.identifier, None)
        if span is not None:
            if error:
                span.set_status(Status(StatusCode.ERROR, error))
            span.end()


def _attributes(queue: str, operation: str) -> dict[str, str]:
    return {
        "messaging.system": "msmq", "messaging.destination.name": queue, "messaging.operation.name": operation,
    }  # fmt: skip


def _context_of(span: Span) -> TraceContext:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span, Context()))
    return TraceContext(carrier["traceparent"], carrier.get("tracestate", ""))
