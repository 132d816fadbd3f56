"""Check the machine's objects in the domain, with its own account: requirements, and remedies for those that are not
met."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from openmsmq.directory.active import schema
from openmsmq.directory.active.ldap_text import child, filter_text
from openmsmq.directory.active.objects import one
from openmsmq.directory.active.schema import TIME, Values
from openmsmq.directory.active.session import DirectorySession, LdapEntry
from openmsmq.directory.provider import ObjectNotFound

MOST_SKEW: Final = 300  # maximum clock difference in seconds ([MS-KILE] 3.1.2)
_AES: Final = 0x18  # AES-128 and AES-256 ([MS-KILE] 2.2.7)
_CHILDREN: Final = "allowedChildClassesEffective"  # classes the account may create ([MS-ADTS] 3.1.1.4.5.22)


@dataclass(frozen=True, slots=True)
class ExaminationFinding:
    """A finding: `said` is the current state of `thing`; `advice` is the remedy, empty if the requirement is met."""

    thing: str
    said: str
    advice: str = ""


def examine(session: DirectorySession, account: str, computer_name: str, now: float) -> Iterator[ExaminationFinding]:
    """Yield the findings at a controller; `now` in seconds since 1970 UTC. Ends at the first requirement that hides the
    rest. Raises DirectoryError."""
    root = one(session, "", ["currentTime", "defaultNamingContext"])
    yield _clock(root, now)
    condition = f"(&(objectClass=computer)(sAMAccountName={filter_text(account)}))"
    wanted = ("cn", "servicePrincipalName", "msDS-SupportedEncryptionTypes", _CHILDREN)
    found = session.search(_texts(root.values, "defaultNamingContext")[0], condition, wanted, limit=1)
    if not found:
        yield ExaminationFinding(
            "account", f"no computer has the account {account}", "join the domain, or set directory_account"
        )
        return
    yield from _account(found[0], account, computer_name)
    yield _object(session, found[0], account)


def _clock(root: LdapEntry, now: float) -> ExaminationFinding:
    times = _texts(root.values, "currentTime")
    skew = abs(TIME.decode(times[0].encode()) - now) if times else 0.0
    advice = f"set the clock: more than {MOST_SKEW} s and no ticket is good" if skew > MOST_SKEW else ""
    return ExaminationFinding("clock", f"{skew:.0f} s from the controller's", advice)


def _account(computer: LdapEntry, account: str, computer_name: str) -> Iterator[ExaminationFinding]:
    (name,) = _texts(computer.values, "cn")
    same = name.casefold() == computer_name.casefold()
    advice = "" if same else f"set computer_name to {name}, or directory_account to the account of {computer_name}"
    yield ExaminationFinding("account", f"{account} of the computer {name}", advice)
    kinds = int((_texts(computer.values, "msDS-SupportedEncryptionTypes") or ["0"])[0])
    found = "AES" if kinds & _AES else "RC4 only"
    advice = "" if kinds & _AES else f"net ads enctypes set '{account}' 24, then export the keytab again"
    yield ExaminationFinding("encryption of tickets", found, advice)
    services = [text for text in _texts(computer.values, "servicePrincipalName") if text.lower().startswith("host/")]
    advice = "" if services else f"samba-tool spn add host/NAME '{account}', with the name that clients connect to"
    yield ExaminationFinding("services", ", ".join(services) or "no host/ service", advice)


def _object(session: DirectorySession, computer: LdapEntry, account: str) -> ExaminationFinding:
    name = child("msmq", computer.name)
    try:
        entry = one(session, name, [_CHILDREN])
    except ObjectNotFound:
        may = schema.CONFIGURATION in _texts(computer.values, _CHILDREN)
        advice = "" if may else f"an administrator has to make {name}, and grant {account} full control of it"
        return ExaminationFinding(
            "object", f"{name} is not there; the daemon makes it" if may else f"{name} is not there", advice
        )
    may = schema.QUEUE in _texts(entry.values, _CHILDREN)
    found = name if may else f"{account} may make no queues below {name}"
    return ExaminationFinding("object", found, "" if may else f"grant {account} full control of {name}")


def _texts(values: Values, name: str) -> list[str]:
    return [value.decode() for value in values.get(name.lower(), ())]
