"""Security of messages that arrive at this queue manager ([MS-MQQB] 3.1.5.8.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from openmsmq.model.constants import Acknowledge, MessageClass
from openmsmq.model.message import Message
from openmsmq.model.security import ANONYMOUS, EVERYONE, is_sid, sid_text
from openmsmq.packet.headers import NO_GUID, SecurityHeader
from openmsmq.packet.user_message import UserMessage
from openmsmq.protection.caches import RECEIVED_KEY_SECONDS, RECEIVED_KEYS, TimedCache
from openmsmq.protection.directories import CertificateDirectory, DirectoryUnavailable, OwnKeys
from openmsmq.protection.faults import CryptoFault, ProtectionError
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.protection.unseal import check_reduced, check_sealed, unseal_body, unseal_key
from openmsmq.protection.verify import is_signed, verify

SENDER_NONE, SENDER_SID, SENDER_QUEUE_MANAGER = range(3)  # SecurityHeader.Flags.ST
CLEAR_ONLY, ANY, ENCRYPTED_ONLY = range(3)  # PROPID_Q_PRIV_LEVEL, [MS-MQMQ] 2.3.1.12
# Refusals that reveal information: acknowledged only if SendInsecureNacks ([MS-MQQB] 3.1.7.15).
_INSECURE: Final = frozenset(
    [
        MessageClass.NACK_BAD_DST_Q, MessageClass.NACK_ACCESS_DENIED, MessageClass.NACK_BAD_SIGNATURE,
        MessageClass.NACK_BAD_ENCRYPTION, MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
    ]
)  # fmt: skip
_NO_SECURITY: Final = SecurityHeader()


class Demands(NamedTuple):
    """Requirements of the destination queue: PROPID_Q_AUTHENTICATE and PROPID_Q_PRIV_LEVEL."""

    authentication: bool = False
    privacy_level: int = ANY


class Accepted(NamedTuple):
    """The message may be delivered.

    Attributes:
        sender: SID, as text, for the access check of the queue.
        authentication_level: 0, 1, 3 or 5 ([MS-MQMP] 2.2.3.2).
        privacy_level: 0, or the level with which the body was encrypted in transit.
        body: the plain body.
    """

    sender: str
    authentication_level: int
    privacy_level: int
    body: bytes

    def apply(self, message: Message) -> None:
        """Set these results in the message created from the packet."""
        message.body = self.body
        message.authentication_level = self.authentication_level
        message.privacy_level = self.privacy_level


class Rejected(NamedTuple):
    """The message is dropped.

    Attributes:
        message_class: of the acknowledgments.
        administration: whether a negative administration acknowledgment is sent; without the body if that was
            encrypted.
        final: whether a negative FinalAck packet is sent.
        detail: for the log.
    """

    message_class: MessageClass
    administration: bool
    final: bool
    detail: str


Verdict: TypeAlias = Accepted | Rejected


class ArrivalProtection:
    """Checks the security of packets. One per queue manager; `clock` is a monotonic clock in seconds."""

    def __init__(
        self,
        policy: CryptoPolicy,
        keys: OwnKeys,
        certificates: CertificateDirectory,
        clock: Callable[[], float],
    ) -> None:
        self.policy: Final = policy
        self._keys: Final = keys
        self.certificates: Final = certificates
        self._clock: Final = clock
        self._received_keys: Final[TimedCache[tuple[int, int, bytes, bytes], bytes]] = TimedCache(
            RECEIVED_KEYS, RECEIVED_KEY_SECONDS
        )

    def look_up(self, packet: UserMessage) -> Awaitable[None] | None:
        """Return an awaitable that must end before `judge` is called: a directory query for the certificates of the
        sender. None if `judge` can be called immediately."""
        security = packet.security
        if security is None or not is_signed(packet):
            return None
        if security.sender_type == SENDER_QUEUE_MANAGER:
            return self.certificates.look_up_machine(security.sender, security.certificate)
        if security.sender_type != SENDER_SID:
            return None
        return self.certificates.look_up(security.sender, security.certificate)

    def judge(self, packet: UserMessage, demands: Demands) -> Verdict:
        """Decide whether to accept a packet for a queue of this machine. Packets in transit are not checked.

        Authentication claims in the packet are removed. Its body is not changed.
        """
        security = packet.security
        if security is not None:
            security.authenticated, security.signature_type = False, 0
        try:
            return self._accept(packet, security or _NO_SECURITY, demands)
        except ProtectionError as error:
            message_class = error.fault.value.message_class
            return Rejected(
                message_class,
                self.acknowledges(packet, message_class),
                packet.transaction is not None,
                error.detail,
            )

    def acknowledges(self, packet: UserMessage, message_class: MessageClass) -> bool:
        """Whether a refusal is reported to the administration queue of the sender ([MS-MQQB] 3.1.7.15)."""
        wanted = bool(packet.properties.acknowledge & Acknowledge.NEG_ARRIVAL)
        return wanted and (message_class not in _INSECURE or self.policy.send_insecure_nacks)

    def _accept(self, packet: UserMessage, security: SecurityHeader, demands: Demands) -> Accepted:
        encrypted = security.encrypted
        if demands.privacy_level == (CLEAR_ONLY if encrypted else ENCRYPTED_ONLY):
            wanted = "only clear bodies" if encrypted else "only encrypted bodies"
            raise ProtectionError(CryptoFault.PRIVACY_LEVEL, f"the queue takes {wanted}")
        # Applications sign the plain body, so it is decrypted first (deviation D-139).
        body = self._decrypted(packet) if encrypted else packet.properties.body
        level = self.authenticate(packet, body)
        check_authentication(demands.authentication, level, security.sender_type)
        return Accepted(sender_of(security), level, packet.properties.privacy_level if encrypted else 0, body)

    def _decrypted(self, packet: UserMessage) -> bytes:
        if packet.user.queue_manager_address == NO_GUID:
            raise ProtectionError(CryptoFault.BAD_ENCRYPTION, "a message to a direct format name cannot be decrypted")
        return self.decrypt(packet)

    # -- steps that are also used for local sends --------------------------------------------------------------

    def decrypt(self, packet: UserMessage) -> bytes:
        """Return the decrypted body of a packet encrypted for this queue manager. Raises ProtectionError."""
        properties, security = packet.properties, packet.security or _NO_SECURITY
        level, algorithm = properties.privacy_level, properties.encryption_algorithm
        sealed_key = security.encryption_key
        size = check_sealed(level, algorithm, sealed_key, properties.body, self.policy)
        known = (level, algorithm, packet.user.source_queue_manager, sealed_key)
        symmetric, right = self._received_keys.get(known, self._clock()), True
        is_new = symmetric is None
        if symmetric is None:
            key = self._private_key(level)
            if key is None:
                raise ProtectionError(
                    CryptoFault.BAD_ENCRYPTION, f"this queue manager has no key for privacy level {level}"
                )
            symmetric, right = unseal_key(sealed_key, size, key)
            right = check_reduced(level, algorithm, symmetric, right, self.policy)
        body = unseal_body(properties.body, algorithm, symmetric, right)
        if is_new:
            self._received_keys.put(known, symmetric, self._clock())
        return body

    def _private_key(self, level: int) -> RSAPrivateKey | None:
        try:
            return self._keys.private_key(level)
        except DirectoryUnavailable as error:
            raise ProtectionError(CryptoFault.BAD_ENCRYPTION, str(error)) from error

    def authenticate(self, packet: UserMessage, body: bytes) -> int:
        """Return AuthenticationLevel of a packet with this plain body: 0 without a signature. Raises
        ProtectionError."""
        if not is_signed(packet):
            return 0
        version = verify(packet, body, self.policy)
        security = packet.security or _NO_SECURITY
        if security.sender_type == SENDER_NONE or self._is_registered(security):
            return int(version)
        if self.policy.external_certificates:
            return 0
        raise ProtectionError(CryptoFault.UNKNOWN_SENDER, "the certificate is not registered for the sender")

    def _is_registered(self, security: SecurityHeader) -> bool:
        try:
            if security.sender_type == SENDER_SID:
                registered = self.certificates.certificates_of_user(security.sender)
            elif security.sender_type == SENDER_QUEUE_MANAGER:
                registered = self.certificates.certificates_of_machine(security.sender)
            else:
                return False
        except DirectoryUnavailable as error:
            raise ProtectionError(CryptoFault.UNKNOWN_SENDER, f"no directory answers: {error}") from error
        return security.certificate in registered


def check_authentication(demanded: bool, level: int, sender_type: int) -> None:
    """Check the authentication that a queue demands. Deviation D-140: a signature without a sender proves only
    integrity, so it does not satisfy a queue with PROPID_Q_AUTHENTICATE. Raises ProtectionError NOT_AUTHENTICATED."""
    if demanded and not (level and sender_type):
        raise ProtectionError(CryptoFault.NOT_AUTHENTICATED, "the queue accepts only messages of authenticated senders")


def sender_of(security: SecurityHeader) -> str:
    """Return the SID for the access check: Everyone for a queue manager, anonymous if there is no sender."""
    if security.sender_type == SENDER_QUEUE_MANAGER:
        return EVERYONE
    if security.sender_type == SENDER_SID and is_sid(security.sender):
        return sid_text(security.sender)
    return ANONYMOUS
