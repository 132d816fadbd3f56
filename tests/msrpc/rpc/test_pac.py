"""Logon information as written by a Samba domain controller, and invalid input."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msrpc.errors import AuthenticationError
from msrpc.interfaces.ms_dtyp import RPC_SID, RPC_SID_IDENTIFIER_AUTHORITY
from msrpc.rpc.pac import MAX_GROUPS, _sid, unpack_logon_information

RECORDED = bytes.fromhex((Path(__file__).parents[2] / "vectors/pac/samba-logon-information.hex").read_text())
DOMAIN = "S-1-5-21-1425125608-932258796-1079990048"


def test_the_user_and_all_groups_are_found_without_those_of_the_controller_itself() -> None:
    logon = unpack_logon_information(RECORDED)
    assert (logon.user, logon.domain, logon.sid) == ("alice", "RIG", f"{DOMAIN}-1102")
    # Domain Users, the group, and the group that contains it; not S-1-18-1, which is also in the bytes.
    assert logon.groups == {f"{DOMAIN}-{number}" for number in (513, 1105, 1106)}
    assert bytes.fromhex("010100000000001201000000") in RECORDED


def test_too_many_groups_too_many_bytes_and_no_user_are_refused() -> None:
    domain = struct.pack("<BB6s4I", 1, 4, (5).to_bytes(6, "big"), 21, 1425125608, 932258796, 1079990048)
    assert domain in RECORDED
    for sid in (domain.replace(b"\x15\0\0\0", b"\x20\0\0\0"), domain.replace(b"\1", b"\2", 1)):
        with pytest.raises(AuthenticationError):
            unpack_logon_information(RECORDED.replace(domain, sid))
    at = RECORDED.index(struct.pack("<II", 1102, 513)) + 8  # GroupCount after UserId and PrimaryGroupId
    count = struct.pack("<I", MAX_GROUPS + 1)
    with pytest.raises(AuthenticationError):
        unpack_logon_information(RECORDED[:at] + count + RECORDED[at + 4 :])
    for data in (b"", RECORDED[:16], RECORDED[:16] + bytes(4), bytes(len(RECORDED)), RECORDED + bytes(1 << 16)):
        with pytest.raises(AuthenticationError):
            unpack_logon_information(data)


@pytest.mark.parametrize(("count", "accepted"), [(15, True), (16, False)])
def test_a_sid_has_at_most_15_subauthorities(count: int, accepted: bool) -> None:
    """[MS-DTYP] 2.4.2.1."""
    value = RPC_SID(1, count, RPC_SID_IDENTIFIER_AUTHORITY(list((5).to_bytes(6, "big"))), list(range(count)))
    if accepted:
        assert _sid(value) == "-".join(map(str, ("S-1-5", *range(count))))
    else:
        with pytest.raises(AuthenticationError):
            _sid(value)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, len(RECORDED) - 1), st.binary(min_size=1, max_size=4)), min_size=1, max_size=4)
)
def test_any_altered_pac_is_read_or_refused(changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(RECORDED)
    for at, value in changes:
        data[at : at + len(value)] = value
    try:
        logon = unpack_logon_information(bytes(data))
    except AuthenticationError:
        return
    assert all(sid.startswith("S-1-5-21-") for sid in (logon.sid, *logon.groups))
