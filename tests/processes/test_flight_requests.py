"""Validation of bulk plane requests."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.gateways.claiming import Claiming
from openmsmq.gateways.flight import Control
from openmsmq.gateways.slicing import Slicing
from openmsmq.gateways.staging import Staging
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.processes.flight_requests import ACTIONS, MAXIMUM_REQUEST, REQUESTS, check, parse

CLAIM = {"queue": "q", "group": "g", "start": 0}


@pytest.mark.parametrize(
    ("operation", "values", "said"),
    [
        ("claim", {**CLAIM, "wait_seconds": float("nan")}, "wait_seconds is nan, allowed: a number, 0 to 86400"),
        ("claim", {**CLAIM, "wait_seconds": float("inf")}, "wait_seconds is inf"),
        ("claim", {**CLAIM, "wait_seconds": -1}, "wait_seconds is -1"),
        ("claim", {**CLAIM, "wait_seconds": 10**400}, "wait_seconds is a whole number of 1329 bits"),
        ("claim", {**CLAIM, "wait_seconds": "1"}, "wait_seconds is '1'"),
        ("claim", {**CLAIM, "start": True}, "start is True, allowed: a whole number, 0 to 72057594037927935"),
        ("claim", {**CLAIM, "start": 1 << 56}, "start is 72057594037927936"),
        ("claim", {**CLAIM, "start": 1.0}, "start is 1.0"),
        ("claim", {**CLAIM, "max_messages": 0}, "max_messages is 0"),
        ("claim", {**CLAIM, "group": "\ud800"}, r"group is '\\ud800', allowed: a string of 1 to 249 Unicode"),
        ("claim", {**CLAIM, "group": ""}, "group is ''"),
        ("claim", {**CLAIM, "group": "g" * 250}, "group is 'ggg"),
        ("claim", {**CLAIM, "self": 1}, "no argument 'self'; allowed: queue"),
        ("claim", {"queue": "q", "start": 0}, "group is missing"),
        ("claim", {**CLAIM, "queue": None}, "queue is missing"),
        ("read", {"queue": "q", "columns": 5}, "columns is 5, allowed: a list of strings"),
        ("read", {"queue": "q", "columns": ["label", 5]}, "columns is"),
        ("read", {"queue": "", "include_body": 1}, "include_body is 1, allowed: true or false"),
        ("plan", {"queue": "q", "partitions": 0}, "partitions is 0"),
        ("write", {"sink": "s", "batch": -1, "partition": 0, "attempt": "0"}, "batch is -1"),
        ("finalize", {"sink": "s", "batch": 0, "stages": "all"}, "stages is 'all'"),
        ("forget", {"sink": ["s"]}, "sink is"),
    ],
)
def test_a_request_that_breaks_the_table_names_the_field_its_value_and_what_is_allowed(
    operation: str, values: dict[str, Any], said: str
) -> None:
    with pytest.raises(MsmqError, match=said) as caught:
        check(operation, values)
    assert caught.value.hresult == HResult.MQ_ERROR_INVALID_PARAMETER
    assert str(caught.value).isascii() and len(str(caught.value)) < 1000


def test_null_equals_a_missing_field() -> None:
    assert check("claim", {**CLAIM, "max_messages": None}) == CLAIM


@pytest.mark.parametrize(
    "text",
    [
        b"", b"5", b"[]", b"null", b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": ' + b"9" * 5000 + b"}", b"\xff",
        b"[" * 100_000, b'{"a":' * 100_000, b"{" + b" " * MAXIMUM_REQUEST + b"}",
    ],
    ids=range(11),
)  # fmt: skip
def test_text_that_is_not_a_json_object_is_refused(text: bytes) -> None:
    with pytest.raises(MsmqError) as caught:
        parse(text)
    assert caught.value.hresult == HResult.MQ_ERROR_INVALID_PARAMETER


def test_each_operation_of_the_daemon_takes_what_the_table_says() -> None:
    """No request reaches an operation with arguments that the operation does not have."""
    operations = {
        name.removeprefix("do_"): getattr(part, name)
        for part in (Control, Slicing, Claiming, Staging)
        for name in dir(part)
        if name.startswith("do_")
    }
    of_flight = {"read", "write", "arrow_port"}  # served by the Flight process itself
    assert operations.keys() == REQUESTS.keys() - of_flight
    for name, operation in operations.items():
        parameters = list(inspect.signature(operation).parameters.values())[2:]  # after self and the caller
        table = REQUESTS[name]
        assert {p.name for p in parameters} == table.fields.keys() | ({"data"} if table.has_bytes else set()), name
        for parameter in parameters:
            field = table.fields.get(parameter.name)
            assert field is None or field.is_required == (parameter.default is parameter.empty), (name, parameter)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["\ud800", 10**400, -0.0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
names = st.sampled_from(sorted({name for request in REQUESTS.values() for name in request.fields} | {"self", "op"}))


@given(st.sampled_from(sorted(REQUESTS)), st.dictionaries(names, values, max_size=4))
def test_any_input_is_either_refused_or_plain_json(operation: str, given_: dict[str, Any]) -> None:
    try:
        checked = check(operation, given_)
    except MsmqError as error:
        error.detail.encode()
        return
    assert parse(json.dumps(checked).encode()) == checked
    json.dumps(checked, ensure_ascii=False).encode()


def test_actions_are_those_with_a_meaning() -> None:
    assert {"claim", "finalize", "queues"} <= ACTIONS.keys()
    assert not {"slice", "stage", "authenticate", "describe"} & ACTIONS.keys()
