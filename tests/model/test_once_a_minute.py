"""Log records that are written once a minute for each kind."""

from __future__ import annotations

from openmsmq.model.once_a_minute import PERIOD, OnceAMinute


def test_each_kind_is_logged_at_first_and_again_after_a_minute() -> None:
    now = 100.0
    refused = OnceAMinute(lambda: now)
    assert [refused.count("send"), refused.count("send"), refused.count("open")] == [True, False, True]
    now += PERIOD - 1
    assert not refused.count("send")
    now += 1
    assert refused.count("send") and not refused.count("send")
    assert refused.counts == {"send": 5, "open": 1}
