"""The binary protocol between queue managers as it is served: TCP port 1801, both roles ([MS-MQQB]).

`service` listens and drains outgoing queues; `connection` is a socket and its session; `destination` the way to one
queue manager; `arrival` decides what becomes of a message that comes; `sequences` and `memory` keep what has to survive
a restart, in the forms of `durable`.
"""
