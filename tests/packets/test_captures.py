"""The captures of MS-MQQB section 4 obey every rule. Frame 4 belongs to another session, frame 7 is truncated."""

from __future__ import annotations

import struct

import pytest

from packets import checker
from packets.checker import Kind
from packets.conversation import Conversation, Side
from packets.reading import Violation

ESTABLISHING = bytes.fromhex(
    "10C00B004C494F523C020000FFFFFFFF00000200D1587355509195954997B6E611EA26C6"
    "0789CD434C39118F44459078909EA0FC4ECADE1D10030000"
) + bytes([0x5A] * 512)
PARAMETERS = bytes.fromhex("10C00B004C494F5220000000FFFFFFFF00000300D8050000C0D4010000004000")
ANSWERED_PARAMETERS = bytes.fromhex("10C00B004C494F5220000000FFFFFFFF00000300D8050000C0D4010000004000")
# PacketSize is 2224, but fewer bytes are printed. The missing bytes are more of the same letter.
MESSAGE = bytes.fromhex(
    "100003004C494F52B008000000460500D1587355509195954997B6E611EA26C600000000000000000000000000000000"
    "FFFFFFFF4C494F52EE080000001C28001A004F0053003A0061003000340062006D00300032005C007100000001001C00"
    "000000000000000000000000010500000000000515000000AD4A9EBD36D9FA3D63A656DAE80300000F0F000000000000"
    "000000000000000000000000000000000800000000000000D0070000D007000000000000048000000168000000000000"
    "6D007100730065006E0064006500720020006C006100620065006C000000"
)
ACKNOWLEDGMENT = bytes.fromhex("10CD1B004C494F5224000000FFFFFFFF0000010001000000000000000000000040000000")


def whole_message() -> bytes:
    return MESSAGE + b"a\0" * 1000 + bytes(2224 - len(MESSAGE) - 2000)


def test_the_frames_have_the_fields_that_the_text_lists() -> None:
    frame = checker.check(ESTABLISHING)["EstablishConnectionHeader"]
    assert (frame["TimeStamp"], frame["OperatingSystem.SE"], frame["OperatingSystem.OS"]) == (501140046, 1, 1)
    frame = checker.check(PARAMETERS)["ConnectionParametersHeader"]
    assert (frame["RecoverableAckTimeout"], frame["AckTimeout"], frame["WindowSize"]) == (1496, 120000, 64)
    frame = checker.check(ACKNOWLEDGMENT)["SessionHeader"]
    assert (frame["AckSequenceNumber"], frame["WindowSize"]) == (1, 64)
    packet = checker.check(whole_message())
    assert packet.kind is Kind.USER_MESSAGE
    assert list(packet.headers) == ["BaseHeader", "UserHeader", "SecurityHeader", "MessagePropertiesHeader"]
    assert packet["UserHeader"]["DestinationQueue"] == "OS:a04bm02\\q"
    assert packet["UserHeader"]["MessageID"] == 2286
    assert len(packet["SecurityHeader"]["SecurityID"]) == 28
    properties = packet["MessagePropertiesHeader"]
    assert (properties["Label"], properties["MessageSize"]) == ("mqsender label", 2000)


def test_the_session_of_the_captures_keeps_its_counts_in_any_pieces() -> None:
    conversation = Conversation()
    answer = bytearray(ESTABLISHING)
    frames = [
        (Side.INITIATOR, ESTABLISHING), (Side.ACCEPTOR, bytes(answer)), (Side.INITIATOR, PARAMETERS),
        (Side.ACCEPTOR, ANSWERED_PARAMETERS), (Side.INITIATOR, whole_message()), (Side.ACCEPTOR, ACKNOWLEDGMENT),
    ]  # fmt: skip
    for side, frame in frames:
        packets = [packet for at in range(0, len(frame), 7) for packet in conversation.feed(side, frame[at : at + 7])]
        assert [packet.data for packet in packets] == [frame]


def test_a_message_that_is_cut_ends_within_its_body() -> None:
    cut = whole_message()[:2100]
    cut = cut[:8] + struct.pack("<I", len(cut)) + cut[12:]
    with pytest.raises(Violation, match="MessageBody") as caught:
        checker.check(cut)
    assert caught.value.section == "MS-MQMQ 2.2.19.3"
