"""NDR 2.0 and NDR64: the runtime of the modules that the IDL compiler (`msrpc.idl`) generates."""

from msrpc.errors import BadStubData, NdrError
from msrpc.ndr.runtime import NULL, ByteOrder, Interface, Null, Operation, Structure

__all__ = ["NULL", "BadStubData", "ByteOrder", "Interface", "NdrError", "Null", "Operation", "Structure"]
