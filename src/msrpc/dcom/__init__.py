"""The Distributed Component Object Model ([MS-DCOM]) and Automation ([MS-OAUT]), without I/O of its own.

`objref` and `bindings` encode references to objects; `activation` encodes the request for the first one. `exporter`
keeps the exported objects and the references that clients hold; `pinging` detects clients that have gone; `resolver`
and `orpc` offer both as RPC interfaces. `variant` and `automation` implement calls by name.
"""
