"""Identity in the logon information of a ticket ([MS-PAC] 2.5); the caller has already checked its signature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msrpc.errors import AuthenticationError
from msrpc.interfaces import ms_pac
from msrpc.ndr import BadStubData

# The limit of a Windows token: 1,015 and some built-in groups.
MAX_GROUPS: Final = 1024
MAX_SIZE: Final = 64 * 1024
# [MS-RPCE] 2.2.6.1-2: version 1, little-endian, length of this header and a filler; then that of the object.
_HEADER: Final = bytes.fromhex("01100800cccccccc")
_HEADERS: Final = 16
_EXTRA_SIDS, _RESOURCE_GROUPS = 0x20, 0x200  # of UserFlags
SE_GROUP_ENABLED: Final = 0x4  # of attributes
_MAX_SUBAUTHORITIES: Final = 15
# Accounts of domains ([MS-DTYP] 2.4.2.4). Others, such as S-1-5-32-544, belong to the controller. Here they would mean
# accounts of this machine (deviation D-162).
_OF_A_DOMAIN: Final = "S-1-5-21-"


@dataclass(frozen=True, slots=True)
class Logon:
    """A user with all groups in the ticket, including nested groups and groups of other domains."""

    user: str
    domain: str
    sid: str
    groups: frozenset[str]


def unpack_logon_information(data: bytes) -> Logon:
    """Return the user in a serialized KERB_VALIDATION_INFO. Raises `AuthenticationError` if it is malformed or too
    large."""
    if len(data) > MAX_SIZE or not data.startswith(_HEADER):
        raise AuthenticationError(f"{len(data)} bytes of logon information are malformed; allowed: at most {MAX_SIZE}")
    try:
        information: Any = ms_pac.pac.operations[0].decode_request(data[_HEADERS:], "<").information
    except BadStubData as error:
        raise AuthenticationError(f"the logon information is malformed: {error}") from None
    if information is None or information.LogonDomainId is None:
        raise AuthenticationError("the logon information names no user")
    count = information.GroupCount + information.SidCount + information.ResourceGroupCount
    if count > MAX_GROUPS:
        raise AuthenticationError(f"the ticket names {count} groups; allowed: at most {MAX_GROUPS}")
    domain = _sid(information.LogonDomainId)
    groups = list(_groups(information, domain))
    if information.UserId:
        sid = f"{domain}-{information.UserId}"
    elif information.UserFlags & _EXTRA_SIDS and information.ExtraSids:
        sid = _sid(information.ExtraSids[0].Sid)  # [MS-PAC] 2.5, UserId
    else:
        raise AuthenticationError("the logon information names no user")
    names = information.EffectiveName.Buffer or "", information.LogonDomainName.Buffer or ""
    return Logon(*names, sid, account_groups(sid, groups))


def account_groups(sid: str, groups: Sequence[tuple[str, int]]) -> frozenset[str]:
    """Select the groups of a domain that are valid here; each comes with its attributes ([MS-PAC] 2.2.1). Raises
    `AuthenticationError` if the user does not belong to a domain, or has too many groups."""
    if not sid.startswith(_OF_A_DOMAIN):
        raise AuthenticationError(f"the domain controller named {sid}, which is not a SID of a domain account")
    if len(groups) > MAX_GROUPS + 1:  # with the primary one
        raise AuthenticationError(f"the domain controller named {len(groups)} groups; at most {MAX_GROUPS} are allowed")
    enabled = (group for group, attributes in groups if attributes & SE_GROUP_ENABLED)
    return frozenset(group for group in enabled if group != sid and group.startswith(_OF_A_DOMAIN))


def _groups(information: Any, domain: str) -> Iterator[tuple[str, int]]:
    yield f"{domain}-{information.PrimaryGroupId}", SE_GROUP_ENABLED
    for group in information.GroupIds or ():
        yield f"{domain}-{group.RelativeId}", group.Attributes
    if information.UserFlags & _EXTRA_SIDS:
        for extra in information.ExtraSids or ():
            yield _sid(extra.Sid), extra.Attributes
    if information.UserFlags & _RESOURCE_GROUPS and information.ResourceGroupIds:
        resources = _sid(information.ResourceGroupDomainSid)
        for group in information.ResourceGroupIds:
            yield f"{resources}-{group.RelativeId}", group.Attributes


def _sid(value: Any) -> str:
    """Return the text of a SID ([MS-DTYP] 2.4.2.1)."""
    if value is None or value.Revision != 1 or len(value.SubAuthority) > _MAX_SUBAUTHORITIES:
        raise AuthenticationError("the logon information has a malformed SID")
    authority = int.from_bytes(bytes(value.IdentifierAuthority.Value), "big")
    return "-".join(map(str, ("S-1", authority, *value.SubAuthority)))
