"""Path names and format names ([MS-MQMQ] 2.1): parsing and formatting.

Matching is case-insensitive; the original text is kept. Queue names may contain any printable character except
backslash, semicolon, plus, comma and quotation mark. The ABNF allows only ASCII, but real installations use other
characters.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from openmsmq.model.errors import IllegalFormatName, IllegalQueuePathName

MAXIMUM_QUEUE_NAME = 124  # WCHARs, MS-MQMQ 2.1.1
MAXIMUM_COMPUTER_NAME = 256
MAXIMUM_SUBQUEUE_NAME = 31  # WCHARs, [MS-MQRR] 2.2.5.3: SubQueueName has 32 with its terminator (D-252)
MAXIMUM_FORMAT_NAME = 32 * 1024  # characters; enough for a multiple-element name with about 100 elements
# Deviation D-30 from [MS-MQMQ] 2.1.1, which allows only visible ASCII characters.
_EXCLUDED = re.compile(r'[\\;+,"\x00-\x1f\x7f\ud800-\udfff]')
_PROTOCOLS = ("TCP", "OS", "HTTP", "HTTPS", "IPX")


class Suffix(IntEnum):
    """QUEUE_SUFFIX_TYPE, [MS-MQMQ] 2.2.11."""

    NONE = 0
    JOURNAL = 1
    DEADLETTER = 2
    DEADXACT = 3
    XACTONLY = 4
    SUBQUEUE = 5


_SUFFIXES = {"JOURNAL": Suffix.JOURNAL, "DEADLETTER": Suffix.DEADLETTER, "DEADXACT": Suffix.DEADXACT,
             "XACTONLY": Suffix.XACTONLY}  # fmt: skip
READ_ONLY = (Suffix.JOURNAL, Suffix.DEADLETTER, Suffix.DEADXACT)
_SUFFIX_TEXT = {value: f";{text}" for text, value in _SUFFIXES.items()} | {Suffix.NONE: "", Suffix.SUBQUEUE: ""}


@dataclass(frozen=True, slots=True)
class PathName:
    """`computer\\private$\\name`, `computer\\name` or `computer\\system$;name`, with an optional subqueue."""

    computer: str
    name: str
    kind: str = "private"  # "private", "public" or "system"
    subqueue: str = ""

    def __str__(self) -> str:
        prefix = {"private": "private$\\", "public": "", "system": "system$;"}[self.kind]
        return f"{self.computer}\\{prefix}{self.name}" + (f";{self.subqueue}" if self.subqueue else "")


def parse_path_name(text: str) -> PathName:
    """Parse a path name. Raises IllegalQueuePathName with the invalid part and the allowed values."""
    computer, separator, rest = text.partition("\\")
    if not separator:
        raise _bad_path(text, "expected computer\\private$\\name or computer\\name")
    if not computer or len(computer) > MAXIMUM_COMPUTER_NAME or _EXCLUDED.search(computer):
        raise _bad_path(
            text, f"the computer name must have 1 to {MAXIMUM_COMPUTER_NAME} characters, without ; , + or quotes"
        )
    lowered = rest.lower()
    if lowered.startswith("system$;"):
        return PathName(computer, _checked(text, rest[8:], MAXIMUM_QUEUE_NAME, "queue name"), "system")
    kind = "private" if lowered.startswith("private$\\") else "public"
    name, _, subqueue = (rest[9:] if kind == "private" else rest).partition(";")
    _checked(text, name, MAXIMUM_QUEUE_NAME, "queue name")
    if subqueue or rest.endswith(";"):
        _checked(text, subqueue, MAXIMUM_SUBQUEUE_NAME, "subqueue name")
    return PathName(computer, name, kind, subqueue)


def _checked(text: str, name: str, maximum: int, what: str) -> str:
    units = len(name) if name.isascii() else len(name.encode("utf-16-le", "surrogatepass")) // 2
    if not 1 <= units <= maximum:
        raise _bad_path(text, f"the {what} has {units} characters (UTF-16 code units), allowed: 1 to {maximum}")
    if bad := _EXCLUDED.search(name):
        if bad.group() >= "\ud800":
            raise _bad_path(text, f"the {what} contains half of a surrogate pair")
        raise _bad_path(text, f'the {what} contains {bad.group()!r}; not allowed: \\ ; + , " and control characters')
    return name


def _bad_path(text: str, reason: str) -> IllegalQueuePathName:
    return IllegalQueuePathName(detail=f"{_shown(text)}: {reason}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:97] + "...")


def parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address of a host in a format name, IPv6 with or without brackets; None for a computer name."""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


