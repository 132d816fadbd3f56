"""The blocking client is generated from the asyncio client."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from openmsmq.client.asynchronous import MessageQueue
from openmsmq.model.errors import InvalidHandle

TOOL = Path(__file__).parents[2] / "tools" / "sync_client.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sync_client", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_blocking_client_is_what_the_tool_makes_of_the_other(tool: ModuleType) -> None:
    assert tool.synchronous(tool.SOURCE.read_text()) == tool.TARGET.read_text()


def test_a_missing_passage_is_named(tool: ModuleType) -> None:
    with pytest.raises(ValueError, match="other tasks that wait"):
        tool.synchronous(tool.SOURCE.read_text().replace("other tasks that wait", "tasks that wait"))


def test_no_trace_of_asyncio_is_left_in_the_blocking_client(tool: ModuleType) -> None:
    code = tool.TARGET.read_text().replace("asynchronous.py", "")
    assert [word for word in ("async", "await", "unner") if word in code] == []


def test_every_call_on_a_closed_queue_reports_that_it_is_closed() -> None:
    handle: Any = SimpleNamespace(queue=SimpleNamespace(name="q", protocol="qmcomm"))
    queue = MessageQueue(mock.Mock(), mock.Mock(), handle, False)
    queue._check_open()
    queue._closed = True
    with pytest.raises(InvalidHandle, match="q was closed"):
        queue._check_open()
