"""Message packets: the frame of [MS-MQQB] 4.1.7, round trips, sections, and bytes with false sizes."""

import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.packet import BadPacket, MessagePacket, UserMessage
from openmsmq.packet.headers import (
    BaseHeader,
    DebugHeader,
    MessagePropertiesHeader,
    MultiQueueFormatHeader,
    SecurityHeader,
    SessionHeader,
    SoapHeader,
    TransactionHeader,
    UserHeader,
)
from openmsmq.packet.message_packet import AddressType, ExtendedAddressHeader, SubqueueHeader
from openmsmq.packet.queue_names import NameType, QueueName
from openmsmq.packet.reader import Reader
from openmsmq.packet.sections import Section, SectionType, divide, join
from openmsmq.packet.user_message import SrmpHeaders

# The document truncates the dump: it lacks most of the 2,000 bytes of body that its header announces.
_HEADERS = bytes.fromhex((Path(__file__).parent.parent / "vectors/packet/user-message.hex").read_text())
FRAME = _HEADERS + b"a\0" * 1000 + bytes(2)

u16, u32 = st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF)
guid = st.binary(min_size=16, max_size=16)
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
short = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=15)
flag = st.booleans()
public = st.builds(QueueName, st.just(NameType.PUBLIC), guid)
private = st.builds(QueueName, st.just(NameType.PRIVATE), guid, u32)
direct = st.builds(QueueName, st.just(NameType.DIRECT), direct=text)
on_source = st.builds(QueueName, st.just(NameType.PRIVATE_ON_SOURCE), number=u32)
on_destination = st.builds(QueueName, st.just(NameType.PRIVATE_ON_DESTINATION), number=u32)
same = st.just(QueueName(NameType.SAME_AS_ADMINISTRATION))
distribution_list = st.builds(QueueName, st.just(NameType.PUBLIC), guid, is_distribution_list=st.just(True))
elements = st.lists(public | private | direct | distribution_list, max_size=4)

base_headers = st.builds(BaseHeader, st.integers(0, 7), flag, tracing=flag, time_to_reach_queue=u32)
user_headers = st.builds(
    UserHeader, guid, guid, u32, u32, u32, st.integers(0, 31), st.integers(0, 1), flag, flag,
    destination=public | direct | on_destination,
    administration=st.none() | public | private | direct | on_source,
    response=st.none() | public | private | direct | on_source | same,
    connector_type=st.none() | guid,
)  # fmt: skip
transactions = st.builds(
    TransactionHeader, st.integers(0, 0xFFFFF), flag, flag, flag, u32, u32, u32, u32, st.none() | guid
)
blob = st.binary(max_size=50)
securities = st.builds(
    SecurityHeader, st.integers(0, 2), flag, flag, flag, st.integers(0, 15), blob, blob, blob, blob
) | st.builds(SecurityHeader, provider_type=u32, provider_name=text)
property_headers = st.builds(
    MessagePropertiesHeader, st.integers(0, 15), text, u16, st.binary(min_size=20, max_size=20), u32, u32,
    privacy_level=u32, hash_algorithm=u32, encryption_algorithm=u32, extension=blob, body=st.binary(max_size=100),
)  # fmt: skip
srmp = st.builds(
    SrmpHeaders, u16, text.map(lambda value: value.encode("utf-16-le")), u16, st.just(2), st.just(3),
    st.binary(min_size=5, max_size=40),
)  # fmt: skip
multi_queue = st.builds(MultiQueueFormatHeader, elements, elements, elements, blob)


def listed(message: UserMessage) -> UserMessage:
    """Add a packet's public destination queue to its list of destinations."""
    name = message.user.destination
    if message.multi_queue is not None and name is not None and name.type is NameType.PUBLIC:
        message.multi_queue.destination.append(name)
    return message


user_messages = st.builds(
    UserMessage, base_headers, user_headers, st.none() | transactions, st.none() | securities, property_headers,
    st.none() | st.builds(DebugHeader, st.none() | guid), st.none() | srmp,
    st.none() | st.builds(SoapHeader, text, text), st.none() | multi_queue,
    st.none() | st.builds(SessionHeader, u16, u16, u32, u16, u16, st.integers(1, 0xFFFF)),
).map(listed)  # fmt: skip
addresses = (
    st.just(ExtendedAddressHeader())
    | st.builds(ExtendedAddressHeader, st.just(AddressType.IPV4), address=st.binary(min_size=4, max_size=4))
    | st.builds(ExtendedAddressHeader, st.just(AddressType.IPV6), u32, guid)
)
packets = st.builds(
    MessagePacket, user_messages, st.none() | st.builds(SubqueueHeader, u16, u32, u32, u32, short, short),
    st.none().map(lambda _: "") | text.filter(bool), st.just(False), st.none() | addresses,
)  # fmt: skip


