"""Signed and encrypted messages that clients send to queues of this machine, over real stubs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from openmsmq.conversion.packets import user_message_of
from openmsmq.conversion.receive_buffer import message_from_receive
from openmsmq.conversion.send_buffer import send_buffer
from openmsmq.interfaces.ms_mqmq import XACTUOW
from openmsmq.model.constants import Access, Acknowledge, Share
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from openmsmq.model.names import PrivateFormatName, parse_format_name
from openmsmq.packet.headers import MultiQueueFormatHeader
from openmsmq.protection import algorithms
from openmsmq.protection.arrival import Accepted, ArrivalProtection, Demands
from openmsmq.protection.departure import DepartureProtection
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.protection.seal import seal
from openmsmq.protection.sign import Version, sign, signed_bytes
from openmsmq.protocols.message_security import MessageSecurity
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.descriptors import OpenQueueDescriptor
from protection.material import ALICE, BOB, THERE, certificate_of, key_of, public_of
from protection.world import Directory, published
from protocols.clients import Server
from queueing.world import MACHINE

H = HResult
UOW = b"u" * 16
HERE = MACHINE.identifier


class SecureServer(Server):
    """Knows Alice's certificate and has its own key."""

    def __init__(self, **switches: bool) -> None:
        super().__init__()
        self.directory = Directory()
        policy = CryptoPolicy(**switches)  # type: ignore[arg-type]
        arrival = ArrivalProtection(policy, self.directory, self.directory, lambda: 0.0)
        self.environment.message_security = MessageSecurity(HERE, arrival)
        for name, options in {"q": {}, "r": {}, "t": {"TRANSACTION": 1}, "signed": {"AUTHENTICATE": 1}}.items():
            self.world.create(name, **options)
        for level in range(3):
            self.world.create(f"level{level}", PRIV_LEVEL=level)


@pytest.fixture
def server() -> SecureServer:
    return SecureServer()


def direct(name: str) -> str:
    return f"DIRECT=OS:.\\private$\\{name}"


def private(server: Server, name: str) -> str:
    """Return the private format name, which encryption requires."""
    return str(PrivateFormatName(UUID(bytes_le=HERE), server.world.queue(name).number))


def signed(destination: str, version: Version = Version.MSMQ_2, **properties: Any) -> Message:
    """Sign a message for a destination as Alice."""
    message = Message(
        **{
            "body": b"hello", "label": "L", "sender_identifier_type": 1, "sender_identifier": ALICE,
            "sender_certificate": certificate_of(), "hash_algorithm": algorithms.SHA512, "default_provider": True,
            "destination_queue_format_name": destination, "source_machine_identifier": HERE,
        }
        | properties
    )  # fmt: skip
    packet = user_message_of(message)
    assert (packet.multi_queue or MultiQueueFormatHeader()).signature == b""
    data = signed_bytes(packet, version, message.body)
    return replace(message, signature=sign(data, message.hash_algorithm, key_of()))


def result(server: Server, destination: str, message: Message, uow: bytes | None = None, **more: Any) -> int:
    """Return the result of the send."""
    client = server.client()
    handle = client.open(destination, Access.SEND).phQueue
    if uow is not None:
        client.call("R_QMEnlistInternalTransaction", pUow=XACTUOW(uow))
    ptb = send_buffer(message, uow, **more)
    value: int = client.call("rpc_ACSendMessageEx", hQueue=handle, ptb=ptb, pMessageID=None).result
    return value


def received(server: Server, name: str) -> Message:
    client = server.client()
    answer = client.receive(client.open(name).pdwQMContext)
    assert answer.result == H.MQ_OK
    return message_from_receive(answer.ptb)


def test_c1_readers_learn_that_a_message_is_authentic(server: SecureServer) -> None:
    assert result(server, direct("q"), signed(direct("q"))) == H.MQ_OK
    message = received(server, "q")
    assert (message.authentication_level, message.sender_identifier, message.body) == (3, ALICE, b"hello")


