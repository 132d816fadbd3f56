"""Conversion between rights on queues and descriptors of their directory objects (deviation D-170).

Active Directory evaluates nTSecurityDescriptor with its own bits, which have other meanings: 0x20, GetQueueProperties,
would grant write access. Rights on the object are therefore converted to directory rights, and rights on messages to
extended rights of Active Directory such as msmq-Send. The first entries grant the computer itself and the system full
control. When a descriptor is read, these two entries and inherited ones are left out. A computer cannot create an
object with another owner, so that the owner of the queue is stored as the group.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from openmsmq.model.constants import MachineAccessMask, QueueAccessMask
from openmsmq.model.security import (
    ACCESS_ALLOWED_ACE_TYPE,
    ACCESS_DENIED_ACE_TYPE,
    AUTHENTICATED_USERS,
    EVERYONE,
    INHERIT_ONLY_ACE,
    LOCAL_SYSTEM,
    Ace,
    SecurityDescriptor,
    allow,
    sid_at,
    sid_bytes,
    specific,
)

FULL_CONTROL: Final = 0xF01FF
READ: Final = 0x20094  # READ_CONTROL, list contents and object, read properties
_INHERITED_ACE: Final = 0x10
_OBJECT_TYPES: Final = {ACCESS_ALLOWED_ACE_TYPE: 0x05, ACCESS_DENIED_ACE_TYPE: 0x06}
_PLAIN_TYPES: Final = {kind: plain for plain, kind in _OBJECT_TYPES.items()}
_CONTROL_ACCESS: Final = 0x100
_OBJECT_TYPE_PRESENT, _INHERITED_TYPE_PRESENT = 1, 2
_GENERIC_ALL: Final = 0x10000000
_OBJECT_ACE: Final = struct.Struct("<BBHII")  # [MS-DTYP] 2.4.4.3

_STANDARD: Final = 0xF0000  # delete, read control, write DACL, write owner: the same bits on both sides
#: Rights on the object: right of a queue, directory bits written for it, and directory bits from which it is read.
_PROPERTIES: Final = (
    (int(QueueAccessMask.GET_QUEUE_PROPERTIES), 0x94, 0x10),
    (int(QueueAccessMask.SET_QUEUE_PROPERTIES), 0x20, 0x20),
)
#: Rights on messages: extended rights ([MS-ADTS] 5.1.3.2.1).
_EXTENDED: Final = {
    int(QueueAccessMask.DELETE_MESSAGE): UUID("06bd3200-df3e-11d1-9c86-006008764d0e"),  # msmq-Receive
    int(QueueAccessMask.PEEK_MESSAGE): UUID("06bd3201-df3e-11d1-9c86-006008764d0e"),  # msmq-Peek
    int(QueueAccessMask.WRITE_MESSAGE): UUID("06bd3202-df3e-11d1-9c86-006008764d0e"),  # msmq-Send
    int(QueueAccessMask.DELETE_JOURNAL_MESSAGE): UUID("06bd3203-df3e-11d1-9c86-006008764d0e"),  # msmq-Receive-journal
}
_ALL_EXTENDED: Final = sum(_EXTENDED)
_CREATE_CHILD: Final = 0x1
_QUEUE_CLASS: Final = UUID("9a0dc343-c100-11d1-bbc5-0080c76670c0")  # schemaIdGuid of mSMQQueue, [MS-ADSC] 2.166


class _Rights(NamedTuple):
    """How a descriptor is read: pairs of rights and the directory bit from which they are read, and by the object type
    of an entry the required bit and the right."""

    plain: tuple[tuple[int, int], ...]
    typed: Mapping[UUID, tuple[int, int]]


_OF_QUEUE: Final = _Rights(
    (*((right, read) for right, _, read in _PROPERTIES), (_ALL_EXTENDED, _CONTROL_ACCESS)),
    {guid: (_CONTROL_ACCESS, mask) for mask, guid in _EXTENDED.items()},
)
#: Others need only the right to create queues on a machine: messages of the machine are read there.
_OF_MACHINE: Final = _Rights(
    (
        (int(MachineAccessMask.GET_MACHINE_PROPERTIES), 0x10), (int(MachineAccessMask.SET_MACHINE_PROPERTIES), 0x20),
        (int(MachineAccessMask.CREATE_QUEUE), _CREATE_CHILD),
    ),
    {_QUEUE_CLASS: (_CREATE_CHILD, int(MachineAccessMask.CREATE_QUEUE))},
)  # fmt: skip


def of_computer(computer: str) -> bytes:
    """Return the descriptor of an object that belongs to a computer (a SID): full control for it and the system, read
    access for users."""
    entries = (allow(computer, FULL_CONTROL), allow(LOCAL_SYSTEM, FULL_CONTROL), allow(AUTHENTICATED_USERS, READ))
    return SecurityDescriptor(owner=computer, group=computer, dacl=entries).pack()


def to_directory(security: bytes, computer: str) -> bytes:
    """Convert the rights on a queue of a computer (a SID) to the descriptor of its object. Raises MsmqError."""
    queue = SecurityDescriptor.parse(security)
    entries = queue.dacl if queue.dacl is not None else (allow(EVERYONE, int(QueueAccessMask.GENERIC_ALL)),)
    own = (allow(computer, FULL_CONTROL), allow(LOCAL_SYSTEM, FULL_CONTROL))
    given = (made for entry in entries if entry.type in _OBJECT_TYPES for made in _to_directory(entry))
    return SecurityDescriptor(owner=computer, group=queue.owner or computer, dacl=(*own, *given)).pack()


def _to_directory(entry: Ace) -> Iterator[Ace]:
    mask = specific(entry.mask)
    rights = mask & _STANDARD
    for right, written, _ in _PROPERTIES:
        rights |= written if mask & right else 0
    if rights:
        yield Ace(entry.type, 0, rights, entry.sid)
    for right, guid in _EXTENDED.items():
        if mask & right:
            yield _extended(entry.type, guid, entry.sid)


def _extended(kind: int, guid: UUID, sid: str) -> Ace:
    body, object_kind = guid.bytes_le + sid_bytes(sid), _OBJECT_TYPES[kind]
    size = _OBJECT_ACE.size + len(body)
    header = _OBJECT_ACE.pack(object_kind, 0, size, _CONTROL_ACCESS, _OBJECT_TYPE_PRESENT)
    return Ace(object_kind, 0, _CONTROL_ACCESS, "", header + body)


def from_directory(descriptor: bytes, computer: str) -> bytes:
    """Convert the descriptor of an object to the rights on its queue; `computer` is the SID of its machine's account.
    Raises MsmqError."""
    found = SecurityDescriptor.parse(descriptor)
    owner = found.group if found.owner == computer else found.owner
    entries = None if found.dacl is None else tuple(_joined(_of_queue(found.dacl, computer)))
    return SecurityDescriptor(owner=owner, dacl=entries).pack()


def of_machine(descriptor: bytes) -> bytes:
    """Convert the descriptor of the object of a queue manager to rights of MQQMACCESSMASK. What the object inherits
    counts: a queue is created there in the directory. Raises MsmqError."""
    found = SecurityDescriptor.parse(descriptor)
    entries = found.dacl
    if entries is not None:
        effective = (entry for entry in entries if not entry.flags & INHERIT_ONLY_ACE)
        entries = tuple(_joined(read for entry in effective if (read := _read(entry, _OF_MACHINE)) is not None))
    return SecurityDescriptor(owner=found.owner, dacl=entries).pack()


def _of_queue(entries: Iterable[Ace], computer: str) -> Iterator[Ace]:
    for entry in entries:
        if entry.flags & (_INHERITED_ACE | INHERIT_ONLY_ACE):
            continue
        if entry.sid in (computer, LOCAL_SYSTEM) and entry.mask == FULL_CONTROL:
            continue
        read = _read(entry, _OF_QUEUE)
        if read is not None:
            yield read


def _read(entry: Ace, rights: _Rights) -> Ace | None:
    """Convert an entry; None if it is of another kind. An object entry has a right of its object type or, without one,
    is for the whole object ([MS-DTYP] 2.4.4.3)."""
    if entry.type in _OBJECT_TYPES:
        return replace(entry, flags=0, mask=_mask(entry.mask, rights))
    kind, raw = _PLAIN_TYPES.get(entry.type), entry.raw
    if kind is None or len(raw) < _OBJECT_ACE.size:
        return None
    _, _, _, mask, flags = _OBJECT_ACE.unpack_from(raw)
    at, right = _OBJECT_ACE.size, _mask(mask, rights)
    if flags & _OBJECT_TYPE_PRESENT:
        bit, of_type = rights.typed.get(UUID(bytes_le=raw[at : at + 16].ljust(16, b"\0")), (0, 0))
        at, right = at + 16, of_type if mask & bit else 0
    if flags & _INHERITED_TYPE_PRESENT:
        at += 16
    try:
        return Ace(kind, 0, right, sid_at(raw, at)) if right else None
    except ValueError:
        return None


def _mask(mask: int, rights: _Rights) -> int:
    if mask & _GENERIC_ALL:
        mask |= FULL_CONTROL
    found = mask & _STANDARD
    for right, bit in rights.plain:
        found |= right if mask & bit else 0
    return found


def _joined(entries: Iterable[Ace]) -> Iterator[Ace]:
    """Merge consecutive entries for the same account."""
    last: Ace | None = None
    for entry in entries:
        if last is not None and (entry.type, entry.sid) == (last.type, last.sid):
            last = replace(last, mask=last.mask | entry.mask)
            continue
        if last is not None and last.mask:
            yield last
        last = entry
    if last is not None and last.mask:
        yield last
