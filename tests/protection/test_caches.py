from __future__ import annotations

from openmsmq.protection.caches import TimedCache


def test_an_entry_lives_for_its_time() -> None:
    cache: TimedCache[str, int] = TimedCache(4, 10.0)
    cache.put("a", 1, 0.0)
    assert (cache.get("a", 9.9), cache.get("a", 10.0), len(cache)) == (1, None, 0)


def test_a_full_cache_forgets_its_older_half() -> None:
    cache: TimedCache[int, int] = TimedCache(4, 100.0)
    for number in range(5):
        cache.put(number, number, float(number))
    assert [cache.get(number, 5.0) for number in range(5)] == [None, None, 2, 3, 4]


def test_a_replaced_entry_gets_a_new_lifetime() -> None:
    cache: TimedCache[int, int] = TimedCache(2, 100.0)
    for number in (1, 2, 1, 3):
        cache.put(number, number, 0.0)
    assert [cache.get(number, 0.0) for number in (1, 2, 3)] == [1, None, 3]
