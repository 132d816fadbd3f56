"""The calls of qmcomm, qmcomm2 and qmmgmt as classes of impacket's NDR, written from the published IDL.

No code is shared with the product: impacket encodes and decodes through these classes as an independent
implementation would. `request` creates a call; pointers that are not given are NULL.
"""

# ruff: noqa: RUF012 - class attributes are how impacket's NDR is declared

from __future__ import annotations

from typing import Any

from impacket.dcerpc.v5 import dtypes
from impacket.dcerpc.v5.ndr import (
    NDR,
    NDRCALL,
    NDRHYPER,
    NDRLONG,
    NDRPOINTER,
    NDRPOINTERNULL,
    NDRSHORT,
    NDRSTRUCT,
    NDRUHYPER,
    NDRULONG,
    NDRUNION,
    NDRUSHORT,
    NDRUSMALL,
    NDRUniConformantArray,
    NDRUniConformantVaryingArray,
)
from impacket.uuid import uuidtup_to_bin

QMCOMM = uuidtup_to_bin(("fdb3a030-065f-11d1-bb9b-00a024ea5525", "1.0"))
QMCOMM2 = uuidtup_to_bin(("76d12b80-3467-11d3-91ff-0090272f9ea3", "1.0"))
QMMGMT = uuidtup_to_bin(("41208ee0-e970-11d1-9b9e-00e02c064c39", "1.0"))

DWORD, LONG, USHORT, UCHAR = NDRULONG, NDRLONG, NDRUSHORT, NDRUSMALL
WSTR, LPWSTR, GUID = dtypes.WSTR, dtypes.LPWSTR, dtypes.GUID


def pointer(to: type[NDR]) -> type[NDRPOINTER]:
    return type(f"P{to.__name__}", (NDRPOINTER,), {"referent": (("Data", to),)})


