"""Certificates of users in the directory ([MC-MQAC] 3.2.4.2.1, [MS-MQDMPR] 3.1.1.15)."""

from __future__ import annotations

import hashlib
from typing import Final
from uuid import uuid4

from Cryptodome.Util.asn1 import DerSequence

from openmsmq.directory.connection import DirectoryConnection
from openmsmq.directory.provider import Certificate
from openmsmq.model.errors import HResult, MsmqError

MAXIMUM_CERTIFICATE: Final = 64 * 1024  # bytes; real ones have 1 to 4 KB
MOST_CERTIFICATES: Final = 100  # of one user


async def register(directory: DirectoryConnection, sid: str | None, encoded: bytes) -> None:
    """Add an X.509 certificate to User.Certificates, in place of the same one.

    Args:
        sid: the caller's; None for an anonymous one.

    Raises MsmqError: MQ_ERROR_ILLEGAL_USER for an anonymous caller, MQ_ERROR_INVALID_CERTIFICATE,
    MQ_ERROR_INSUFFICIENT_RESOURCES, and what `DirectoryConnection.ask` raises.
    """
    if sid is None:
        raise MsmqError(HResult.MQ_ERROR_ILLEGAL_USER, "an anonymous caller has no certificates")
    check_certificate(encoded)
    digest = hashlib.md5(encoded, usedforsecurity=False).digest()
    try:
        known = (await directory.ask(lambda d: d.user(sid), HResult.MQ_ERROR_ILLEGAL_USER)).certificates
    except MsmqError as error:
        if error.hresult != HResult.MQ_ERROR_ILLEGAL_USER:
            raise
        known = ()  # deviation D-113: the directory knows users by their certificates
    if len(known) >= MOST_CERTIFICATES and digest not in (certificate.digest for certificate in known):
        raise MsmqError(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES, f"{sid} has {MOST_CERTIFICATES} certificates already")
    certificate = Certificate(digest, uuid4(), encoded)
    await directory.ask(lambda d: d.add_certificate(sid, certificate))


def check_certificate(encoded: bytes) -> None:
    """Raises MsmqError MQ_ERROR_INVALID_CERTIFICATE unless the bytes have the form of an X.509 certificate ([RFC3280]
    4.1): a SEQUENCE of the part that is signed, the algorithm and the signature. Nobody's signature is verified."""
    reason = f"{len(encoded)} bytes, at most {MAXIMUM_CERTIFICATE}"
    if len(encoded) <= MAXIMUM_CERTIFICATE:
        try:
            whole = DerSequence().decode(encoded, strict=True, nr_elements=3)
            signed = DerSequence().decode(bytes(whole[0] or b""), strict=True)
            DerSequence().decode(bytes(whole[1] or b""), strict=True)
            signature = whole[2]
            if len(signed) >= 6 and isinstance(signature, bytes) and signature[:1] == b"\x03":
                return
            reason = "it lacks fields"
        except (ValueError, TypeError, IndexError) as error:
            reason = str(error)
    raise MsmqError(HResult.MQ_ERROR_INVALID_CERTIFICATE, f"no X.509 certificate in DER: {reason}")
