"""The generated modules, one for each IDL file: `ms_dtyp`, `ms_mqmq`, `ms_mqmp`, `ms_mqrr`, `ms_mqqp`, `ms_mqmr`.

They are made of `openmsmq/idl` when the package is built or installed, and by `make` (`python -m openmsmq.ndr`); nobody
edits them.
"""