def test_c2_a_1_0_signature_counts_where_it_is_switched_on() -> None:
    message = signed(direct("q"), Version.MSMQ_1)
    assert result(SecureServer(), direct("q"), message) == H.MQ_ERROR_FAIL_VERIFY_SIGNATURE_EX
    lenient = SecureServer(allow_signature_1=True)
    assert result(lenient, direct("q"), message) == H.MQ_OK
    assert received(lenient, "q").authentication_level == 1


def opened(server: Server, names: str) -> OpenQueueDescriptor:
    """Open several queues at once, which clients of MS-MQMP cannot do, but automation objects can."""
    handles = server.world.manager.handles
    return handles.open_queue(parse_format_name(names), Access.SEND, Share.DENY_NONE, Caller.anonymous())


def test_c3_a_message_for_two_queues_is_authentic_in_both(server: SecureServer) -> None:
    both = f"{direct('q')},{direct('r')}"
    descriptor, security = opened(server, both), server.environment.message_security
    message = signed(both, Version.MSMQ_3)
    security.admit(descriptor, message, False)
    server.world.manager.sending.enqueue(descriptor, message)
    for name in ("q", "r"):
        (stored,) = server.world.messages(server.world.queue(name))
        assert (stored.authentication_level, bool(stored.multiple_destination_signature)) == (5, True)
    with pytest.raises(MsmqError, check=lambda e: e.hresult == H.MQ_ERROR_FAIL_VERIFY_SIGNATURE_EX):
        security.admit(descriptor, signed(direct("q")), False)


@pytest.mark.parametrize("change", [{"body": b"hellm"}, {"label": "M"}, {"priority": 4}, {"application_tag": 1}])
def test_c4_a_changed_message_is_not_delivered(server: SecureServer, change: dict[str, Any]) -> None:
    message = replace(signed(direct("q")), **change)
    assert result(server, direct("q"), message) == H.MQ_ERROR_FAIL_VERIFY_SIGNATURE_EX
    assert not server.world.labels("q")


def test_c4_a_signature_for_another_queue_is_not_delivered(server: SecureServer) -> None:
    assert result(server, direct("r"), signed(direct("q"))) == H.MQ_ERROR_FAIL_VERIFY_SIGNATURE_EX


def test_c6_the_certificate_of_another_user_is_refused(server: SecureServer) -> None:
    message = signed(direct("q"), sender_identifier=BOB)
    assert result(server, direct("q"), message) == H.MQ_ERROR_NO_INTERNAL_USER_CERT


def test_c7_a_sender_cannot_claim_to_be_authentic(server: SecureServer) -> None:
    ptb = send_buffer(Message(sender_identifier_type=1, sender_identifier=ALICE))
    ptb.old.pAuthenticated, ptb.old.bAuthenticated, ptb.old.ulAuthLevel = 3, 1, 3
    client = server.client()
    handle = client.open("q", Access.SEND).phQueue
    assert client.call("rpc_ACSendMessageEx", hQueue=handle, ptb=ptb, pMessageID=None).result == H.MQ_OK
    assert received(server, "q").authentication_level == 0


def test_c8_a_queue_for_authenticated_messages(server: SecureServer) -> None:
    name = direct("signed")
    assert result(server, name, Message()) == H.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED
    nobody = signed(name, sender_identifier_type=0, sender_identifier=b"")
    assert result(server, name, nobody) == H.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED
    assert result(server, name, signed(name)) == H.MQ_OK
    assert received(server, "signed").authentication_level == 3


def test_c9_hashes_that_are_off_are_refused(server: SecureServer) -> None:
    message = replace(signed(direct("q")), hash_algorithm=algorithms.MD2)
    assert result(server, direct("q"), message) == H.MQ_ERROR_CANNOT_HASH_DATA_EX
    message = replace(message, hash_algorithm=0x800D)
    assert result(server, direct("q"), message) == H.MQ_ERROR_CANNOT_CREATE_HASH_EX


@pytest.mark.parametrize(
    ("certificate", "error"),
    [(b"", H.MQ_ERROR_CERTIFICATE_NOT_PROVIDED), (b"no certificate", H.MQ_ERROR_INVALID_CERTIFICATE)],
)
def test_a_signature_needs_a_certificate(server: SecureServer, certificate: bytes, error: HResult) -> None:
    message = replace(signed(direct("q")), sender_certificate=certificate)
    assert result(server, direct("q"), message) == error


