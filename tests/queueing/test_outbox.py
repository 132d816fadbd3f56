"""External callbacks run in their own event-loop iteration (invariant I5)."""

from __future__ import annotations

import pytest

from openmsmq.queueing.outbox import guarded


def test_a_failing_callback_is_logged_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert guarded("the callback", lambda: None) is True
    assert guarded("the callback", lambda: 1 // 0) is False
    assert "the callback failed" in caplog.text
