"""Structures that identify transaction managers and transactions ([MS-DTCO] 2.2.4 and 2.2.5).

All integers are little-endian. A decoder raises `BadStructure` for an invalid length or signature, or an exceeded
limit.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from uuid import UUID

TCP: Final = 1  # COM_PROTOCOL of [MS-CMPO] 2.2.4
ISOLATION_SERIALIZABLE: Final = 0x0010_0000  # OLETX_ISOLATION_LEVEL, [MS-DTCO] 2.2.6.9
LONGEST_NAME: Final = 15  # maximum characters of a computer name, [MS-CMPO] 6
DESCRIPTION_SIZE: Final = 40  # maximum bytes of szDesc

_WHEREABOUTS: Final = UUID("2adb4462-bd41-11d0-b12e-00c04fc2f3ef").bytes_le
_STX_INFO: Final = UUID("2adb4463-bd41-11d0-b12e-00c04fc2f3ef").bytes_le
_OLETX: Final = 2  # TmToTmProtocol, 2.2.6.2: kind of an entry of SWhereabouts and STxInfo
_OLETX_WIDE: Final = 3  # the same name as UTF-16
_MOST_ENTRIES: Final = 16  # maximum entries of SWhereabouts: one of each kind


class BadStructure(ValueError):
    """Bytes are not a valid structure."""


class Partner(NamedTuple):
    """A transaction manager: contact identifier, computer name, and a mask of protocols."""

    cid: UUID
    host: str
    protocols: int = TCP

    @property
    def key(self) -> tuple[UUID, str]:
        """Return the key of a partner. It includes the name, because only a call to the partner verifies the claimed
        name."""
        return self.cid, self.host.upper()

    def __str__(self) -> str:
        return f"{self.host} ({self.cid})"


class PropagationToken(NamedTuple):
    """Propagation_Token (2.2.5.4): a transaction (16 bytes) and the transaction manager from which to pull it."""

    uow: bytes
    superior: Partner
    isolation_level: int = ISOLATION_SERIALIZABLE
    isolation_flags: int = 0
    description: bytes = b""


class _Reader:
    """Reads fields in order. Methods raise BadStructure."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data, self._at, self._what = data, 0, what

    def take(self, size: int, field: str) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            raise BadStructure(f"{self._what}: {field} needs {size} bytes, only {len(taken)} remain")
        self._at += size
        return taken

    def number(self, field: str) -> int:
        return int.from_bytes(self.take(4, field), "little")

    def align(self) -> None:
        self._at += -self._at % 4


def check_name(name: str, what: str) -> str:
    """Return a computer name if it is valid: 1 to 15 printable characters. Raises BadStructure."""
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or " " in name:
        raise BadStructure(f"{what}: {name[:40]!r} is not a computer name of 1 to {LONGEST_NAME} characters")
    return name


def _narrow(data: bytes, what: str) -> str:
    name, end, _ = data.partition(b"\0")
    if not end:
        raise BadStructure(f"{what}: the computer name has no terminator")
    return check_name(name.decode("latin-1"), what)


def _wide(data: bytes, what: str) -> str:
    if len(data) % 2:
        raise BadStructure(f"{what}: a UTF-16 computer name of {len(data)} bytes")
    try:
        name, end, _ = data.decode("utf-16-le").partition("\0")
    except UnicodeDecodeError as error:
        raise BadStructure(f"{what}: the computer name is not UTF-16: {error}") from None
    if not end:
        raise BadStructure(f"{what}: the computer name has no terminator")
    return check_name(name, what)


def _narrow_bytes(name: str) -> bytes:
    return name.encode("latin-1", "replace") + b"\0"


def _wide_bytes(name: str) -> bytes:
    return name.encode("utf-16-le") + b"\0\0"


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


# -- Propagation_Token, 2.2.5.4, with NAMEOBJECTBLOB, 2.2.5.3 ------------------------------------------------------

_TOKEN_HEAD: Final = struct.Struct("<II16sIII40s")
_NAME_OBJECT: Final = struct.Struct("<40sIII")
_NEWEST_TOKEN: Final = 3


def encode_token(token: PropagationToken) -> bytes:
    """Return a token of version 3 with empty TIP parts."""
    name, wide = _narrow_bytes(token.superior.host), _wide_bytes(token.superior.host)
    blob = _NAME_OBJECT.pack(str(token.superior.cid).encode(), len(name), 0, token.superior.protocols) + name
    tail = _padded(blob) + struct.pack("<I", len(wide)) + _padded(wide) + struct.pack("<III", 0, 0, 0)
    head = _TOKEN_HEAD.pack(
        1, _NEWEST_TOKEN, token.uow, token.isolation_level, token.isolation_flags, len(tail), token.description
    )
    return head + tail


