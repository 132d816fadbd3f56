"""The binary protocol between queue managers as it is served: TCP port 1801, both roles ([MS-MQQB]).

`service` listens and finds the ways to other queue managers; `connection` is a socket and its session, `destination`
the way to one queue manager. `departing` says what outgoing queues send, `arrival` what becomes of a message that
comes; `order_acks` are owed for transactional ones. `sequences` and `memory` keep what has to survive a restart, in the
forms of `durable`.
"""