def test_what_cannot_be_verified_is_taken_as_unauthenticated_where_that_is_switched_on() -> None:
    server = SecureServer(unverified_local_signatures=True)
    message = replace(signed(direct("q")), body=b"other")
    assert result(server, direct("q"), message) == H.MQ_OK
    assert received(server, "q").authentication_level == 0
    assert result(server, direct("signed"), message) == H.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED


def test_what_is_signed_in_a_transaction_has_its_priority_and_delivery(server: SecureServer) -> None:
    """[MS-MQDMPR] 3.1.7.1.27: priority 0 and recoverable, also if the sender sets other values; the signature
    covers these values."""
    message = signed(direct("t"), priority=0, delivery_guarantee=1)
    message.priority, message.delivery_guarantee = 3, 0
    assert result(server, direct("t"), message, UOW) == H.MQ_OK
    otherwise = signed(direct("t"), priority=3, delivery_guarantee=0)
    assert result(server, direct("t"), otherwise, b"v" * 16) == H.MQ_ERROR_FAIL_VERIFY_SIGNATURE_EX


def encrypted(body: bytes, key: str = "here", algorithm: int = algorithms.AES256, **properties: Any) -> Message:
    made = seal(body, algorithms.ADVANCED, algorithm, bytes(range(32)), public_of(key_of(key)))
    return Message(
        body=made.body, privacy_level=made.level, encryption_algorithm=algorithm, symmetric_key=made.key, **properties
    )


@pytest.mark.parametrize("size", [0, 15, 16])
def test_c10_an_encrypted_body_is_read_as_it_was_written(server: SecureServer, size: int) -> None:
    assert result(server, private(server, "q"), encrypted(bytes(size)), encrypted=True) == H.MQ_OK
    message = received(server, "q")
    assert (message.body, message.privacy_level) == (bytes(size), algorithms.ADVANCED)


def test_c11_the_privacy_level_of_a_queue(server: SecureServer) -> None:
    for level, takes_clear, takes_encrypted in ((0, True, False), (1, True, True), (2, False, True)):
        name = private(server, f"level{level}")
        clear = result(server, name, Message())
        private_ = result(server, name, encrypted(b"body"), encrypted=True)
        assert clear == (H.MQ_OK if takes_clear else H.MQ_ERROR_ILLEGAL_OPERATION)
        assert private_ == (H.MQ_OK if takes_encrypted else H.MQ_ERROR_ILLEGAL_OPERATION)


@pytest.mark.parametrize(
    "damage", [{"symmetric_key": b"key"}, {"body": bytes(15)}, {"body": bytes(16)}, {"privacy_level": 1}]
)
def test_c12_what_cannot_be_decrypted_is_not_delivered(server: SecureServer, damage: dict[str, Any]) -> None:
    message = replace(encrypted(b"body"), **damage)
    assert result(server, private(server, "q"), message, encrypted=True) == H.MQ_ERROR_CORRUPTED_SECURITY_DATA
    other = encrypted(b"body", key="other")
    assert result(server, private(server, "q"), other, encrypted=True) == H.MQ_ERROR_CORRUPTED_SECURITY_DATA
    assert not server.world.labels("q")


def test_encryption_without_a_privacy_level_is_refused(server: SecureServer) -> None:
    message = replace(encrypted(b"body"), privacy_level=0)
    ptb = send_buffer(message, encrypted=True)
    client = server.client()
    handle = client.open(private(server, "q"), Access.SEND).phQueue
    answer = client.call("rpc_ACSendMessageEx", hQueue=handle, ptb=ptb, pMessageID=None)
    assert answer.result == H.MQ_ERROR_ILLEGAL_PROPERTY_VALUE


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_c13_no_encryption_with_direct_format_names(server: SecureServer, is_encrypted: bool) -> None:
    error = result(server, direct("q"), encrypted(b"body"), encrypted=is_encrypted)
    assert error == H.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    several = opened(server, f"{direct('r')},{private(server, 'q')}")
    with pytest.raises(MsmqError, check=lambda e: e.hresult == H.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION):
        server.environment.message_security.admit(several, encrypted(b"body"), False, encrypted=is_encrypted)
    assert not server.world.labels("q") and not server.world.labels("r")


