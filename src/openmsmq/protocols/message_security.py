"""The security of messages that clients send ([MS-MQMP] 3.1.5.2), and signing for them ([MC-MQAC] 3.17.4.1.48)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import replace
from typing import Final

from openmsmq.conversion.packets import DEFAULT_PROVIDER_TYPE, user_message_of
from openmsmq.model.admission import check_message
from openmsmq.model.constants import Delivery
from openmsmq.model.errors import HResult, IllegalPropertyValue, MsmqError
from openmsmq.model.message import Message
from openmsmq.model.names import DirectFormatName
from openmsmq.model.names_elsewhere import name_for_others
from openmsmq.model.security import sid_bytes
from openmsmq.packet.user_message import UserMessage
from openmsmq.protection.arrival import ArrivalProtection
from openmsmq.protection.directories import DirectoryUnavailable, NullDirectory
from openmsmq.protection.faults import ProtectionError
from openmsmq.protection.internal_certificates import InternalCertificate, InternalCertificates
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.protection.sign import SIGNING_HASHES, Version, sign, signed_bytes
from openmsmq.queueing.descriptors import OpenQueueDescriptor
from openmsmq.queueing.queue import QueueKind


class MessageSecurity:
    """Signatures and encryption of messages; every send calls it before the message is enqueued."""

    def __init__(
        self,
        machine: bytes,
        arrival: ArrivalProtection,
        internal: InternalCertificates | None = None,
        computer_name: str = "",
    ) -> None:
        """`machine` is the identifier of this queue manager, which signatures cover; `internal` has the keys with which
        it signs for users, in messages to other machines with `computer_name` for names of queues of this machine."""
        self._machine: Final = machine
        self._computer_name: Final = computer_name
        self._arrival: Final = arrival
        self.internal: Final = internal
        self.registering: Final = asyncio.Lock()  # one registration of an internal certificate at a time

    @classmethod
    def without_keys(cls, machine: bytes) -> MessageSecurity:
        """Return the security of a queue manager without certificates and keys."""
        nobody = NullDirectory()
        return cls(machine, ArrivalProtection(CryptoPolicy(), nobody, nobody, time.monotonic))

    @property
    def own_rsa_bits(self) -> int:
        """Size of the RSA keys that this server creates."""
        return self._arrival.policy.own_rsa_bits

    def look_up(self, sender: bytes, certificate: bytes) -> Awaitable[None] | None:
        """Return an awaitable that must finish before `admit` checks a message of a sender (a SID) signed with a
        certificate; None if no lookup is needed."""
        return self._arrival.certificates.look_up(sender, certificate)

    def forget(self, sid: str) -> None:
        """Note that a certificate of a user is no longer registered."""
        self._arrival.certificates.forget(sid_bytes(sid))

    def internal_certificate(self, sid: str | None) -> InternalCertificate:
        """Return a user's internal certificate. Raises MsmqError MQ_ERROR_NO_INTERNAL_USER_CERT,
        MQ_ERROR_CORRUPTED_INTERNAL_CERTIFICATE."""
        try:
            found = self.internal.of_user(sid) if self.internal is not None and sid is not None else None
        except DirectoryUnavailable as error:
            raise MsmqError(HResult.MQ_ERROR_CORRUPTED_INTERNAL_CERTIFICATE, str(error)) from error
        if found is None:
            raise MsmqError(
                HResult.MQ_ERROR_NO_INTERNAL_USER_CERT,
                f"{sid or 'an anonymous caller'} has no certificate to sign with; RegisterCertificate creates one",
            )
        return found

    def sign(
        self,
        descriptor: OpenQueueDescriptor,
        message: Message,
        transactional: bool,
        signer: InternalCertificate,
        version: Version,
    ) -> None:
        """Sign a message that is ready to be sent. For several destinations, the version is MSMQ 3.0 ([MS-MQQB]
        3.1.7.1.4). Blocks the event loop for about 1 ms with a 2048-bit key.

        Raises MsmqError MQ_ERROR_CANNOT_HASH_DATA_EX for an unsupported hash algorithm.
        """
        if message.hash_algorithm not in SIGNING_HASHES:
            raise MsmqError(
                HResult.MQ_ERROR_CANNOT_HASH_DATA_EX,
                f"HashAlgorithm is {message.hash_algorithm:#x}; this server signs with SHA-256 and SHA-512",
            )
        if not all(map(_is_here, descriptor.parts or [descriptor])):  # a signature covers these names (D-108)
            message.administration_queue_format_name = name_for_others(
                message.administration_queue_format_name, self._computer_name
            )
            message.response_queue_format_name = name_for_others(
                message.response_queue_format_name, self._computer_name
            )
        message.sender_certificate, message.default_provider = signer.encoded, True
        message.authentication_provider_type = DEFAULT_PROVIDER_TYPE
        packet = self._packet(descriptor, message, transactional)
        data = signed_bytes(packet, Version.MSMQ_3 if descriptor.parts else version, message.body)
        message.signature = sign(data, message.hash_algorithm, signer.key)

    # Deviation D-144: the specification verifies only messages from other queue managers.
    def admit(
        self, descriptor: OpenQueueDescriptor, message: Message, transactional: bool, *, encrypted: bool = False
    ) -> None:
        """Verify a message: set its AuthenticationLevel, and decrypt its body if that was `encrypted` for this queue
        manager. Messages to other machines are not changed; the destination verifies them.

        Raises MsmqError for an invalid signature, a body that cannot be decrypted, or encryption where it is not
        possible.
        """
        message.authentication_level = 0  # ignore the sender's value
        if not (message.privacy_level or encrypted or message.signature):
            return
        targets = descriptor.parts or [descriptor]
        self._check_encryption(targets, message, encrypted)
        here = list(map(_is_here, targets))
        if descriptor.parts:  # [MS-MQDMPR] 3.1.1.12: several destinations have one signature, MSMQ 3.0
            message.multiple_destination_signature, message.signature = message.signature, b""
        if not any(here):
            return
        if encrypted and not all(here):
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_OPERATION,
                "an encrypted message cannot have destinations on several queue managers",
            )
        packet = self._packet(descriptor, message, transactional)
        try:
            if encrypted:
                message.body = self._arrival.decrypt(packet)
            message.authentication_level = self._level(packet, message.body)
        except ProtectionError as error:
            raise error.for_local_sender() from error

    @staticmethod
    def _check_encryption(targets: list[OpenQueueDescriptor], message: Message, encrypted: bool) -> None:
        if not message.privacy_level:
            if encrypted:
                raise IllegalPropertyValue(detail="the body is encrypted, but the privacy level is 0")
            return
        if any(isinstance(target.format_name, DirectFormatName) for target in targets):
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
                "a message with a direct format name cannot be encrypted",
            )
        outgoing = any(target.queue is not None and target.queue.kind is QueueKind.OUTGOING for target in targets)
        if outgoing and not encrypted:  # a key would mark the body as encrypted
            message.symmetric_key = b""

    def _packet(self, descriptor: OpenQueueDescriptor, message: Message, transactional: bool) -> UserMessage:
        """Return the packet that the sender has signed, with the fields that the queue manager will set."""
        signed = replace(
            message, destination_queue_format_name=(descriptor.parts or [descriptor])[0].name,
            destination_multi_queue_format_name=descriptor.name if descriptor.parts else "",
            source_machine_identifier=self._machine,
        )  # fmt: skip
        if transactional:
            signed.priority, signed.delivery_guarantee = 0, Delivery.RECOVERABLE
        check_message(signed)  # before computing anything from it
        return user_message_of(signed)

    def _level(self, packet: UserMessage, body: bytes) -> int:
        try:
            return self._arrival.authenticate(packet, body)
        except ProtectionError:
            if self._arrival.policy.unverified_local_signatures:
                return 0
            raise


def _is_here(target: OpenQueueDescriptor) -> bool:
    """Whether a destination is a queue of this machine."""
    return target.queue is not None and target.queue.is_destination
