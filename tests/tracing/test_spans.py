"""Spans of sends, receives and transfers between two programs through two queue managers."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import openmsmq
import openmsmq.client.asynchronous
import openmsmq.tracing
from daemon import Daemon, eventually, free_port
from openmsmq.model.message import Message
from openmsmq.server.tracing import Traces
from openmsmq.tracing.context import TraceContext, read, write
from openmsmq.tracing.spans import ClientSpans, TransferSpans, tracer_of

PATH = ".\\private$\\traced"
FAR = "DIRECT=TCP:127.0.0.2\\private$\\traced"
CONTEXT = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


class Spans:
    """The recorded spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def __getitem__(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(name)]


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = Spans()
    openmsmq.tracing.enable(found.provider)
    yield found
    openmsmq.tracing.disable()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("traced") / "data") as daemon:
        with daemon.connect() as manager:
            manager.create_queue(PATH)
        yield daemon


def test_a_receive_is_linked_to_its_send(daemon: Daemon, spans: Spans) -> None:
    tracer = spans.provider.get_tracer("test")
    with daemon.connect() as manager, manager.open(PATH, "send") as writer, manager.open(PATH) as reader:
        with tracer.start_as_current_span("outer") as outer:
            writer.send("x", label="order")
        message = reader.receive(5)
    [sent], [received] = spans["send"], spans["receive"]
    assert sent.kind is SpanKind.PRODUCER and received.kind is SpanKind.CONSUMER
    assert sent.parent is not None and sent.parent.span_id == outer.get_span_context().span_id
    assert [link.context.span_id for link in received.links] == [sent.context.span_id]
    assert dict(sent.attributes or {})["messaging.system"] == "msmq" and PATH in sent.name
    with tracer.start_as_current_span("handle", openmsmq.tracing.context_of(message)):
        pass
    [handled] = spans["handle"]
    assert handled.context.trace_id == sent.context.trace_id


def test_asynchronous_programs_are_traced_too(daemon: Daemon, spans: Spans) -> None:
    async def run() -> None:
        async with await openmsmq.client.asynchronous.connect("127.0.0.1", daemon.port) as manager:
            async with await manager.open(PATH, "send") as writer, await manager.open(PATH) as reader:
                await writer.send("x")
                await reader.receive(5)

    asyncio.run(run())
    [sent], [received] = spans["send"], spans["receive"]
    assert [link.context.span_id for link in received.links] == [sent.context.span_id]


def test_the_extension_of_an_application_stays_and_so_does_the_message(daemon: Daemon, spans: Spans) -> None:
    own, plain = Message(body=b"1", extension=b"mine"), Message(body=b"2")
    with daemon.connect() as manager, manager.open(PATH, "send") as writer, manager.open(PATH) as reader:
        writer.send(own)
        writer.send(plain)
        found = [reader.receive(5) for _ in range(2)]
    assert found[0].extension == b"mine" and read(found[1].extension) is not None
    assert plain.extension == b"" and own.extension == b"mine"
    assert [len(span.links) for span in spans["receive"]] == [0, 1]


@pytest.mark.parametrize(
    "properties",
    [
        {"signature": b"s"},
        {"multiple_destination_signature": b"s"},
        {"authentication_level": 1},
        {"extension": b"mine"},
    ],
)
def test_signed_messages_and_used_extensions_are_not_changed(spans: Spans, properties: dict[str, Any]) -> None:
    message = Message(**properties)
    client = ClientSpans(tracer_of(spans.provider))
    assert client.sending("q", message).message is message
    assert client.sending("q", Message()).message.extension


def test_a_send_that_fails_is_a_span_that_failed(daemon: Daemon, spans: Spans) -> None:
    with daemon.connect() as manager, manager.open(PATH, "send") as writer:
        with pytest.raises(openmsmq.MsmqError):
            writer.send("x", label="x" * 300)
    [sent] = spans["send"]
    assert sent.status.status_code is StatusCode.ERROR


def test_messages_with_a_hostile_context_are_received(daemon: Daemon, spans: Spans) -> None:
    with daemon.connect() as manager, manager.open(PATH, "send") as writer, manager.open(PATH) as reader:
        openmsmq.tracing.disable()
        for extension in (b"traceparent: \xff\r\n", b"traceparent: " * 1000, bytes(100)):
            writer.send(Message(body=b"x", extension=extension))
        openmsmq.tracing.enable(spans.provider)
        for _ in range(3):
            assert openmsmq.tracing.context_of(reader.receive(5)) is not None
    assert [len(span.links) for span in spans["receive"]] == [0, 0, 0]


