"""Between the values of `openmsmq.model` and the structures of the wire, in both directions.

Server handlers and the client share these translations; they know neither sockets nor queues.
"""