def test_the_frame_of_the_specification() -> None:
    """[MS-MQQB] 4.1.7. The AI flag of its SecurityHeader is 0 although it contains a SecurityID."""
    message = UserMessage.unpack(Reader(FRAME))
    assert (message.base.priority, message.base.packet_size, message.base.time_to_reach_queue) == (3, 2224, 345600)
    assert message.user.sent_time == 0x524F494C
    assert (message.user.message_id, message.user.delivery) == (2286, 0)
    assert message.user.destination == QueueName(NameType.DIRECT, direct=r"OS:a04bm02\q")
    assert message.user.administration is message.user.response is message.transaction is None
    assert message.security is not None
    assert message.security.sender_type == 1
    assert message.security.sender[:8] == bytes.fromhex("0105000000000005")
    assert message.properties.label == "mqsender label"
    assert message.properties.acknowledge == 0x0F
    assert message.properties.body == "a".encode("utf-16-le") * 1000
    assert (message.properties.body_type, message.properties.hash_algorithm) == (8, 0x8004)
    assert message.properties.encryption_algorithm == 0x6801


def test_the_frame_packs_to_the_same_bytes_but_the_flag() -> None:
    packed = bytearray(UserMessage.unpack(Reader(FRAME)).pack())
    different = [index for index, (ours, theirs) in enumerate(zip(packed, FRAME, strict=True)) if ours != theirs]
    padding_of_name_and_headers = [index for index in different if FRAME[index : index + 1] != bytes([packed[index]])]
    security_flags = 92
    assert padding_of_name_and_headers == [security_flags]
    assert (packed[security_flags], FRAME[security_flags]) == (0x81, 0x01)


@given(packets)
def test_packets_survive_packing(packet: MessagePacket) -> None:
    packet.message.properties.allocated_size = len(packet.message.properties.body)
    data = packet.pack()
    assert MessagePacket.unpack(data) == packet
    assert MessagePacket.unpack(data).pack() == data


@given(packets, st.data())
def test_no_truncation_goes_unnoticed(packet: MessagePacket, data: st.DataObject) -> None:
    whole = packet.message.pack()
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(BadPacket):
        UserMessage.unpack(Reader(whole[:length]))


@given(packets, st.data())
def test_changed_bytes_give_a_packet_or_bad_packet(packet: MessagePacket, data: st.DataObject) -> None:
    damaged = bytearray(packet.pack())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(BadPacket):  # any other exception is a defect
        MessagePacket.unpack(bytes(damaged))


@given(st.binary(max_size=300))
def test_random_bytes_are_not_a_packet(noise: bytes) -> None:
    with pytest.raises(BadPacket):
        MessagePacket.unpack(noise)


@pytest.mark.parametrize(
    ("offset", "value", "names"),
    [
        (8, struct.pack("<I", 0xFFFFFFFF), "PacketSize"),
        (64, struct.pack("<H", 0xFFFE), "UserHeader"),
        (64, struct.pack("<H", 27), "WCHARs"),
        (94, struct.pack("<H", 0xFFFF), "SecurityHeader"),
        (100, struct.pack("<I", 0xFFFFFFFF), "SecurityHeader"),
        (137, b"\xff", "LabelLength"),
        (168, struct.pack("<I", 0x7FFFFFFF), "MessagePropertiesHeader"),
        (188, struct.pack("<I", 0xFFFFFFFF), "MessagePropertiesHeader"),
    ],
)
def test_headers_that_announce_more_than_there_is(offset: int, value: bytes, names: str) -> None:
    """Increase each length in the frame in turn; the refusal names the header."""
    hostile = FRAME[:offset] + value + FRAME[offset + len(value) :]
    with pytest.raises(BadPacket, match=names):
        UserMessage.unpack(Reader(hostile))