def decode_token(data: bytes) -> PropagationToken:
    """Parse a token of any version. The wide name, present from version 2, replaces the narrow one (D-209)."""
    what = "Propagation_Token"
    reader = _Reader(data, what)
    first, version, uow, level, flags, size, description = _TOKEN_HEAD.unpack(reader.take(_TOKEN_HEAD.size, "the head"))
    if first != 1 or not version:
        raise BadStructure(f"{what}: its first fields are {first} and {version}, allowed: 1, and 1 or more")
    if size > len(data) - _TOKEN_HEAD.size:
        raise BadStructure(f"{what}: {size} bytes follow szDesc, only {len(data) - _TOKEN_HEAD.size} remain")
    text, length, _, protocols = _NAME_OBJECT.unpack(reader.take(_NAME_OBJECT.size, "NAMEOBJECTBLOB"))
    try:
        cid = UUID(text.partition(b"\0")[0].decode("ascii"))
    except ValueError:
        raise BadStructure(f"{what}: the contact identifier is not a GUID") from None
    if not 1 <= length <= LONGEST_NAME + 1:
        raise BadStructure(f"{what}: a computer name of {length} bytes, allowed: 1 to {LONGEST_NAME + 1}")
    narrow = reader.take(length, "szHostName")
    reader.align()
    if version == 1:
        return PropagationToken(uow, Partner(cid, _narrow(narrow, what), protocols), level, flags, description)
    length = reader.number("the length of the UTF-16 name")
    if not 2 <= length <= 2 * (LONGEST_NAME + 1):
        raise BadStructure(f"{what}: a UTF-16 name of {length} bytes, allowed: 2 to {2 * (LONGEST_NAME + 1)}")
    name = _wide(reader.take(length, "the UTF-16 name"), what)
    return PropagationToken(uow, Partner(cid, name, protocols), level, flags, description)


# -- SWhereabouts, 2.2.5.9 and 2.2.5.11 ----------------------------------------------------------------------------


def encode_whereabouts(partner: Partner) -> bytes:
    """Return SWhereabouts with the two entries of an OleTx transaction manager."""
    narrow = struct.pack("<I", partner.protocols) + partner.cid.bytes_le + _narrow_bytes(partner.host)
    entries = [(_OLETX, narrow), (_OLETX_WIDE, _wide_bytes(partner.host))]
    body = b"".join(struct.pack("<II", kind, len(data)) + _padded(data) for kind, data in entries)
    return _WHEREABOUTS + struct.pack("<I", len(entries)) + body


def decode_whereabouts(data: bytes) -> Partner:
    """Return the OleTx transaction manager in SWhereabouts. Raises BadStructure, also if there is none."""
    reader = _Reader(data, "SWhereabouts")
    if reader.take(16, "guidSignature") != _WHEREABOUTS:
        raise BadStructure("SWhereabouts: guidSignature is wrong")
    count = reader.number("the number of entries")
    if count > _MOST_ENTRIES:
        raise BadStructure(f"SWhereabouts: {count} entries, allowed: at most {_MOST_ENTRIES}")
    partner: Partner | None = None
    wide: str | None = None
    for _ in range(count):
        kind, length = reader.number("tmprotDescribed"), reader.number("cbTmProtocolData")
        entry = reader.take(length, "an entry")
        reader.align()
        if kind == _OLETX:
            if length < 21:
                raise BadStructure(f"SWhereabouts: an entry of {length} bytes, at least 21 are needed")
            cid = UUID(bytes_le=entry[4:20])
            partner = Partner(cid, _narrow(entry[20:], "SWhereabouts"), int.from_bytes(entry[:4], "little"))
        elif kind == _OLETX_WIDE:
            wide = _wide(entry, "SWhereabouts")
    if partner is None:
        raise BadStructure("SWhereabouts: no OleTx transaction manager is named")
    return partner if wide is None else partner._replace(host=wide)


# -- STxInfo, 2.2.5.10 ---------------------------------------------------------------------------------------------


def encode_stx_info(uow: bytes) -> bytes:
    """Return STxInfo: the cookie of a transaction that was pushed through OleTx."""
    return _STX_INFO + uow + struct.pack("<II", _OLETX, 0)


def decode_stx_info(data: bytes) -> bytes:
    """Return the transaction in an STxInfo; a plain identifier of 16 bytes is allowed, too (2.2.5.10)."""
    if len(data) == 16:
        return data
    if len(data) < 40 or data[:16] != _STX_INFO:
        raise BadStructure(f"STxInfo: {len(data)} bytes that do not begin with its signature")
    kind, length = struct.unpack_from("<II", data, 32)
    if kind != _OLETX or length:
        raise BadStructure(
            f"STxInfo: its protocol is {kind}, with {length} bytes; only OleTx ({_OLETX}, 0) is supported"
        )
    return data[16:32]
