"""Shares of a limited resource by source, so that no source uses all of it."""

from msrpc.shares import Shares

__all__ = ["Shares"]
