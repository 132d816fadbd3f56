"""Arriving packets: which ones are accepted with which properties, and which are rejected with which class."""

from __future__ import annotations

import pytest
from Cryptodome.Hash import MD2, MD4, MD5, SHA1
from Cryptodome.Signature import pkcs1_15

from openmsmq.model.constants import MessageClass
from openmsmq.model.message import Message
from openmsmq.model.security import ANONYMOUS, EVERYONE, sid_text
from openmsmq.packet.headers import NO_GUID, SecurityHeader
from openmsmq.packet.user_message import UserMessage
from openmsmq.protection import algorithms, arrival, unseal
from openmsmq.protection.arrival import Accepted, Demands, Rejected, Verdict
from openmsmq.protection.seal import seal
from openmsmq.protection.sign import Version, signed_bytes
from protection.material import (
    ALICE,
    BOB,
    HERE,
    THERE,
    certificate_of,
    key_of,
    over_the_wire,
    public_of,
    signed_packet,
    vector_packet,
)  # fmt: skip
from protection.test_vectors import cryptodome_key
from protection.world import SenderAndReceiver, published

BAD_SIGNATURE, BAD_ENCRYPTION = MessageClass.NACK_BAD_SIGNATURE, MessageClass.NACK_BAD_ENCRYPTION
SWITCHED_OFF = MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER


def accepted(verdict: Verdict) -> Accepted:
    assert isinstance(verdict, Accepted), verdict
    return verdict


def rejected(verdict: Verdict) -> Rejected:
    assert isinstance(verdict, Rejected), verdict
    return verdict


def security(packet: UserMessage) -> SecurityHeader:
    assert packet.security is not None
    return packet.security


def test_c1_a_2_0_signature_by_a_registered_certificate_has_level_3() -> None:
    verdict = accepted(SenderAndReceiver().judged(signed_packet()))
    assert (verdict.authentication_level, verdict.sender, verdict.body) == (3, sid_text(ALICE), b"hello")


def test_c2_a_1_0_signature_has_level_1_where_it_is_switched_on_and_is_refused_where_not() -> None:
    packet = signed_packet(Version.MSMQ_1)
    assert accepted(SenderAndReceiver(allow_signature_1=True).judged(packet)).authentication_level == 1
    assert rejected(SenderAndReceiver().judged(packet)).message_class == BAD_SIGNATURE


def test_c3_a_3_0_signature_for_two_queues_has_level_5() -> None:
    assert accepted(SenderAndReceiver().judged(signed_packet(Version.MSMQ_3))).authentication_level == 5


@pytest.mark.parametrize("what", ["body", "label", "message_class", "destination"])
@pytest.mark.parametrize("transactional", [False, True])
def test_c4_a_changed_message_is_refused(what: str, transactional: bool) -> None:
    packet = signed_packet(transactional=transactional)
    changes = {
        "body": lambda: setattr(packet.properties, "body", b"hellm"),
        "label": lambda: setattr(packet.properties, "label", "M"),
        "message_class": lambda: setattr(packet.properties, "message_class", 1),
        "destination": lambda: setattr(packet.user, "destination", packet.user.response),
    }
    changes[what]()
    verdict = rejected(SenderAndReceiver(send_insecure_nacks=True).judged(packet))
    assert verdict.message_class == BAD_SIGNATURE
    assert verdict.administration and verdict.final is transactional


def test_c5_refusals_are_sent_to_unknown_senders_only_if_enabled() -> None:
    packet = signed_packet(transactional=True)
    packet.properties.body = b"other"
    verdict = rejected(SenderAndReceiver().judged(packet))
    assert not verdict.administration
    assert verdict.final  # always
    packet.properties.acknowledge = 0
    assert not rejected(SenderAndReceiver(send_insecure_nacks=True).judged(packet)).administration


def test_c6_the_certificate_of_somebody_else_is_refused() -> None:
    ends = SenderAndReceiver()
    ends.directory.users = {BOB: [certificate_of()], ALICE: [certificate_of("other")]}
    assert rejected(ends.judged(signed_packet())).message_class == BAD_SIGNATURE
    assert accepted(ends.judged(signed_packet(sender=BOB))).sender == sid_text(BOB)


def test_a_directory_that_does_not_answer_authenticates_nobody() -> None:
    ends = SenderAndReceiver()
    ends.directory.fails = True
    assert rejected(ends.judged(signed_packet())).message_class == BAD_SIGNATURE


