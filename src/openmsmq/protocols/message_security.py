"""The security of messages that clients send to queues of this machine ([MS-MQMP] 3.1.5.2)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from openmsmq.model.admission import check_message
from openmsmq.model.constants import Delivery
from openmsmq.model.errors import HResult, IllegalPropertyValue, MsmqError
from openmsmq.model.message import Message
from openmsmq.model.names import DirectFormatName
from openmsmq.packet.user_message import UserMessage
from openmsmq.protection.arrival import ArrivalProtection
from openmsmq.protection.directories import Nobody
from openmsmq.protection.faults import ProtectionError
from openmsmq.protection.policy import Policy
from openmsmq.queueing.descriptors import OpenQueueDescriptor
from openmsmq.queueing.queue import QueueKind
from openmsmq.transfer.packets import user_message_of


class MessageSecurity:
    """Asked by every operation that sends, before the message is enqueued."""

    def __init__(self, machine: bytes, arrival: ArrivalProtection) -> None:
        """`machine` is the identifier of this queue manager, which signatures cover."""
        self._machine: Final = machine
        self._arrival: Final = arrival

    @classmethod
    def without_keys(cls, machine: bytes) -> MessageSecurity:
        """Of a queue manager that knows no certificate and has no key."""
        nobody = Nobody()
        return cls(machine, ArrivalProtection(Policy(), nobody, nobody, time.monotonic))

    # Deviation D-144: the specification verifies what comes from other queue managers only.
    def admit(
        self, descriptor: OpenQueueDescriptor, message: Message, transactional: bool, *, encrypted: bool = False
    ) -> None:
        """Set what is true of a message: its AuthenticationLevel, and its plain body if that was `encrypted` for this
        queue manager. What goes to other machines stays as it is, for them to judge.

        Raises MsmqError: a signature or a body that is not right, encryption where there can be none.
        """
        message.authentication_level = 0  # whatever the sender says
        if not (message.privacy_level or encrypted or message.signature):
            return
        targets = descriptor.parts or [descriptor]
        self._check_encryption(targets, message, encrypted)
        here = [target.queue is not None and target.queue.is_destination for target in targets]
        if descriptor.parts:  # [MS-MQDMPR] 3.1.1.12: several destinations have one signature, MSMQ 3.0
            message.multiple_destination_signature, message.signature = message.signature, b""
        if not any(here):
            return
        if encrypted and not all(here):
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_OPERATION, "a key is for one queue manager, not for several")
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
                raise IllegalPropertyValue(detail="the body is encrypted, and the privacy level is 0")
            return
        if any(isinstance(target.format_name, DirectFormatName) for target in targets):
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, "encryption with a direct format name")
        outgoing = any(target.queue is not None and target.queue.kind is QueueKind.OUTGOING for target in targets)
        if outgoing and not encrypted:  # a key would say that the body is encrypted already
            message.symmetric_key = b""

    def _packet(self, descriptor: OpenQueueDescriptor, message: Message, transactional: bool) -> UserMessage:
        """What the sender has signed: the packet with what the queue manager will fill in."""
        signed = replace(
            message, destination_queue_format_name=(descriptor.parts or [descriptor])[0].name,
            destination_multi_queue_format_name=descriptor.name if descriptor.parts else "",
            source_machine_identifier=self._machine,
        )  # fmt: skip
        if transactional:
            signed.priority, signed.delivery_guarantee = 0, Delivery.RECOVERABLE
        check_message(signed)  # before anything is computed of it
        return user_message_of(signed)

    def _level(self, packet: UserMessage, body: bytes) -> int:
        try:
            return self._arrival.authenticate(packet, body)
        except ProtectionError:
            if self._arrival.policy.unverified_local_signatures:
                return 0
            raise
