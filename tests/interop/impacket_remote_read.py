"""The calls of RemoteRead as classes of impacket's NDR, written from the published IDL of MS-MQRR."""

from __future__ import annotations

from typing import Any

from impacket.dcerpc.v5.ndr import NDRCALL, NDRPOINTER, NDRSTRUCT, NDRUHYPER, NDRULONG, NDRUniConformantArray
from impacket.uuid import uuidtup_to_bin

from interop.impacket_msmq import BYTES, DWORD, GUID, HANDLE, LONG, QUEUE_FORMAT, UCHAR, USHORT, fill, pointer

REMOTE_READ = uuidtup_to_bin(("1a9134dd-7b39-45ba-ad88-44d01ca47f28", "1.0"))


class SectionType(USHORT):
    """An enum without v1_enum: 16 bits."""


class SectionBuffer(NDRSTRUCT):
    structure = (
        ("SectionBufferType", SectionType), ("SectionSizeAlloc", DWORD), ("SectionSize", DWORD),
        ("pSectionBuffer", pointer(BYTES)),
    )  # fmt: skip


class SECTIONS(NDRUniConformantArray):
    item = SectionBuffer


class R_GetServerPort(NDRCALL):
    opnum = 0
    structure = ()


class R_GetServerPortResponse(NDRCALL):
    structure = (("result", NDRULONG),)


class R_OpenQueue(NDRCALL):
    opnum = 2
    structure = (
        ("pQueueFormat", QUEUE_FORMAT), ("dwAccess", DWORD), ("dwShareMode", DWORD), ("pClientId", GUID),
        ("fNonRoutingServer", LONG), ("Major", UCHAR), ("Minor", UCHAR), ("BuildNumber", USHORT), ("fWorkgroup", LONG),
    )  # fmt: skip


class R_OpenQueueResponse(NDRCALL):
    structure = (("pphContext", HANDLE),)


class R_CloseQueue(NDRCALL):
    opnum = 3
    structure = (("pphContext", HANDLE),)


class R_CloseQueueResponse(NDRCALL):
    structure = (("pphContext", HANDLE), ("result", NDRULONG))


class R_StartReceive(NDRCALL):
    opnum = 7
    structure = (
        ("phContext", HANDLE), ("LookupId", NDRUHYPER), ("hCursor", DWORD), ("ulAction", DWORD), ("ulTimeout", DWORD),
        ("dwRequestId", DWORD), ("dwMaxBodySize", DWORD), ("dwMaxCompoundMessageSize", DWORD),
    )  # fmt: skip


class PSECTIONS(NDRPOINTER):
    referent = (("Data", SECTIONS),)


class R_StartReceiveResponse(NDRCALL):
    structure = (
        ("pdwArriveTime", DWORD), ("pSequenceId", NDRUHYPER), ("pdwNumberOfSections", DWORD),
        ("ppPacketSections", PSECTIONS), ("result", NDRULONG),
    )  # fmt: skip


class R_EndReceive(NDRCALL):
    opnum = 9
    structure = (("phContext", HANDLE), ("dwAck", DWORD), ("dwRequestId", DWORD))


class R_EndReceiveResponse(NDRCALL):
    structure = (("result", NDRULONG),)


def request(name: str, **values: Any) -> Any:
    """Return a call with its arguments."""
    return fill(globals()[name](), values)
