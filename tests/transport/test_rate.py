"""Rate limits per second."""

from openmsmq.transport.rate import Rate


def test_the_rate_is_limited_per_second() -> None:
    rate = Rate(3)
    assert [rate.allows(now) for now in (0, 10, 20, 30, 999.9)] == [True, True, True, False, False]
    assert [rate.allows(now) for now in (1000, 1001, 1002, 1003)] == [True, True, True, False]


def test_the_limiter_returns_the_next_allowed_time() -> None:
    rate = Rate(2)
    assert rate.again(0) == 0
    rate.allows(100)
    assert rate.again(200) == 0
    rate.allows(200)
    assert (rate.again(250), rate.again(1100), rate.again(5000)) == (850, 0, 0)
