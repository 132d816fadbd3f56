"""The generated modules of the IDL files beside them: `ms_dcom` from `ms-dcom.idl` and so on. `tools/native.py` of the
repository generates them when a wheel is built, and `make`; they are never edited.
"""
