"""The generated modules, one for each IDL file: `ms_mqmp` from `ms-mqmp.idl`, `mc_mqac` from `mc-mqac.idl` and so on.

They are made of `openmsmq/idl` when the package is built or installed, and by `make` (tools/native.py); they are
never edited.
"""
