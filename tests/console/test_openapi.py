"""The checked-in OpenAPI document equals the one generated from the routing table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from console.browser import ask
from daemon import Daemon
from openmsmq.actions import dead_letters, queues
from openmsmq.console.examples import example_of
from openmsmq.console.openapi import document, text
from openmsmq.console.problems import Problem
from openmsmq.console.resources import OPERATIONS
from openmsmq.console.table import parse_query

CHECKED_IN = Path(__file__).parents[2] / "docs" / "openapi.json"


def test_the_document_that_is_checked_in_is_that_of_the_table() -> None:
    assert CHECKED_IN.read_text() == text(OPERATIONS), "python -m openmsmq.console.openapi > docs/openapi.json"


def test_descriptions_do_not_depend_on_how_an_interpreter_indents_docstrings() -> None:
    schemas = document(OPERATIONS)["components"]["schemas"].values()
    descriptions = [schema["description"] for schema in schemas if "description" in schema]
    assert any("\n" in text for text in descriptions), "one of several lines"
    assert [text for text in descriptions if "\n " in text] == []


def test_the_server_shows_the_same(daemon: Daemon) -> None:
    assert ask(daemon, "GET", "/openapi.json").json == json.loads(CHECKED_IN.read_text())


def test_each_operation_has_a_name_of_its_own() -> None:
    names = [operation.name for operation in OPERATIONS]
    assert len(names) == len(set(names))
    assert len({(operation.method, operation.path) for operation in OPERATIONS}) == len(OPERATIONS)


def test_every_reference_leads_somewhere() -> None:
    found = document(OPERATIONS)

    def references(value: object) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*(references(part) for part in value.values()))
        return set().union(*(references(part) for part in value)) if isinstance(value, list) else set()

    names = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
    assert references(found) <= names


def test_everything_is_described() -> None:
    found = document(OPERATIONS)
    for path, methods in found["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path
            assert [each["name"] for each in operation["parameters"] if not each.get("description")] == [], path
    for name, schema in found["components"]["schemas"].items():
        assert schema.get("description"), name
        assert [member for member, part in schema["properties"].items() if not part.get("description")] == [], name


def test_each_operation_has_a_tag_a_description_and_examples() -> None:
    found = document(OPERATIONS)
    tags = {tag["name"] for tag in found["tags"]}
    used = set()
    for path, methods in found["paths"].items():
        for operation in methods.values():
            used |= set(operation["tags"])
            assert operation["description"].strip() not in ("", operation["summary"]), path
            assert all("example" in each for each in operation["parameters"]), path
            for answer in operation["responses"].values():
                assert all("example" in content for content in answer.get("content", {}).values()), path
            for content in operation.get("requestBody", {}).get("content", {}).values():
                assert content["example"], path
    assert used == tags and all(tag["description"] for tag in found["tags"])


def test_the_examples_of_parameters_fit_their_types() -> None:
    shown = document(OPERATIONS)["paths"]
    for each in OPERATIONS:
        parameters = shown[f"/api/v1{each.path}"][each.method.lower()]["parameters"]
        query = {each["name"]: each["example"] for each in parameters if each["in"] == "query"}
        if query:
            assert parse_query(each.query, [(name, _in_query(value)) for name, value in query.items()]), each.name


def _in_query(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_each_request_and_answer_has_an_example_that_fits_its_type() -> None:
    paths = document(OPERATIONS)["paths"]
    for each in OPERATIONS:
        shown = paths[f"/api/v1{each.path}"][each.method.lower()]
        if each.body is not None:
            example = shown["requestBody"]["content"]["application/json"]["example"]
            assert msgspec.convert(example, each.body), each.name
        if each.answer is not None:
            content = shown["responses"][str(each.status)]["content"]
            assert msgspec.convert(content["application/json"]["example"], each.answer), each.name


class _Named(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(examples=["orders"])]
    size: Annotated[int, msgspec.Meta(ge=5)]
    label: str = ""
    day: Annotated[int | None, msgspec.Meta(examples=[7])] = None


def test_an_example_has_those_of_the_fields() -> None:
    assert example_of(_Named) == {"name": "orders", "size": 5, "day": 7}
    assert example_of(list[_Named]) == [{"name": "orders", "size": 5, "day": 7}]


def test_the_text_null_of_a_query_is_a_text_or_not_allowed() -> None:
    with pytest.raises(Problem, match="'null' is not allowed"):
        parse_query(dead_letters.GroupsQuery, [("queue", "null")])
    assert parse_query(queues.ListQuery, [("filter", "null")]).filter == "null"
    assert parse_query(dead_letters.GroupsQuery, []).queue is None
