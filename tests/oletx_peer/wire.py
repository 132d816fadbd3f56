"""Wire formats of MS-CMPO (IXnRemote), MS-CMP (boxcars) and MS-DTCO (structures).

Each builder has a parser.  The builders accept values that the texts forbid, because a hostile
test needs them; the parsers are tolerant, and `problems` lists violations of the texts.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, field
from typing import Any

from oletx_peer.rpc import RPC_X_INVALID_BOUND, NdrReader, NdrWriter, RpcFault

IXN_REMOTE = (uuid.UUID("906b0ce0-c70b-1067-b317-00dd010662da"), 1)  # MS-CMPO 1.9
NULL_GUID = uuid.UUID(int=0)
NULL_HANDLE = bytes(20)

OPNUMS = {
    "Poke": 0,
    "BuildContext": 1,
    "NegotiateResources": 2,
    "SendReceive": 3,
    "TearDownContext": 4,
    "BeginTearDown": 5,
    "PokeW": 6,
    "BuildContextW": 7,
}
OPNAMES = {number: name for name, number in OPNUMS.items()}

S_OK = 0
E_CM_TEARING_DOWN = 0x80000119
E_CM_SESSION_DOWN = 0x80000120
E_CM_SERVER_NOT_READY = 0x80000123
E_CM_S_TIMEDOUT = 0x80000124
E_CM_OUTOFRESOURCES = 0x80000127
E_CM_VERSION_SET_NOTSUPPORTED = 0x80000172
E_CM_S_PROTOCOL_NOT_SUPPORTED = 0x80000173
E_FAIL = 0x80004005
E_ACCESSDENIED = 0x80070005
E_INVALIDARG = 0x80070057

PRIMARY, SECONDARY = 1, 2  # SESSION_RANK, MS-CMPO 2.2.8
TT_FORCE, TT_PROBLEM = 0, 2  # TEARDOWN_TYPE, 2.2.9
RT_CONNECTIONS = 0  # RESOURCE_TYPE, 2.2.7
PROT_IP_TCP, PROT_LRPC = 0x01, 0x20  # COM_PROTOCOL, 2.2.4


@dataclass(frozen=True)
class PeerName:
    """A name object (MS-CMPO 3.2.1.4): host name, contact identifier, protocols."""

    host: str
    cid: uuid.UUID
    protocols: int = field(default=PROT_IP_TCP, compare=False)

    @property
    def key(self) -> tuple[str, uuid.UUID]:
        """Key for comparison: NetBIOS names are case-insensitive (3.2.1.4.1)."""
        return self.host.upper(), self.cid


# ------------------------------------------------------------------ IXnRemote stubs


def encode_call(op: str, args: dict[str, Any]) -> bytes:
    """Encode the request stub of an operation.

    The keys of `args` have the names of the IDL parameters.  Extra keys make false stubs:
    `blob_max` and `boxcar_max` replace the conformance values; `enum32` writes SESSION_RANK and
    TEARDOWN_TYPE as four bytes (MS-CMPO 2.2.8 contradicts its IDL; see NOTES.md); `tail` appends
    bytes; a tuple (text, max, offset, count) in place of a string gives false counts.
    """
    w, wide = NdrWriter(), op.endswith("W")

    def enum(value: int) -> None:
        w.u32(value) if args.get("enum32") else w.u16(value)

    def string(key: str) -> None:
        value = args[key]
        w.align(4).string(value, wide) if isinstance(value, str) else w.align(4).string(
            value[0], wide, value[1], value[2], value[3]
        )

    def blob() -> None:
        data = args.get("rguchBlob", struct.pack("<II", 8, PROT_IP_TCP))
        w.u32(args.get("dwcbSizeOfBlob", len(data))).conformant(data, args.get("blob_max"))

    if op in ("Poke", "PokeW"):
        enum(args["sRank"])
        for key in ("pszCalleeUuid", "pszHostName", "pszUuidString"):
            string(key)
        blob()
    elif op in ("BuildContext", "BuildContextW"):
        enum(args["sRank"])
        w.u32(*args["BindVersionSet"])
        for key in ("pszCalleeUuid", "pszHostName", "pszUuidString", "pszGuidIn", "pszGuidOut"):
            string(key)
        w.u32(*args.get("pBoundVersionSet", (0, 0, 0)))
        blob()
    elif op == "NegotiateResources":
        w.handle(args["phContext"])
        enum(args["resourceType"])
        w.u32(args["dwcRequested"], args.get("pdwcAccepted", 0))
    elif op == "SendReceive":
        boxcar = args["rguchBoxCar"]
        w.handle(args["phContext"]).u32(args["dwcMessages"], args.get("dwcbSizeOfBoxCar", len(boxcar)))
        w.conformant(boxcar, args.get("boxcar_max", args.get("dwcbSizeOfBoxCar")))
    elif op == "TearDownContext":
        w.handle(args["contextHandle"])
        enum(args["sRank"])
        enum(args["tearDownType"])
    elif op == "BeginTearDown":
        w.handle(args["contextHandle"])
        enum(args["tearDownType"])
    else:
        raise ValueError(op)
    return bytes(w.raw(args.get("tail", b"")).data)


def decode_call(op: str, stub: bytes) -> dict[str, Any]:
    """Decode a request stub; raise RpcFault when it violates the IDL."""
    r, wide = NdrReader(stub), op.endswith("W")
    args: dict[str, Any] = {}

    def strings(*keys: str) -> None:
        for key in keys:
            low, high = (1, 16) if key == "pszHostName" else (37, 37)
            args[key] = r.string(wide, low, high)

    def ranged(key: str, low: int, high: int) -> int:
        value = r.u32()
        if not low <= value <= high:
            raise RpcFault(RPC_X_INVALID_BOUND, key)
        args[key] = value
        return value

    if op in ("Poke", "PokeW"):
        args["sRank"] = r.u16()
        strings("pszCalleeUuid", "pszHostName", "pszUuidString")
        args["rguchBlob"] = r.conformant(ranged("dwcbSizeOfBlob", 8, 8))
    elif op in ("BuildContext", "BuildContextW"):
        args["sRank"] = r.u16()
        args["BindVersionSet"] = tuple(r.u32() for _ in range(6))
        strings("pszCalleeUuid", "pszHostName", "pszUuidString", "pszGuidIn", "pszGuidOut")
        args["pBoundVersionSet"] = tuple(r.u32() for _ in range(3))
        args["rguchBlob"] = r.conformant(ranged("dwcbSizeOfBlob", 8, 8))
    elif op == "NegotiateResources":
        args["phContext"], args["resourceType"] = r.handle(), r.u16()
        args["dwcRequested"], args["pdwcAccepted"] = r.u32(), r.u32()
    elif op == "SendReceive":
        args["phContext"] = r.handle()
        ranged("dwcMessages", 1, 4095)
        args["rguchBoxCar"] = r.conformant(ranged("dwcbSizeOfBoxCar", 40, 0x14000))
    elif op == "TearDownContext":
        args["contextHandle"] = r.handle()
        if r.left >= 8:  # the caller writes enums as four bytes
            args["sRank"], args["tearDownType"], args["enum32"] = r.u32(), r.u32(), True
        else:
            args["sRank"], args["tearDownType"] = r.u16(), r.u16()
    elif op == "BeginTearDown":
        args["contextHandle"] = r.handle()
        args["enum32"] = r.left >= 4
        args["tearDownType"] = r.u16()
    return args


def encode_answer(op: str, out: dict[str, Any]) -> bytes:
    """Encode the response stub of an operation."""
    w = NdrWriter()
    if op in ("BuildContext", "BuildContextW"):
        w.string(out.get("pszGuidOut", str(NULL_GUID)), op.endswith("W"))
        w.u32(*out.get("pBoundVersionSet", (0, 0, 0))).handle(out.get("ppHandle", NULL_HANDLE))
    elif op == "NegotiateResources":
        w.u32(out.get("pdwcAccepted", 0))
    elif op == "TearDownContext":
        w.handle(out.get("contextHandle", NULL_HANDLE))
    return bytes(w.u32(out.get("result", S_OK)).data)


def decode_answer(op: str, stub: bytes) -> dict[str, Any]:
    """Decode the response stub of an operation."""
    r, out = NdrReader(stub), {}
    if op in ("BuildContext", "BuildContextW"):
        out["pszGuidOut"] = r.string(op.endswith("W"))
        out["pBoundVersionSet"] = tuple(r.u32() for _ in range(3))
        out["ppHandle"] = r.handle()
    elif op == "NegotiateResources":
        out["pdwcAccepted"] = r.u32()
    elif op == "TearDownContext":
        out["contextHandle"] = r.handle()
    out["result"] = r.u32()
    return out


# ------------------------------------------------------------------ MS-CMP

MTAG_DISCONNECT, MTAG_DISCONNECTED, MTAG_CONNECTION_REQ_DENIED = 1, 2, 3
MTAG_PING, MTAG_CONNECTION_REQ, MTAG_USER_MESSAGE = 4, 5, 0xFFF
MTAG_NAMES = {
    1: "DISCONNECT",
    2: "DISCONNECTED",
    3: "CONNECTION_REQ_DENIED",
    4: "PING",
    5: "CONNECTION_REQ",
    0xFFF: "USER_MESSAGE",
}
RESERVED = 0xCD64CD64

PROPAGATE, REDELIVERCOMMIT, CHECKABORT, BRANCH = 0x101, 0x102, 0x103, 0x104
CONNECTION_TYPES = {0x101: "PROPAGATE", 0x102: "REDELIVERCOMMIT", 0x103: "CHECKABORT", 0x104: "BRANCH"}
USER_NAMES = {  # MS-DTCO 2.2.9; the names omit PARTNERTM_ and _MTAG
    0x2001: "PROPAGATE_PROPAGATE",
    0x2002: "PROPAGATE_PROPAGATED",
    0x2003: "PREPAREREQ",
    0x2004: "ABORTREQ",
    0x2005: "COMMITREQ",
    0x2006: "PREPAREREQDONE",
    0x2007: "ABORTREQDONE",
    0x2008: "COMMITREQDONE",
    0x2009: "PROTOCOL_ERROR",
    0x2010: "DUPLICATE",
    0x2901: "NO_MEM",
    0x2902: "LOG_FULL",
    0x2903: "ABORTNOTIFY",
    0x2906: "PHASE0REGISTER",
    0x2907: "PHASE0REGISTERED",
    0x2908: "PHASE0",
    0x2909: "PHASE0COMPLETE",
    0x2910: "PHASE0REGISTRATIONREJECTED",
    0x2011: "REDELIVER_COMMITREQ",
    0x2012: "REDELIVER_COMMITREQDONE",
    0x2013: "REDELIVER_RETRY",
    0x2021: "CHECKABORT_CHECK",
    0x2022: "CHECKABORT_ABORTED",
    0x2023: "CHECKABORT_RETRY",
    0x2051: "BRANCHING",
    0x2052: "BRANCHED",
    0x2054: "BRANCH_TX_NOT_FOUND",
    0x2055: "BRANCH_TOO_LATE",
    0x2056: "BRANCH_LOG_FULL",
    0x2057: "BRANCH_NO_MEM",
    0x2059: "BRANCH_TOO_MANY",
}
USER_TYPES = {name: number for number, name in USER_NAMES.items()}
BODY_SIZES = {0x2001: 60, 0x2003: 8, 0x2006: 20, 0x2011: 16, 0x2021: 16, 0x2051: 16}
PREPARE_VOTES = {"ok": 0, "abort": 1, "read_only": 2, "single_commit": 3, "single_indoubt": 4}
VOTE_NAMES = {number: name for name, number in PREPARE_VOTES.items()}


@dataclass
class PeerMessage:
    """A MESSAGE_PACKET with its data (MS-CMP 2.2.2)."""

    tag: int
    master: int = 1
    connection: int = 0
    type: int = 0
    body: bytes = b""
    size: int | None = None  # a false dwcbVarLenData
    reserved: int = RESERVED

    @property
    def name(self) -> str:
        """The MS-DTCO name of a user message, or the MS-CMP name of another message."""
        if self.tag == MTAG_USER_MESSAGE:
            return USER_NAMES.get(self.type, f"USER_0x{self.type:X}")
        return MTAG_NAMES.get(self.tag, f"MTAG_0x{self.tag:X}")

    def encode(self) -> bytes:
        size = len(self.body) if self.size is None else self.size
        return struct.pack("<6I", self.tag, self.master, self.connection, self.type, size, self.reserved) + self.body


def encode_boxcar(messages: list[PeerMessage], total: int | None = None, count: int | None = None) -> bytes:
    """Encode a boxcar; `total` and `count` can be false.  Each message is padded to 8 bytes.

    The last message is padded too, as in the example (MS-CMP 4.1.2).
    """
    data = b"".join(part + bytes(-len(part) % 8) for part in (m.encode() for m in messages))
    return (
        struct.pack("<4I", 0, 0, 16 + len(data) if total is None else total, len(messages) if count is None else count)
        + data
    )


def decode_boxcar(data: bytes) -> tuple[list[PeerMessage], list[str]]:
    """Decode a boxcar; return its messages and its violations of MS-CMP 2.1.1 and 2.2."""
    messages: list[PeerMessage] = []
    problems: list[str] = []
    if len(data) < 16:
        return messages, ["no BOX_CAR_HEADER"]
    sequence, ack, total, count = struct.unpack_from("<4I", data)
    if sequence or ack:
        problems.append("dwSeqNumThisCar or dwAckSeqNum is not zero")
    if total != len(data):
        problems.append(f"dwcbTotal {total} differs from {len(data)}")
    if not 1 <= count <= 3412:
        problems.append(f"dwcMessages {count} is out of range")
    at = 16
    for _ in range(count):
        at += -at % 8
        if at + 24 > len(data):
            problems.append("fewer messages than dwcMessages")
            break
        tag, master, connection, kind, size, reserved = struct.unpack_from("<6I", data, at)
        if at + 24 + size > len(data):
            problems.append("dwcbVarLenData exceeds the boxcar")
            break
        messages.append(PeerMessage(tag, master, connection, kind, data[at + 24 : at + 24 + size], None, reserved))
        at += 24 + size
        if tag not in MTAG_NAMES:
            problems.append(f"MsgTag 0x{tag:X}")
            break
    else:
        if len(data) - at >= 8:
            problems.append("bytes after the last message")
    return messages, problems


def propagate_body(guid: uuid.UUID, level: int = 0x100000, description: str = "") -> bytes:
    """The body of PARTNERTM_PROPAGATE_MTAG_PROPAGATE (MS-DTCO 2.2.9.1.1.1.1)."""
    return guid.bytes_le + struct.pack("<I", level) + fixed_text(description, 40)


def fixed_text(text: str, size: int) -> bytes:
    return text.encode("latin-1")[: size - 1].ljust(size, b"\0")


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("latin-1")


def _wide(data: bytes) -> str:
    return data.decode("utf-16-le").split("\0", 1)[0]


# ------------------------------------------------------------------ MS-DTCO 2.2.4 and 2.2.5

TM_ADDR_SIGNATURE = uuid.UUID("dc85cb48-d8a5-11d2-828b-00805f0df75a")
STXINFO_SIGNATURE = uuid.UUID("2adb4463-bd41-11d0-b12e-00c04fc2f3ef")
WHEREABOUTS_SIGNATURE = uuid.UUID("2adb4462-bd41-11d0-b12e-00c04fc2f3ef")


def build_tm_addr(name: PeerName) -> bytes:
    """Build an OLETX_TM_ADDR (2.2.4.2)."""
    return (
        TM_ADDR_SIGNATURE.bytes_le
        + name.cid.bytes_le
        + struct.pack("<I", name.protocols)
        + (name.host + "\0").encode("utf-16-le")
    )


def parse_tm_addr(data: bytes) -> PeerName:
    if uuid.UUID(bytes_le=data[:16]) != TM_ADDR_SIGNATURE:
        raise ValueError("OLETX_TM_ADDR has a wrong signature")
    if not 38 <= len(data) <= 68 or data[-2:] != b"\0\0":
        raise ValueError("wszHostName is not 2 to 32 bytes with a terminator")
    return PeerName(_wide(data[36:]), uuid.UUID(bytes_le=data[16:32]), struct.unpack_from("<I", data, 32)[0])


def build_nameobject(name: PeerName, pad: bool = False) -> bytes:
    """Build a NAMEOBJECTBLOB (2.2.5.3); `pad` rounds it to 4 bytes, as 4.2.1 shows."""
    host = (name.host + "\0").encode("latin-1")
    data = fixed_text(str(name.cid), 40) + struct.pack("<III", len(host), RESERVED, name.protocols) + host
    return data + bytes(-len(data) % 4) if pad else data


def parse_nameobject(data: bytes) -> tuple[PeerName, int]:
    """Parse a NAMEOBJECTBLOB; return the name and the size without padding."""
    size, _, protocols = struct.unpack_from("<III", data, 40)
    if not 1 <= size <= 16 or 52 + size > len(data):
        raise ValueError("dwcbHostName is out of range")
    return PeerName(_text(data[52 : 52 + size]), uuid.UUID(_text(data[:40])), protocols), 52 + size


@dataclass
class PeerToken:
    """A Propagation_Token (2.2.5.4)."""

    guid: uuid.UUID
    name: PeerName
    level: int = 0x100000
    flags: int = 5
    description: str = ""
    version: int = 3
    network: int = 1
    tip: int = 0
    tip_url: str | None = None
    wide_host: str | None = None

    def build(self) -> bytes:
        """Build the token; the name object is padded to 4 bytes, as 4.2.1 shows."""
        tail = build_nameobject(self.name, pad=self.version > 1)
        if self.version > 1:
            host = ((self.wide_host or self.name.host) + "\0").encode("utf-16-le")
            tail += struct.pack("<I", len(host)) + host
            if self.version > 2:
                tail += bytes(-len(tail) % 4)
                url = b"" if self.tip_url is None else (self.tip_url + "\0").encode("latin-1")
                tail += struct.pack("<III", self.network, self.tip, len(url)) + url
        return (
            struct.pack("<II", 1, self.version)
            + self.guid.bytes_le
            + struct.pack("<III", self.level, self.flags, len(tail))
            + fixed_text(self.description, 40)
            + tail
        )

    @classmethod
    def parse(cls, data: bytes) -> PeerToken:
        low, version = struct.unpack_from("<II", data)
        level, flags, size = struct.unpack_from("<III", data, 24)
        if low != 1 or version not in (1, 2, 3) or 76 + size != len(data):
            raise ValueError("Propagation_Token has a wrong version or size")
        name, at = parse_nameobject(data[76:])
        token = cls(uuid.UUID(bytes_le=data[8:24]), name, level, flags, _text(data[36:76]), version)
        at += 76
        if version > 1:
            at += -at % 4
            length = struct.unpack_from("<I", data, at)[0]
            if not 2 <= length <= 32:
                raise ValueError("cbHostNameW is out of range")
            token.wide_host = _wide(data[at + 4 : at + 4 + length])
            at += 4 + length
            token.name = PeerName(token.wide_host, name.cid, name.protocols)
        if version > 2:
            at += -at % 4
            token.network, token.tip, length = struct.unpack_from("<III", data, at)
            if at + 12 + length != len(data):
                raise ValueError("cbTipTmUrl does not fit")
            token.tip_url = _text(data[at + 12 :]) if length else None
        return token


def build_whereabouts(name: PeerName, v2: bool = True, extra: list[tuple[int, bytes]] | None = None) -> bytes:
    """Build an SWhereabouts (2.2.5.11) with V1, optionally V2, and other entries."""
    entries = [(2, struct.pack("<I", name.protocols) + name.cid.bytes_le + (name.host + "\0").encode("latin-1"))]
    if v2:
        entries.append((3, (name.host + "\0").encode("utf-16-le")))
    data = WHEREABOUTS_SIGNATURE.bytes_le + struct.pack("<I", len(entries) + len(extra or []))
    for kind, body in entries + (extra or []):
        data += bytes(-len(data) % 4) + struct.pack("<II", kind, len(body)) + body
    return data + bytes(-len(data) % 4)


def parse_whereabouts(data: bytes) -> tuple[PeerName | None, list[tuple[int, bytes]]]:
    """Parse an SWhereabouts; return the OleTx name object, if any, and all entries."""
    if uuid.UUID(bytes_le=data[:16]) != WHEREABOUTS_SIGNATURE:
        raise ValueError("SWhereabouts has a wrong signature")
    at, entries = 20, []
    for _ in range(struct.unpack_from("<I", data, 16)[0]):
        at += -at % 4
        kind, size = struct.unpack_from("<II", data, at)
        if at + 8 + size > len(data):
            raise ValueError("cbTmProtocolData does not fit")
        entries.append((kind, data[at + 8 : at + 8 + size]))
        at += 8 + size
    if not entries:
        raise ValueError("cTmToTmProtocols is zero")
    found = dict(reversed(entries))
    if 2 not in found:
        if 3 in found:
            raise ValueError("TmProtocolMsdtcV2 needs TmProtocolMsdtcV1")
        return None, entries
    v1 = found[2]
    host = _wide(found[3]) if 3 in found else _text(v1[20:])
    return PeerName(host, uuid.UUID(bytes_le=v1[4:20]), struct.unpack_from("<I", v1)[0]), entries


def build_stxinfo(guid: uuid.UUID, signed: bool = True, protocol: int = 3, specific: bytes = b"") -> bytes:
    """Build an STxInfo (2.2.5.10); `signed=False` gives the form of version 1."""
    if not signed:
        return guid.bytes_le
    return STXINFO_SIGNATURE.bytes_le + guid.bytes_le + struct.pack("<II", protocol, len(specific)) + specific


def parse_stxinfo(data: bytes) -> tuple[uuid.UUID, int | None, bytes]:
    """Parse an STxInfo; return (transaction, tmprotUsed or None, specific data)."""
    first = uuid.UUID(bytes_le=data[:16])
    if first != STXINFO_SIGNATURE:
        if len(data) != 16:
            raise ValueError("STxInfo without signature has 16 bytes")
        return first, None, b""
    protocol, size = struct.unpack_from("<II", data, 32)
    if 40 + size != len(data):
        raise ValueError("cbProtocolSpecificTxInfo does not fit")
    return uuid.UUID(bytes_le=data[16:32]), protocol, data[40:]