def test_c7_a_level_that_the_packet_claims_is_not_believed() -> None:
    packet = vector_packet()
    packet.security = SecurityHeader(sender_type=1, sender=ALICE, authenticated=True, signature_type=3)
    arrived, ends = over_the_wire(packet), SenderAndReceiver()
    assert security(arrived).signature_type == 3
    verdict = accepted(ends.judged(packet))
    assert verdict.authentication_level == 0
    ends.arrival.judge(arrived, Demands())
    assert not security(arrived).signature_type and not security(arrived).authenticated


def test_c8_a_queue_for_authenticated_messages_takes_no_others() -> None:
    assert rejected(SenderAndReceiver().judged(vector_packet(), authentication=True)).message_class == BAD_SIGNATURE
    assert accepted(SenderAndReceiver().judged(signed_packet(), authentication=True)).authentication_level == 3


def test_c8_a_signature_without_known_signer_is_not_authentication() -> None:
    packet = signed_packet(sender=b"")
    verdict = accepted(SenderAndReceiver().judged(packet))
    assert (verdict.authentication_level, verdict.sender) == (3, ANONYMOUS)
    assert rejected(SenderAndReceiver().judged(packet, authentication=True)).message_class == BAD_SIGNATURE


def test_c9_an_unknown_hash_is_a_bad_signature_and_one_that_is_off_is_unsupported() -> None:
    for algorithm, expected in ((0x8005, BAD_SIGNATURE), (0, BAD_SIGNATURE), (algorithms.MD2, SWITCHED_OFF)):
        packet = signed_packet()
        packet.properties.hash_algorithm = algorithm
        assert rejected(SenderAndReceiver().judged(packet)).message_class == expected


@pytest.mark.parametrize("algorithm", [algorithms.MD5, algorithms.SHA1, algorithms.MD2, algorithms.MD4])
def test_c9_old_hashes_verify_where_they_are_switched_on(algorithm: int) -> None:
    modules = {algorithms.MD2: MD2, algorithms.MD4: MD4, algorithms.MD5: MD5, algorithms.SHA1: SHA1}
    packet = signed_packet()
    packet.properties.hash_algorithm = algorithm
    data = signed_bytes(packet, Version.MSMQ_2, b"hello")
    signature = pkcs1_15.new(cryptodome_key()).sign(modules[algorithm].new(data))
    security(packet).signature = signature[::-1]
    switches = {"allow_md2": True, "allow_md4": True, "allow_md5": True, "allow_sha1": True}
    assert accepted(SenderAndReceiver(**switches).judged(packet)).authentication_level == 3
    assert rejected(SenderAndReceiver().judged(packet)).message_class == SWITCHED_OFF
    security(packet).signature = bytes(len(signature))
    assert rejected(SenderAndReceiver(**switches).judged(packet)).message_class == BAD_SIGNATURE


@pytest.mark.parametrize(("size", "on_the_wire"), [(0, 16), (15, 16), (16, 32)])
def test_c10_an_aes_body_arrives_as_it_was_sent(size: int, on_the_wire: int) -> None:
    ends, packet = SenderAndReceiver(), vector_packet()
    packet.properties.body = bytes(range(size))
    arrived = ends.sent(packet, algorithms.ADVANCED)
    assert arrived.properties.encryption_algorithm == algorithms.AES256
    assert len(arrived.properties.body) == arrived.properties.allocated_size == on_the_wire
    verdict = accepted(ends.judged(arrived))
    assert (verdict.body, verdict.privacy_level) == (bytes(range(size)), algorithms.ADVANCED)


@pytest.mark.parametrize(
    ("queue", "encrypted", "taken"), [(0, False, True), (0, True, False), (1, False, True), (1, True, True),
                                      (2, False, False), (2, True, True)]
)  # fmt: skip
def test_c11_the_privacy_level_of_a_queue(queue: int, encrypted: bool, taken: bool) -> None:
    ends = SenderAndReceiver()
    packet = ends.sent(vector_packet(), algorithms.ADVANCED) if encrypted else vector_packet()
    verdict = ends.judged(packet, privacy_level=queue)
    assert isinstance(verdict, Accepted) is taken
    if not taken:
        assert rejected(verdict).message_class == BAD_ENCRYPTION


