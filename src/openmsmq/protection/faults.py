"""Faults in the security of a message, each with its message class and its error for a local sender."""

from __future__ import annotations

from enum import Enum, unique
from typing import NamedTuple

from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import HResult, MsmqError


class Answer(NamedTuple):
    """The class of a negative acknowledgment ([MS-MQMQ] 2.2.18.1.6) and the failure of a local send (2.4)."""

    message_class: MessageClass
    hresult: HResult


@unique
class CryptoFault(Enum):
    """Reason to refuse a message. [MS-MQQB] 3.1.5.8.3 specifies the classes of BAD_SIGNATURE, UNKNOWN_SENDER and
    BAD_ENCRYPTION, 3.1.7.1.5.1 those of COULD_NOT_ENCRYPT and NO_KEY, deviation D-131 the others."""

    BAD_SIGNATURE = Answer(MessageClass.NACK_BAD_SIGNATURE, HResult.MQ_ERROR_FAIL_VERIFY_SIGNATURE_EX)
    UNKNOWN_SENDER = Answer(MessageClass.NACK_BAD_SIGNATURE, HResult.MQ_ERROR_NO_INTERNAL_USER_CERT)
    NO_CERTIFICATE = Answer(MessageClass.NACK_BAD_SIGNATURE, HResult.MQ_ERROR_CERTIFICATE_NOT_PROVIDED)
    BAD_CERTIFICATE = Answer(MessageClass.NACK_BAD_SIGNATURE, HResult.MQ_ERROR_INVALID_CERTIFICATE)
    UNKNOWN_HASH = Answer(MessageClass.NACK_BAD_SIGNATURE, HResult.MQ_ERROR_CANNOT_CREATE_HASH_EX)
    HASH_IS_OFF = Answer(MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER, HResult.MQ_ERROR_CANNOT_HASH_DATA_EX)
    NOT_AUTHENTICATED = Answer(MessageClass.NACK_BAD_SIGNATURE, HResult.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED)
    BAD_ENCRYPTION = Answer(MessageClass.NACK_BAD_ENCRYPTION, HResult.MQ_ERROR_CORRUPTED_SECURITY_DATA)
    CIPHER_IS_OFF = Answer(
        MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER, HResult.MQ_ERROR_ENCRYPTION_PROVIDER_NOT_SUPPORTED
    )
    PRIVACY_LEVEL = Answer(MessageClass.NACK_BAD_ENCRYPTION, HResult.MQ_ERROR_ILLEGAL_OPERATION)
    COULD_NOT_ENCRYPT = Answer(MessageClass.NACK_COULD_NOT_ENCRYPT, HResult.MQ_ERROR_ENCRYPTION_PROVIDER_NOT_SUPPORTED)
    NO_KEY = Answer(MessageClass.NACK_COULD_NOT_ENCRYPT, HResult.MQ_ERROR_PUBLIC_KEY_NOT_FOUND)


class ProtectionError(Exception):
    """A message fails a security check. `detail` is for logs and local senders, never for peers."""

    def __init__(self, fault: CryptoFault, detail: str) -> None:
        super().__init__(f"{fault.name}: {detail}")
        self.fault = fault
        self.detail = detail

    def for_local_sender(self) -> MsmqError:
        """Return the error of a send to this queue manager."""
        return MsmqError(self.fault.value.hresult, self.detail)
