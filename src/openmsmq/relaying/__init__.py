"""Relays: each carries the messages of one queue from another queue manager to this one, or back, and survives crashes
of either. A core without I/O; `server.relays` calls the other queue managers. docs/moving.md states the guarantees.

`states` has the steps of an operator, `relay` one relay, `relays` all, `records` their state in the store.
"""
