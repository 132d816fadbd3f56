"""Results of calls to objects ([MS-ERREF] 2.1) and the errors that carry them."""

from __future__ import annotations

from enum import IntEnum

from openmsmq.model.errors import MsmqError


class ComResult(IntEnum):
    """HRESULTs of COM, DCOM and Automation. Those of MSMQ are `model.errors.HResult`."""

    S_OK = 0
    S_FALSE = 1
    E_NOTIMPL = 0x80004001
    E_NOINTERFACE = 0x80004002
    E_POINTER = 0x80004003
    E_FAIL = 0x80004005
    E_UNEXPECTED = 0x8000FFFF
    E_ACCESSDENIED = 0x80070005
    E_OUTOFMEMORY = 0x8007000E
    E_INVALIDARG = 0x80070057
    OLE_E_BLANK = 0x80040007
    CLASS_E_NOAGGREGATION = 0x80040110
    REGDB_E_CLASSNOTREG = 0x80040154
    CONNECT_E_NOCONNECTION = 0x80040200
    CONNECT_E_ADVISELIMIT = 0x80040201
    CONNECT_E_CANNOTCONNECT = 0x80040202
    CO_E_OBJNOTREG = 0x800401FC
    RPC_E_DISCONNECTED = 0x80010108
    RPC_E_VERSION_MISMATCH = 0x80010110
    RPC_E_INVALID_HEADER = 0x80010111
    RPC_E_INVALID_OBJECT = 0x80010114
    DISP_E_UNKNOWNINTERFACE = 0x80020001
    DISP_E_MEMBERNOTFOUND = 0x80020003
    DISP_E_PARAMNOTFOUND = 0x80020004
    DISP_E_TYPEMISMATCH = 0x80020005
    DISP_E_UNKNOWNNAME = 0x80020006
    DISP_E_NONAMEDARGS = 0x80020007
    DISP_E_BADVARTYPE = 0x80020008
    DISP_E_EXCEPTION = 0x80020009
    DISP_E_OVERFLOW = 0x8002000A
    DISP_E_BADINDEX = 0x8002000B
    DISP_E_UNKNOWNLCID = 0x8002000C
    DISP_E_BADPARAMCOUNT = 0x8002000E
    DISP_E_PARAMNOTOPTIONAL = 0x8002000F
    STG_E_INVALIDFUNCTION = 0x80030001
    STG_E_MEDIUMFULL = 0x80030070
    STG_E_REVERTED = 0x80030102
    TYPE_E_ELEMENTNOTFOUND = 0x8002802B
    XACT_E_NOTSUPPORTED = 0x8004D00F


class ResolverError(IntEnum):
    """What an object resolver answers instead of an HRESULT ([MS-DCOM] 3.1.2.5.1; [MS-ERREF] 2.2)."""

    OR_INVALID_OXID = 1910
    OR_INVALID_OID = 1911
    OR_INVALID_SET = 1912


class ComError(MsmqError):
    """A call to an object failed with an HRESULT of COM, DCOM or Automation."""

    @property
    def name(self) -> str:
        """The name of the HRESULT, the number where none is known."""
        try:
            return ComResult(self.hresult).name
        except ValueError:
            return super().name