# -- format names ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PublicFormatName:
    guid: UUID
    suffix: Suffix = Suffix.NONE

    def __str__(self) -> str:
        return f"PUBLIC={self.guid}{_SUFFIX_TEXT[self.suffix]}"


@dataclass(frozen=True, slots=True)
class PrivateFormatName:
    guid: UUID
    number: int
    suffix: Suffix = Suffix.NONE

    def __str__(self) -> str:
        return f"PRIVATE={self.guid}\\{self.number:08x}{_SUFFIX_TEXT[self.suffix]}"


@dataclass(frozen=True, slots=True)
class DirectFormatName:
    """`DIRECT=protocol:address\\path`. `path` is the part of a path name after the computer, without suffix.
    `separator` is a slash if an HTTP name was written as a URL; [MS-MQMQ] 2.1.2 specifies a backslash, and programs use
    both."""

    protocol: str
    address: str
    path: str
    suffix: Suffix = Suffix.NONE
    subqueue: str = ""
    separator: str = "\\"

    @property
    def direct_id(self) -> str:
        """The text without `DIRECT=`, as in QUEUE_FORMAT."""
        system = self.path.lower() == "system$"
        suffix = _SUFFIX_TEXT[self.suffix] if not system else _SUFFIX_TEXT[self.suffix].upper()
        path = self.path if self.separator == "\\" else self.path.replace("\\", self.separator)
        tail = f";{self.subqueue}" if self.subqueue else suffix
        return f"{self.protocol}:{self.address}{self.separator}{path}{tail}"

    @property
    def is_http(self) -> bool:
        return self.protocol.upper() in ("HTTP", "HTTPS")

    @property
    def host(self) -> str:
        """The computer name or address; for HTTP the host of the URL (3.1.7.1.5 of [MS-MQDMPR])."""
        if not self.is_http:
            return self.address
        authority = self.address.removeprefix("//").split("/")[0]
        return authority[1:].partition("]")[0] if authority.startswith("[") else authority.partition(":")[0]

    def path_name(self) -> PathName:
        """Return the path name. Raises IllegalQueuePathName for a queue that has none."""
        if self.path.lower() == "system$":
            return PathName(self.host, self.suffix.name.lower(), "system")
        return parse_path_name(f"{self.host}\\{self.path}{f';{self.subqueue}' if self.subqueue else ''}")

    def __str__(self) -> str:
        return f"DIRECT={self.direct_id}"


@dataclass(frozen=True, slots=True)
class MachineFormatName:
    guid: UUID
    suffix: Suffix

    def __str__(self) -> str:
        return f"MACHINE={self.guid}{_SUFFIX_TEXT[self.suffix]}"


@dataclass(frozen=True, slots=True)
class ConnectorFormatName:
    guid: UUID
    suffix: Suffix = Suffix.NONE  # NONE or XACTONLY

    def __str__(self) -> str:
        return f"CONNECTOR={self.guid}{_SUFFIX_TEXT[self.suffix]}"


@dataclass(frozen=True, slots=True)
class DistributionListFormatName:
    guid: UUID
    domain: str = ""

    def __str__(self) -> str:
        return f"DL={self.guid}" + (f"@{self.domain}" if self.domain else "")


@dataclass(frozen=True, slots=True)
class MulticastFormatName:
    address: str
    port: int

    def __str__(self) -> str:
        return f"MULTICAST={self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class MultipleElementFormatName:
    elements: tuple[SingleFormatName, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.elements))