def test_the_plain_body_is_what_is_signed(server: SecureServer) -> None:
    name = private(server, "q")
    message = signed(name, privacy_level=algorithms.ADVANCED, encryption_algorithm=algorithms.AES256)
    made = seal(b"hello", 5, algorithms.AES256, bytes(range(32)), public_of(key_of("here")))
    message = replace(message, body=made.body, symmetric_key=made.key)
    assert result(server, name, message, encrypted=True) == H.MQ_OK
    got = received(server, "q")
    assert (got.body, got.authentication_level) == (b"hello", 3)


def test_a_refusal_of_a_private_message_does_not_carry_its_body(server: SecureServer) -> None:
    """[MS-MQQB] 3.1.7.15, also after it was decrypted here."""
    server.world.create("admin")
    message = encrypted(
        b"secret", time_to_be_received=1, acknowledgements_requested=Acknowledge.NEG_RECEIVE,
        administration_queue_format_name=direct("admin"),
    )  # fmt: skip
    assert result(server, private(server, "q"), message, encrypted=True) == H.MQ_OK
    server.world.advance(2000)
    (acknowledgment,) = server.world.messages(server.world.queue("admin"))
    assert acknowledgment.body == b""


ELSEWHERE = "PRIVATE=aaaaaaaa-0000-0000-0000-000000000001\\00000009"


def test_messages_for_other_machines_are_verified_there(server: SecureServer) -> None:
    message = replace(signed(direct("q")), signature=b"of another one")
    assert result(server, ELSEWHERE, message) == H.MQ_OK
    queue = server.world.registry.outgoing_queue(parse_format_name(ELSEWHERE))
    assert queue is not None
    (waiting,) = server.world.messages(queue)
    assert (waiting.signature, waiting.authentication_level) == (b"of another one", 0)


def test_a_body_for_another_machine_needs_its_key(server: SecureServer) -> None:
    message = Message(body=b"secret", privacy_level=5)
    assert result(server, ELSEWHERE, message) == H.MQ_ERROR_PUBLIC_KEY_NOT_FOUND
    assert result(server, ELSEWHERE, encrypted(b"secret", key="there"), encrypted=True) == H.MQ_OK  # by the sender
    key_without_encryption = replace(message, symmetric_key=b"key")
    ptb = send_buffer(key_without_encryption)
    ptb.old.ppSymmKeys, ptb.old.ulSymmKeysSize = b"key", 3
    client = server.client()
    handle = client.open(ELSEWHERE, Access.SEND).phQueue
    answer = client.call("rpc_ACSendMessageEx", hQueue=handle, ptb=ptb, pMessageID=None)
    assert answer.result == H.MQ_ERROR_PUBLIC_KEY_NOT_FOUND


def test_a_message_from_a_client_arrives_elsewhere_encrypted_and_authentic(server: SecureServer) -> None:
    """From a send here to the packet of a transfer and its disposition at the receiver."""
    directory = server.directory
    directory.published[THERE] = published(algorithms.ADVANCED)
    message = signed(ELSEWHERE, privacy_level=5)
    packet = user_message_of(message)
    DepartureProtection(CryptoPolicy(), directory, lambda size: bytes(range(size))).protect(packet, THERE)
    assert packet.properties.body != b"hello"
    verdict = ArrivalProtection(CryptoPolicy(), directory, directory, lambda: 0.0).judge(packet, Demands(True, 2))
    assert isinstance(verdict, Accepted)
    assert (verdict.body, verdict.authentication_level) == (b"hello", 3)


def test_without_certificates_no_signature_is_taken() -> None:
    server = Server()
    server.world.create("q")
    assert result(server, direct("q"), signed(direct("q"))) == H.MQ_ERROR_NO_INTERNAL_USER_CERT