def test_transfers_end_acknowledged_lost_or_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = Spans()
    monkeypatch.setattr("openmsmq.tracing.spans._MOST_TRANSFERS", 2)
    transfers = TransferSpans(tracer_of(spans.provider))
    messages = [Message(identifier=bytes(19) + bytes([n]), extension=write(CONTEXT)) for n in range(4)]
    transfers.sent("q", Message(identifier=bytes(20)))
    transfers.sent("q", messages[0])
    transfers.acknowledged(messages[0])
    transfers.acknowledged(messages[0])
    transfers.sent("q", messages[1])
    transfers.lost(messages[1])
    for message in messages[1:]:
        transfers.sent("q", message)
    found = spans["transfer"]
    assert [span.status.status_code for span in found] == [StatusCode.UNSET, StatusCode.ERROR, StatusCode.UNSET]
    assert {format(span.context.trace_id, "032x") for span in found} == {"0af7651916cd43dd8448eb211c80319c"}


@contextmanager
def collector(status: int = 200) -> Iterator[tuple[str, list[Any]]]:
    """Run an OTLP/HTTP collector that replies with `status`. Yields its URL and the received spans, each with the
    attributes of its resource."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            request = ExportTraceServiceRequest.FromString(body)
            for received in request.resource_spans:
                resource = {one.key: one.value.string_value for one in received.resource.attributes}
                got.extend((resource, span) for scope in received.scope_spans for span in scope.spans)
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", got
    finally:
        server.shutdown()
        server.server_close()


def test_a_transfer_is_part_of_the_trace(tmp_path: Path, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    port = free_port("127.0.0.1", "127.0.0.2")
    with collector() as (url, got):
        here = ("--computer-name", "here", "--listen", "127.0.0.1", "--message-port", str(port))
        there = ("--computer-name", "there", "--listen", "127.0.0.2", "--message-port", str(port))
        ports = ("--peer-message-port", str(port))
        with Daemon(tmp_path / "there", *there, *ports) as second:
            with openmsmq.connect("127.0.0.2", second.port) as manager:
                manager.create_queue(PATH)
            with Daemon(tmp_path / "here", *here, *ports, "--trace-endpoint", url) as first:
                with first.connect() as manager:
                    with manager.open(FAR, "send") as writer:
                        writer.send("x", recoverable=True)
                        openmsmq.tracing.disable()
                        writer.send("y", extension=write(CONTEXT._replace(state="No=w3c")), recoverable=True)
                    eventually(lambda: not manager.outgoing())  # acknowledged
                assert "opentelemetry" not in first.log, "what another program has written is no reason for a warning"
                with openmsmq.connect("127.0.0.2", second.port) as manager, manager.open(PATH) as reader:
                    reader.receive(20)
            (resource, transfer), _ = eventually(lambda: len(got) == 2 and got)
    [sent] = spans["send"]
    assert transfer.name.startswith("transfer DIRECT=TCP:127.0.0.2")
    assert transfer.trace_id == sent.context.trace_id.to_bytes(16, "big")
    assert transfer.parent_span_id == sent.context.span_id.to_bytes(8, "big")
    assert resource.items() >= {
        "service.name": "openmsmq", "service.version": openmsmq.__version__, "host.name": "here",
        "telemetry.sdk.language": "python", "deployment.environment.name": "test",
    }.items()  # fmt: skip


def test_a_hanging_collector_does_not_block_the_daemon(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with Daemon(tmp_path / "data", "--trace-endpoint", url) as daemon:
            with daemon.connect() as manager:
                manager.create_queue(PATH)
            started = time.monotonic()
            assert daemon.stop() == 0 and time.monotonic() - started < 10


def test_a_collector_that_redirects_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with collector(307) as (url, got):
        traces = Traces()
        transfers = traces.start(url, "here")
        message = Message(identifier=bytes(20), extension=write(CONTEXT))
        transfers.sent("q", message)
        transfers.acknowledged(message)
        asyncio.run(traces.stop())
    assert len(got) == 1
    assert f"spans were dropped: {url} redirects to /elsewhere; set trace_endpoint to the new URL" in caplog.text


def test_an_invalid_url_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="trace_endpoint"):
        Daemon(tmp_path / "data", "--trace-endpoint", "collector:4318").start()
