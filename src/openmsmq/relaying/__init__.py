"""Relays: each carries the messages of one queue from another queue manager to this one, or back, and survives crashes
of either. A core without I/O; `server.relays` calls the other queue managers. docs/moving.md says what is promised."""