SingleFormatName = (
    PublicFormatName | PrivateFormatName | DirectFormatName | MachineFormatName | ConnectorFormatName
    | DistributionListFormatName | MulticastFormatName
)  # fmt: skip
FormatName = SingleFormatName | MultipleElementFormatName


def is_format_name(text: str) -> bool:
    """Whether a text is meant as a format name, and not as a path name or the short name of a private queue.

    Names of queues may contain equals signs. In a format name, one precedes the first backslash; if there is no
    backslash, it follows a known prefix.
    """
    head, backslash, _ = text.partition("\\")
    prefix, separator, _ = head.partition("=")
    is_known = prefix.strip().upper().removeprefix("FORMATNAME:") in _PARSERS
    return bool(separator) and (is_known or bool(backslash))


def parse_format_name(text: str) -> FormatName:
    """Parse any format name of [MS-MQMQ] 2.1. Raises IllegalFormatName with the text and the reason."""
    if len(text) > MAXIMUM_FORMAT_NAME:
        raise IllegalFormatName(detail=f"{_shown(text)}: {len(text)} characters, at most {MAXIMUM_FORMAT_NAME}")
    parts = text.split(",")
    if len(parts) == 1:
        return _parse_single(text)
    elements = tuple(_parse_single(part.strip()) for part in parts)
    for element in elements:
        if isinstance(element, MachineFormatName) or getattr(element, "suffix", Suffix.NONE) in READ_ONLY:
            raise IllegalFormatName(detail=f"{element}: a read-only queue in a multiple-element format name")
    return MultipleElementFormatName(elements)


def _parse_single(text: str) -> SingleFormatName:
    prefix, separator, rest = text.partition("=")
    parser = _PARSERS.get(prefix.strip().upper())
    if text.lower().startswith("formatname:"):
        raise _bad(text, "leave out System.Messaging's prefix 'FormatName:'; a format name begins with DIRECT=, ...")
    if not separator or parser is None:
        raise _bad(text, f"expected one of {', '.join(f'{name}=' for name in _PARSERS)}")
    return parser(text, rest)


def _public(text: str, rest: str) -> PublicFormatName:
    body, suffix = _split_suffix(text, rest, (Suffix.JOURNAL,))
    return PublicFormatName(_guid(text, body), suffix)


def _private(text: str, rest: str) -> PrivateFormatName:
    body, suffix = _split_suffix(text, rest, (Suffix.JOURNAL,))
    guid, separator, number = body.partition("\\")
    if not separator or not re.fullmatch(r"[0-9A-Fa-f]{1,8}", number):
        raise _bad(text, "expected PRIVATE=guid\\ followed by 1 to 8 hexadecimal digits")
    return PrivateFormatName(_guid(text, guid), int(number, 16), suffix)


def _direct(text: str, rest: str) -> DirectFormatName:
    return parse_direct_id(rest, text)


