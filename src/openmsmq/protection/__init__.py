"""Message security: signatures, encryption and certificates of messages ([MS-MQQB] 3.1.5.8.3, 3.1.7.1.4, 3.1.7.1.5).

`keys` and `certificates` are the structures of the wire and of the directory, `algorithms` their tables. `sign`,
`verify`, `seal` and `unseal` are pure functions of packets, keys and a `policy`. `arrival` and `departure` put them
together for a packet that comes from, or goes to, another queue manager. Only `keyring` reads and writes files;
`caches` get the time as an argument.
"""
