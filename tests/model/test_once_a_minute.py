"""Log records that are written once a minute."""

from __future__ import annotations

from openmsmq.model.once_a_minute import MOST, PERIOD, OnceAMinute


def test_each_kind_is_logged_at_first_and_again_after_a_minute() -> None:
    now = 100.0
    refused = OnceAMinute(lambda: now)
    assert [refused.is_due(kind) for kind in ("send", "send", "open")] == [True, False, True]
    now += PERIOD - 1
    assert not refused.is_due("send")
    now += 1
    assert refused.is_due("send") and not refused.is_due("send")


def test_a_flood_of_different_kinds_is_limited() -> None:
    now = 100.0
    refused = OnceAMinute(lambda: now)
    assert sum(refused.is_due(f"{number} bytes") for number in range(10 * MOST)) == MOST
    now += PERIOD
    assert sum(refused.is_due(f"{number} octets") for number in range(10 * MOST)) == MOST
