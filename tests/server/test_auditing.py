"""What the daemon's auditor keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmsmq.model.errors import InsufficientResources
from openmsmq.operating.audit import AuditLog
from openmsmq.queueing.auditing import Actor, Deed
from openmsmq.server.auditing import Audit

ALICE = Actor("S-1-5-21-1-2-3-1001", "alice", "rpc 10.0.0.7")


def test_openings_are_recorded_once_a_minute_for_each_caller_and_denials_always(tmp_path: Path) -> None:
    now = [0.0]
    log = AuditLog(tmp_path)
    audit = Audit(log, required=False, clock=lambda: now[0])
    opened, denied = (Deed(ALICE, "messages.open", "journal", "orders", denied=value) for value in (False, True))
    for _ in range(3):
        audit.record(opened)
        audit.record(denied)
    now[0] = 61
    audit.record(opened)
    assert [record["result"] for record in log.read()] == ["ok", "denied", "denied", "denied", "ok"]


def test_a_denial_that_cannot_be_recorded_stays_a_denial(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(AuditLog(tmp_path / "missing"), required=True)
    audit.record(Deed(ALICE, "queue.delete", "queue", "orders", denied=True))
    with pytest.raises(InsufficientResources):
        audit.record(Deed(ALICE, "queue.delete", "queue", "orders"))
    assert "queue.delete orders by alice" in caplog.text
