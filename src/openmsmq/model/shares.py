"""How much of something bounded each source holds, so that no source takes what all share."""

from msrpc.shares import Shares

__all__ = ["Shares"]
