"""Limited waits, for packages that do not import `msrpc`."""

from msrpc.waiting import answered_within

__all__ = ["answered_within"]
