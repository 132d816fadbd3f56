"""Keys and certificates in files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openmsmq.files.private import write_private
from openmsmq.protection import algorithms
from openmsmq.protection.certificates import UserCertificate
from openmsmq.protection.keyring import CertificatesFile, KeyFiles, KeyringError, PeerKeysFile
from openmsmq.protection.policy import CryptoPolicy
from protection.material import ALICE, BOB, HERE, THERE, certificate_of
from protection.world import published

SID = "S-1-5-21-1-2-3-1001"
SMALL = CryptoPolicy(own_rsa_bits=1024)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_keys_are_made_once_for_the_levels_that_are_allowed_and_nobody_else_reads_them(tmp_path: Path) -> None:
    keys = KeyFiles(tmp_path)
    assert not keys.public_keys() and not (tmp_path / "keys").exists()
    (made,) = keys.ensure(SMALL)
    assert (made.provider, made.key.bits) == (algorithms.PROVIDERS[5].name, 1024)
    assert (mode(tmp_path / "keys"), mode(tmp_path / "keys" / "level-5.pem")) == (0o700, 0o600)
    assert keys.ensure(SMALL) == KeyFiles(tmp_path).ensure(SMALL) == [made]
    assert len(keys.ensure(CryptoPolicy(own_rsa_bits=1024, allow_rc4=True))) == 3
    assert [path.name for path in sorted((tmp_path / "keys").iterdir())] == [f"level-{n}.pem" for n in (1, 3, 5)]


def test_own_keys_have_2048_bits(tmp_path: Path) -> None:
    (made,) = KeyFiles(tmp_path).ensure(CryptoPolicy())
    assert made.key.bits == 2048


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")
def test_what_root_makes_belongs_to_the_owner_of_the_data_directory(tmp_path: Path) -> None:
    os.chown(tmp_path, 1234, 1234)
    KeyFiles(tmp_path).ensure(SMALL)
    PeerKeysFile(tmp_path).register(THERE, published(5))
    made = [tmp_path / "keys", tmp_path / "keys" / "level-5.pem", tmp_path / "peer-keys.json"]
    assert [path.stat().st_uid for path in made] == [1234] * 3


@pytest.mark.parametrize("damage", ["mode", "content"])
def test_a_key_that_others_may_read_or_that_is_none_is_refused(tmp_path: Path, damage: str) -> None:
    KeyFiles(tmp_path).ensure(SMALL)
    path = tmp_path / "keys" / "level-5.pem"
    path.chmod(0o640) if damage == "mode" else path.write_bytes(b"no key")
    with pytest.raises(KeyringError, match=r"level-5\.pem"):
        KeyFiles(tmp_path).private_key(5)


def test_certificates_are_kept_by_owner(tmp_path: Path) -> None:
    first, second = (UserCertificate(bytes([n]) * 16, certificate_of(name)) for n, name in enumerate(("a", "b")))
    registered = CertificatesFile(tmp_path)
    registered.register(SID, first)
    registered.register(SID, second)
    registered.register(SID, second)
    registered.register("aaaaaaaa-0000-0000-0000-000000000001", second)
    again = CertificatesFile(tmp_path)
    assert mode(tmp_path / "certificates.json") == 0o600
    assert again.all()[SID] == [first, second]
    assert again.certificates_of_user(ALICE) == {first.certificate, second.certificate}
    assert again.certificates_of_machine(THERE) == {second.certificate}
    assert not again.certificates_of_user(BOB) and not again.certificates_of_machine(HERE)
    assert not again.certificates_of_user(b"no SID") and not again.certificates_of_machine(b"no GUID")
    assert registered.remove(SID, first.digest) and registered.remove(SID, first.digest) is False
    assert again.certificates_of_user(ALICE) == {second.certificate}  # notices the change
    assert registered.remove(SID, second.digest)
    assert SID not in again.all()


def test_keys_of_others_are_kept_by_queue_manager(tmp_path: Path) -> None:
    peers = PeerKeysFile(tmp_path)
    peers.register(THERE, published(5))
    peers.register(HERE, published(1, 3))
    again = PeerKeysFile(tmp_path)
    assert (list(again.public_keys_of(THERE)), len(again.public_keys_of(HERE))) == (published(5), 2)
    assert again.remove(HERE) and not again.remove(HERE)
    assert not peers.public_keys_of(HERE)


def test_commands_at_the_same_time_do_not_lose_each_others_changes(tmp_path: Path) -> None:
    def register(number: int) -> None:
        identifier = bytes([number]) * 16
        PeerKeysFile(tmp_path).register(identifier, published(5))
        CertificatesFile(tmp_path).register(SID, UserCertificate(identifier, identifier))

    with ThreadPoolExecutor(8) as commands:
        list(commands.map(register, range(40)))
    assert len(PeerKeysFile(tmp_path).all()) == len(CertificatesFile(tmp_path).all()[SID]) == 40


def test_a_file_that_is_damaged_meanwhile_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    registered = CertificatesFile(tmp_path)
    registered.register(SID, UserCertificate(bytes(16), certificate_of()))
    good = (tmp_path / "certificates.json").read_bytes()
    for content, lines in ((b"damaged", 1), (good, 1), (b"damaged", 2)):
        write_private(tmp_path / "certificates.json", content)
        for _ in range(2):
            if content == good:
                assert registered.certificates_of_user(ALICE)
            else:
                with pytest.raises(KeyringError):
                    registered.certificates_of_user(ALICE)
        assert len(caplog.messages) == lines


@pytest.mark.parametrize("content", [b"", b"[]", b'{"S-1": 5}', b'{"S-1": "AAAA"}', b"\xff"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    write_private(tmp_path / "certificates.json", content)
    with pytest.raises(KeyringError, match=r"certificates\.json"):
        CertificatesFile(tmp_path).all()
