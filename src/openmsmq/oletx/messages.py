"""The connections between transaction managers, and the messages on them ([MS-DTCO] 2.2.6.1, 2.2.9)."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from openmsmq.oletx.structures import DESCRIPTION_SIZE, ISOLATION_SERIALIZABLE


class ConnectionType(IntEnum):
    """Types of connections between transaction managers."""

    PROPAGATE = 0x101
    REDELIVERCOMMIT = 0x102
    CHECKABORT = 0x103
    BRANCH = 0x104


class MessageType(IntEnum):
    """PARTNERTM_*_MTAG_*."""

    PROPAGATE = 0x2001
    PROPAGATED = 0x2002
    PREPAREREQ = 0x2003
    ABORTREQ = 0x2004
    COMMITREQ = 0x2005
    PREPAREREQDONE = 0x2006
    ABORTREQDONE = 0x2007
    COMMITREQDONE = 0x2008
    PROTOCOL_ERROR = 0x2009
    DUPLICATE = 0x2010
    REDELIVER_COMMITREQ = 0x2011
    REDELIVER_COMMITREQDONE = 0x2012
    REDELIVER_RETRY = 0x2013
    CHECK = 0x2021
    ABORTED = 0x2022
    CHECK_RETRY = 0x2023
    BRANCHING = 0x2051
    BRANCHED = 0x2052
    TX_NOT_FOUND = 0x2054
    TOO_LATE = 0x2055
    BRANCH_LOG_FULL = 0x2056
    BRANCH_NO_MEM = 0x2057
    TOO_MANY = 0x2059
    NO_MEM = 0x2901
    LOG_FULL = 0x2902
    ABORTNOTIFY = 0x2903
    PHASE0REGISTER = 0x2906
    PHASE0REGISTERED = 0x2907
    PHASE0 = 0x2908
    PHASE0COMPLETE = 0x2909
    PHASE0REGISTER_REJECTED = 0x2910


class Vote(IntEnum):
    """2.2.6.4."""

    OK = 0
    ABORT = 1
    READ_ONLY = 2
    SINGLEPHASE_COMMIT = 3
    SINGLEPHASE_INDOUBT = 4


M, C = MessageType, ConnectionType
#: Minimum length of a message in bytes; later versions append fields (1.7.3).
LEAST: Final[dict[MessageType, int]] = {
    M.PROPAGATE: 60, M.BRANCHING: 16, M.PREPAREREQ: 8, M.PREPAREREQDONE: 20, M.REDELIVER_COMMITREQ: 16, M.CHECK: 16,
}  # fmt: skip

_FROM_SUPERIOR: Final = frozenset(
    [M.PREPAREREQ, M.COMMITREQ, M.ABORTREQ, M.PHASE0REGISTERED, M.PHASE0REGISTER_REJECTED, M.PHASE0, M.PROTOCOL_ERROR]
)
_FROM_SUBORDINATE: Final = frozenset(
    [M.PREPAREREQDONE, M.COMMITREQDONE, M.ABORTREQDONE, M.ABORTNOTIFY, M.PHASE0REGISTER, M.PHASE0COMPLETE,
     M.PROTOCOL_ERROR]
)  # fmt: skip
_BRANCH_REFUSALS: Final = frozenset([M.TX_NOT_FOUND, M.TOO_LATE, M.BRANCH_LOG_FULL, M.BRANCH_NO_MEM, M.TOO_MANY])
#: Messages that the initiator of a connection may send, and those that its acceptor may send.
ALLOWED: Final[dict[tuple[int, bool], frozenset[MessageType]]] = {
    (C.PROPAGATE, True): _FROM_SUPERIOR | {M.PROPAGATE},
    (C.PROPAGATE, False): _FROM_SUBORDINATE | {M.PROPAGATED, M.DUPLICATE, M.NO_MEM, M.LOG_FULL},
    (C.BRANCH, True): _FROM_SUBORDINATE | {M.BRANCHING},
    (C.BRANCH, False): _FROM_SUPERIOR | {M.BRANCHED} | _BRANCH_REFUSALS,
    (C.REDELIVERCOMMIT, True): frozenset([M.REDELIVER_COMMITREQ]),
    (C.REDELIVERCOMMIT, False): frozenset([M.REDELIVER_COMMITREQDONE, M.REDELIVER_RETRY]),
    (C.CHECKABORT, True): frozenset([M.CHECK]),
    (C.CHECKABORT, False): frozenset([M.ABORTED, M.CHECK_RETRY]),
}
del M, C

_PROPAGATE: Final = struct.Struct("<16sI40s")


class PrepareRequest(NamedTuple):
    """PREPAREREQ (2.2.9.1.1.1.3): grfRM is ignored."""

    single_phase: bool


def check_message(connection: int, kind: int, data: bytes, *, from_initiator: bool) -> MessageType | None:
    """Return the type of a message if it is allowed on its connection, from this end, with this length; None
    otherwise."""
    allowed = ALLOWED.get((connection, from_initiator), frozenset())
    if kind not in allowed:
        return None
    message = MessageType(kind)
    return message if len(data) >= LEAST.get(message, 0) else None


def propagate(uow: bytes, description: bytes = b"") -> bytes:
    """Return PROPAGATE (2.2.9.1.1.1.1): 60 bytes (D-211)."""
    return _PROPAGATE.pack(uow, ISOLATION_SERIALIZABLE, description.ljust(DESCRIPTION_SIZE, b"\0"))


def prepare_request() -> bytes:
    """Return PREPAREREQ for the two-phase commit."""
    return bytes(8)


def read_prepare_request(data: bytes) -> PrepareRequest:
    return PrepareRequest(bool(struct.unpack_from("<II", data)[1]))


def vote(value: Vote) -> bytes:
    """Return PREPAREREQDONE (2.2.9.1.2.1.2) with a guidReason of zeros."""
    return struct.pack("<I16s", value, bytes(16))


def read_vote(data: bytes) -> Vote | None:
    """Return the vote in PREPAREREQDONE; None for an unknown value."""
    value = int.from_bytes(data[:4], "little")
    return Vote(value) if value <= max(Vote) else None