class _Elements:
    """Arrays of bytes and of WCHARs, as bytes; impacket's lists of characters take seconds for 4 MiB."""

    width = 1

    def pack(self, name: str, kind: Any, so_far: int = 0) -> bytes:
        if "*" not in kind:
            return super().pack(name, kind, so_far)  # type: ignore[misc]
        data = bytes(self.fields[name])
        self.setArraySize(len(data) // self.width)
        return data

    def unpack(self, name: str, kind: Any, data: bytes, offset: int = 0) -> int:
        if "*" not in kind:
            return super().unpack(name, kind, data, offset)  # type: ignore[misc]
        varying = isinstance(self, NDRUniConformantVaryingArray)
        count = self.fields["ActualCount"] if varying else self.getArraySize()
        self.fields[name] = data[offset : offset + count * self.width]
        assert len(self.fields[name]) == count * self.width
        return count * self.width


class BYTES(_Elements, NDRUniConformantArray):
    pass


class VARYING_BYTES(_Elements, NDRUniConformantVaryingArray):
    pass


class WCHARS(_Elements, NDRUniConformantArray):
    item = "<H"
    width = 2


class VARYING_WCHARS(_Elements, NDRUniConformantVaryingArray):
    item = "<H"
    width = 2
    commonHdr = (("Offset", "<L=0"), ("ActualCount", "<L=len(Data)//2"))


class FixedBytes(NDRSTRUCT):
    align_to = 4

    def getAlignment(self) -> int:
        return self.align_to


class HANDLE(FixedBytes):
    structure = (("Data", "20s=b''"),)


class OBJECTID(FixedBytes):
    structure = (("Lineage", "16s=b''"), ("Uniquifier", "<L=0"))


class XACTUOW(FixedBytes):
    align_to = 1
    structure = (("Data", "16s=b''"),)


class MULTICAST_ID(NDRSTRUCT):
    structure = (("m_address", DWORD), ("m_port", DWORD))


class Nothing(NDR):
    align = 1
    structure = ()


class QUEUE_FORMAT_UNION(NDRUNION):
    notAlign = True
    commonHdr = (("tag", UCHAR),)
    union = {
        0: ("none", Nothing),
        1: ("m_gPublicID", GUID),
        2: ("m_oPrivateID", OBJECTID),
        3: ("m_pDirectID", LPWSTR),
        4: ("m_gMachineID", GUID),
        5: ("m_GConnectorID", GUID),
        7: ("m_MulticastID", MULTICAST_ID),
        8: ("m_pDirectSubqueueID", LPWSTR),
    }


class QUEUE_FORMAT(NDRSTRUCT):
    structure = (
        ("m_qft", UCHAR), ("m_SuffixAndFlags", UCHAR), ("m_reserved", USHORT), ("u", QUEUE_FORMAT_UNION),
    )  # fmt: skip


PQUEUE_FORMAT = pointer(QUEUE_FORMAT)


class OBJECT_FORMAT_UNION(NDRUNION):
    commonHdr = (("tag", DWORD),)
    union = {1: ("pQueueFormat", PQUEUE_FORMAT), 2: ("none", Nothing)}


class OBJECT_FORMAT(NDRSTRUCT):
    structure = (("ObjType", DWORD), ("u", OBJECT_FORMAT_UNION))


class LPWSTR_ARRAY(NDRUniConformantArray):
    item = LPWSTR


class CALPWSTR(NDRSTRUCT):
    structure = (("cElems", DWORD), ("pElems", pointer(LPWSTR_ARRAY)))


class VARIANT_UNION(NDRUNION):
    notAlign = True
    commonHdr = (("tag", USHORT),)
    union = {
        0: ("empty", Nothing), 1: ("null", Nothing), 2: ("iVal", NDRSHORT), 3: ("lVal", LONG), 17: ("bVal", UCHAR),
        18: ("uiVal", USHORT), 19: ("ulVal", DWORD), 20: ("hVal", NDRHYPER), 21: ("uhVal", NDRUHYPER),
        31: ("pwszVal", LPWSTR), 72: ("puuid", pointer(GUID)), 0x101F: ("calpwstr", CALPWSTR),
    }  # fmt: skip


class PROPVARIANT(NDRSTRUCT):
    structure = (
        ("vt", USHORT), ("wReserved1", UCHAR), ("wReserved2", UCHAR), ("wReserved3", DWORD), ("u", VARIANT_UNION),
    )  # fmt: skip

    def getAlignment(self) -> int:
        return 8  # C706 14.3.2: the alignment is that of the widest arm, whichever is selected


class PROPVARIANTS(NDRUniConformantArray):
    item = PROPVARIANT


class TOP_PROPVARIANTS(PROPVARIANTS):
    def getData(self, soFar: int = 0) -> bytes:
        # NDRCALL puts the count before the elements implicitly; this matters only for elements aligned to 8.
        return super().getData(soFar + (8 if self._isNDR64 else 4))


class DWORDS(NDRUniConformantArray):
    item = DWORD


class CACCreateRemoteCursor(NDRSTRUCT):
    structure = (("hCursor", DWORD), ("srv_hACQueue", DWORD), ("cli_pQMQueue", DWORD))


class SEND_ARM(NDRSTRUCT):
    structure = (("pAdminQueueFormat", PQUEUE_FORMAT), ("pResponseQueueFormat", PQUEUE_FORMAT))


PUCHAR, PUSHORT, PDWORD = pointer(UCHAR), pointer(USHORT), pointer(DWORD)
PPBYTES, PPVARYING_BYTES = pointer(pointer(BYTES)), pointer(pointer(VARYING_BYTES))
PPWCHARS, PPVARYING_WCHARS = pointer(pointer(WCHARS)), pointer(pointer(VARYING_WCHARS))
PPGUID, PPOBJECTID = pointer(pointer(GUID)), pointer(pointer(OBJECTID))


class RECEIVE_ARM(NDRSTRUCT):
    structure = (
        ("RequestTimeout", DWORD), ("Action", DWORD), ("Asynchronous", DWORD), ("Cursor", DWORD),
        ("ulResponseFormatNameLen", DWORD), ("ppResponseFormatName", PPWCHARS),
        ("pulResponseFormatNameLenProp", PDWORD),
        ("ulAdminFormatNameLen", DWORD), ("ppAdminFormatName", PPWCHARS), ("pulAdminFormatNameLenProp", PDWORD),
        ("ulDestFormatNameLen", DWORD), ("ppDestFormatName", PPWCHARS), ("pulDestFormatNameLenProp", PDWORD),
        ("ulOrderingFormatNameLen", DWORD), ("ppOrderingFormatName", PPWCHARS),
        ("pulOrderingFormatNameLenProp", PDWORD),
    )  # fmt: skip


class TRANSFER_UNION(NDRUNION):
    commonHdr = (("tag", DWORD),)
    union = {0: ("Send", SEND_ARM), 1: ("Receive", RECEIVE_ARM), 2: ("CreateCursor", CACCreateRemoteCursor)}


class CACTransferBufferV1(NDRSTRUCT):
    structure = (
        ("uTransferType", DWORD), ("u", TRANSFER_UNION), ("pClass", PUSHORT), ("ppMessageID", PPOBJECTID),
        ("ppCorrelationID", PPVARYING_BYTES), ("pSentTime", PDWORD), ("pArrivedTime", PDWORD), ("pPriority", PUCHAR),
        ("pDelivery", PUCHAR), ("pAcknowledge", PUCHAR), ("pAuditing", PUCHAR), ("pApplicationTag", PDWORD),
        ("ppBody", PPVARYING_BYTES), ("ulBodyBufferSizeInBytes", DWORD), ("ulAllocBodyBufferInBytes", DWORD),
        ("pBodySize", PDWORD), ("ppTitle", PPVARYING_WCHARS), ("ulTitleBufferSizeInWCHARs", DWORD),
        ("pulTitleBufferSizeInWCHARs", PDWORD), ("ulAbsoluteTimeToQueue", DWORD), ("pulRelativeTimeToQueue", PDWORD),
        ("ulRelativeTimeToLive", DWORD), ("pulRelativeTimeToLive", PDWORD), ("pTrace", PUCHAR),
        ("pulSenderIDType", PDWORD), ("ppSenderID", PPBYTES), ("pulSenderIDLenProp", PDWORD),
        ("pulPrivLevel", PDWORD), ("ulAuthLevel", DWORD), ("pAuthenticated", PUCHAR), ("pulHashAlg", PDWORD),
        ("pulEncryptAlg", PDWORD), ("ppSenderCert", PPBYTES), ("ulSenderCertLen", DWORD),
        ("pulSenderCertLenProp", PDWORD), ("ppwcsProvName", PPWCHARS), ("ulProvNameLen", DWORD),
        ("pulAuthProvNameLenProp", PDWORD), ("pulProvType", PDWORD), ("fDefaultProvider", LONG),
        ("ppSymmKeys", PPBYTES), ("ulSymmKeysSize", DWORD), ("pulSymmKeysSizeProp", PDWORD), ("bEncrypted", UCHAR),
        ("bAuthenticated", UCHAR), ("uSenderIDLen", USHORT), ("ppSignature", PPBYTES), ("ulSignatureSize", DWORD),
        ("pulSignatureSizeProp", PDWORD), ("ppSrcQMID", PPGUID), ("pUow", pointer(XACTUOW)),
        ("ppMsgExtension", PPVARYING_BYTES), ("ulMsgExtensionBufferInBytes", DWORD), ("pMsgExtensionSize", PDWORD),
        ("ppConnectorType", PPGUID), ("pulBodyType", PDWORD), ("pulVersion", PDWORD),
    )  # fmt: skip


class CACTransferBufferV2(NDRSTRUCT):
    structure = (
        ("old", CACTransferBufferV1), ("pbFirstInXact", PUCHAR), ("pbLastInXact", PUCHAR), ("ppXactID", PPOBJECTID),
    )  # fmt: skip


RESULT = ("result", DWORD)


class R_QMCloseRemoteQueueContext(NDRCALL):
    opnum = 3
    structure = (("pphContext", HANDLE),)


class R_QMCloseRemoteQueueContextResponse(NDRCALL):
    structure = (("pphContext", HANDLE),)


def _operation(name: str, opnum: int, inputs: tuple[Any, ...], outputs: tuple[Any, ...] = ()) -> None:
    """Define the call `name` and its response, which impacket finds by name."""
    base = {"__module__": __name__}
    globals()[name] = type(name, (NDRCALL,), {**base, "opnum": opnum, "structure": inputs})
    globals()[f"{name}Response"] = type(f"{name}Response", (NDRCALL,), {**base, "structure": (*outputs, RESULT)})


_FORMAT, _CP = ("pObjectFormat", OBJECT_FORMAT), ("cp", DWORD)
_PROPERTIES = (_CP, ("aProp", DWORDS), ("apVar", TOP_PROPVARIANTS))
_operation("R_QMOpenRemoteQueue", 2, (
    ("pQueueFormat", pointer(QUEUE_FORMAT)), ("dwCallingProcessID", DWORD), ("dwDesiredAccess", DWORD),
    ("dwShareMode", DWORD), ("pLicGuid", GUID), ("dwMQS", DWORD),
), (("pphContext", HANDLE), ("pdwContext", DWORD), ("dwpQueue", DWORD), ("phQueue", DWORD)))  # fmt: skip
_operation("R_QMCreateObjectInternal", 6, (
    ("dwObjectType", DWORD), ("lpwcsPathName", WSTR), ("SDSize", DWORD), ("pSecurityDescriptor", pointer(BYTES)),
    *_PROPERTIES,
))  # fmt: skip
_operation("R_QMDeleteObject", 9, (_FORMAT,))
_operation("R_QMGetObjectProperties", 10, (_FORMAT, *_PROPERTIES), (("apVar", PROPVARIANTS),))
_operation("R_QMSetObjectProperties", 11, (_FORMAT, _CP, ("aProp", pointer(DWORDS)), ("apVar", pointer(PROPVARIANTS))))
_operation("R_QMObjectPathToObjectFormat", 12, (("lpwcsPathName", WSTR), _FORMAT), (_FORMAT,))
_operation("R_QMEnlistInternalTransaction", 16, (("pUow", XACTUOW),), (("phIntXact", HANDLE),))
_operation("R_QMCommitTransaction", 17, (("phIntXact", HANDLE),), (("phIntXact", HANDLE),))
_operation("R_QMAbortTransaction", 18, (("phIntXact", HANDLE),), (("phIntXact", HANDLE),))
_operation("rpc_QMOpenQueueInternal", 19, (
    ("pQueueFormat", QUEUE_FORMAT), ("dwDesiredAccess", DWORD), ("dwShareMode", DWORD), ("hRemoteQueue", DWORD),
    ("lplpRemoteQueueName", pointer(LPWSTR)), ("dwpQueue", DWORD), ("pLicGuid", GUID), ("lpClientName", WSTR),
    ("dwRemoteProtocol", DWORD), ("dwpRemoteContext", DWORD),
), (("lplpRemoteQueueName", pointer(LPWSTR)), ("pdwQMContext", DWORD), ("phQueue", HANDLE)))  # fmt: skip
_operation("rpc_ACCloseHandle", 20, (("phQueue", HANDLE),), (("phQueue", HANDLE),))
_operation("rpc_ACCloseCursor", 22, (("hQueue", HANDLE), ("hCursor", DWORD)))
_operation("rpc_ACHandleToFormatName", 26, (
    ("hQueue", HANDLE), ("dwFormatNameRPCBufferLen", DWORD), ("lpwcsFormatName", pointer(VARYING_WCHARS)),
    ("pdwLength", DWORD),
), (("lpwcsFormatName", pointer(VARYING_WCHARS)), ("pdwLength", DWORD)))  # fmt: skip
_operation("rpc_ACPurgeQueue", 27, (("hQueue", HANDLE),))
_operation("R_QMGetRTQMServerPort", 31, (("fIP", DWORD),))

_PTB = ("ptb", CACTransferBufferV2)
_operation("rpc_ACSendMessageEx", 1, (("hQueue", HANDLE), _PTB, ("pMessageID", pointer(OBJECTID))),
           (("pMessageID", pointer(OBJECTID)),))  # fmt: skip
_operation("rpc_ACReceiveMessageEx", 2, (("hQMContext", DWORD), _PTB), (_PTB,))
_operation("rpc_ACCreateCursorEx", 3, (("hQueue", HANDLE), ("pcc", CACCreateRemoteCursor)),
           (("pcc", CACCreateRemoteCursor),))  # fmt: skip


class MGMT_ENUM(NDRUSHORT):
    """An enum without v1_enum: 16 bits."""


class MGMT_OBJECT_UNION(NDRUNION):
    commonHdr = (("tag", MGMT_ENUM),)
    union = {1: ("Reserved1", DWORD), 2: ("pQueueFormat", PQUEUE_FORMAT), 3: ("Reserved2", DWORD)}


class MGMT_OBJECT(NDRSTRUCT):
    structure = (("type", MGMT_ENUM), ("u", MGMT_OBJECT_UNION))


_operation("R_QMMgmtGetInfo", 0, (("pObjectFormat", MGMT_OBJECT), *_PROPERTIES), (("apVar", PROPVARIANTS),))
_operation("R_QMMgmtAction", 1, (("pObjectFormat", MGMT_OBJECT), ("lpwszAction", WSTR)))


def fill(target: Any, values: dict[str, Any]) -> Any:
    """Set members. Nested structures take dictionaries, unions a dictionary with one member; pointers default to
    NULL.

    A tuple (data, count) gives an array its own maximum count.
    """
    for name, _ in target.commonHdr + target.structure:
        member = target.fields[name]
        if name not in values:
            if isinstance(member, NDRPOINTER):
                target.fields[name] = NDRPOINTERNULL()
            elif isinstance(member, NDRSTRUCT | NDRUNION) and "Data" not in member.fields:
                fill(member, {})
            continue
        _put(target, name, values[name])
    return target


def _put(target: Any, name: str, value: Any) -> None:
    member = target.fields[name]
    while isinstance(member, NDRPOINTER):  # down to the referent
        member = member.fields["Data"]
    if not isinstance(member, NDR):
        target.fields[name] = value
    elif isinstance(member, NDRUNION):
        ((arm, content),) = value.items()
        member["tag"] = next(tag for tag, (known, _) in member.union.items() if known == arm)
        if content is not None:
            _put(member, arm, content)
    elif isinstance(value, dict):
        fill(member, value)
    elif isinstance(value, list):
        member["Data"] = [_element(member.item, element) for element in value]
    elif isinstance(value, tuple):
        member["Data"], member.fields["MaximumCount"] = value
    else:
        member["Data"] = value


def _element(kind: Any, value: Any) -> Any:
    element = kind()
    if isinstance(value, dict):
        return fill(element, value)
    element["Data"] = value
    return element


def request(name: str, **values: Any) -> Any:
    """Return a call with its arguments."""
    return fill(globals()[name](), values)


def is_null(member: Any) -> bool:
    return isinstance(member, NDRPOINTER) and member.fields["ReferentID"] == 0
