"""The binary protocol between queue managers, both roles: TCP port 1801 ([MS-MQQB]).

`service` listens and drains outgoing queues within its `limits`. A `connection` is a socket with its session. A
`destination` is a queue manager or host to which outgoing queues send; `dialing` connects to it. `sender` takes
messages from outgoing queues; `receiver` and `arrival` decide about incoming ones; `order_acks` acknowledges
transactional ones. `sequences` and `memory` keep state that survives a restart (`durable`). `resolving` finds the next
hop, `known_addresses` stores addresses of queue managers whose identifiers are unproven claims. `reports` are for
traced messages, `pinging` uses UDP.
"""
