"""A transaction manager that was written from [MS-CMPO], [MS-CMP] and [MS-DTCO] alone, as a test peer.

It is independent of `openmsmq.oletx` in code and interpretation. NOTES.md lists its choices where the texts are
ambiguous.
"""
