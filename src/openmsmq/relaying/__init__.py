"""Relays: each moves the messages of one queue from another queue manager to this one, or back, and tolerates crashes
of either. This package does no I/O; `server.relays` calls the other queue managers. docs/moving.md states the
guarantees.

`states` has the steps of an operator, `relay` a single relay, `relays` all relays, `records` their state in the store.
"""
