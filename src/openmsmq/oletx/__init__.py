"""OleTx, the protocol of transaction managers, without I/O.

Sessions are [MS-CMPO], connections [MS-CMP], two-phase commit [MS-DTCO].
"""
