"""Queue properties as PROPVARIANTs ([MS-MQMQ] 2.3.1)."""

from __future__ import annotations

from typing import Any

import pytest

from openmsmq.conversion.propvariants import (
    QUEUE_PROPERTY_TYPES,
    pack,
    pack_properties,
    property_type,
    unpack,
    unpack_properties,
)
from openmsmq.interfaces.ms_mqmq import tag_inner_PROPVARIANT as PROPVARIANT
from openmsmq.model.constants import PropId, VarType
from openmsmq.model.errors import HResult, MsmqError

VALUES: dict[VarType, Any] = {
    VarType.VT_I1: -1, VarType.VT_UI1: 255, VarType.VT_I2: -5, VarType.VT_UI2: 5, VarType.VT_I4: -6, VarType.VT_UI4: 6,
    VarType.VT_BOOL: -1, VarType.VT_CLSID: b"g" * 16, VarType.VT_LPWSTR: "text", VarType.VT_BLOB: b"blob",
}  # fmt: skip


def refused(hresult: HResult) -> Any:
    return pytest.raises(MsmqError, check=lambda error: error.hresult == hresult)


@pytest.mark.parametrize(("vt", "value"), VALUES.items())
def test_a_value_survives_its_propvariant(vt: VarType, value: Any) -> None:
    assert unpack(pack(vt, value)) == value


def test_every_queue_property_has_a_type() -> None:
    assert set(QUEUE_PROPERTY_TYPES) == set(PropId)
    with refused(HResult.MQ_ERROR_ILLEGAL_PROPID):
        property_type(999)


@pytest.mark.parametrize("vt", [VarType.VT_R4, VarType.VT_FILETIME, VarType.VT_VECTOR_UI1, 0x5555])
def test_a_type_that_no_queue_property_has_is_refused(vt: int) -> None:
    with refused(HResult.MQ_ERROR_ILLEGAL_PROPERTY_VT):
        unpack(PROPVARIANT(vt=vt))


def test_properties_are_unpacked_by_their_types() -> None:
    propids = [PropId.PROPID_Q_LABEL, PropId.PROPID_Q_QUOTA, PropId.PROPID_Q_PATHNAME]
    variants = [pack(VarType.VT_LPWSTR, "l"), pack(VarType.VT_UI4, 3), PROPVARIANT(vt=VarType.VT_LPWSTR)]
    assert unpack_properties(list(propids), variants) == {108: "l", 105: 3, 103: ""}


def test_a_wrong_type_a_repetition_and_a_null_guid_are_refused() -> None:
    with refused(HResult.MQ_ERROR_PROPERTY):
        unpack_properties([108], [pack(VarType.VT_UI4, 3)])
    with refused(HResult.MQ_ERROR_PROPERTY):
        unpack_properties([105, 105], [pack(VarType.VT_UI4, 3)] * 2)
    with refused(HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE):
        unpack_properties([102], [PROPVARIANT(vt=VarType.VT_CLSID)])
    with refused(HResult.MQ_ERROR_ILLEGAL_PROPID):
        unpack_properties([999], [pack(VarType.VT_UI4, 3)])


def test_properties_are_packed_for_a_client_that_asked_with_the_right_type_or_none() -> None:
    for asked in (VarType.VT_LPWSTR, VarType.VT_NULL, VarType.VT_EMPTY):
        (packed,) = pack_properties([108], ["label"], [PROPVARIANT(vt=asked)])
        assert (packed.vt, packed.pwszVal) == (VarType.VT_LPWSTR, "label")
    with refused(HResult.MQ_ERROR_PROPERTY):
        pack_properties([108], ["label"], [PROPVARIANT(vt=VarType.VT_UI4)])
