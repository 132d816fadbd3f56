"""Format names and QUEUE_FORMAT ([MS-MQMQ] 2.2.7)."""

from __future__ import annotations

import ipaddress
from typing import Any
from uuid import UUID

from openmsmq.interfaces.ms_mqmq import DL_ID, MULTICAST_ID, OBJECTID, QUEUE_FORMAT
from openmsmq.model import names
from openmsmq.model.errors import IllegalFormatName
from openmsmq.model.names import Suffix

UNKNOWN, PUBLIC, PRIVATE, DIRECT, MACHINE, CONNECTOR, DL, MULTICAST, SUBQUEUE = range(9)
_SYSTEM_FLAG = 0x80
_SUFFIX_MASK = 0x0F


def to_queue_format(name: names.FormatName) -> QUEUE_FORMAT:
    """Convert a format name to QUEUE_FORMAT. Raises IllegalFormatName for a multiple-element format name, which has
    none."""
    match name:
        case names.PublicFormatName(guid=guid, suffix=suffix):
            return _with_suffix(QUEUE_FORMAT(m_qft=PUBLIC, m_gPublicID=guid.bytes_le), suffix)
        case names.PrivateFormatName(guid=guid, number=number, suffix=suffix):
            identifier = OBJECTID(Lineage=guid.bytes_le, Uniquifier=number)
            return _with_suffix(QUEUE_FORMAT(m_qft=PRIVATE, m_oPrivateID=identifier), suffix)
        case names.DirectFormatName(suffix=Suffix.SUBQUEUE):
            return _with_suffix(QUEUE_FORMAT(m_qft=SUBQUEUE, m_pDirectSubqueueID=name.direct_id), Suffix.SUBQUEUE)
        case names.DirectFormatName(suffix=suffix):
            return _with_suffix(QUEUE_FORMAT(m_qft=DIRECT, m_pDirectID=name.direct_id), suffix)
        case names.MachineFormatName(guid=guid, suffix=suffix):
            return _with_suffix(QUEUE_FORMAT(m_qft=MACHINE, m_gMachineID=guid.bytes_le), suffix)
        case names.ConnectorFormatName(guid=guid, suffix=suffix):
            return _with_suffix(QUEUE_FORMAT(m_qft=CONNECTOR, m_GConnectorID=guid.bytes_le), suffix)
        case names.DistributionListFormatName(guid=guid, domain=domain):
            identifier_dl = DL_ID(m_DlGuid=guid.bytes_le, m_pwzDomain=domain or None)
            return QUEUE_FORMAT(m_qft=DL, m_DlID=identifier_dl)
        case names.MulticastFormatName(address=address, port=port):
            packed = int.from_bytes(ipaddress.IPv4Address(address).packed, "little")
            return QUEUE_FORMAT(m_qft=MULTICAST, m_MulticastID=MULTICAST_ID(m_address=packed, m_port=port))
    raise IllegalFormatName(detail=f"{name}: QUEUE_FORMAT can only represent single-element format names")


def from_queue_format(value: QUEUE_FORMAT) -> names.FormatName:
    """Convert QUEUE_FORMAT to a format name. Raises IllegalFormatName for QUEUE_FORMAT_TYPE_UNKNOWN and illegal
    contents."""
    suffix = _suffix(value.m_SuffixAndFlags)
    match value.m_qft:
        case 1:
            return names.PublicFormatName(_guid(value.m_gPublicID), _allowed(suffix, Suffix.JOURNAL))
        case 2:
            private = _present(value.m_oPrivateID)
            guid = UUID(bytes_le=private.Lineage)
            return names.PrivateFormatName(guid, private.Uniquifier, _allowed(suffix, Suffix.JOURNAL))
        case 3:
            return _direct(_present(value.m_pDirectID), suffix)
        case 4:
            if suffix not in (Suffix.JOURNAL, Suffix.DEADLETTER, Suffix.DEADXACT):
                raise IllegalFormatName(detail=f"a machine format name with suffix {suffix.name}")
            return names.MachineFormatName(_guid(value.m_gMachineID), suffix)
        case 5:
            return names.ConnectorFormatName(_guid(value.m_GConnectorID), _allowed(suffix, Suffix.XACTONLY))
        case 6:
            dl = _present(value.m_DlID)
            return names.DistributionListFormatName(UUID(bytes_le=dl.m_DlGuid), dl.m_pwzDomain or "")
        case 7:
            multicast = _present(value.m_MulticastID)
            address = ipaddress.IPv4Address(multicast.m_address.to_bytes(4, "little"))
            return names.parse_format_name(f"MULTICAST={address}:{multicast.m_port}")
        case 8:
            name = names.parse_direct_id(_present(value.m_pDirectSubqueueID))
            if name.suffix is not Suffix.SUBQUEUE:
                raise IllegalFormatName(detail=f"{name} names no subqueue")
            return name
    raise IllegalFormatName(detail=f"QUEUE_FORMAT of type {value.m_qft}")


def _direct(direct_id: str, suffix: Suffix) -> names.FormatName:
    """Return a direct format name. The suffix may be in the text, as in 2.1.2, in the flags, or both."""
    name = names.parse_direct_id(direct_id)
    if name.suffix is Suffix.NONE and suffix is Suffix.JOURNAL:
        return names.parse_direct_id(f"{direct_id};JOURNAL")
    if suffix not in (Suffix.NONE, name.suffix):
        raise IllegalFormatName(detail=f"{name} cannot have the suffix {suffix.name}")
    return name


def _with_suffix(value: QUEUE_FORMAT, suffix: Suffix) -> QUEUE_FORMAT:
    system = suffix in (Suffix.JOURNAL, Suffix.DEADLETTER, Suffix.DEADXACT)
    value.m_SuffixAndFlags = suffix | (_SYSTEM_FLAG if system else 0)
    return value


def _suffix(flags: int) -> Suffix:
    try:
        return Suffix(flags & _SUFFIX_MASK)
    except ValueError:
        raise IllegalFormatName(detail=f"m_SuffixAndFlags is 0x{flags:02x}, suffixes go from 0 to 5") from None


def _allowed(suffix: Suffix, *allowed: Suffix) -> Suffix:
    if suffix is not Suffix.NONE and suffix not in allowed:
        raise IllegalFormatName(detail=f"suffix {suffix.name} is not allowed with this type of format name")
    return suffix


def _guid(value: bytes | None) -> UUID:
    return UUID(bytes_le=_present(value))


def _present(value: Any) -> Any:
    if value is None:
        raise IllegalFormatName(detail="QUEUE_FORMAT without its name")
    return value
