"""NDR 2.0: an IDL compiler and the runtime of the codecs it generates.

`openmsmq.interfaces.ms_mqmp` and its siblings are the generated modules; `python -m openmsmq.ndr` makes them afresh.
"""

from openmsmq.ndr.errors import BadStubData, NdrError
from openmsmq.ndr.lexer import IdlError
from openmsmq.ndr.runtime import NULL, ByteOrder, Interface, Null, Operation, Structure

__all__ = ["NULL", "BadStubData", "ByteOrder", "IdlError", "Interface", "NdrError", "Null", "Operation", "Structure"]
