"""Security identifiers and descriptors ([MS-DTYP] 2.4), and the access check ([MS-DTYP] 2.5.3.2).

SIDs are text (`S-1-5-21-...`). Descriptors are parsed from and packed to the self-relative form.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from openmsmq.model.constants import MachineAccessMask, QueueAccessMask, SecurityInformation
from openmsmq.model.errors import HResult, MsmqError

EVERYONE = "S-1-1-0"
ANONYMOUS = "S-1-5-7"
AUTHENTICATED_USERS = "S-1-5-11"
LOCAL_SYSTEM = "S-1-5-18"
ADMINISTRATORS = "S-1-5-32-544"

#: Names for accounts that exist on every machine, in settings and commands. No user or group can have one.
WELL_KNOWN: Final = {
    "everyone": EVERYONE, "anonymous": ANONYMOUS, "anonymous logon": ANONYMOUS, "authenticated": AUTHENTICATED_USERS,
    "authenticated users": AUTHENTICATED_USERS, "administrators": ADMINISTRATORS, "system": LOCAL_SYSTEM,
}  # fmt: skip

ACCESS_ALLOWED_ACE_TYPE = 0
ACCESS_DENIED_ACE_TYPE = 1


class Effect(Enum):
    """Effect of an entry in an access check."""

    ALLOWS = auto()
    DENIES = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class AceType:
    """`of_object`: flags and up to two GUIDs precede the SID, and the list needs revision 4 ([MS-DTYP] 2.4.5)."""

    effect: Effect
    of_object: bool = False


# AceType of [MS-DTYP] 2.4.4.1. Deviation D-182: conditions (callback) and object parts are not evaluated, so such
# entries never allow and always deny. Entries for audits, alarms, labels, attributes and policies, and entries of
# unknown types, are ignored in access checks.
ACE_TYPES: Final = {
    0x00: AceType(Effect.ALLOWS),
    0x01: AceType(Effect.DENIES),
    0x02: AceType(Effect.NOTHING),  # audit
    0x03: AceType(Effect.NOTHING),  # alarm
    0x04: AceType(Effect.NOTHING),  # allowed, compound: reserved
    0x05: AceType(Effect.NOTHING, of_object=True),  # allowed
    0x06: AceType(Effect.DENIES, of_object=True),
    0x07: AceType(Effect.NOTHING, of_object=True),  # audit
    0x08: AceType(Effect.NOTHING, of_object=True),  # alarm
    0x09: AceType(Effect.NOTHING),  # allowed, callback
    0x0A: AceType(Effect.DENIES),  # callback
    0x0B: AceType(Effect.NOTHING, of_object=True),  # allowed, callback
    0x0C: AceType(Effect.DENIES, of_object=True),  # callback
    0x0D: AceType(Effect.NOTHING),  # audit, callback
    0x0E: AceType(Effect.NOTHING),  # alarm, callback
    0x0F: AceType(Effect.NOTHING, of_object=True),  # audit, callback
    0x10: AceType(Effect.NOTHING, of_object=True),  # alarm, callback
    0x11: AceType(Effect.NOTHING),  # mandatory label
    0x12: AceType(Effect.NOTHING),  # resource attribute
    0x13: AceType(Effect.NOTHING),  # scoped policy
}
_SPECIFIC: Final = 0x0FFFFFFF  # all bits but those of generic rights
_OTHER_TYPE: Final = AceType(Effect.NOTHING)
INHERIT_ONLY_ACE = 0x08
READ_CONTROL = 0x00020000
WRITE_DAC = 0x00040000
MAXIMUM_DESCRIPTOR = 512 * 1024  # bytes, the range of SDSize in [MS-MQMP] 3.1.4.5

_SE_DACL_PRESENT = 0x0004
_SE_SACL_PRESENT = 0x0010
_SE_SELF_RELATIVE = 0x8000
_HEADER = struct.Struct("<BBHIIII")
_ACL = struct.Struct("<BBHHH")
_ACE = struct.Struct("<BBHI")
# Generic rights of an access mask ([MS-DTYP] 2.4.3) for queues and for machines.
_GENERIC: Final[dict[int, int]] = {
    0x80000000: QueueAccessMask.GENERIC_READ,
    0x40000000: QueueAccessMask.GENERIC_WRITE,
    0x10000000: QueueAccessMask.GENERIC_ALL,
}
_GENERIC_OF_MACHINES: Final[dict[int, int]] = {
    0x80000000: MachineAccessMask.GENERIC_READ,
    0x40000000: MachineAccessMask.GENERIC_WRITE,
    0x10000000: MachineAccessMask.GENERIC_ALL,
}


@dataclass(frozen=True, slots=True)
class Ace:
    """An access control entry. Entries of types other than allowed and denied keep their bytes in `raw` and grant
    nothing; those that deny under a condition, or for a part of an object, deny."""

    type: int
    flags: int
    mask: int
    sid: str
    raw: bytes = b""


@dataclass(frozen=True, slots=True)
class SecurityDescriptor:
    owner: str | None = None
    group: str | None = None
    dacl: tuple[Ace, ...] | None = None  # None: no DACL, so all access is granted
    sacl: tuple[Ace, ...] | None = None
    control: int = field(default=_SE_SELF_RELATIVE)

    @classmethod
    def parse(cls, data: bytes) -> SecurityDescriptor:
        """Parse the self-relative form. Raises MsmqError MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR."""
        try:
            revision, _, control, owner, group, sacl, dacl = _HEADER.unpack_from(data)
            if revision != 1 or not control & _SE_SELF_RELATIVE:
                raise ValueError("not a self-relative descriptor of revision 1")
            return cls(
                sid_at(data, owner) if owner else None,
                sid_at(data, group) if group else None,
                _acl_at(data, dacl) if control & _SE_DACL_PRESENT and dacl else None,
                _acl_at(data, sacl) if control & _SE_SACL_PRESENT and sacl else None,
                control,
            )
        except (struct.error, ValueError) as error:
            raise MsmqError(HResult.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR, str(error)) from None

    def pack(self) -> bytes:
        """Return the self-relative form, with the parts in the order owner, group, SACL, DACL."""
        control = self.control & ~(_SE_DACL_PRESENT | _SE_SACL_PRESENT) | _SE_SELF_RELATIVE
        offsets = [0, 0, 0, 0]
        body = b""
        for index, part in enumerate(
            (
                sid_bytes(self.owner) if self.owner else None,
                sid_bytes(self.group) if self.group else None,
                _acl_bytes(self.sacl) if self.sacl is not None else None,
                _acl_bytes(self.dacl) if self.dacl is not None else None,
            )
        ):
            if part is not None:
                offsets[index] = _HEADER.size + len(body)
                body += part
        control |= (_SE_SACL_PRESENT if self.sacl is not None else 0) | (
            _SE_DACL_PRESENT if self.dacl is not None else 0
        )
        return _HEADER.pack(1, 0, control, *offsets) + body

    def select(self, information: int) -> SecurityDescriptor:
        """Return a descriptor with only the parts that SECURITY_INFORMATION names."""
        return replace(
            self,
            owner=self.owner if information & SecurityInformation.OWNER else None,
            group=self.group if information & SecurityInformation.GROUP else None,
            dacl=self.dacl if information & SecurityInformation.DACL else None,
            sacl=self.sacl if information & SecurityInformation.SACL else None,
        )

    def merge(self, other: SecurityDescriptor, information: int) -> SecurityDescriptor:
        """Return this descriptor with the parts that SECURITY_INFORMATION names replaced by those of `other`."""
        return replace(
            self,
            owner=other.owner if information & SecurityInformation.OWNER else self.owner,
            group=other.group if information & SecurityInformation.GROUP else self.group,
            dacl=other.dacl if information & SecurityInformation.DACL else self.dacl,
            sacl=other.sacl if information & SecurityInformation.SACL else self.sacl,
        )

    def of_machine(self) -> SecurityDescriptor:
        """Return the descriptor of a machine with the generic rights of its entries replaced by those of [MS-MQMQ]
        2.2.23; `specific` and `grants` would replace them by those of queues."""
        aces = (replace(ace, mask=_with_rights(ace.mask, _GENERIC_OF_MACHINES) & _SPECIFIC) for ace in self.dacl or ())
        return self if self.dacl is None else replace(self, dacl=tuple(aces))

    def grants(self, sids: Collection[str], wanted: int) -> bool:
        """Access check: whether `sids` get all bits of `wanted`. The first entry that denies a bit not yet granted ends
        it."""
        remaining = wanted
        if self.owner in sids:
            remaining &= ~(READ_CONTROL | WRITE_DAC)
        if self.dacl is None:
            return True
        for ace in self.dacl:
            if not remaining:
                break
            effect = ACE_TYPES.get(ace.type, _OTHER_TYPE).effect
            if ace.flags & INHERIT_ONLY_ACE or effect is Effect.NOTHING or _subject(ace) not in sids:
                continue
            mask = specific(ace.mask)
            if effect is Effect.ALLOWS:
                remaining &= ~mask
            elif remaining & mask:
                return False
        return not remaining


def _subject(ace: Ace) -> str:
    """Return the SID of an entry that allows or denies. Raises ValueError or struct.error for invalid bytes."""
    if ace.sid:
        return ace.sid
    at = _ACE.size
    if ACE_TYPES[ace.type].of_object:
        (flags,) = struct.unpack_from("<I", ace.raw, at)  # 1: ObjectType, 2: InheritedObjectType
        at += 4 + 16 * ((flags & 1) + (flags >> 1 & 1))
    return sid_at(ace.raw, at)


def specific(mask: int) -> int:
    """Return a mask with the queue rights of its generic rights added."""
    return _with_rights(mask, _GENERIC)


def _with_rights(mask: int, of_generic: dict[int, int]) -> int:
    for generic, rights in of_generic.items():
        if mask & generic:
            mask |= rights
    return mask


def allow(sid: str, mask: int) -> Ace:
    return Ace(ACCESS_ALLOWED_ACE_TYPE, 0, mask, sid)


def deny(sid: str, mask: int) -> Ace:
    return Ace(ACCESS_DENIED_ACE_TYPE, 0, mask, sid)


def sid_bytes(sid: str) -> bytes:
    """Return the binary form of a SID such as `S-1-5-7` ([MS-DTYP] 2.4.2.2). Raises ValueError with the text."""
    if not re.fullmatch(r"S-1-\d+(-\d+)*", sid):
        raise ValueError(f"{sid!r} is not a SID of the form S-1-authority-subauthority...")
    authority, *subs = map(int, sid.split("-")[2:])
    if authority >= 1 << 48 or len(subs) > 15 or any(s >= 1 << 32 for s in subs):
        raise ValueError(f"{sid!r}: at most 15 subauthorities of 32 bits and an authority of 48 bits")
    return struct.pack("<BB", 1, len(subs)) + authority.to_bytes(6, "big") + struct.pack(f"<{len(subs)}I", *subs)


def sid_text(data: bytes) -> str:
    """Return the text of a binary SID, which must fill `data`. Raises ValueError."""
    sid = sid_at(data, 0)
    if len(data) != 8 + 4 * data[1]:
        raise ValueError("bytes after the SID")
    return sid


def owner_in(descriptor: bytes) -> bytes:
    """Return the binary SID of the owner in a self-relative descriptor; empty if there is none. Much faster than
    `parse`."""
    if len(descriptor) < _HEADER.size:
        return b""
    at: int = _HEADER.unpack_from(descriptor)[3]
    return descriptor[at : at + 8 + 4 * descriptor[at + 1]] if 0 < at < len(descriptor) - 1 else b""


def is_sid(data: bytes) -> bool:
    """Whether the bytes are a binary SID."""
    return len(data) >= 8 and data[0] == 1 and data[1] <= 15 and len(data) == 8 + 4 * data[1]


def sid_at(data: bytes, offset: int) -> str:
    if offset + 8 > len(data) or data[offset] != 1 or data[offset + 1] > 15:
        raise ValueError(f"no SID at offset {offset}")
    count = data[offset + 1]
    if offset + 8 + 4 * count > len(data):
        raise ValueError(f"the SID at offset {offset} is longer than the bytes left")
    authority = int.from_bytes(data[offset + 2 : offset + 8], "big")
    subs = struct.unpack_from(f"<{count}I", data, offset + 8)
    return "-".join(["S-1", str(authority), *map(str, subs)])


def _acl_at(data: bytes, offset: int) -> tuple[Ace, ...]:
    revision, _, size, count, _ = _ACL.unpack_from(data, offset)
    end = offset + size
    if revision not in (2, 4) or size < _ACL.size or end > len(data):
        raise ValueError(f"the access control list at offset {offset} exceeds the descriptor")
    aces = []
    at = offset + _ACL.size
    for _ in range(count):
        ace_type, flags, ace_size, mask = _ACE.unpack_from(data, at)
        if ace_size < _ACE.size or at + ace_size > end:
            raise ValueError(f"the entry at offset {at} does not fit into its list")
        raw = data[at : at + ace_size]
        simple = ace_type in (ACCESS_ALLOWED_ACE_TYPE, ACCESS_DENIED_ACE_TYPE)
        ace = Ace(ace_type, flags, mask, sid_at(raw, 8) if simple else "", b"" if simple else raw)
        if ACE_TYPES.get(ace_type, _OTHER_TYPE).effect is not Effect.NOTHING:
            _subject(ace)  # raises for an invalid entry now, not in a later access check
        aces.append(ace)
        at += ace_size
    return tuple(aces)


def _acl_bytes(aces: tuple[Ace, ...]) -> bytes:
    body = b""
    for ace in aces:
        if ace.raw:
            body += ace.raw
        else:
            sid = sid_bytes(ace.sid)
            body += _ACE.pack(ace.type, ace.flags, _ACE.size + len(sid), ace.mask) + sid
    revision = 4 if any(ACE_TYPES.get(ace.type, _OTHER_TYPE).of_object for ace in aces) else 2
    return _ACL.pack(revision, 0, _ACL.size + len(body), len(aces), 0) + body
