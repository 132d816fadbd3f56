"""Reads of many queues at once: their order, their errors, and the number of calls that wait for each other."""

from __future__ import annotations

import asyncio

import pytest

import openmsmq.aio
from openmsmq.admin.definitions import export, queues_in
from openmsmq.admin.overview import ByProtocols
from openmsmq.client.pool import Pool
from openmsmq.client.sync import QueueManager
from openmsmq.model.errors import QueueNotFound

NAMES = [f"many{number:02d}" for number in range(40)]


@pytest.fixture(scope="module", autouse=True)
def _queues(service):
    with service.connect() as qm:
        for name in NAMES:
            qm.create_queue(name, label=name.upper())


@pytest.fixture
def one_by_one(monkeypatch):
    """The names of the operations that were called while nothing else was under way."""
    calls, call = [], Pool.call

    def counted(self, one):
        calls.append(one.operation.name)
        return call(self, one)

    monkeypatch.setattr(Pool, "call", counted)
    return calls


def test_the_answers_are_in_order_and_an_error_is_that_of_one_queue(qm, one_by_one):
    found = qm.properties_of_each([NAMES[0], "none", *NAMES[1:]], "label")
    assert isinstance(found.pop(1), QueueNotFound)
    assert found == [{"label": name.upper()} for name in NAMES]
    found = qm.management_of_each([*NAMES, "none"], "message_count")
    assert isinstance(found.pop(), QueueNotFound) and found == [{"message_count": 0}] * len(NAMES)
    assert qm.security_of_each(iter(NAMES[:2])) == [qm.security(name) for name in NAMES[:2]]
    assert qm.management_of_each([]) == []
    assert one_by_one == ["R_QMGetObjectSecurityInternal"] * 2


def test_tasks_have_the_same_reads(service):
    async def main():
        async with openmsmq.aio.connect("127.0.0.1", service.port) as manager:
            return await manager.properties_of_each([*NAMES, "none"], "label")

    found = asyncio.run(main())
    assert isinstance(found.pop(), QueueNotFound) and found == [{"label": name.upper()} for name in NAMES]


def test_exports_and_samples_make_no_call_for_each_queue(qm, one_by_one):
    document = export(qm, {})
    assert {queue["name"]: queue["label"] for queue in document["queues"]}.items() >= {(n, n.upper()) for n in NAMES}
    assert all("permissions" in queue for queue in document["queues"])
    assert sum(name.partition("private$\\")[2] in NAMES for name in ByProtocols(qm).sample()) == len(NAMES)
    assert len(one_by_one) == 3  # the names, twice, and the active queues


def test_only_the_queues_of_a_document_are_read(qm, monkeypatch):
    read, each = [], QueueManager._each

    def counted(self, reads):
        read.append(found := each(self, reads))
        return found

    monkeypatch.setattr(QueueManager, "_each", counted)
    document = {"format": 1, "queues": [{"name": name.upper()} for name in (*NAMES[:2], "new")]}
    found = {queue["name"]: queue for queue in export(qm, {}, only=queues_in(document))["queues"]}
    assert [len(answers) for answers in read] == [2, 2]
    assert found.keys() >= set(NAMES) and found[NAMES[2]] == {"name": NAMES[2]} and "label" in found[NAMES[0]]
