"""Management properties compared with bytes of another NDR implementation, and in round trips."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from openmsmq.conversion.management import MACHINE_PROPERTIES, QUEUE_PROPERTIES, pack, unpack
from openmsmq.interfaces import ms_mqmr
from openmsmq.interfaces.ms_mqmq import BLOB, CAPROPVARIANT
from openmsmq.interfaces.ms_mqmq import tag_inner_PROPVARIANT as PROPVARIANT
from openmsmq.model.constants import VarType

VECTORS = Path(__file__).parent.parent / "vectors" / "ndr"
COLUMNS = ("format_name", "sender", "sequence_identifier", "sequence_number", "last_access_time", "reject_count")


def vector(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((VECTORS / name).read_text(encoding="utf-8"))
    return loaded


def test_a_table_has_the_bytes_that_samba_writes() -> None:
    expected = vector("qmmgmt.mgmt_eod_source.resp.samba.json")
    columns = [next(iter(part for key, part in column.items() if isinstance(part, dict)))["pElems"]
               for column in expected["args"]["apVar"][0]["capropvar"]["pElems"]]  # fmt: skip
    rows = [
        (name, UUID(guid).bytes_le, int(sequence), number, time, rejected)
        for name, guid, sequence, number, time, rejected in zip(*columns, strict=True)
    ]
    assert len(rows) == 2
    operation = ms_mqmr.qmmgmt.operation("R_QMMgmtGetInfo")
    packed = pack(QUEUE_PROPERTIES, "eod_source_info", rows)
    stub = operation.encode_response(ms_mqmr.R_QMMgmtGetInfo_Response(apVar=[packed]))
    decoded = operation.decode_response(bytes.fromhex(expected["stub_hex"])).apVar[0]
    assert decoded == operation.decode_response(stub).apVar[0]
    assert len(stub) == expected["stub_length"]
    assert unpack(QUEUE_PROPERTIES, "eod_source_info", decoded) == [
        dict(zip(COLUMNS, (name, guid, int(sequence), *rest), strict=True))
        for name, guid, sequence, *rest in zip(*columns, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("path_name", "HERE\\private$\\q", "HERE\\private$\\q"),
        ("path_name", None, None),
        ("message_count", 1 << 40, 0xFFFFFFFF),
        ("eod_resend_time", 1 << 40, 0x7FFFFFFF),
        (
            "eod_source_info",
            [("DIRECT=OS:a\\q", bytes(16), (1 << 64) - 1, 1, 1 << 31, 0)],
            [dict(zip(COLUMNS, ("DIRECT=OS:a\\q", str(UUID(int=0)), (1 << 64) - 1, 1, 0x7FFFFFFF, 0), strict=True))],
        ),
        ("next_hops", [], []),
        ("next_hops", ["IP=192.0.2.1"], ["IP=192.0.2.1"]),
        ("eod_next_seq", ((1 << 64) - 1, 2, 1), {"identifier": (1 << 64) - 1, "number": 2, "previous": 1}),
        ("connection_history", [], []),
        (
            "connection_history",
            [(0x80000004, 1 << 40, 0xC00E0069, ["a", "b"])],
            [{"status": 0x80000004, "time": 0x7FFFFFFF, "error": 0xC00E0069 - (1 << 32), "addresses": ["a", "b"]}],
        ),
    ],
)
def test_values_go_over_the_wire(name: str, value: Any, told: Any) -> None:
    operation = ms_mqmr.qmmgmt.operation("R_QMMgmtGetInfo")
    response = ms_mqmr.R_QMMgmtGetInfo_Response(apVar=[pack(QUEUE_PROPERTIES, name, value)])
    (variant,) = operation.decode_response(operation.encode_response(response)).apVar
    assert unpack(QUEUE_PROPERTIES, name, variant) == told


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("eod_next_seq", PROPVARIANT(vt=VarType.VT_BLOB, blob=BLOB(3, b"abc"))),
        ("connection_history", PROPVARIANT(vt=0x100C, capropvar=CAPROPVARIANT(0, []))),
    ],
)
def test_invalid_values_from_a_server_are_refused(name: str, variant: PROPVARIANT) -> None:
    with pytest.raises(ValueError, match="expected"):
        unpack(QUEUE_PROPERTIES, name, variant)


def test_bytes_of_all_queues_have_64_bits() -> None:
    variant = pack(MACHINE_PROPERTIES, "bytes_in_all_queues", 1 << 40)
    assert (variant.vt, unpack(MACHINE_PROPERTIES, "bytes_in_all_queues", variant)) == (VarType.VT_I8, 1 << 40)