def test_c11_a_level_without_encryption_does_not_count() -> None:
    packet = vector_packet()
    packet.properties.privacy_level = 5
    assert rejected(SenderAndReceiver().judged(packet, privacy_level=2)).message_class == BAD_ENCRYPTION
    assert accepted(SenderAndReceiver().judged(packet)).privacy_level == 0


def damaged(how: str) -> UserMessage:
    ends = SenderAndReceiver()
    packet = ends.sent(vector_packet(), algorithms.ADVANCED)
    header, properties = security(packet), packet.properties
    match how:
        case "another's key":
            ends.directory.published[HERE] = published(algorithms.ADVANCED, name="other")
            return ends.sent(vector_packet(), algorithms.ADVANCED)
        case "padding":
            properties.body = properties.body[:-1] + bytes([properties.body[-1] ^ 1])
        case "key":
            header.encryption_key = header.encryption_key[:-1] + bytes([header.encryption_key[-1] ^ 0x40])
        case "short key":
            header.encryption_key = header.encryption_key[:-1]
        case "no key":
            header.encryption_key = b""
        case "huge key":
            header.encryption_key += bytes(60000)
        case "key for another cipher":
            header.encryption_key = header.encryption_key[:4] + b"\x0e" + header.encryption_key[5:]
        case "short body":
            properties.body = properties.body[:-1]
        case "no body":
            properties.body = b""
        case "level":
            properties.privacy_level = 4
        case "cipher of another level":
            properties.encryption_algorithm = algorithms.RC4
        case "direct name":
            packet.user.queue_manager_address = NO_GUID
        case _:
            raise AssertionError(how)
    return packet


DAMAGE = [
    "another's key", "padding", "key", "short key", "no key", "huge key", "key for another cipher", "short body",
    "no body", "level", "cipher of another level", "direct name",
]  # fmt: skip


@pytest.mark.parametrize("how", DAMAGE)
def test_c12_what_cannot_be_decrypted_is_bad_encryption(how: str) -> None:
    assert rejected(SenderAndReceiver().judged(damaged(how))).message_class == BAD_ENCRYPTION


