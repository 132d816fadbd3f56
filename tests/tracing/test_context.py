"""The trace context in a message extension: what is read, and what is left unchanged."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.tracing.context import TraceContext, may_write, read, write

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("state", ["", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "x" * 512])
def test_a_written_context_is_read_back(state: str) -> None:
    extension = write(TraceContext(PARENT, state))
    assert read(extension) == TraceContext(PARENT, state) and may_write(extension)


@pytest.mark.parametrize("state", ["x" * 513, "a\r\nb", "é", "a\0"])
def test_a_state_that_does_not_fit_is_omitted(state: str) -> None:
    assert read(write(TraceContext(PARENT, state))) == TraceContext(PARENT)


@pytest.mark.parametrize(
    "extension",
    [
        b"", b"x", b"traceparent: " + PARENT.encode(), b"traceparent: " + PARENT.encode() + b"\r\nmore",
        b"traceparent: " + PARENT.upper().encode() + b"\r\n", b"traceparent: 01" + PARENT[2:].encode() + b"\r\n",
        b"traceparent: 00-" + b"0" * 32 + b"-b7ad6b7169203331-01\r\n",
        b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-" + b"0" * 16 + b"-01\r\n",
        write(TraceContext(PARENT)) * 2,
    ],
)  # fmt: skip
def test_invalid_contexts_are_ignored(extension: bytes) -> None:
    assert read(extension) is None


@given(st.binary(max_size=300))
def test_the_extension_of_an_application_stays(extension: bytes) -> None:
    assert may_write(extension) == (not extension) and read(extension) is None


def test_nothing_is_imported_while_tracing_is_off() -> None:
    program = (
        "import sys, openmsmq, openmsmq.client.asynchronous, openmsmq.server.daemon, openmsmq.tracing\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
