"""Rate limit for events that remote hosts can cause."""

from __future__ import annotations

SECOND = 1000.0  # milliseconds


class Rate:
    """Limits events per second."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._began = float("-inf")  # start of the current second
        self._count = 0

    def allows(self, now: float) -> bool:
        """Return whether another event is allowed, and count it if so. `now` is milliseconds of a monotonic clock."""
        if now >= self._began + SECOND:
            self._began, self._count = now, 0
        if self._count >= self._per_second:
            return False
        self._count += 1
        return True

    def again(self, now: float) -> float:
        """Return the milliseconds until the next event is allowed; 0 if it is allowed now."""
        if self._count < self._per_second:
            return 0.0
        return max(self._began + SECOND - now, 0.0)
