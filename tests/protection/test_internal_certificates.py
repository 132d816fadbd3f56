"""Files of the certificates that the queue manager makes for users."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from openmsmq.protection.internal_certificates import VALID, InternalCertificates, make_certificate

SID = "S-1-5-21-1-2-3-1001"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_certificate_is_kept_by_the_sid_of_its_user(tmp_path: Path) -> None:
    made = make_certificate(SID, 1024, NOW)
    kept = InternalCertificates(tmp_path)
    assert kept.of_user(SID) is None
    kept.save(SID, made)
    for seen in (kept, InternalCertificates(tmp_path)):
        found = seen.of_user(SID)
        assert found is not None and found.encoded == made.encoded
        assert found.key.private_numbers() == made.key.private_numbers()
        assert seen.of_user("S-1-5-21-1-2-3-1002") is None
    (file,) = (tmp_path / "keys" / "users").iterdir()
    assert file.name == f"{SID}.pem" and file.stat().st_mode & 0o777 == 0o600


def test_an_invalid_sid_is_not_used_as_a_file_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        InternalCertificates(tmp_path).of_user("../../etc/shadow")
    assert not list(tmp_path.rglob("*.pem"))


def test_a_certificate_names_its_user_and_ends_after_eight_years() -> None:
    certificate = x509.load_der_x509_certificate(make_certificate(SID, 1024, NOW).encoded)
    assert certificate.subject.rfc4514_string() == f"CN={SID}" == certificate.issuer.rfc4514_string()
    assert certificate.not_valid_before_utc == NOW and certificate.not_valid_after_utc == NOW + VALID
