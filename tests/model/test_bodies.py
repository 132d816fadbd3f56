"""Bodies by VARTYPE, and the text form of identifiers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.model.bodies import BodyError, decode_body, encode_body
from openmsmq.model.constants import VarType
from openmsmq.model.message import NULL_IDENTIFIER, Message, identifier_from_text, identifier_text

GUID = UUID("12345678-9abc-def0-1234-56789abcdef0")
ENCODED: list[tuple[Any, str, VarType]] = [
    ("Aé€", "4100e900ac20", VarType.VT_BSTR),
    ("", "", VarType.VT_BSTR),
    ("\ud800", "00d8", VarType.VT_BSTR),
    (True, "ffff", VarType.VT_BOOL),
    (False, "0000", VarType.VT_BOOL),
    (-2, "feffffff", VarType.VT_I4),
    ((1 << 31) - 1, "ffffff7f", VarType.VT_I4),
    (1 << 31, "0000008000000000", VarType.VT_I8),
    (-(1 << 31), "00000080", VarType.VT_I4),
    (-(1 << 31) - 1, "ffffff7fffffffff", VarType.VT_I8),
    (-(1 << 63), "0000000000000080", VarType.VT_I8),
    (1.5, "000000000000f83f", VarType.VT_R8),
    (Decimal("1.2345"), "3930000000000000", VarType.VT_CY),
    (datetime(1900, 1, 4, 6, tzinfo=UTC), "0000000000001540", VarType.VT_DATE),
    (datetime(1899, 12, 29, 6, tzinfo=UTC), "000000000000f4bf", VarType.VT_DATE),  # -1.25
    (GUID, "78563412bc9af0de123456789abcdef0", VarType.VT_CLSID),
    (b"\0\1", "0001", VarType.VT_EMPTY),
]


@pytest.mark.parametrize(("value", "body", "kind"), ENCODED)
def test_a_value_has_the_body_of_its_type_and_comes_back(value: Any, body: str, kind: VarType) -> None:
    assert encode_body(value) == (bytes.fromhex(body), kind)
    assert decode_body(bytes.fromhex(body), kind) == value
    assert Message.of(value).decode() == value


DECODED: list[tuple[str, int, Any]] = [
    ("ff", VarType.VT_I1, -1),
    ("ff", VarType.VT_UI1, 255),
    ("ffff", VarType.VT_I2, -1),
    ("ffff", VarType.VT_UI2, 65535),
    ("ffffffff", VarType.VT_UI4, 0xFFFFFFFF),
    ("ff" * 8, VarType.VT_UI8, (1 << 64) - 1),
    ("0000c03f", VarType.VT_R4, 1.5),
    ("", VarType.VT_NULL, None),
    ("61e900", VarType.VT_LPSTR, "aé"),
    ("61000000", VarType.VT_LPWSTR, "a"),
    ("00803ed5deb19d01", VarType.VT_FILETIME, datetime(1970, 1, 1, tzinfo=UTC)),
    ("0102", 0x2011, b"\1\2"),
    ("0102", 0xFFFF, b"\1\2"),
]


@pytest.mark.parametrize(("body", "kind", "value"), DECODED)
def test_a_body_of_another_program_decodes(body: str, kind: int, value: Any) -> None:
    assert decode_body(bytes.fromhex(body), kind) == value


def test_a_time_without_zone_is_utc() -> None:
    assert encode_body(datetime(1900, 1, 4, 6)) == encode_body(datetime(1900, 1, 4, 6, tzinfo=UTC))


@pytest.mark.parametrize(
    "value",
    [object(), [1], 1 << 63, -(1 << 63) - 1, Decimal("1e15"), Decimal("NaN"), Decimal("Infinity"), Decimal("1e999999")],
)
def test_a_value_without_body_form_is_refused(value: Any) -> None:
    with pytest.raises(BodyError):
        encode_body(value)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("61", VarType.VT_BSTR), ("61", VarType.VT_LPWSTR), ("000000", VarType.VT_I4), ("", VarType.VT_BOOL),
        ("00" * 7, VarType.VT_DATE), ("000000000000f07f", VarType.VT_DATE), ("000000000000f87f", VarType.VT_DATE),
        ("ff" * 8, VarType.VT_FILETIME), ("00" * 15, VarType.VT_CLSID), ("00" * 9, VarType.VT_CY),
    ],
)  # fmt: skip
def test_a_body_without_the_form_of_its_type_is_refused(body: str, kind: VarType) -> None:
    with pytest.raises(BodyError, match="VARTYPE"):
        decode_body(bytes.fromhex(body), kind)


@given(st.binary(max_size=24), st.one_of(st.sampled_from(list(VarType)), st.integers(0, 0xFFFF)))
def test_any_bytes_of_any_type_decode_or_are_refused(body: bytes, kind: int) -> None:
    try:
        value = decode_body(body, kind)
    except BodyError:
        return
    assert value is None or isinstance(value, str | bytes | bool | int | float | Decimal | datetime | UUID)


@given(
    st.one_of(
        st.text(), st.integers(-(1 << 63), (1 << 63) - 1), st.booleans(), st.floats(allow_nan=False), st.uuids(),
        st.decimals(-(10**14), 10**14, places=4), st.binary(max_size=50),
    )
)  # fmt: skip
def test_any_value_survives_its_body(value: Any) -> None:
    decoded = Message.of(value).decode()
    assert decoded == value
    assert type(decoded) is type(value)


@given(st.datetimes(datetime(1700, 1, 1), datetime(2100, 1, 1)))
def test_times_survive_to_the_millisecond(value: datetime) -> None:
    decoded = Message.of(value).decode()
    assert isinstance(decoded, datetime)
    assert abs(decoded - value.replace(tzinfo=UTC)) < timedelta(milliseconds=1)


@given(st.uuids(), st.integers(0, 0xFFFFFFFF))
def test_an_identifier_survives_its_text(guid: UUID, number: int) -> None:
    identifier = guid.bytes_le + number.to_bytes(4, "little")
    assert identifier_text(identifier) == f"{{{guid}}}\\{number}"
    assert identifier_from_text(identifier_text(identifier)) == identifier


@pytest.mark.parametrize("text", ["", "x", f"{{{GUID}}}", f"{GUID}\\", f"{GUID}\\-1", f"{GUID}\\4294967296", "{}\\1",
                                  f"{GUID}\\" + "9" * 5000])  # fmt: skip
def test_text_that_is_not_an_identifier_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        identifier_from_text(text)


def test_the_size_of_a_message_counts_its_variable_parts() -> None:
    empty = Message()
    assert Message(body=b"123").size == empty.size + 3
    texts = (
        "label", "destination_queue_format_name", "administration_queue_format_name", "response_queue_format_name",
        "transaction_status_queue_format_name", "authentication_provider_name",
    )  # fmt: skip
    for name in texts:
        assert Message(**{name: "abc"}).size == empty.size + 6
    assert Message(extension=b"1", signature=b"22", sender_identifier=b"333").size == empty.size + 6
    assert empty.size > 0
    assert not empty.is_transactional and Message(transaction_identifier=b"\1" + NULL_IDENTIFIER[1:]).is_transactional


def test_a_deadline_is_in_milliseconds_and_infinite_has_none() -> None:
    assert Message(sent_time=100, time_to_be_received=5).deadline() == 105_000
    assert Message(sent_time=100).deadline() == 0
