"""Conversion between values of `openmsmq.model` and wire structures, in both directions.

Server handlers and the client share these conversions, which use neither sockets nor queues.
"""
