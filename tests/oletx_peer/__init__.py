"""A transaction manager that was written from [MS-CMPO], [MS-CMP] and [MS-DTCO] alone, as a test peer.

It shares neither code nor reading with `openmsmq.oletx`. NOTES.md has what it makes of ambiguous places.
"""
