"""Message security: signatures, encryption and certificates of messages ([MS-MQQB] 3.1.5.8.3, 3.1.7.1.4, 3.1.7.1.5).

`keys` and `certificates` have the structures in packets and in the directory, `algorithms` the tables of algorithms.
`sign`, `verify`, `seal` and `unseal` are pure functions of packets, keys and a `policy`. `arrival` and `departure`
combine them for packets from and to other queue managers. Only `keyring` reads and writes files; `caches` get the time
as an argument.
"""
