"""Traces of the daemon: spans of transfers, sent to a collector with OTLP over HTTP in a separate thread.

Spans that the collector does not accept in time are dropped by the bounded queue of OpenTelemetry; the daemon never
waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from threading import Thread
from typing import Any, Final

import openmsmq
from openmsmq.peering.options import Transfers
from openmsmq.server.config import ConfigurationError

logger = logging.getLogger(__name__)

_EXPORT_SECONDS: Final = 5.0  # time limit of an export in seconds
_STOP_SECONDS: Final = 2.0  # time limit of the last export in seconds
_POLL: Final = 0.02
_MOST_WAITING: Final = 2048  # maximum spans in the queue


class Traces:
    """Traces of transfers; disabled until `start`."""

    def __init__(self) -> None:
        self._provider: Any = None

    def start(self, endpoint: str, machine: str) -> Transfers:
        """Export to `endpoint`, the URL of a collector for traces. Raises ConfigurationError without the extra."""
        try:
            import requests
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            from openmsmq.tracing.spans import TransferSpans, tracer_of
        except ImportError as error:
            remedy = f"trace_endpoint needs the extra otel: pip install 'openmsmq[otel]' ({error})"
            raise ConfigurationError(remedy) from None
        self._provider = TracerProvider(
            resource=Resource.create(
                {"service.name": "openmsmq", "service.version": openmsmq.__version__, "host.name": machine}
            ),
            shutdown_on_exit=False,
        )
        # It warns of each message whose sender has made an invalid tracestate, which is left out.
        logging.getLogger("opentelemetry.trace.span").setLevel(logging.ERROR)
        session = requests.Session()
        session.hooks["response"].append(_report_redirect)
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS, session=session)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=_MOST_WAITING))
        logger.info("transfers are traced to %s", endpoint)
        return TransferSpans(tracer_of(self._provider))

    async def stop(self) -> None:
        """Export the pending spans, if the collector accepts them quickly."""
        if self._provider is not None:
            ending = Thread(target=self._provider.shutdown, name="traces", daemon=True)
            ending.start()
            deadline = time.monotonic() + _STOP_SECONDS
            while ending.is_alive() and time.monotonic() < deadline:
                await asyncio.sleep(_POLL)


def _report_redirect(response: Any, **_: Any) -> None:
    """Log a redirect. The exporter does not follow it, and takes it for a success."""
    if response.is_redirect:
        logger.error(
            "spans were dropped: %s redirects to %s; set trace_endpoint to the new URL", response.url,
            response.headers["Location"],
        )  # fmt: skip
