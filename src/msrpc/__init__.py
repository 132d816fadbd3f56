"""DCE/RPC ([MS-RPCE]) and DCOM ([MS-DCOM], [MS-OAUT]) in Python: an IDL compiler, clients and servers.

`idl` compiles IDL files to Python modules, for which `ndr` is the runtime; `rpc` has clients and servers; `dcom` has
objects over RPC; `interfaces` has the generated modules of the interfaces of RPC and DCOM.
"""

__version__ = "0.1.0"
