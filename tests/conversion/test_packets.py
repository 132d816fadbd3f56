"""Conversion of messages to packets and back."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.conversion.packets import message_of, packet_of, user_message_of
from openmsmq.model.constants import INFINITE
from openmsmq.model.message import NULL_GUID, NULL_IDENTIFIER, Message
from openmsmq.packet.message_packet import MessagePacket
from openmsmq.packet.queue_names import NameType, QueueName
from openmsmq.packet.reader import Reader
from openmsmq.packet.user_message import UserMessage

MACHINE = bytes(range(16))
PRIVATE = "PRIVATE=03020100-0504-0706-0809-0a0b0c0d0e0f\\0000002a"
OTHER = "PRIVATE=00000000-0000-0000-0000-000000000001\\00000007"

u32 = st.integers(0, 0xFFFFFFFF)
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"], max_codepoint=0xFFFF), max_size=40)
blob = st.binary(max_size=60)
name = st.sampled_from(
    ["", r"DIRECT=OS:host\private$\q", "DIRECT=TCP:192.0.2.1\\public", OTHER, PRIVATE,
     "PUBLIC=00000000-0000-0000-0000-000000000002"]
)  # fmt: skip
lists = st.sampled_from(
    [r"DIRECT=OS:a\q,DIRECT=OS:b\q", f"{OTHER},{PRIVATE},PUBLIC=00000000-0000-0000-0000-000000000002"]
)
messages = st.builds(
    Message, blob, text, u32, st.integers(0, 7), st.integers(0, 1), st.integers(0, 15), st.integers(0, 3),
    st.integers(0, 0xFFFF), u32, st.binary(min_size=20, max_size=20), blob,
    time_to_reach_queue=st.integers(0, 1 << 30) | st.just(INFINITE), time_to_be_received=u32,
    administration_queue_format_name=name | lists, response_queue_format_name=name | lists,
    destination_queue_format_name=name, destination_multi_queue_format_name=st.just("") | lists,
    tracing_requested=st.integers(0, 1),
    privacy_level=st.sampled_from([0, 1, 3, 5]),
    hash_algorithm=u32.filter(bool), encryption_algorithm=u32.filter(bool), sender_identifier_type=st.integers(0, 2),
    sender_identifier=blob, sender_certificate=blob, symmetric_key=blob, signature=blob,
    connector_type_identifier=st.binary(min_size=16, max_size=16),
    authentication_level=st.sampled_from([0, 1, 3, 5]), multiple_destination_signature=blob,
    identifier=u32.map(lambda number: MACHINE + number.to_bytes(4, "little")),
    source_machine_identifier=st.just(MACHINE),
    sent_time=st.integers(0, 1 << 31), abort_count=u32, move_count=u32,
)  # fmt: skip


def through_a_packet(message: Message) -> Message:
    return message_of(MessagePacket.unpack(packet_of(message).pack()), tells_level=True)


def listed(message: Message) -> Message:
    """Return the message with its destination queue among its multiple destinations."""
    name, several = message.destination_queue_format_name, message.destination_multi_queue_format_name
    if several and name not in several.split(","):
        message = replace(message, destination_multi_queue_format_name=f"{several},{name}" if name else several)
    return message


def with_default_provider(message: Message) -> Message:
    """Return the message as read if its signature names no provider."""
    if message.signature or message.multiple_destination_signature:
        message = replace(message, default_provider=True, authentication_provider_type=1)
    return message


@given(messages.map(with_default_provider).map(listed))
def test_every_property_arrives(message: Message) -> None:
    assert through_a_packet(message) == message


@given(messages.map(with_default_provider).map(listed), st.integers(0, 0xFFFFF), st.booleans(), st.booleans())
def test_transactional_messages_keep_their_place(message: Message, number: int, first: bool, last: bool) -> None:
    transactional = replace(
        message, priority=0, delivery_guarantee=1, transaction_identifier=MACHINE + number.to_bytes(4, "little"),
        first_in_transaction=first, last_in_transaction=last,
    )  # fmt: skip
    if transactional.transaction_identifier != NULL_IDENTIFIER:
        assert through_a_packet(transactional) == transactional


def test_a_message_without_a_chosen_cipher_travels_with_the_default_one() -> None:
    """[MS-MQMQ] 2.2.19.3: the field has a value of its table; [MS-MQDMPR] 3.1.1.12 has RC4 as the default."""
    assert through_a_packet(Message(b"x")).encryption_algorithm == 0x6801


def test_a_message_without_a_chosen_hash_travels_with_the_default_one() -> None:
    """SHA-1 is the default, also in unsigned packets."""
    assert user_message_of(Message(b"x")).properties.hash_algorithm == 0x8004


def test_a_signature_without_a_provider_is_the_default_providers() -> None:
    """[MS-MQMQ] 2.2.20.6: if DE is clear and there is a signature, a provider name MUST be present."""
    for name, default in (("", True), ("a provider", False)):
        message = Message(signature=b"s", authentication_provider_type=1, authentication_provider_name=name)
        security = user_message_of(message).security
        assert security is not None and security.default_provider is default
    plain = user_message_of(Message(sender_identifier_type=1, sender_identifier=b"s")).security
    assert plain is not None and not plain.default_provider


def test_the_default_provider_is_not_named() -> None:
    message = Message(signature=b"s", default_provider=True, authentication_provider_type=1,
                      authentication_provider_name="some name")  # fmt: skip
    security = user_message_of(message).security
    assert security is not None and security.default_provider
    assert (security.provider_type, security.provider_name) == (None, "")


def test_only_a_remote_read_tells_the_level_of_authentication_and_only_it_is_believed() -> None:
    message = Message(signature=b"s", authentication_level=3)
    transferred = user_message_of(message).security
    assert transferred is not None and (transferred.signature_type, transferred.authenticated) == (0, False)
    packet = MessagePacket.unpack(packet_of(message).pack())
    assert packet.message.security is not None and packet.message.security.signature_type == 3
    assert message_of(packet).authentication_level == 0
    assert message_of(packet, tells_level=True).authentication_level == 3


def test_the_provider_arrives() -> None:
    message = Message(
        authentication_provider_type=1, authentication_provider_name="a provider", signature=b"s",
        encryption_algorithm=0x6610, hash_algorithm=0x800E,
    )  # fmt: skip
    assert through_a_packet(message) == message


@pytest.mark.parametrize(
    ("name", "packed"),
    [(PRIVATE, NameType.PRIVATE_ON_SOURCE), (OTHER, NameType.PRIVATE), (r"DIRECT=OS:h\q", NameType.DIRECT)],
)
def test_private_names_of_the_source_are_numbers(name: str, packed: NameType) -> None:
    message = Message(source_machine_identifier=MACHINE, administration_queue_format_name=name)
    administration = packet_of(message).message.user.administration
    assert administration is not None
    assert administration.type is packed


def test_the_time_to_reach_a_queue_is_absolute() -> None:
    """[MS-MQRR] 2.2.5.1."""
    packet = packet_of(Message(sent_time=1000, time_to_reach_queue=60))
    assert packet.message.base.time_to_reach_queue == 1060
    assert packet_of(Message(sent_time=1000)).message.base.time_to_reach_queue == INFINITE


def test_a_response_queue_that_is_the_administration_queue() -> None:
    packet = packet_of(Message(administration_queue_format_name=OTHER))
    packet.message.user.response = replace(packet.message.user.administration, type=NameType.SAME_AS_ADMINISTRATION)
    assert message_of(packet).response_queue_format_name == OTHER


def test_the_time_of_the_last_move_travels_in_milliseconds() -> None:
    """Deviation D-67; a value of 32 bits."""
    for seconds, travels in ((0, 0), (5, 5000), (1_700_000_000, 1_700_000_000_000 & 0xFFFFFFFF)):
        header = packet_of(Message(last_move_time=seconds)).subqueue
        assert header is not None and header.last_move_time == travels


def test_each_packet_names_its_own_destination_and_lists_all() -> None:
    """[MS-MQMQ] 2.2.20.1."""
    one, other, third = r"DIRECT=OS:a\q", OTHER, "PUBLIC=00000000-0000-0000-0000-000000000002"
    several = ",".join((one, other, third))
    for own, address in ((one, bytes(16)), (other, bytes(15) + b"\1"), (third, bytes(16))):
        message = Message(destination_queue_format_name=own, destination_multi_queue_format_name=several)
        packet = user_message_of(message)
        assert packet.multi_queue is not None and len(packet.multi_queue.destination) == 3
        assert packet.user.queue_manager_address[-1:] == address[-1:]
        back = through_a_packet(message)
        assert back.destination_queue_format_name == own
        assert back.destination_multi_queue_format_name == several


SOURCE, ADDRESS, ALIEN, HERE = (bytes([n]) * 16 for n in (1, 2, 3, 4))
_ADMINISTRATION = {
    NameType.NONE: (None, None),
    NameType.PRIVATE_ON_SOURCE: (QueueName(NameType.PRIVATE_ON_SOURCE, number=7), SOURCE),
    NameType.PRIVATE_ON_DESTINATION: (QueueName(NameType.PRIVATE_ON_DESTINATION, number=7), ADDRESS),
    NameType.PUBLIC: (QueueName(NameType.PUBLIC, guid=ALIEN), None),
    NameType.PRIVATE: (QueueName(NameType.PRIVATE, guid=ALIEN, number=7), ALIEN),
    NameType.DIRECT: (QueueName(NameType.DIRECT, direct="OS:x\\private$\\a"), None),
}


@pytest.mark.parametrize("administration", _ADMINISTRATION)
@pytest.mark.parametrize("response", NameType)
@pytest.mark.parametrize("address", [ADDRESS, NULL_GUID], ids=["addressed", "direct"])
def test_every_pair_of_administration_and_response_queue_that_the_header_allows_is_read(
    administration: NameType, response: NameType, address: bytes
) -> None:
    """UserHeader.Flags.AQ and RQ, [MS-MQMQ] 2.2.19.2. A host that the packet does not name is omitted (D-180)."""
    name, host = _ADMINISTRATION[administration]
    if host == ADDRESS and address == NULL_GUID:
        host = HERE
    hosts = {
        NameType.PRIVATE_ON_SOURCE: SOURCE,
        NameType.PRIVATE_ON_DESTINATION: ADDRESS if address != NULL_GUID else HERE,
        NameType.PRIVATE_ON_ADMINISTRATION: host,
        NameType.PRIVATE: ALIEN,
    }
    made = user_message_of(Message(destination_queue_format_name="DIRECT=OS:x\\private$\\q"))
    made.user.source_queue_manager, made.user.queue_manager_address = SOURCE, address
    made.user.administration = name
    made.user.response = None if response is NameType.NONE else QueueName(response, ALIEN, 9, "OS:x\\private$\\r")
    read = message_of(MessagePacket(UserMessage.unpack(Reader(made.pack()))), here=HERE)
    if response in hosts:
        of = hosts[response]
        assert read.response_queue_format_name == (f"PRIVATE={UUID(bytes_le=of)}\\00000009" if of else "")
    elif response is NameType.SAME_AS_ADMINISTRATION:
        assert read.response_queue_format_name == read.administration_queue_format_name
    else:
        expected = {NameType.PUBLIC: f"PUBLIC={UUID(bytes_le=ALIEN)}", NameType.DIRECT: "DIRECT=OS:x\\private$\\r"}
        assert read.response_queue_format_name == expected.get(response, "")


@pytest.mark.parametrize(("delivery", "transaction"), [(0, 1), (1, 0), (2, 0), (3, 0)])
def test_what_counts_as_recoverable_is_stored(delivery: int, transaction: int) -> None:
    """[MS-MQMQ] 2.2.19.2: DM is 0 or 1, and 1 in a transaction."""
    message = Message(
        destination_queue_format_name="DIRECT=OS:here\\private$\\q", source_machine_identifier=MACHINE,
        transaction_identifier=MACHINE + transaction.to_bytes(4, "little"),
    )  # fmt: skip
    packet = packet_of(message)
    packet.message.user.delivery = delivery
    assert message_of(packet, tells_level=True).delivery_guarantee == 1


@pytest.mark.parametrize("name", [PRIVATE, "PUBLIC=00000000-0000-0000-0000-000000000002"])
def test_the_name_of_a_journal_does_not_become_the_name_of_its_queue(name: str) -> None:
    message = Message(response_queue_format_name=f"{name};JOURNAL", administration_queue_format_name=name)
    found = through_a_packet(message)
    assert (found.response_queue_format_name, found.administration_queue_format_name) == ("", name)
