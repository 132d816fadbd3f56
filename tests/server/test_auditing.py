"""Records of the daemon's auditor."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from openmsmq.admin.audit import AuditLog
from openmsmq.model.errors import InsufficientResources
from openmsmq.queueing.auditing import Actor, AuditRecord
from openmsmq.server.auditing import Audit

ALICE = Actor("S-1-5-21-1-2-3-1001", "alice", "rpc 10.0.0.7")


def test_openings_are_recorded_once_a_minute_for_each_caller_and_denials_always(tmp_path: Path) -> None:
    now = [0.0]
    log = AuditLog(tmp_path)
    audit = Audit(log, required=False, clock=lambda: now[0])
    opened, denied = (AuditRecord(ALICE, "messages.open", "journal", "orders", denied=value) for value in (False, True))
    for _ in range(3):
        audit.record(opened)
        audit.record(denied)
    now[0] = 61
    audit.record(opened)
    assert [record["result"] for record in log.read()] == ["ok", "denied", "denied", "denied", "ok"]


def test_a_flood_of_denials_is_counted_and_hides_no_other_caller(tmp_path: Path) -> None:
    now = [0.0]
    log = AuditLog(tmp_path)
    audit = Audit(log, required=False, clock=lambda: now[0])
    for number in range(500):
        audit.record(AuditRecord(ALICE, "queue.delete", "queue", f"queue{number}", denied=True))
    audit.record(AuditRecord(ALICE._replace(origin="rpc 10.0.0.8"), "queue.delete", "queue", "orders", denied=True))
    audit.record(AuditRecord(ALICE, "queue.create", "queue", "orders"))
    records = list(log.read())[::-1]
    assert len(records) == 22 and [record["object"]["name"] for record in records[19:]] == [
        "queue19",
        "orders",
        "orders",
    ]
    now[0] = 61
    audit.record(AuditRecord(ALICE, "queue.delete", "queue", "queue500", denied=True))
    latest, counted = islice(log.read(), 2)
    assert (counted["count"], counted["result"]) == (480, "denied") and latest["count"] is None


def test_a_denial_that_cannot_be_recorded_stays_a_denial(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(AuditLog(tmp_path / "missing"), required=True)
    audit.record(AuditRecord(ALICE, "queue.delete", "queue", "orders", denied=True))
    with pytest.raises(InsufficientResources):
        audit.record(AuditRecord(ALICE, "queue.delete", "queue", "orders"))
    assert "queue.delete orders by alice" in caplog.text
