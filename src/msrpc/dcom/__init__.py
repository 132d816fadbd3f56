"""The Distributed Component Object Model ([MS-DCOM]) and Automation ([MS-OAUT]), without I/O of its own.

`objref` and `bindings` are what references to objects look like, `activation` how a client asks for the first one.
`exporter` keeps the objects that others may call and what they hold of them, `pinging` finds out who is gone;
`resolver` and `orpc` offer both as RPC interfaces. `variant` and `automation` are calls by name.
"""
