"""The generated modules, one for each IDL file: `ms_dtyp`, `ms_mqmq`, `ms_mqmp`, `ms_mqrr`, `ms_mqqp`, `ms_mqmr`.

They are produced from `openmsmq/idl` at first import and cached; nobody edits them.
"""

from pathlib import Path

from openmsmq.ndr.build import interfaces_directory

_generated = interfaces_directory(Path(__file__).parent)
if str(_generated) not in __path__:
    __path__.append(str(_generated))