def parse_direct_id(direct_id: str, text: str | None = None) -> DirectFormatName:
    """Parse the part of a direct format name after `DIRECT=`. Raises IllegalFormatName."""
    text = text or f"DIRECT={direct_id}"
    if len(direct_id) > MAXIMUM_FORMAT_NAME:
        raise IllegalFormatName(detail=f"{_shown(text)}: {len(direct_id)} characters, at most {MAXIMUM_FORMAT_NAME}")
    protocol, separator, rest = direct_id.partition(":")
    if not separator or protocol.upper() not in _PROTOCOLS:
        raise _bad(text, f"the protocol must be one of {', '.join(_PROTOCOLS)}")
    is_http, mark = protocol.upper() in ("HTTP", "HTTPS"), "\\"
    if is_http:
        match = re.fullmatch(r"(//[^/\\]+/msmq)([/\\])(.+)", rest, re.IGNORECASE)
        if match is None or _EXCLUDED.search(match[1]) or len(match[1]) > MAXIMUM_COMPUTER_NAME:
            raise _bad(text, "expected //host[:port]/msmq followed by the queue")
        address, mark, path = match.group(1), match.group(2), match.group(3).replace("/", "\\")
    else:
        address, separator, path = rest.partition("\\")
        if not separator or not address or _EXCLUDED.search(address) or len(address) > MAXIMUM_COMPUTER_NAME:
            raise _bad(text, "expected protocol:address\\queue")
    path, separator, tail = path.partition(";")
    if separator and not tail:
        raise _bad(text, "nothing follows the semicolon")
    suffix = _SUFFIXES.get(tail.upper(), Suffix.NONE)
    if path.lower() == "system$":
        if suffix not in (Suffix.JOURNAL, Suffix.DEADLETTER, Suffix.DEADXACT):
            raise _bad(text, "a system queue is SYSTEM$;JOURNAL, SYSTEM$;DEADLETTER or SYSTEM$;DEADXACT")
        return DirectFormatName(protocol, address, path, suffix, "", mark)
    subqueue = ""
    if tail and suffix != Suffix.JOURNAL:
        suffix, subqueue = Suffix.SUBQUEUE, tail
    name = DirectFormatName(protocol, address, path, suffix, subqueue, mark)
    try:
        parse_path_name(f"x\\{path}{f';{subqueue}' if subqueue else ''}")
    except IllegalQueuePathName as error:
        raise _bad(text, error.detail.partition(": ")[2]) from None
    return name


def _machine(text: str, rest: str) -> MachineFormatName:
    body, suffix = _split_suffix(text, rest, (Suffix.JOURNAL, Suffix.DEADLETTER, Suffix.DEADXACT))
    if suffix == Suffix.NONE:
        raise _bad(text, "a machine format name ends with ;JOURNAL, ;DEADLETTER or ;DEADXACT")
    return MachineFormatName(_guid(text, body), suffix)


def _connector(text: str, rest: str) -> ConnectorFormatName:
    body, suffix = _split_suffix(text, rest, (Suffix.XACTONLY,))
    return ConnectorFormatName(_guid(text, body), suffix)


def _distribution_list(text: str, rest: str) -> DistributionListFormatName:
    guid, separator, domain = rest.partition("@")
    if separator and not re.fullmatch(r"[\x21-\x7e]{1,255}", domain):
        raise _bad(text, "the domain name has 1 to 255 visible ASCII characters")
    return DistributionListFormatName(_guid(text, guid), domain)


def _multicast(text: str, rest: str) -> MulticastFormatName:
    octet = r"(0|[1-9][0-9]{0,2})"
    match = re.fullmatch(rf"{octet}\.{octet}\.{octet}\.{octet}:(0|[1-9][0-9]{{0,4}})", rest)
    if (
        match is None
        or not 224 <= int(match[1]) <= 239
        or int(match[5]) > 65535
        or any(int(match[i]) > 255 for i in (2, 3, 4))
    ):
        raise _bad(text, "expected an address from 224.0.0.0 to 239.255.255.255, a colon and a port")
    return MulticastFormatName(rest.partition(":")[0], int(match[5]))


_PARSERS: dict[str, Callable[[str, str], SingleFormatName]] = {
    "PUBLIC": _public, "PRIVATE": _private,
    "DIRECT": _direct, "MACHINE": _machine, "CONNECTOR": _connector, "DL": _distribution_list, "MULTICAST": _multicast,
}  # fmt: skip


def _split_suffix(text: str, rest: str, allowed: tuple[Suffix, ...]) -> tuple[str, Suffix]:
    body, separator, tail = rest.partition(";")
    if not separator:
        return body, Suffix.NONE
    suffix = _SUFFIXES.get(tail.upper())
    if suffix not in allowed:
        raise _bad(text, f"the suffix must be one of {', '.join(f';{s.name}' for s in allowed)}")
    return body, suffix


def _guid(text: str, guid: str) -> UUID:
    if not re.fullmatch(r"[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}", guid):
        raise _bad(text, "expected a GUID of the form 8-4-4-4-12 hexadecimal digits")
    return UUID(guid)


def _bad(text: str, reason: str) -> IllegalFormatName:
    return IllegalFormatName(detail=f"{_shown(text)}: {reason}")
