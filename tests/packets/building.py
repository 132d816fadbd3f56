"""Packets built according to the independent reading of the specifications: a test may set the value of every field.

Builders check nothing, so that a test can break exactly one rule.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from packets import headers, names

SOURCE = bytes(range(1, 17))
TARGET = bytes(range(17, 33))
PADDING = b"\xcd"  # may have any value


def pad(data: bytes) -> bytes:
    return data + PADDING * (-len(data) % 4)


def wide(text: str) -> bytes:
    """Encode a text as UTF-16 with its terminator."""
    return text.encode("utf-16-le") + b"\0\0"


def integer(bits: dict[str, int], widths: dict[str, int]) -> int:
    """Return bit fields, the lowest first, as one integer."""
    value = shift = 0
    for name, width in widths.items():
        value |= (bits.get(name, 0) & (1 << width) - 1) << shift
        shift += width
    return value


BASE_BITS = {"PR": 3, "IN": 1, "SH": 1, "DH": 1, "X9": 1, "X8": 1, "TR": 1, "X": 7}


def base(size: int, *, life: int = headers.INFINITE, reserved: int = 0, version: int = 0x10,
         signature: int = 0x524F494C, **bits: int) -> bytes:  # fmt: skip
    return struct.pack("<BBHIII", version, reserved, integer(bits, BASE_BITS), signature, size, life)


def internal_packet(kind: int, body: bytes, *, refused: int = 0, reserved: int = 0, unused: int = 0,
                    **of_base: int) -> bytes:  # fmt: skip
    of_base = {"IN": 1, "PR": 3} | of_base
    header = struct.pack("<HH", reserved, kind | refused << 4 | unused << 5)
    return base(of_base.pop("size", 20 + len(body)), **of_base) + header + body


def establish_connection(client: bytes = SOURCE, server: bytes = TARGET, *, stamp: int = 1000, system: int = 0x310,
                         reserved: int = 0, padding: bytes = b"\x5a" * 512, **of_packet: int) -> bytes:  # fmt: skip
    body = client + server + struct.pack("<IHH", stamp, system, reserved) + padding
    return internal_packet(headers.ESTABLISH_CONNECTION, body, **of_packet)


def connection_parameters(*, recoverable: int = 1000, timeout: int = 60_000, window: int = 64, spare: int = 0,
                          **of_packet: int) -> bytes:  # fmt: skip
    body = struct.pack("<IIHH", recoverable, timeout, spare, window)
    return internal_packet(headers.CONNECTION_PARAMETERS, body, **of_packet)


def session_header(received: int = 0, first: int = 0, flags: int = 0, sent: int = 0, recoverable: int = 0,
                   window: int = 64, spare: int = 0) -> bytes:  # fmt: skip
    return struct.pack("<HHIHHHH", received, first, flags, sent, recoverable, window, spare)


def session_ack(body: bytes | None = None, **of_packet: int) -> bytes:
    of_packet = {"SH": 1} | of_packet
    return internal_packet(headers.SESSION_ACK, session_header() if body is None else body, **of_packet)


@dataclass
class Queue:
    """A queue as named in a UserHeader: `kind` is Flags.DQ, AQ or RQ; `fixed` are the bytes of all types but direct
    names."""

    kind: int = names.NONE
    fixed: bytes = b""
    name: str = ""

    def encode(self) -> bytes:
        if self.kind != names.DIRECT:
            return self.fixed
        raw = wide(self.name)
        return pad(struct.pack("<H", len(raw)) + raw)


def direct(name: str) -> Queue:
    return Queue(names.DIRECT, name=name)


def numbered(kind: int, number: int) -> Queue:
    return Queue(kind, struct.pack("<I", number))


USER_BITS = {
    "RC": 5, "DM": 2, "X1": 1, "JN": 1, "JP": 1, "DQ": 3, "AQ": 3, "RQ": 3, "SH": 1, "TH": 1, "MP": 1, "CQ": 1,
    "MQ": 1, "X2": 1, "AH": 1, "X3": 2, "HH": 1, "X4": 3,
}  # fmt: skip
TRANSACTION_BITS = {"CG": 1, "FA": 1, "FM": 1, "LM": 1, "ID": 20, "X": 8}
SECURITY_BITS = {"ST": 4, "AU": 1, "EB": 1, "DE": 1, "AI": 1, "AS": 4, "X": 4}


@dataclass
class Transaction:
    sequence: int = 1 << 32 | 1
    number: int = 1
    previous: int = 0
    connector: bytes = b""
    bits: dict[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        bits = {"CG": bool(self.connector), "FM": 1, "LM": 1, "ID": 7} | self.bits
        flags = integer(bits, TRANSACTION_BITS)
        return struct.pack("<IQII", flags, self.sequence, self.number, self.previous) + self.connector


def simple_blob(algorithm: int = headers.RC4, key: bytes = b"k" * 64) -> bytes:
    return b"\1\2\0\0" + struct.pack("<I", algorithm) + b"\0\xa4\0\0" + key


def sid(authorities: Sequence[int] = (21, 1, 2, 3, 1000)) -> bytes:
    return struct.pack(f"<BB6s{len(authorities)}I", 1, len(authorities), b"\0\0\0\0\0\5", *authorities)


@dataclass
class Security:
    sender: bytes = field(default_factory=sid)
    key: bytes = b""
    signature: bytes = b""
    certificate: bytes = b""
    provider: bytes = b""
    bits: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        data = [self.sender, self.key, self.signature, self.certificate, self.provider]
        sizes = dict(zip(("sender", "key", "signature", "certificate", "provider"), map(len, data), strict=True))
        bits = {"ST": 1 if self.sender else 0, "DE": not self.provider, "EB": bool(self.key), "AI": 1} | self.bits
        fixed = struct.pack("<HHHHII", integer(bits, SECURITY_BITS), *(sizes | self.sizes).values())
        return fixed + b"".join(map(pad, data))


@dataclass
class Properties:
    label: bytes = field(default_factory=lambda: wide("label"))
    body: bytes = b"body of text"
    extension: bytes = b""
    flags: int = 0
    kind: int = headers.NORMAL
    correlation: bytes = bytes(20)
    body_type: int = 0
    tag: int = 0
    privacy: int = 0
    hash: int = 0x8004
    algorithm: int = headers.RC4
    label_length: int | None = None
    size: int | None = None
    allocated: int | None = None

    def encode(self) -> bytes:
        length = len(self.label) // 2 if self.label_length is None else self.label_length
        size = len(self.body) if self.size is None else self.size
        fixed = struct.pack(
            "<BBH20sIIIIIIII", self.flags, length, self.kind, self.correlation, self.body_type, self.tag, size,
            size if self.allocated is None else self.allocated, self.privacy, self.hash, self.algorithm,
            len(self.extension),
        )  # fmt: skip
        return pad(fixed + self.label + self.extension + self.body)


def debug(queue: bytes = b"", *, kind: int | None = None, unused: int = 0, reserved: int = 0) -> bytes:
    kind = int(bool(queue)) if kind is None else kind
    return struct.pack("<HH", kind | unused << 2, reserved) + queue


def soap(header: str = "<header/>", body: str = "<body>", *, sections: tuple[int, int] = (0x0320, 0x0384)) -> bytes:
    parts = [
        struct.pack("<HHI", section, 0, len(wide(value)) // 2) + pad(wide(value))
        for section, value in zip(sections, (header, body), strict=True)
    ]
    return b"".join(parts)


def elements(formats: Sequence[tuple[int, bytes]]) -> bytes:
    """Concatenate MQFFormatNameElements; all but direct names start at a 4-byte boundary."""
    data = b""
    for kind, name in formats:
        data += struct.pack("<H", kind)
        data = (data if kind == 3 else pad(data)) + name
    return data


def addresses(identifier: int, formats: Sequence[tuple[int, bytes]], *, count: int | None = None,
              size: int | None = None) -> bytes:  # fmt: skip
    data = elements(formats)
    count = len(formats) if count is None else count
    return pad(struct.pack("<IHHI", 12 + len(data) if size is None else size, identifier, 0, count) + data)


ONE_QUEUE = [(3, wide("OS:host\\private$\\queue"))]


def multiple_queues(
    destinations: Any = ONE_QUEUE, admin: Any = (), response: Any = (), signature: bytes = b""
) -> bytes:
    end = pad(struct.pack("<HHI", 0x015E, 0, len(signature)) + signature)
    return addresses(0x64, destinations) + addresses(0xC8, admin) + addresses(0x12C, response) + end


@dataclass
class UserMessage:
    """A UserMessage packet. Header flags are derived from the headers that are present, unless `bits` and `base`
    override them."""

    destination: Queue = field(default_factory=lambda: direct("OS:host\\private$\\queue"))
    admin: Queue = field(default_factory=Queue)
    response: Queue = field(default_factory=Queue)
    source: bytes = SOURCE
    address: bytes | None = None
    connector: bytes = b""
    received: int = headers.INFINITE
    sent: int = 1_700_000_000
    number: int = 5
    bits: dict[str, int] = field(default_factory=dict)
    base: dict[str, int] = field(default_factory=dict)
    transaction: Transaction | None = None
    security: Security | None = None
    properties: Properties = field(default_factory=Properties)
    debug: bytes = b""
    soap: bytes = b""
    multiple: bytes = b""
    session: bytes = b""

    def user_header(self) -> bytes:
        bits = {
            "DQ": self.destination.kind, "AQ": self.admin.kind, "RQ": self.response.kind, "MP": 1,
            "DM": int(self.transaction is not None), "TH": int(self.transaction is not None),
            "SH": int(self.security is not None), "CQ": int(bool(self.connector)), "MQ": int(bool(self.multiple)),
            "HH": int(bool(self.soap)),
        }  # fmt: skip
        flags = integer(bits | self.bits, USER_BITS)
        address = self.address
        if address is None:
            address = bytes(16) if self.destination.kind == names.DIRECT else TARGET
        fixed = self.source + address + struct.pack("<IIII", self.received, self.sent, self.number, flags)
        queues = self.destination.encode() + self.admin.encode() + self.response.encode()
        return fixed + queues + self.connector

    def encode(self) -> bytes:
        parts = [self.user_header()]
        parts += [header.encode() for header in (self.transaction, self.security, self.properties) if header]
        data = b"".join([*parts, self.debug, self.soap, self.multiple])
        priority = 0 if self.transaction else 3
        bits = {"PR": priority, "DH": bool(self.debug), "SH": bool(self.session)} | self.base
        return base(bits.pop("size", 16 + len(data)), **bits) + data + self.session


def order_ack(sequence: int = 1 << 32 | 1, number: int = 1, previous: int | None = None, *,
              reserved: bytes = bytes(20), **changed: Any) -> UserMessage:  # fmt: skip
    previous = number - 1 if previous is None else previous
    body = struct.pack("<QII", sequence, number, previous) + reserved
    return _acknowledgment(headers.ORDER_ACK, body, 0, changed)


def final_ack(sequence: int = 1 << 32 | 1, number: int = 1, previous: int = 0, *, source: bytes = TARGET,
              kind: int = headers.ACK_RECEIVE, **changed: Any) -> UserMessage:  # fmt: skip
    body = struct.pack("<QII16sI", sequence, number, previous, source, 5)
    return _acknowledgment(kind, body, 1, changed)


def _acknowledgment(kind: int, body: bytes, recoverable: int, changed: dict[str, Any]) -> UserMessage:
    properties = Properties(label=wide("QM Ordering Ack"), body=body, kind=kind)
    for name in set(changed) & set(vars(properties)):
        setattr(properties, name, changed.pop(name))
    message = UserMessage(
        destination=numbered(names.DESTINATION, names.ORDER_QUEUE), properties=properties,
        bits={"DM": recoverable}, base={"PR": 0},
    )  # fmt: skip
    for name, value in changed.items():
        present = getattr(message, name)
        setattr(message, name, present | value if isinstance(present, dict) else value)
    return message


# -- random valid packets --------------------------------------------------------------------------------------------


def _guid(chance: random.Random) -> bytes:
    return chance.randbytes(15) + bytes([chance.randrange(1, 256)])


def _text(chance: random.Random, least: int, most: int) -> str:
    """Random characters of one WCHAR each, without nulls and surrogate halves."""
    count = chance.randint(least, most)
    return "".join(chr(chance.choice([chance.randrange(32, 127), chance.randrange(1, 0xD800)])) for _ in range(count))


def _direct_name(chance: random.Random) -> str:
    host = chance.choice(["OS:host", "TCP:192.0.2.7", "OS:host.example.com", "TCP:[2001:db8::1]"])
    return host + chance.choice(["\\private$\\", "\\"]) + chance.choice(["q", "queue 2", "Ünïcode", "x" * 100])


def random_queue(chance: random.Random, kinds: Sequence[int]) -> Queue:
    kind = chance.choice(kinds)
    if kind == names.DIRECT:
        return direct(_direct_name(chance))
    if kind == names.PUBLIC:
        return Queue(kind, _guid(chance))
    if kind == names.PRIVATE:
        return Queue(kind, _guid(chance) + chance.randbytes(4))
    # 4 is the order queue, whose packets have another format.
    return numbered(kind, chance.randrange(5, 1 << 32)) if kind in (2, 3, 4) else Queue(kind)


def _random_formats(chance: random.Random, least: int) -> list[tuple[int, bytes]]:
    made = []
    for _ in range(chance.randint(least, 4)):
        kind = chance.choice([1, 2, 3, 6])
        name = wide(_direct_name(chance)) if kind == 3 else _guid(chance) + (chance.randbytes(4) if kind == 2 else b"")
        made.append((kind, name))
    return made


def _random_security(chance: random.Random, algorithm: int | None) -> Security:
    kind = chance.choice([0, 1, 2])
    sender = [b"", sid([chance.randrange(1 << 32) for _ in range(chance.randrange(1, 16))]), _guid(chance)][kind]
    key = b"" if algorithm is None else simple_blob(algorithm, chance.randbytes(chance.choice([64, 128, 256])))
    signature = chance.randbytes(chance.choice([0, 64, 128, 255]))
    certificate = chance.randbytes(chance.choice([0, 1, 600]))
    if not (sender or key or signature or certificate):
        certificate = b"certificate"
    provider = chance.choice([b"", struct.pack("<I", chance.randrange(32)) + wide(_text(chance, 1, 40))])
    return Security(sender, key, signature, certificate, provider, {"ST": kind})


def _random_session_header(chance: random.Random) -> bytes:
    received, sent, recoverable, spare = (chance.randrange(1 << 16) for _ in range(4))
    first = chance.choice([0, chance.randrange(1, 1 << 16)])
    flags = chance.randrange(1 << 32) | 1 if first else 0
    return session_header(received, first, flags, sent, recoverable, chance.randrange(1, 1 << 16), spare)


def random_user_message(chance: random.Random) -> UserMessage:
    """Return a UserMessage packet with any combination of headers, queues and sizes that the specification allows."""

    def sometimes(value: Any, otherwise: Any) -> Any:
        return value() if chance.random() < 0.5 else otherwise

    level = chance.choice([0, 0, 0, 1, 3, 5])
    algorithm = chance.choice(sorted(headers.ALGORITHMS[level])) if level else chance.choice([0x6801, 0x6602, 0x6610])
    security = _random_security(chance, algorithm if level else None) if level or chance.random() < 0.4 else None
    size = chance.choice([0, 1, 2, 3, 4, 100, 5001])
    if level:
        size = (size // 16 + 1) * 16
    flags = sometimes(lambda: chance.randrange(1, 16), 0)
    transaction = None
    if chance.random() < 0.4:
        number = chance.randrange(1, 1 << 32)
        bits = {"ID": chance.randrange(1 << 20), **{bit: chance.randrange(2) for bit in ("FA", "FM", "LM")}}
        previous = chance.randrange(number)
        transaction = Transaction(
            chance.randrange(1, 1 << 64), number, previous, sometimes(lambda: _guid(chance), b""), bits
        )
    destination = random_queue(chance, [3, 5, 7, 7])
    itself = [(1, destination.fixed)] if destination.kind == names.PUBLIC else []
    return UserMessage(
        destination=destination,
        admin=random_queue(chance, [2, 3, 5, 6, 7]) if flags else Queue(),
        response=random_queue(chance, range(8) if flags else [0, 2, 3, 5, 6, 7]),
        source=_guid(chance),
        connector=sometimes(lambda: _guid(chance), b""),
        received=chance.choice([headers.INFINITE, chance.randrange(1 << 32)]),
        sent=chance.randrange(1 << 32),
        number=chance.randrange(1 << 32),
        bits={
            "RC": chance.randrange(0x1E), "JN": chance.randrange(2), "JP": chance.randrange(2),
            **({} if transaction else {"DM": chance.randrange(2)}),
        },
        base={
            "PR": 0 if transaction else chance.randrange(8), "reserved": chance.randrange(256),
            "life": chance.choice([headers.INFINITE, chance.randrange(1 << 32)]),
        },
        transaction=transaction,
        security=security,
        properties=Properties(
            label=sometimes(lambda: wide(_text(chance, 0, 249)), b""), body=chance.randbytes(size),
            extension=sometimes(lambda: chance.randbytes(chance.randrange(1, 300)), b""), flags=flags,
            kind=chance.choice([0, 0, 0, 2, 0x4000, *headers.NEGATIVE]), correlation=chance.randbytes(20),
            body_type=chance.choice([0, 8, 17, 31, 0x1011]), tag=chance.randrange(1 << 32), privacy=level,
            hash=chance.choice(sorted(headers.HASHES)), algorithm=algorithm,
        ),
        debug=sometimes(lambda: debug(sometimes(lambda: _guid(chance), b"")), b""),
        soap=sometimes(lambda: soap(_text(chance, 0, 30), _text(chance, 0, 30)), b""),
        multiple=sometimes(
            lambda: multiple_queues(
                _random_formats(chance, 1) + itself, _random_formats(chance, 0), _random_formats(chance, 0),
                sometimes(lambda: chance.randbytes(chance.randrange(1, 200)), b""),
            ),
            b"",
        ),
        session=sometimes(lambda: _random_session_header(chance), b""),
    )  # fmt: skip
