"""Security descriptors as text: SDDL ([MS-DTYP] 2.5.1), in canonical form.

The two-letter codes of rights are those of directory objects: RP is 0x10, which is SetQueueProperties for a queue. An
entry that SDDL cannot express is written as `(RAW;;;;;hexadecimal)`, which only this module reads, so that `from_sddl`
restores everything.
"""

from __future__ import annotations

import re
import struct
from typing import Final
from uuid import UUID

from openmsmq.model.security import Ace, SecurityDescriptor, sid_at, sid_bytes

_SIDS: Final = {
    "WD": "S-1-1-0", "CO": "S-1-3-0", "CG": "S-1-3-1", "NU": "S-1-5-2", "IU": "S-1-5-4", "SU": "S-1-5-6",
    "AN": "S-1-5-7", "AU": "S-1-5-11", "SY": "S-1-5-18", "LS": "S-1-5-19", "NS": "S-1-5-20", "BA": "S-1-5-32-544",
    "BU": "S-1-5-32-545", "BG": "S-1-5-32-546", "PU": "S-1-5-32-547", "AO": "S-1-5-32-548", "SO": "S-1-5-32-549",
}  # fmt: skip
_SID_LETTERS: Final = {sid: letters for letters, sid in _SIDS.items()}
_RIGHTS: Final = {
    "CC": 0x1, "DC": 0x2, "LC": 0x4, "SW": 0x8, "RP": 0x10, "WP": 0x20, "DT": 0x40, "LO": 0x80, "CR": 0x100,
    "SD": 0x10000, "RC": 0x20000, "WD": 0x40000, "WO": 0x80000,
    "GA": 0x10000000, "GX": 0x20000000, "GW": 0x40000000, "GR": 0x80000000,
}  # fmt: skip
_ACE_FLAGS: Final = {"OI": 0x01, "CI": 0x02, "NP": 0x04, "IO": 0x08, "ID": 0x10, "SA": 0x40, "FA": 0x80}
_TYPES: Final = {"A": 0, "D": 1, "AU": 2, "AL": 3, "OA": 5, "OD": 6, "OU": 7, "OL": 8}
_TYPE_LETTERS: Final = {number: letters for letters, number in _TYPES.items()}
_OBJECT_TYPES: Final = frozenset([5, 6, 7, 8])
_RAW: Final = "RAW"
_INHERITED: Final = 0x10
_PROTECTED, _AUTO_REQUIRED, _AUTO = "P", "AR", "AI"
_CONTROL: Final = {
    "D": {_PROTECTED: 0x1000, _AUTO_REQUIRED: 0x0100, _AUTO: 0x0400},
    "S": {_PROTECTED: 0x2000, _AUTO_REQUIRED: 0x0200, _AUTO: 0x0800},
}
_DACL_PRESENT: Final = 0x0004
_NO_DACL: Final = "NO_ACCESS_CONTROL"
_PARTS: Final = re.compile("([OGDS]):")
_ACE_TEXT: Final = re.compile(r"\(([^()]*)\)")


def to_sddl(descriptor: SecurityDescriptor) -> str:
    """Return a descriptor as SDDL, with its entries in canonical order."""
    parts = []
    if descriptor.owner is not None:
        parts.append(f"O:{_sid_letters(descriptor.owner)}")
    if descriptor.group is not None:
        parts.append(f"G:{_sid_letters(descriptor.group)}")
    if descriptor.dacl is not None:
        parts.append("D:" + _flags("D", descriptor) + "".join(map(_ace_text, canonical(descriptor.dacl))))
    elif descriptor.control & _DACL_PRESENT:
        parts.append(f"D:{_NO_DACL}")
    if descriptor.sacl is not None:
        parts.append("S:" + _flags("S", descriptor) + "".join(map(_ace_text, descriptor.sacl)))
    return "".join(parts)


def canonical(aces: tuple[Ace, ...]) -> tuple[Ace, ...]:
    """Return entries in canonical order ([MS-DTYP] 2.4.5): explicit denials, other explicit entries, inherited entries;
    otherwise in the original order."""
    return tuple(sorted(aces, key=lambda ace: 2 if ace.flags & _INHERITED else 0 if ace.type in (1, 6) else 1))


def from_sddl(text: str) -> SecurityDescriptor:
    """Parse SDDL. Raises ValueError with the invalid part."""
    text = "".join(text.split())
    starts = list(_PARTS.finditer(text))
    if not starts or starts[0].start() != 0:
        raise ValueError(f"{text[:80]!r} is not SDDL: expected O:, G:, D: or S:")
    values: dict[str, str] = {}
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        letter = start.group(1)
        if letter in values:
            raise ValueError(f"{letter}: occurs twice")
        values[letter] = text[start.end() : following.start() if following else len(text)]
    control = SecurityDescriptor().control
    lists: dict[str, tuple[Ace, ...] | None] = {"D": None, "S": None}
    for letter in lists:
        if letter not in values:
            continue
        if values[letter] == _NO_DACL and letter == "D":
            control |= _DACL_PRESENT
            continue
        flags, aces = _acl(letter, values[letter])
        control |= flags
        lists[letter] = aces
    return SecurityDescriptor(
        owner=_sid(values["O"]) if "O" in values else None,
        group=_sid(values["G"]) if "G" in values else None,
        dacl=lists["D"],
        sacl=lists["S"],
        control=control,
    )


# -- parts ---------------------------------------------------------------------------------------------------------


def _sid_letters(sid: str) -> str:
    return _SID_LETTERS.get(sid, sid)