def test_a_list_of_names_that_announces_too_many() -> None:
    message = UserMessage(multi_queue=MultiQueueFormatHeader([QueueName(NameType.PUBLIC, bytes(16))]))
    message.user.destination = QueueName(NameType.PUBLIC, bytes(16))
    data = bytearray(message.pack())
    start = data.index(struct.pack("<IHHI", 12 + 20, 0x64, 0, 1))
    data[start + 8 : start + 12] = struct.pack("<I", 0xFFFFFFFF)
    with pytest.raises(BadPacket, match="4294967295 elements"):
        UserMessage.unpack(Reader(bytes(data)))


def labeled(label: bytes) -> bytes:
    """Return a packet whose label is these bytes."""
    packed = UserMessage(properties=MessagePropertiesHeader(label="x" * (len(label) // 2 - 1))).pack()
    return packed.replace(("x" * (len(label) // 2 - 1)).encode("utf-16-le") + bytes(2), label)


@pytest.mark.parametrize("label", [b"a\0b\0", b"a\0\0\0b\0\0\0"])
def test_a_label_ends_with_its_only_null_character(label: bytes) -> None:
    """[MS-MQMQ] 2.2.19.3: label = 0*249(%x0001-FFFF) 0x0000."""
    assert UserMessage.unpack(Reader(labeled(b"a\0b\0\0\0"))).properties.label == "ab"
    with pytest.raises(BadPacket, match="MessagePropertiesHeader: a text of"):
        UserMessage.unpack(Reader(labeled(label)))


def test_a_direct_name_ends_with_its_only_null_character() -> None:
    """[MS-MQMQ] 2.2.18.1.5.2."""
    for name in ("OS:a\\q", "OS:a\\" + "q" * 600):
        message = UserMessage()
        message.user.destination = QueueName(NameType.DIRECT, direct=name)
        packed = message.pack()
        for bad in ("x", "\0x"):
            end = name + "\0" if len(bad) == 1 else name[1:] + bad[:1] + "\0"
            text = (name + bad if len(bad) == 1 else end[:-2] + bad).encode("utf-16-le")
            changed = packed.replace((name + "\0").encode("utf-16-le"), text)
            assert len(changed) == len(packed) and changed != packed
            with pytest.raises(BadPacket, match="UserHeader"):
                UserMessage.unpack(Reader(changed))


def test_a_body_is_not_larger_than_what_is_allocated_for_it() -> None:
    packed = bytearray(UserMessage(properties=MessagePropertiesHeader(body=b"12345")).pack())
    at = packed.index(struct.pack("<II", 5, 5))
    for allocated in (5, 6):
        packed[at + 4 : at + 8] = struct.pack("<I", allocated)
        assert UserMessage.unpack(Reader(bytes(packed))).properties.allocated_size == allocated
    packed[at + 4 : at + 8] = struct.pack("<I", 4)
    with pytest.raises(BadPacket, match="AllocationBodySize is 4"):
        UserMessage.unpack(Reader(bytes(packed)))


PUBLIC = QueueName(NameType.PUBLIC, bytes(range(16)))


def with_list(data: bytes, count: int, size: int | None = None) -> bytes:
    """Return a packet for PUBLIC with these bytes as the list of destinations."""
    direct = QueueName(NameType.DIRECT, direct="OS:x\\q")
    message = UserMessage(multi_queue=MultiQueueFormatHeader([direct]))
    message.user.destination = PUBLIC
    packed = message.pack()
    start = packed.index(struct.pack("<HHI", 0x64, 0, 1)) - 4
    end = start + 12 + 2 + len("OS:x\\q\0") * 2
    end += -(end - start) % 4
    size = 12 + len(data) if size is None else size
    made = struct.pack("<IHHI", size, 0x64, 0, count) + data + bytes(-len(data) % 4)
    packed = packed[:start] + made + packed[end:]
    at = packed.index(b"LIOR") + 4
    return packed[:at] + struct.pack("<I", len(packed)) + packed[at + 4 :]


ELEMENT = struct.pack("<HH", 1, 0) + PUBLIC.guid
NAME = struct.pack("<H", 3) + "OS:b\\q\0".encode("utf-16-le")


@pytest.mark.parametrize(
    ("data", "count", "size", "wrong"),
    [
        (ELEMENT + NAME, 2, None, ""),
        (ELEMENT + NAME, 1, None, "1 elements leave"),
        (ELEMENT * 2, 1, None, "1 elements leave 20 bytes"),
        (ELEMENT + bytes(4), 1, None, "1 elements leave 4 bytes"),
        (NAME + ELEMENT[:2] + ELEMENT[2:], 2, None, ""),
        (ELEMENT + NAME, 0, None, "0 elements leave"),
        (struct.pack("<H", 1) + PUBLIC.guid, 1, None, "bytes announced"),  # not aligned
        (struct.pack("<H", 1) + PUBLIC.guid + bytes(2), 1, None, "does not have the queue"),
        (struct.pack("<HH", 1, 0) + bytes(16), 1, None, "does not have the queue"),
        (struct.pack("<HH", 6, 0) + bytes(16), 1, None, ""),
    ],
)
def test_a_list_of_names_adds_up_and_has_the_queue_that_the_packet_is_for(
    data: bytes, count: int, size: int | None, wrong: str
) -> None:
    """[MS-MQMQ] 2.2.20.1, 2.2.20.2."""
    packed = with_list(data, count, size)
    if not wrong:
        assert UserMessage.unpack(Reader(packed)).multi_queue is not None
        return
    with pytest.raises(BadPacket, match=wrong):
        UserMessage.unpack(Reader(packed))


@given(packets, st.integers(0, 120))
def test_sections_make_the_packet(packet: MessagePacket, maximum: int) -> None:
    packet.message.properties.allocated_size = len(packet.message.properties.body)
    sections = divide(packet, maximum, maximum)
    whole = packet.pack()
    assert sum(section.size_alloc for section in sections) == len(whole)
    position = 0
    for section in sections:
        assert whole[position : position + len(section.data)] == section.data
        position += section.size_alloc
    srmp_message = packet.message.srmp is not None
    body = packet.message.properties.body
    if not srmp_message:
        assert len(sections) == (1 if maximum >= len(body) else 2)
        assert join(sections).message.properties.body == body[:maximum]
        assert join(sections).subqueue == packet.subqueue


def test_sizes_of_sections() -> None:
    """[MS-MQRR] 3.1.4.7: the allocated size counts the whole body; the difference is the omitted part."""
    packet = MessagePacket(UserMessage.unpack(Reader(FRAME)))
    first, second = divide(packet, 10, 0)
    assert (first.type, second.type) == (SectionType.BINARY_FIRST, SectionType.BINARY_SECOND)
    assert first.size_alloc - len(first.data) == 1990
    assert second.size_alloc == len(second.data)
    assert [section.type for section in divide(packet, 2000, 0)] == [SectionType.FULL_PACKET]


@pytest.mark.parametrize(
    "sections",
    [
        [],
        [Section(SectionType.BINARY_SECOND, 0, b"")],
        [Section(SectionType.FULL_PACKET, 0, b"")] * 2,
        [Section(SectionType.BINARY_FIRST, 0xFFFFFFFF, FRAME), Section(SectionType.BINARY_SECOND, 0, b"")],
        [Section(SectionType.BINARY_FIRST, 1, FRAME), Section(SectionType.BINARY_SECOND, 0, b"")],
        [Section(SectionType.BINARY_FIRST, len(FRAME), b""), Section(SectionType.BINARY_SECOND, 0, b"")],
    ],
)
def test_invalid_sections_are_refused(sections: list[Section]) -> None:
    with pytest.raises(BadPacket):
        join(sections)


def test_invalid_names_in_a_field_are_refused() -> None:
    message = UserMessage()
    message.user.destination = QueueName(NameType.PRIVATE_ON_SOURCE, number=1)
    with pytest.raises(BadPacket, match="DestinationQueue"):
        UserMessage.unpack(Reader(message.pack()))


def test_what_cannot_be_packed_says_why() -> None:
    with pytest.raises(ValueError, match="at most 249"):
        MessagePropertiesHeader(label="x" * 250).pack()
    with pytest.raises(ValueError, match="subqueue name"):
        SubqueueHeader(subqueue="x" * 32).pack()


@pytest.mark.parametrize(
    ("given", "flags"),
    [({}, 0), ({"dead_letter_queue": "q"}, 1), ({"dead_letter_queue": "q", "dead_letter_queue_invalid": True}, 9),
     ({"subqueue": SubqueueHeader()}, 2), ({"address": ExtendedAddressHeader()}, 16)],
)  # fmt: skip
def test_the_flags_of_the_extension_name_what_is_in_it(given: dict[str, Any], flags: int) -> None:
    packet = MessagePacket(**{"subqueue": None, "address": None, **given})
    extension = packet.pack()[len(packet.message.pack()) :]
    assert extension[8] == flags
