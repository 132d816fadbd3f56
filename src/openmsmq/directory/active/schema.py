"""Table of properties of queues and attributes of mSMQQueue objects: [MS-MQDSSM] 2.2.2, 3.1.6.1.2.2, 3.1.6.11.2 in one
table."""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from openmsmq.directory.provider import DirectoryError, QueueRecord
from openmsmq.model.constants import INFINITE
from openmsmq.model.security import sid_bytes, sid_text

QUEUE: Final = "mSMQQueue"
CONFIGURATION: Final = "mSMQConfiguration"
LONG_NAME: Final = 64  # characters of `cn`; the rest of a longer name is in mSMQQueueNameExt ([MS-MQDSSM] 3.1.6.11.2.1)
_HASH: Final = 9  # characters at the end of a long `cn`

#: The values of an object's attributes, by attribute in lower case.
Values = Mapping[str, Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class Syntax:
    """Encoding and decoding of attribute values."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _time(value: bytes) -> int:
    return calendar.timegm(time.strptime(value[:14].decode(), "%Y%m%d%H%M%S"))


TEXT: Final = Syntax(str.encode, bytes.decode)
GUID: Final = Syntax(lambda value: value.bytes_le, lambda octets: UUID(bytes_le=octets))
BOOLEAN: Final = Syntax(lambda value: b"TRUE" if value else b"FALSE", lambda octets: octets == b"TRUE")
INTEGER: Final = Syntax(lambda value: str(value).encode(), int)
#: The directory has only signed 32-bit numbers: -1 represents 0xFFFFFFFF.
UNSIGNED: Final = Syntax(
    lambda value: str(value - (1 << 32) if value >= 1 << 31 else value).encode(),
    lambda octets: int(octets) & 0xFFFFFFFF,
)
SID: Final = Syntax(sid_bytes, sid_text)
TIME: Final = Syntax(lambda value: time.strftime("%Y%m%d%H%M%S.0Z", time.gmtime(value)).encode(), _time)


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute. `absent` is the value for an object without it; None if it is required. The directory itself sets
    attributes that are not `writable`."""

    name: str
    syntax: Syntax
    absent: Any = None
    writable: bool = True


#: Attribute of `QueueRecord` -> LDAP attribute. `queue_record` composes path name, machine and security.
OF_QUEUE: Final[dict[str, Attribute]] = {
    "identifier": Attribute("objectGUID", GUID, writable=False),
    "position": Attribute("uSNCreated", INTEGER, writable=False),
    "type": Attribute("mSMQQueueType", GUID, UUID(int=0)),
    "label": Attribute("mSMQLabelEx", TEXT, ""),
    "journaling": Attribute("mSMQJournal", BOOLEAN, False),
    "quota": Attribute("mSMQQueueQuota", UNSIGNED, INFINITE),
    "journal_quota": Attribute("mSMQQueueJournalQuota", UNSIGNED, INFINITE),
    "base_priority": Attribute("mSMQBasePriority", INTEGER, 0),
    "authentication": Attribute("mSMQAuthenticate", BOOLEAN, False),
    "privacy_level": Attribute("mSMQPrivacyLevel", INTEGER, 1),
    "transactional": Attribute("mSMQTransactional", BOOLEAN, False),
    "multicast_address": Attribute("MSMQ-MulticastAddress", TEXT, ""),
    "create_time": Attribute("whenCreated", TIME, writable=False),
    "modify_time": Attribute("whenChanged", TIME, writable=False),
}
OBJECT_SID: Final = Attribute("objectSid", SID, writable=False)
DESCRIPTOR: Final = "nTSecurityDescriptor"
QUEUE_ATTRIBUTES: Final = (*(attribute.name for attribute in OF_QUEUE.values()), "cn", "mSMQQueueNameExt", DESCRIPTOR)


def attributes_of(values: Mapping[str, Any]) -> dict[str, list[bytes]]:
    """Convert properties of a queue to attributes. An empty text becomes an attribute without values, because a
    directory does not store it."""
    written = {}
    for name, value in values.items():
        attribute = OF_QUEUE.get(name)
        if attribute is not None and attribute.writable:
            written[attribute.name] = [] if value == "" else [attribute.syntax.encode(value)]
    return written


def queue_record(values: Values, computer: str, machine: UUID, security: bytes) -> QueueRecord:
    """Convert attributes to the record of a queue of a computer whose mSMQConfiguration object is `machine`. The path
    name consists of the names of the objects (deviation D-172). Raises DirectoryError for missing or malformed
    attributes."""
    name = value_of(values, Attribute("cn", TEXT))
    rest = value_of(values, text("mSMQQueueNameExt"))
    if rest or len(name) == LONG_NAME:  # characters that a distinguished name escapes count twice for the length
        name = name[:-_HASH] + rest
    read = {field: value_of(values, attribute) for field, attribute in OF_QUEUE.items()}
    return QueueRecord(machine=machine, path_name=f"{computer}\\{name}", security=security, **read)


def value_of(values: Values, attribute: Attribute) -> Any:
    """Return the decoded value of an attribute. Raises DirectoryError."""
    found = values.get(attribute.name.lower())
    if not found:
        if attribute.absent is None:
            raise DirectoryError(f"an object in the directory has no {attribute.name}, or this account may not read it")
        return attribute.absent
    try:
        return attribute.syntax.decode(found[0])
    except ValueError as error:
        raise DirectoryError(f"cannot decode {attribute.name} of an object in the directory: {error}") from None


def text(name: str) -> Attribute:
    """Return an attribute with a text, empty if absent."""
    return Attribute(name, TEXT, "")
