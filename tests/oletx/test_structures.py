"""The structures of [MS-DTCO] 2.2.4 and 2.2.5, tested with the examples of section 4 without their misprints."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.oletx import structures as s

TX = bytes.fromhex("7e0346402297c946988399062341cb35")
DESCRIPTION = b"sample transaction".ljust(40, b"\0")
MACHINE_1 = s.Partner(UUID("baa04775-8f43-4f49-adef-5a1b2151190b"), "Machine_1", 0x21)
MACHINE_2 = s.Partner(UUID("d2a6a4b9-cdb0-48ab-a68f-e3349b1a6128"), "Machine_2", 0x21)
TOKEN = bytes.fromhex(
    "0100000002000000" + TX.hex() + "000010000500000058000000" + DESCRIPTION.hex()
    + "62616130343737352d386634332d346634392d616465662d356131623231353131393062000000000a00000064cd64cd21000000"
    "4d616368696e655f31000000140000004d0061006300680069006e0065005f0031000000"
)  # fmt: skip
WHEREABOUTS = bytes.fromhex(
    "6244db2a41bdd011b12e00c04fc2f3ef02000000020000001e00000021000000b9a4a6d2b0cdab48a68fe3349b1a61284d616368696e655f"
    "320000000300000014000000"
    "4d0061006300680069006e0065005f0032000000"
)
COOKIE = bytes.fromhex("6344db2a41bdd011b12e00c04fc2f3ef" + TX.hex() + "0200000000000000")


def test_section_4_2_1_a_propagation_token() -> None:
    token = s.decode_token(TOKEN)
    assert token == s.PropagationToken(TX, MACHINE_1, s.ISOLATION_SERIALIZABLE, 5, DESCRIPTION)
    assert s.decode_token(s.encode_token(token)) == token


def test_section_4_3_1_whereabouts() -> None:
    assert s.decode_whereabouts(WHEREABOUTS) == MACHINE_2
    assert s.encode_whereabouts(MACHINE_2) == WHEREABOUTS


def test_section_4_3_a_cookie() -> None:
    assert s.decode_stx_info(COOKIE) == s.decode_stx_info(TX) == TX
    assert s.encode_stx_info(TX) == COOKIE


def test_the_wide_name_replaces_the_narrow_one() -> None:
    """Deviation D-209."""
    partner = s.Partner(UUID(int=7), "MÜNCHEN-\u0141", 1)
    token = s.encode_token(s.PropagationToken(TX, partner))
    assert s.decode_token(token).superior == partner
    assert s.decode_whereabouts(s.encode_whereabouts(partner)) == partner


def test_a_token_of_version_1_has_the_narrow_name_only() -> None:
    token = bytearray(TOKEN)
    token[4], token[32] = 1, 62
    assert s.decode_token(bytes(token[: 76 + 52 + 10])).superior == MACHINE_1
    token[4], token[32] = 9, 88  # of a future version
    assert s.decode_token(bytes(token)).superior == MACHINE_1


@pytest.mark.parametrize(
    ("decode", "data"),
    [(s.decode_token, TOKEN), (s.decode_whereabouts, WHEREABOUTS),
     (s.decode_stx_info, COOKIE)],
)  # fmt: skip
def test_what_is_cut_off_or_signed_otherwise_is_refused(decode: object, data: bytes) -> None:
    """T20."""
    assert callable(decode)
    for size in range(len(data)):
        if size != 16 or decode is not s.decode_stx_info:
            with pytest.raises(s.BadStructure):
                decode(data[:size])
    with pytest.raises(s.BadStructure):
        decode(b"\xff" + data[1:])


def changed(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def test_names_have_1_to_16_bytes_with_their_ends() -> None:
    """Also the narrow name that the wide one replaces."""
    for name in ("M", "M" * 15):
        partner = s.Partner(UUID(int=7), name, 1)
        token = s.encode_token(s.PropagationToken(TX, partner))
        assert s.decode_token(token).superior == partner
    token = bytearray(s.encode_token(s.PropagationToken(TX, s.Partner(UUID(int=7), "ABC", 1))))
    at = bytes(token).index(b"ABC\0")
    token[at - 12 : at - 8] = (1).to_bytes(4, "little")
    token[at : at + 4] = bytes(4)
    assert s.decode_token(bytes(token)).superior.host == "ABC"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (changed(TOKEN, 32, b"\xff\xff\xff\xff"), "bytes follow szDesc"),
        (changed(TOKEN, 76 + 40, bytes(4)), "computer name of 0 bytes"),
        (changed(TOKEN, 76 + 40, b"\x11\0\0\0"), "computer name of 17 bytes"),
        (changed(TOKEN, 76 + 64, b"\x15\0\0\0"), "21 bytes"),
        (changed(TOKEN, 76 + 64, b"\0\0\0\x80"), "2147483648 bytes"),
        (changed(TOKEN, 76 + 64, b"\x22\0\0\0") + bytes(40), "34 bytes, allowed: 2 to 32"),
        (changed(TOKEN, 76 + 64, b"\1\0\0\0"), "1 bytes, allowed: 2 to 32"),
        (changed(TOKEN, 76, b"x"), "not a GUID"),
        (changed(TOKEN, 76 + 68, bytes(2)), "not a computer name"),
        (changed(TOKEN, 76 + 68, b" \0"), "not a computer name"),
        (changed(TOKEN, 4, bytes(4)), "first fields"),
    ],
)
def test_tokens_with_wrong_lengths_or_names_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(s.BadStructure, match=why):
        s.decode_token(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (changed(WHEREABOUTS, 16, b"\0\0\0\x80"), "2147483648 entries"),
        (changed(WHEREABOUTS, 16, bytes(4)), "no OleTx"),
        (changed(WHEREABOUTS, 24, b"\xff\xff\xff\xff"), "an entry needs"),
        (changed(WHEREABOUTS, 24, b"\x14\0\0\0"), "at least 21"),
        (changed(WHEREABOUTS, 20, b"\x04\0\0\0"), "no OleTx"),
    ],
)
def test_malformed_whereabouts_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(s.BadStructure, match=why):
        s.decode_whereabouts(data)


@given(st.binary(max_size=200), st.integers(0, 160), st.sampled_from([TOKEN, WHEREABOUTS, COOKIE]))
def test_any_bytes_are_decoded_or_refused(new: bytes, at: int, data: bytes) -> None:
    for decode in (s.decode_token, s.decode_whereabouts, s.decode_stx_info):
        with suppress(s.BadStructure):
            assert decode(changed(data, at, new)) is not None
