"""Outgoing packets: which ones are encrypted, for which receiver, and how."""

from __future__ import annotations

import pytest

from openmsmq.model.constants import MessageClass
from openmsmq.packet.headers import SecurityHeader
from openmsmq.packet.queue_names import NameType, QueueName
from openmsmq.protection import algorithms
from openmsmq.protection.arrival import Accepted
from openmsmq.protection.faults import CryptoFault, ProtectionError
from protection.material import ALICE, HERE, THERE, signed_packet, vector_packet
from protection.world import SenderAndReceiver, published


def failure(
    ends: SenderAndReceiver, level: int = 5, machine: bytes = HERE, name: QueueName | None = None
) -> CryptoFault:
    packet = vector_packet()
    packet.properties.privacy_level = level
    packet.user.destination = name or packet.user.destination
    with pytest.raises(ProtectionError) as caught:
        ends.departure.protect(packet, machine)
    assert caught.value.fault.value.message_class is MessageClass.NACK_COULD_NOT_ENCRYPT
    assert packet.properties.body == b"hello"
    return caught.value.fault


def test_a_body_without_requested_encryption_is_sent_unchanged() -> None:
    packet = vector_packet()
    packet.security = SecurityHeader(sender_type=1, sender=ALICE, encrypted=True, authenticated=True, signature_type=3)
    SenderAndReceiver().departure.protect(packet, HERE)
    assert packet.properties.body == b"hello"
    assert packet.security == SecurityHeader(sender_type=1, sender=ALICE)


def test_each_message_has_a_key_of_its_own() -> None:
    ends = SenderAndReceiver()
    first, second = (ends.sent(vector_packet(), 5).properties.body for _ in range(2))
    assert first != second


def test_a_body_encrypted_by_its_sender_is_unchanged() -> None:
    ends, packet = SenderAndReceiver(), vector_packet()
    packet.properties.privacy_level, packet.properties.encryption_algorithm = 5, algorithms.AES128
    packet.security = SecurityHeader(encryption_key=b"key")
    ends.departure.protect(packet, THERE)  # whose key is not known here
    assert (packet.properties.body, packet.security.encryption_key) == (b"hello", b"key")
    assert packet.security.encrypted and not ends.keys_drawn


def test_the_best_provider_of_the_peer_is_used() -> None:
    ends = SenderAndReceiver()
    assert ends.sent(vector_packet(), 1).properties.privacy_level == 5
    weak = SenderAndReceiver(allow_rc4=True)
    weak.directory.published[HERE] = published(1, 3)
    packet = weak.sent(vector_packet(), 1)
    assert (packet.properties.privacy_level, packet.properties.encryption_algorithm) == (3, algorithms.RC4)


def test_a_weaker_provider_than_was_asked_for_is_not_used() -> None:
    ends = SenderAndReceiver(allow_rc4=True)
    ends.directory.published[HERE] = published(1, 3)
    assert failure(ends) is CryptoFault.COULD_NOT_ENCRYPT


def test_a_cipher_that_is_switched_off_is_not_used() -> None:
    ends = SenderAndReceiver()
    ends.directory.published[HERE] = published(1, 3)
    assert failure(ends, level=1) is CryptoFault.COULD_NOT_ENCRYPT


def test_without_a_key_nothing_leaves() -> None:
    ends = SenderAndReceiver()
    assert failure(ends, machine=THERE) is CryptoFault.NO_KEY
    ends.directory.fails = True
    assert failure(ends) is CryptoFault.NO_KEY
    assert not ends.departure.can_seal(HERE, 5)


def test_c13_nothing_is_encrypted_for_a_direct_format_name() -> None:
    assert (
        failure(SenderAndReceiver(), name=QueueName(NameType.DIRECT, direct="OS:a\\b")) is CryptoFault.COULD_NOT_ENCRYPT
    )


def test_signed_packets_keep_their_signature() -> None:
    ends, packet = SenderAndReceiver(), signed_packet()
    assert packet.security is not None
    signature = packet.security.signature
    arrived = ends.sent(packet, 5)
    assert arrived.security is not None and arrived.security.signature == signature
    assert isinstance(ends.judged(arrived), Accepted)
