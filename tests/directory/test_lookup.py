"""Comparisons of queries, in Python and in SQL."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmsmq.directory.embedded import EmbeddedDirectory
from openmsmq.directory.lookup import Filter, Relation, matches
from openmsmq.directory.provider import MachineRecord, QueueRecord

MACHINE = MachineRecord(UUID(int=7), "HERE")
EQ, NE, LT, GT, LE, GE = Relation
QUEUE = QueueRecord(UUID(int=1), MACHINE.identifier, "HERE\\q", label="Orders", create_time=100)
_labels = st.sampled_from(["", "a", "A", "b", "Straße", "STRASSE", "é", "\U0001f600", "%", "_", "a'b"])
_times = st.integers(-2, 3)
_guids = st.sampled_from([UUID(int=0), UUID(int=1), UUID(int=256), UUID(bytes=bytes(range(16)))])
_records = st.builds(
    lambda label, created, modified, kind, multicast: replace(
        QUEUE, label=label, create_time=created, modify_time=modified, type=kind, multicast_address=multicast
    ),
    _labels, _times, _times, _guids, st.sampled_from(["", "234.1.1.1:80", "234.1.1.2:80"]),
)  # fmt: skip
_filters = st.one_of(
    st.builds(Filter, st.sampled_from(["label", "multicast_address"]), st.sampled_from(list(Relation)), _labels),
    st.builds(Filter, st.sampled_from(["create_time", "modify_time"]), st.sampled_from(list(Relation)), _times),
    st.builds(Filter, st.just("type"), st.sampled_from(list(Relation)), _guids),
)


@pytest.mark.parametrize(
    ("relation", "value", "found"),
    [
        (EQ, "orders", True), (EQ, "Order", False), (NE, "ORDERS", False), (NE, "x", True),
        (LT, "p", True), (LT, "orders", False), (GT, "o", True), (LE, "ORDERS", True), (GE, "orders", True),
        (GE, "p", False), (EQ, "", False), (NE, "", True), (LT, "", False), (GT, "", False), (LE, "", False),
    ],
)  # fmt: skip
def test_a_label_that_is_there_is_compared_without_regard_to_case(relation: Relation, value: str, found: bool) -> None:
    assert matches(QUEUE, [Filter("label", relation, value)]) is found


@pytest.mark.parametrize("relation", Relation)
def test_a_label_that_is_absent_differs_from_every_other_and_has_no_order(relation: Relation) -> None:
    bare = replace(QUEUE, label="")
    assert matches(bare, [Filter("label", relation, "x")]) is (relation is NE)
    assert matches(bare, [Filter("label", relation, "")]) is (relation is EQ)


def test_all_filters_have_to_hold() -> None:
    assert matches(QUEUE, [Filter("label", EQ, "orders"), Filter("create_time", GE, 100)])
    assert not matches(QUEUE, [Filter("label", EQ, "orders"), Filter("create_time", GT, 100)])


def test_a_guid_is_compared_by_its_octets() -> None:
    small, large = UUID(bytes_le=bytes([1, *bytes(15)])), UUID(bytes_le=bytes([2, *bytes(15)]))
    assert matches(replace(QUEUE, type=small), [Filter("type", LT, large)])
    assert matches(replace(QUEUE, type=large), [Filter("type", GE, large), Filter("type", GT, small)])


def test_sql_finds_what_the_comparisons_say(tmp_path: Path) -> None:
    """Python and SQL comparisons must agree for all values."""
    files = count()

    @settings(max_examples=60, deadline=None)
    @given(st.lists(_records, max_size=6), st.lists(_filters, max_size=3))
    def check(records: list[QueueRecord], filters: list[Filter]) -> None:
        numbered = [
            replace(record, identifier=UUID(int=100 + n), path_name=f"HERE\\q{n}") for n, record in enumerate(records)
        ]

        async def found() -> list[UUID]:
            directory = EmbeddedDirectory(tmp_path / f"{next(files)}.sqlite")
            await directory.register_machine(MACHINE)
            for record in numbered:
                await directory.create_queue(record)
            queues = await directory.find_queues(filters, 0, 100)
            await directory.close()
            return [record.identifier for record in queues]

        assert asyncio.run(found()) == [record.identifier for record in numbered if matches(record, filters)]

    check()
