"""The IDL compiler: from the subset of MIDL in which the Open Specifications publish interfaces to Python modules.

The front end is `lexer`, `parser` (which creates the trees of `syntax`) and `semantics`, which describes transferred
data as `wiretypes`. The back ends are `python_backend` (with `python_decoder`, `python_encoder` and `python_emitter`),
which writes classes with straight-line code, and `table_backend`, which writes tables for the engine in C. `ndr64` has
the types of NDR64, for which both also write codecs. `build` writes the modules; `python -m msrpc.idl --help` describes
the command.
"""
