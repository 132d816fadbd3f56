"""The generated modules, one for each IDL file: `ms_mqmp` from `ms-mqmp.idl`, `mc_mqac` from `mc-mqac.idl` and so on.

They are produced from `openmsmq/idl` when the package is built, or at first import, and cached; nobody edits them.
"""

from pathlib import Path

from openmsmq.ndr.build import interfaces_directory

directory = interfaces_directory(Path(__file__).parent)
if directory is not None and str(directory) not in __path__:
    __path__.append(str(directory))
