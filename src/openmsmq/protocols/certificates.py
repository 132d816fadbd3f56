"""Certificates of users in the directory ([MC-MQAC] 3.2.4.2.1, [MS-MQDMPR] 3.1.1.15)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID, uuid4

from Cryptodome.Util.asn1 import DerSequence

from openmsmq.directory.connection import DirectoryConnection
from openmsmq.directory.provider import Certificate
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.packet.errors import BadPacket
from openmsmq.protection.certificates import UserCertificate, digest_of, pack_certificates, unpack_certificates
from openmsmq.protection.directories import DirectoryUnavailable
from openmsmq.protection.directory_certificates import KnownSender
from openmsmq.protection.internal_certificates import make_certificate
from openmsmq.protection.keyring import KeyringError
from openmsmq.protocols.message_security import MessageSecurity

MAXIMUM_CERTIFICATE: Final = 64 * 1024  # bytes; typical certificates have 1 to 4 KB
MOST_CERTIFICATES: Final = 100  # per user


async def register(
    directory: DirectoryConnection, sid: str | None, encoded: bytes, leaving: bytes | None = None
) -> None:
    """Add an X.509 certificate to User.Certificates, replacing an identical one.

    Args:
        sid: SID of the caller; None if anonymous.
        leaving: digest of a certificate that will be removed next and does not count toward the limit.

    Raises MsmqError: MQ_ERROR_ILLEGAL_USER for an anonymous caller, MQ_ERROR_INVALID_CERTIFICATE,
    MQ_ERROR_INSUFFICIENT_RESOURCES, and the errors of `DirectoryConnection.ask`.
    """
    if sid is None:
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_USER, "an anonymous caller has no certificates")
    check_certificate(encoded)
    digest = digest_of(encoded)
    try:
        known = (await directory.ask(lambda d: d.user(sid), HResult.MQ_ERROR_ILLEGAL_USER)).certificates
    except MsmqError as error:
        if error.hresult != HResult.MQ_ERROR_ILLEGAL_USER:
            raise
        known = ()  # deviation D-113: the directory knows users by their certificates
    present = {certificate.digest for certificate in known}
    if len(present - {digest, leaving}) >= MOST_CERTIFICATES:
        raise MsmqError(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES, f"{sid} has {MOST_CERTIFICATES} certificates already")
    certificate = Certificate(digest, uuid4(), encoded)
    await directory.ask(lambda d: d.add_certificate(sid, certificate))


async def register_internal(
    directory: DirectoryConnection, security: MessageSecurity, sid: str | None, always: bool
) -> bool:
    """Create a certificate for a user, with whose key the queue manager signs for that user, and register it in place
    of the previous one ([MC-MQAC] 3.2.4.2.1). Returns False if there is one already, unless `always`.

    The new certificate is registered before its key is stored, and the old one is removed afterwards: if any step
    fails, the stored key belongs to a registered certificate.

    Raises MsmqError: as `register`, and MQ_ERROR_CANNOT_CREATE_CERT_STORE, MQ_ERROR_CORRUPTED_INTERNAL_CERTIFICATE.
    """
    store = security.internal
    if sid is None:
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_USER, "an anonymous caller has no certificates")
    if store is None:
        raise MsmqError(HResult.MQ_ERROR_CANNOT_CREATE_CERT_STORE, "this queue manager keeps no keys of users")
    async with security.registering:
        try:
            found = store.of_user(sid)
        except KeyringError as error:
            if not always:
                raise MsmqError(HResult.MQ_ERROR_CORRUPTED_INTERNAL_CERTIFICATE, str(error)) from None
            found = None  # an unreadable one is replaced
        if found is not None and not always:
            return False
        old = None if found is None else digest_of(found.encoded)
        made = await asyncio.to_thread(make_certificate, sid, security.own_rsa_bits, datetime.now(UTC))
        await register(directory, sid, made.encoded, old)
        try:
            await asyncio.to_thread(store.save, sid, made)
        except KeyringError as error:
            raise MsmqError(HResult.MQ_ERROR_CANNOT_CREATE_CERT_STORE, str(error)) from None
        if old is not None:
            await _remove(directory, sid, old)
            security.forget(sid)
    return True


async def _remove(directory: DirectoryConnection, sid: str, digest: bytes) -> None:
    """Remove a certificate, unless an administrator has already removed it. Raises the errors of
    `DirectoryConnection.ask`."""
    try:
        await directory.ask(lambda d: d.remove_certificate(sid, digest), HResult.MQ_ERROR_INVALID_CERTIFICATE)
    except MsmqError as error:
        if error.hresult != HResult.MQ_ERROR_INVALID_CERTIFICATE:
            raise


async def user_of(directory: DirectoryConnection, sid: str) -> KnownSender:
    """Return User.Certificates and groups; empty for a user unknown to the directory. Raises DirectoryUnavailable."""
    try:
        user = await directory.ask(lambda d: d.user(sid), HResult.MQ_ERROR_ILLEGAL_USER)
    except MsmqError as error:
        if error.hresult == HResult.MQ_ERROR_ILLEGAL_USER:
            return KnownSender()
        raise DirectoryUnavailable(str(error)) from error
    return KnownSender(frozenset(certificate.encoded for certificate in user.certificates), user.groups)


async def machine_of(directory: DirectoryConnection, identifier: UUID) -> KnownSender:
    """Return the certificates in QueueManager.PublicSigningKeyList (deviation D-138). Raises DirectoryUnavailable."""
    try:
        machine = await directory.ask(lambda d: d.machine(identifier), HResult.MQ_ERROR_MACHINE_NOT_FOUND)
        certificates = unpack_certificates(machine.signing_keys) if machine.signing_keys else []
    except BadPacket as error:
        raise DirectoryUnavailable(f"the signing keys of {identifier} can't be read: {error}") from error
    except MsmqError as error:
        if error.hresult == HResult.MQ_ERROR_MACHINE_NOT_FOUND:
            return KnownSender()
        raise DirectoryUnavailable(str(error)) from error
    return KnownSender(frozenset(entry.certificate for entry in certificates))


def certificates_in(encoded: bytes) -> list[Certificate]:
    """Return the certificates in MQUSERSIGNCERTS, for directories that store them in that form. Raises ValueError."""
    return [
        Certificate(entry.digest, UUID(bytes_le=entry.identifier), entry.certificate)
        for entry in unpack_certificates(encoded)
    ]


def certificates_to(certificates: Sequence[Certificate]) -> bytes:
    """Return MQUSERSIGNCERTS of certificates: the inverse of `certificates_in`."""
    return pack_certificates(UserCertificate(entry.identifier.bytes_le, entry.encoded) for entry in certificates)


def check_certificate(encoded: bytes) -> None:
    """Check that bytes have the form of an X.509 certificate ([RFC3280] 4.1): a SEQUENCE of the signed part, the
    algorithm and the signature. The signature is not verified. Raises MsmqError MQ_ERROR_INVALID_CERTIFICATE."""
    reason = f"{len(encoded)} bytes, at most {MAXIMUM_CERTIFICATE}"
    if len(encoded) <= MAXIMUM_CERTIFICATE:
        try:
            certificate = DerSequence().decode(encoded, strict=True, nr_elements=3)
            signed = DerSequence().decode(bytes(certificate[0] or b""), strict=True)
            DerSequence().decode(bytes(certificate[1] or b""), strict=True)
            signature = certificate[2]
            if len(signed) >= 6 and isinstance(signature, bytes) and signature[:1] == b"\x03":
                return
            reason = "it lacks fields"
        except (ValueError, TypeError, IndexError) as error:
            reason = str(error)
    raise MsmqError(HResult.MQ_ERROR_INVALID_CERTIFICATE, f"no X.509 certificate in DER: {reason}")