def test_c12_a_bad_key_and_bad_padding_take_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each performs one RSA decryption and one body decryption, and has the same detail."""
    steps: list[str] = []
    for name in ("unseal_key", "unseal_body"):
        original = getattr(arrival, name)
        monkeypatch.setattr(arrival, name, lambda *args, o=original, n=name: (steps.append(n), o(*args))[1])
    monkeypatch.setattr(unseal, "decipher", lambda *args, o=unseal.decipher: (steps.append("decipher"), o(*args))[1])
    seen = {}
    for how in ("another's key", "padding", "key"):
        steps.clear()
        verdict = rejected(SenderAndReceiver().judged(damaged(how)))
        seen[how] = (tuple(steps), verdict.detail)
    assert set(seen.values()) == {(("unseal_key", "unseal_body", "decipher"), "the body can't be decrypted")}


def test_a_key_that_was_received_is_remembered_for_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    original = arrival.unseal_key
    monkeypatch.setattr(arrival, "unseal_key", lambda *args: (opened.append(1), original(*args))[1])
    ends = SenderAndReceiver()
    packet = ends.sent(vector_packet(), algorithms.ADVANCED)
    for ends.now in (0.0, 599.0, 600.0, 601.0):
        assert accepted(ends.judged(packet)).body == b"hello"
    assert len(opened) == 2
    packet.user.source_queue_manager = THERE  # another sender with the same key
    accepted(ends.judged(packet))
    assert len(opened) == 3


def test_a_queue_manager_without_a_key_decrypts_nothing() -> None:
    ends = SenderAndReceiver()
    packet = ends.sent(vector_packet(), algorithms.ADVANCED)
    ends.directory.private.clear()
    assert rejected(ends.judged(packet)).message_class == BAD_ENCRYPTION


def test_a_body_is_signed_before_it_is_encrypted() -> None:
    ends = SenderAndReceiver()
    verdict = accepted(ends.judged(ends.sent(signed_packet(), algorithms.ADVANCED), True, 2))
    assert (verdict.body, verdict.authentication_level, verdict.privacy_level) == (b"hello", 3, 5)


@pytest.mark.parametrize("level", [algorithms.BASE, algorithms.ENHANCED])
@pytest.mark.parametrize("cipher", ["rc2", "rc4"])
def test_old_ciphers_are_for_where_they_are_switched_on(level: int, cipher: str) -> None:
    ends = SenderAndReceiver(**{f"allow_{cipher}": True})
    ends.directory.published[HERE] = published(level)
    packet = ends.sent(vector_packet(), level)
    verdict = accepted(ends.judged(packet))
    assert (verdict.body, verdict.privacy_level) == (b"hello", level)
    assert rejected(SenderAndReceiver().judged(packet)).message_class == SWITCHED_OFF


def test_a_reduced_rc2_key_is_refused_unless_that_is_switched_on() -> None:
    packet = vector_packet()
    made = seal(b"hello", 3, algorithms.RC2, bytes(range(1, 6)) + bytes(11), public_of(key_of("here")))
    packet.properties.privacy_level, packet.properties.encryption_algorithm = made.level, made.algorithm
    packet.properties.body = made.body
    packet.security = SecurityHeader(encrypted=True, encryption_key=made.key)
    assert rejected(SenderAndReceiver(allow_rc2=True).judged(packet)).message_class == BAD_ENCRYPTION
    lenient = SenderAndReceiver(allow_rc2=True, reject_enhanced_rc2_using_40_bit_keys=False)
    assert accepted(lenient.judged(packet)).body == b"hello"


def test_the_sender_for_the_access_check() -> None:
    packet = vector_packet()
    assert accepted(SenderAndReceiver().judged(packet)).sender == ANONYMOUS
    for kind, sender, expected in (
        (0, ALICE, ANONYMOUS), (1, ALICE, sid_text(ALICE)), (1, b"\1\1", ANONYMOUS), (2, THERE, EVERYONE),
        (7, ALICE, ANONYMOUS),
    ):  # fmt: skip
        packet.security = SecurityHeader(sender_type=kind, sender=sender)
        assert accepted(SenderAndReceiver().judged(packet)).sender == expected


def test_a_queue_manager_signs_with_a_certificate_of_its_own() -> None:
    packet, ends = signed_packet(sender=THERE), SenderAndReceiver()
    security(packet).sender_type = 2
    assert rejected(ends.judged(packet)).message_class == BAD_SIGNATURE
    ends.directory.machines[THERE] = [certificate_of()]
    verdict = accepted(ends.judged(packet, authentication=True))
    assert (verdict.authentication_level, verdict.sender) == (3, EVERYONE)


def test_an_unknown_type_of_sender_is_never_authentic() -> None:
    packet = signed_packet()
    security(packet).sender_type = 5
    assert rejected(SenderAndReceiver().judged(packet)).message_class == BAD_SIGNATURE


def test_external_certificates_are_delivered_without_level_where_they_are_switched_on() -> None:
    ends = SenderAndReceiver(external_certificates=True)
    ends.directory.users.clear()
    assert accepted(ends.judged(signed_packet())).authentication_level == 0
    assert rejected(ends.judged(signed_packet(), authentication=True)).message_class == BAD_SIGNATURE


@pytest.mark.parametrize("certificate", [b"", b"\x30\x03\x02\x01\x01", bytes(0xFFFF), certificate_of()[:-1]])
def test_a_signature_without_a_usable_certificate_is_refused(certificate: bytes) -> None:
    packet = signed_packet()
    security(packet).certificate = certificate
    assert rejected(SenderAndReceiver().judged(packet)).message_class == BAD_SIGNATURE


def test_short_keys_of_senders_are_refused() -> None:
    ends = SenderAndReceiver(minimum_rsa_bits=2048)
    assert rejected(ends.judged(signed_packet())).message_class == BAD_SIGNATURE


@pytest.mark.parametrize("signature", [b"\1", bytes(127), bytes(128), b"\xff" * 128, bytes(129), bytes(60000)])
def test_a_signature_of_any_other_bytes_is_refused(signature: bytes) -> None:
    packet = signed_packet()
    security(packet).signature = signature
    assert rejected(SenderAndReceiver().judged(packet)).message_class == BAD_SIGNATURE


def test_the_result_of_the_verification_is_stored_in_the_message() -> None:
    message = Message(body=b"cipher text", authentication_level=5, privacy_level=5)
    Accepted("S-1-1-0", 3, 0, b"plain").apply(message)
    assert (message.body, message.authentication_level, message.privacy_level) == (b"plain", 3, 0)
