"""Grant and revoke rights in a security descriptor, and compute effective rights. Makes no calls to a queue manager."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from openmsmq.model import security
from openmsmq.model.constants import QueueAccessMask
from openmsmq.model.rights import QUEUE_RIGHTS, NamedRight, words_of
from openmsmq.model.sddl import canonical
from openmsmq.model.security import (
    ACCESS_ALLOWED_ACE_TYPE,
    ACCESS_DENIED_ACE_TYPE,
    Ace,
    SecurityDescriptor,
    allow,
    deny,
    sid_bytes,
    specific,
)

_NAMES: Final = {
    security.EVERYONE: "Everyone", security.ANONYMOUS: "Anonymous", security.AUTHENTICATED_USERS: "Authenticated",
    security.ADMINISTRATORS: "Administrators", security.LOCAL_SYSTEM: "System",
}  # fmt: skip
_KINDS: Final = {ACCESS_ALLOWED_ACE_TYPE: "allow", ACCESS_DENIED_ACE_TYPE: "deny"}


class AceInfo(NamedTuple):
    """An entry of an access control list for display. `kind` is allow, deny or the number of another type; an entry
    with `inherit_only` has no effect here."""

    kind: str
    sid: str
    name: str
    rights: tuple[str, ...]
    mask: int
    inherit_only: bool


def sid_for(who: str, look_up: Callable[[str], str | None]) -> str:
    """Return the SID for a SID, a well-known name, or the name of a user or group that `look_up` finds. Raises
    ValueError."""
    if who.lower() in security.WELL_KNOWN:
        return security.WELL_KNOWN[who.lower()]
    if who.upper().startswith("S-1-"):
        sid_bytes(who.upper())
        return who.upper()
    sid = look_up(who.rpartition("\\")[2])
    if sid is None:
        known = "everyone, anonymous, authenticated, administrators, system"
        raise ValueError(f"{who!r} is not a user or group of the users file, nor a SID, nor one of {known}")
    return sid


def name_for(sid: str, names: Mapping[str, str]) -> str:
    """Return the account name of a SID; the SID itself if it is unknown."""
    return _NAMES.get(sid) or names.get(sid) or sid


def entries(
    descriptor: SecurityDescriptor, names: Mapping[str, str], rights: tuple[NamedRight, ...] = QUEUE_RIGHTS
) -> Iterator[AceInfo]:
    """Yield the entries of the access control list in the order in which they are evaluated."""
    for ace in descriptor.dacl or ():
        kind = _KINDS.get(ace.type, f"type {ace.type}")
        name = name_for(ace.sid, names) if ace.sid else "?"
        words = tuple(words_of(specific(ace.mask) & 0xFFFFFFF, rights))
        yield AceInfo(kind, ace.sid, name, words, ace.mask, bool(ace.flags & security.INHERIT_ONLY_ACE))


def granted(descriptor: SecurityDescriptor, sid: str, mask: int) -> SecurityDescriptor:
    """Return the descriptor with these rights granted to a SID. Denials of these rights to the same SID are removed."""
    return _with(_without(descriptor, sid, mask, ACCESS_DENIED_ACE_TYPE), allow(sid, mask))


def denied(descriptor: SecurityDescriptor, sid: str, mask: int) -> SecurityDescriptor:
    """Return the descriptor with these rights denied to a SID, regardless of its groups. Rights granted to it directly
    are removed."""
    return _with(_without(descriptor, sid, mask, ACCESS_ALLOWED_ACE_TYPE), deny(sid, mask))


def revoked(descriptor: SecurityDescriptor, sid: str, mask: int, *, denials: bool = False) -> SecurityDescriptor:
    """Return the descriptor without grants of these rights to a SID, as Set-MsmqQueueAcl -Remove; with `denials`,
    without denials instead. Rights of groups are unchanged."""
    return _without(descriptor, sid, mask, ACCESS_DENIED_ACE_TYPE if denials else ACCESS_ALLOWED_ACE_TYPE)


def effective(
    descriptor: SecurityDescriptor, sids: Collection[str], rights: tuple[NamedRight, ...] = QUEUE_RIGHTS
) -> int:
    """Return the rights of a caller with these SIDs."""
    bits = {1 << bit for right in rights for bit in range(32) if right.mask & (1 << bit)}
    return sum(bit for bit in bits if descriptor.grants(sids, bit))


#: All rights except those to view and change permissions.
_USES: Final = int(QueueAccessMask.GENERIC_ALL) & ~int(
    QueueAccessMask.GET_QUEUE_PERMISSIONS | QueueAccessMask.CHANGE_QUEUE_PERMISSIONS
)


def lost(
    before: SecurityDescriptor, after: SecurityDescriptor, sids: Collection[str], names: Mapping[str, str] | None = None
) -> list[str]:
    """Return warnings about a change that locks out the caller (`sids`) from the permissions, or the owner and the
    administrators from the queue. An owner may always see and change the permissions."""
    lines = []
    change, read = int(QueueAccessMask.CHANGE_QUEUE_PERMISSIONS), int(QueueAccessMask.GET_QUEUE_PERMISSIONS)
    if not _somebody(after, change):
        lines.append("no user may change the permissions afterwards, except the owner")
    elif after.owner not in sids:
        if _may(before, sids, change) and not after.grants(sids, change):
            lines.append("you may not change the permissions afterwards")
        if _may(before, sids, read) and not after.grants(sids, read):
            lines.append("you may not see the permissions afterwards")
    owner = name_for(after.owner, names or {}) if after.owner is not None else ""
    for sid, who in ((after.owner, f"the owner, {owner},"), (security.ADMINISTRATORS, "administrators")):
        if sid is not None and not (sid == security.ADMINISTRATORS == after.owner and who == "administrators"):
            all_of = {sid, security.EVERYONE, security.AUTHENTICATED_USERS}
            if effective(before, all_of) & _USES and not effective(after, all_of) & _USES:
                lines.append(
                    f"{who} may not use the queue afterwards: neither send nor receive, nor see its properties"
                )
    return lines


def _may(descriptor: SecurityDescriptor, sids: Collection[str], mask: int) -> bool:
    return descriptor.owner in sids or descriptor.grants(sids, mask)


def _somebody(descriptor: SecurityDescriptor, mask: int) -> bool:
    if descriptor.owner is not None or descriptor.dacl is None:
        return True
    return any(descriptor.grants({ace.sid}, mask) for ace in descriptor.dacl if ace.sid)


def _with(descriptor: SecurityDescriptor, entry: Ace) -> SecurityDescriptor:
    """Add an entry, merged with an entry of the same kind and SID. A missing list, which grants everything, first
    becomes an explicit one."""
    aces = descriptor.dacl
    if aces is None:
        aces = (allow(security.EVERYONE, int(QueueAccessMask.GENERIC_ALL)),)
    for index, ace in enumerate(aces):
        if (ace.type, ace.sid, ace.flags) == (entry.type, entry.sid, 0):
            aces = (*aces[:index], replace(ace, mask=specific(ace.mask) | entry.mask), *aces[index + 1 :])
            break
    else:
        aces = (*aces, entry)
    return replace(descriptor, dacl=canonical(aces))


def _without(descriptor: SecurityDescriptor, sid: str, mask: int, kind: int) -> SecurityDescriptor:
    """Remove rights from entries of this kind and SID. Other kinds and inherit-only entries are unchanged."""
    if descriptor.dacl is None:
        return descriptor
    kept = []
    for ace in descriptor.dacl:
        if (ace.type, ace.sid) == (kind, sid) and not ace.flags & security.INHERIT_ONLY_ACE:
            left = (specific(ace.mask) & 0xFFFFFFF) & ~mask if specific(ace.mask) & mask else ace.mask
            if not left:
                continue
            ace = replace(ace, mask=left)
        kept.append(ace)
    return replace(descriptor, dacl=tuple(kept))
