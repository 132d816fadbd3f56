"""The bytes of the examples in [MS-DTCO] 4 and [MS-CMP] 4, sent as printed, commit a receive from a queue."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from daemon import eventually
from interop.test_oletx_peer import DONE, LOW, Partners

# The third dword of GUIDs is misprinted in section 4: 06999883 stands for 06998398.
TX = bytes.fromhex("7e0346402297c946988399062341cb35")
DESCRIPTION = bytes.fromhex("73616d706c65207472616e73616374696f6e") + bytes(22)
UOW = UUID(bytes_le=TX)


def head(tag: int, initiator: int, kind: int, size: int) -> bytes:
    """MESSAGE_PACKET of connection 1 ([MS-CMP] 2.2.2)."""
    return struct.pack("<6I", tag, initiator, 1, kind, size, 0xCD64CD64)


def boxcar(*packets: bytes) -> tuple[bytes, int]:
    padded = b"".join(packet + bytes(-len(packet) % 8) for packet in packets)
    return struct.pack("<4I", 0, 0, len(padded) + 16, len(packets)) + padded, len(packets)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Partners]:
    partners = Partners(tmp_path, LOW)
    yield partners
    partners.close()


def test_the_bytes_of_section_4_commit_a_receive(here: Partners) -> None:
    """4.3.3 (push propagation), 4.5 (two-phase commit), [MS-CMP] 4.2.2 (disconnect)."""
    peer = here.peer
    session = peer.session("HERE")
    arrived: list[bytes] = []
    peer.on_rpc_receive = lambda call: arrived.append(call.args["rguchBoxCar"]) if call.op == "SendReceive" else None
    granted = {"phContext": session.remote_handle, "resourceType": 0, "dwcRequested": 1, "pdwcAccepted": 0}
    assert peer.rpc(session.binding, "NegotiateResources", granted, "HERE")["result"] == 0

    def send(*packets: bytes) -> None:
        data, count = boxcar(*packets)
        assert peer.send_boxcar(session, data, count) == 0

    def answers(packet: bytes) -> bool:
        return any(packet in one for one in arrived)

    send(head(5, 1, 0x101, 0), head(0xFFF, 1, 0x2001, 0x3C) + TX + b"\x00\x00\x10\x00" + DESCRIPTION)
    eventually(lambda: answers(head(0xFFF, 0, 0x2002, 0)))
    here.enlist(UOW)
    here.work(UOW)
    assert here.left() == []
    send(head(0xFFF, 1, 0x2003, 8) + bytes(8))
    eventually(lambda: answers(head(0xFFF, 0, 0x2006, 0x14) + bytes(20)))
    send(head(0xFFF, 1, 0x2005, 0))
    eventually(lambda: answers(head(0xFFF, 0, 0x2008, 0)))
    assert here.left() == DONE
    send(head(1, 1, 0x101, 0))
    eventually(lambda: answers(head(2, 0, 0, 0)))
