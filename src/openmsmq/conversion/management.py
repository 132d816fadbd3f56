"""Management properties and PROPVARIANT ([MS-MQMQ] 2.3.11 and 2.3.12): names, numbers and types, in both directions.

None is VT_NULL: there is no value. Tables are lists of rows here, and one vector per column on the wire.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from msrpc.interfaces.ms_dtyp import LARGE_INTEGER, ULARGE_INTEGER
from openmsmq.conversion import propvariants
from openmsmq.interfaces.ms_mqmq import BLOB, CACLSID, CAL, CALPWSTR, CAPROPVARIANT, CAUH, CAUL
from openmsmq.interfaces.ms_mqmq import tag_inner_PROPVARIANT as PROPVARIANT
from openmsmq.model.constants import VarType

_VECTOR = 0x1000
_VT_VARIANT = 12
_SEQUENCE_INFO = struct.Struct("<QII")  # [MS-MQMQ] 2.2.5.1; SeqID as unsigned, whose upper half is a time (2.2.18.1.2)
_UI4 = range(1 << 32)
_I4_END = 1 << 31


class Shape(NamedTuple):
    """Conversion of a kind of value to a PROPVARIANT, and from the plain value of a PROPVARIANT."""

    pack: Callable[[Any], PROPVARIANT]
    read: Callable[[Any], Any] = lambda plain: plain


class ManagementProperty(NamedTuple):
    propid: int
    shape: Shape


def pack(known: dict[str, ManagementProperty], name: str, value: Any) -> PROPVARIANT:
    """Convert a property to a PROPVARIANT; VT_NULL for None. Counts beyond 32 bits saturate."""
    return PROPVARIANT(vt=VarType.VT_NULL) if value is None else known[name].shape.pack(value)


def unpack(known: dict[str, ManagementProperty], name: str, variant: PROPVARIANT) -> Any:
    """Convert a PROPVARIANT to the value of a property: text, int, list, a dictionary for SEQUENCE_INFO, or a list of
    dictionaries for the rows of a table.

    Raises ValueError for vectors and blobs of impossible length, MsmqError for unknown types.
    """
    value = _plain(variant)
    return None if value is None else known[name].shape.read(value)


def _plain(variant: PROPVARIANT) -> Any:
    for vector in (variant.calpwstr, variant.cal, variant.caul):
        if vector is not None:
            return list(vector.pElems or [])
    if variant.cauh is not None:
        return [large.QuadPart for large in variant.cauh.pElems or []]
    if variant.cauuid is not None:
        return [str(UUID(bytes_le=guid)) for guid in variant.cauuid.pElems or []]
    if variant.capropvar is not None:
        return [_plain(element) for element in variant.capropvar.pElems or []]
    if variant.hVal is not None:
        return variant.hVal.QuadPart
    return propvariants.unpack(variant)


# -- shapes --------------------------------------------------------------------------------------------------------


def _texts(values: Iterable[str]) -> PROPVARIANT:
    elements: list[str | None] = list(values)
    return PROPVARIANT(vt=VarType.VT_LPWSTR | _VECTOR, calpwstr=CALPWSTR(len(elements), elements))


def _unsigneds(values: Iterable[int]) -> PROPVARIANT:
    elements = list(values)
    return PROPVARIANT(vt=VarType.VT_UI4 | _VECTOR, caul=CAUL(len(elements), elements))


def _times(values: Iterable[int]) -> PROPVARIANT:
    return _signeds(min(value, propvariants.LAST_TIME) for value in values)


def _results(values: Iterable[int]) -> PROPVARIANT:
    """Encode HRESULTs."""
    return _signeds(int(value) - (1 << 32) if value >= _I4_END else int(value) for value in values)


def _signeds(values: Iterable[int]) -> PROPVARIANT:
    elements = list(values)
    return PROPVARIANT(vt=VarType.VT_I4 | _VECTOR, cal=CAL(len(elements), elements))


def _larges(values: Iterable[int]) -> PROPVARIANT:
    elements = [ULARGE_INTEGER(value) for value in values]
    return PROPVARIANT(vt=VarType.VT_UI8 | _VECTOR, cauh=CAUH(len(elements), elements))


def _guids(values: Iterable[bytes]) -> PROPVARIANT:
    elements = list(values)
    return PROPVARIANT(vt=VarType.VT_CLSID | _VECTOR, cauuid=CACLSID(len(elements), elements))


def _variants(elements: list[PROPVARIANT]) -> PROPVARIANT:
    return PROPVARIANT(vt=_VT_VARIANT | _VECTOR, capropvar=CAPROPVARIANT(len(elements), elements))


def _text_lists(values: Iterable[Iterable[str]]) -> PROPVARIANT:
    """Encode `VT_LPWSTR | VT_VECTOR | VT_VECTOR` of 2.3.12.25, which PROPVARIANT cannot express, as a vector of
    vectors."""
    return _variants([_texts(value) for value in values])


def _sequence(value: tuple[int, int, int]) -> PROPVARIANT:
    data = _SEQUENCE_INFO.pack(*value)
    return PROPVARIANT(vt=VarType.VT_BLOB, blob=BLOB(len(data), data))


def _read_sequence(data: bytes) -> dict[str, int]:
    if len(data) != _SEQUENCE_INFO.size:
        raise ValueError(f"SEQUENCE_INFO of {len(data)} bytes, expected {_SEQUENCE_INFO.size}")
    return dict(zip(("identifier", "number", "previous"), _SEQUENCE_INFO.unpack(data), strict=True))


def _table(**columns: Callable[[Any], PROPVARIANT]) -> Shape:
    def pack(rows: Sequence[tuple[Any, ...]]) -> PROPVARIANT:
        return _variants([column([row[n] for row in rows]) for n, column in enumerate(columns.values())])

    def read(vectors: list[list[Any]]) -> list[dict[str, Any]]:
        if len(vectors) != len(columns):
            raise ValueError(f"{len(vectors)} columns, expected {', '.join(columns)}")
        return [dict(zip(columns, row, strict=True)) for row in zip(*vectors, strict=True)]

    return Shape(pack, read)


_TEXT = Shape(lambda value: propvariants.pack(VarType.VT_LPWSTR, value))
_TEXTS = Shape(_texts)
_COUNT = Shape(lambda value: propvariants.pack(VarType.VT_UI4, min(value, _UI4[-1])))
_TIME = Shape(lambda value: propvariants.pack(VarType.VT_I4, value))
_LARGE = Shape(lambda value: PROPVARIANT(vt=VarType.VT_I8, hVal=LARGE_INTEGER(value)))
_SEQUENCE = Shape(_sequence, _read_sequence)

# -- properties by name --------------------------------------------------------------------------------------------

MACHINE_PROPERTIES: dict[str, ManagementProperty] = {
    "active_queues": ManagementProperty(1, _TEXTS),
    "private_queues": ManagementProperty(2, _TEXTS),
    "ds_server": ManagementProperty(3, _TEXT),
    "connected": ManagementProperty(4, _TEXT),
    "type": ManagementProperty(5, _TEXT),
    "bytes_in_all_queues": ManagementProperty(6, _LARGE),
}
QUEUE_PROPERTIES: dict[str, ManagementProperty] = {
    "path_name": ManagementProperty(1, _TEXT),
    "format_name": ManagementProperty(2, _TEXT),
    "type": ManagementProperty(3, _TEXT),
    "location": ManagementProperty(4, _TEXT),
    "transactional": ManagementProperty(5, _TEXT),
    "foreign": ManagementProperty(6, _TEXT),
    "message_count": ManagementProperty(7, _COUNT),
    "bytes_in_queue": ManagementProperty(8, _COUNT),
    "journal_message_count": ManagementProperty(9, _COUNT),
    "bytes_in_journal": ManagementProperty(10, _COUNT),
    "state": ManagementProperty(11, _TEXT),
    "next_hops": ManagementProperty(12, _TEXTS),
    "eod_last_ack": ManagementProperty(13, _SEQUENCE),
    "eod_last_ack_time": ManagementProperty(14, _TIME),
    "eod_last_ack_count": ManagementProperty(15, _COUNT),
    "eod_first_non_ack": ManagementProperty(16, _SEQUENCE),
    "eod_last_non_ack": ManagementProperty(17, _SEQUENCE),
    "eod_next_seq": ManagementProperty(18, _SEQUENCE),
    "eod_no_read_count": ManagementProperty(19, _COUNT),
    "eod_no_ack_count": ManagementProperty(20, _COUNT),
    "eod_resend_time": ManagementProperty(21, _TIME),
    "eod_resend_interval": ManagementProperty(22, _COUNT),
    "eod_resend_count": ManagementProperty(23, _COUNT),
    "eod_source_info": ManagementProperty(
        24,
        _table(
            format_name=_texts, sender=_guids, sequence_identifier=_larges, sequence_number=_unsigneds,
            last_access_time=_times, reject_count=_unsigneds,
        ),
    ),
    "connection_history": ManagementProperty(  # its addresses: deviation D-57
        25, _table(status=_unsigneds, time=_times, error=_results, addresses=_text_lists)
    ),
    "subqueue_count": ManagementProperty(26, _COUNT),
    "subqueue_names": ManagementProperty(27, _TEXTS),  # deviation D-49
}  # fmt: skip
