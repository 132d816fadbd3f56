"""The IDL compiler: from the subset of MIDL in which the Open Specifications publish interfaces to Python modules.

`lexer`, `parser` (which makes the trees of `syntax`) and `semantics` are its front end, which describes what travels as
`wiretypes`. Behind it stand `python_backend` (with `python_decoder`, `python_encoder` and `python_emitter`), which
writes classes with straight-line code, and `table_backend`, which writes tables for the engine in C. `ndr64` has the
types of NDR64, for which both write codecs as well. `build` writes the modules; `python -m msrpc.idl --help` is the
command.
"""