def _sid(text: str) -> str:
    sid = _SIDS.get(text.upper(), text.upper())
    try:
        sid_bytes(sid)
    except ValueError:
        raise ValueError(f"{text!r} is not a SID; allowed: S-1-…, or {', '.join(_SIDS)}") from None
    return sid


def _flags(letter: str, descriptor: SecurityDescriptor) -> str:
    return "".join(name for name, bit in _CONTROL[letter].items() if descriptor.control & bit)


def _acl(letter: str, text: str) -> tuple[int, tuple[Ace, ...]]:
    head = text.partition("(")[0]
    control, rest = 0, head
    while rest:
        name = next((name for name in _CONTROL[letter] if rest.upper().startswith(name)), None)
        if name is None:
            raise ValueError(f"{letter}:{head!r}: flags are {', '.join(_CONTROL[letter])}")
        control |= _CONTROL[letter][name]
        rest = rest[len(name) :]
    body = text[len(head) :]
    if _ACE_TEXT.sub("", body):
        raise ValueError(f"{letter}: entries must be in parentheses; found {_ACE_TEXT.sub('', body)!r}")
    return control, tuple(_ace(entry) for entry in _ACE_TEXT.findall(body))


def _letters(value: int, known: dict[str, int]) -> str | None:
    """Return the codes of all bits; None if a bit has no code."""
    letters = [name for name, bit in known.items() if value & bit]
    return "".join(letters) if sum(known[name] for name in letters) == value else None


def _from_letters(text: str, known: dict[str, int], what: str) -> int:
    value = 0
    for at in range(0, len(text), 2):
        letters = text[at : at + 2].upper()
        if letters not in known:
            raise ValueError(f"{text!r}: {letters!r} is not a valid {what}; allowed: {', '.join(known)}")
        value |= known[letters]
    return value


def _ace_text(ace: Ace) -> str:
    flags = _letters(ace.flags, _ACE_FLAGS)
    kind = _TYPE_LETTERS.get(ace.type)
    tail = _tail(ace) if kind is not None and flags is not None else None
    if tail is None:
        raw = ace.raw or _raw(ace.type, ace.flags, ace.mask, ["", ""], ace.sid)
        return f"({_RAW};;;;;{raw.hex()})"
    letters = _letters(ace.mask, _RIGHTS)
    return f"({kind};{flags};{f'0x{ace.mask:x}' if letters is None else letters};{tail})"


def _tail(ace: Ace) -> str | None:
    """Return the GUIDs and the SID of an entry as text; None if its bytes do not match its type."""
    if not ace.raw:
        return f";;{_sid_letters(ace.sid)}"
    at, guids = 8, ["", ""]
    try:
        if ace.type in _OBJECT_TYPES:
            (present,) = struct.unpack_from("<I", ace.raw, at)
            at += 4
            for index in range(2):
                if present & (1 << index):
                    guids[index] = str(UUID(bytes_le=ace.raw[at : at + 16]))
                    at += 16
        sid = sid_at(ace.raw, at)
    except (ValueError, struct.error):
        return None
    text = f"{guids[0]};{guids[1]};{_sid_letters(sid)}"
    same = _raw(ace.type, ace.flags, ace.mask, guids, sid) == ace.raw  # otherwise bytes would be lost
    return text if same else None


def _raw(kind: int, flags: int, mask: int, guids: list[str], sid: str) -> bytes:
    body = b""
    if kind in _OBJECT_TYPES:
        body = struct.pack("<I", sum(1 << index for index, guid in enumerate(guids) if guid))
        body += b"".join(UUID(guid).bytes_le for guid in guids if guid)
    body += sid_bytes(sid)
    return struct.pack("<BBHI", kind, flags, 8 + len(body), mask) + body


def _ace(text: str) -> Ace:
    fields = text.split(";")
    if len(fields) != 6:
        raise ValueError(f"({text}): an entry has six fields: type;flags;rights;object;inherited object;SID")
    kind, flags, rights, *guids, sid = fields
    if kind.upper() == _RAW:
        return _raw_ace(sid)
    if kind.upper() not in _TYPES:
        raise ValueError(f"({text}): unknown type {kind!r}; allowed: {', '.join(_TYPES)}")
    number, flag_bits = _TYPES[kind.upper()], _from_letters(flags, _ACE_FLAGS, "flag")
    mask = _mask(rights)
    if any(guids) and number not in _OBJECT_TYPES:
        raise ValueError(f"({text}): only entries of the types OA, OD, OU and OL have GUIDs")
    known = _sid(sid)
    if number in (0, 1):
        return Ace(number, flag_bits, mask, known)
    return Ace(number, flag_bits, mask, "", _raw(number, flag_bits, mask, guids, known))


def _mask(rights: str) -> int:
    if not rights.lower().startswith("0x"):
        return _from_letters(rights, _RIGHTS, "right")
    mask = int(rights, 16)
    if mask >= 1 << 32:
        raise ValueError(f"{rights} has more than 32 bits")
    return mask


def _raw_ace(hexadecimal: str) -> Ace:
    try:
        raw = bytes.fromhex(hexadecimal)
    except ValueError:
        raw = b""
    if len(raw) < 8 or struct.unpack_from("<H", raw, 2)[0] != len(raw):
        raise ValueError(f"({_RAW};;;;;{hexadecimal[:40]}) is not a complete entry")
    kind, flags, _, mask = struct.unpack_from("<BBHI", raw)
    if kind in (0, 1):
        return Ace(kind, flags, mask, sid_at(raw, 8))
    return Ace(kind, flags, mask, "", raw)
