"""The binary protocol between queue managers as it is served: TCP port 1801, both roles ([MS-MQQB]).

`service` listens and drains outgoing queues within its `limits`. A `connection` is a socket with its session, a
`destination` the way to one queue manager, which `dialing` connects. `sender` takes messages from outgoing queues;
`receiver` and `arrival` decide about incoming ones; `order_acks` are owed for transactional ones. `sequences` and
`memory` keep state that survives a restart (`durable`). `resolving` finds the next hop, `known_addresses` keeps the
addresses of queue managers that only their own claim identifies. `reports` are for traced messages, `pinging` uses UDP.
"""
