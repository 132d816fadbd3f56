"""Keys of queue managers in a directory."""

from __future__ import annotations

import pytest

from openmsmq.protection import algorithms
from openmsmq.protection.directory_keys import FRESH, MOST, DirectoryKeys
from openmsmq.protection.keys import DirectoryKey, RsaPublicKey, pack_directory_keys

HERE, THERE = bytes(15) + b"\1", bytes(15) + b"\2"


class KeysFile:
    def __init__(self) -> None:
        self.keys: dict[bytes, list[DirectoryKey]] = {}

    def public_keys_of(self, identifier: bytes) -> list[DirectoryKey]:
        return self.keys.get(identifier, [])


def key(modulus: int) -> DirectoryKey:
    provider = algorithms.PROVIDERS[algorithms.ADVANCED]
    return DirectoryKey(provider.name, provider.type, RsaPublicKey(modulus, 65537))


ONE, TWO = key((1 << 2047) + 1), key((1 << 2047) + 3)


def test_a_learned_key_is_used_until_replaced_and_a_file_takes_precedence() -> None:
    file, now = KeysFile(), [0.0]
    keys = DirectoryKeys(file, lambda: now[0])
    assert not keys.is_fresh(THERE) and list(keys.public_keys_of(THERE)) == []
    keys.learn(THERE, pack_directory_keys([ONE]))
    assert keys.is_fresh(THERE) and list(keys.public_keys_of(THERE)) == [ONE]
    now[0] = FRESH
    assert not keys.is_fresh(THERE) and list(keys.public_keys_of(THERE)) == [ONE]
    keys.learn(THERE, pack_directory_keys([TWO]))
    assert list(keys.public_keys_of(THERE)) == [TWO]
    file.keys[THERE] = [ONE]
    assert list(keys.public_keys_of(THERE)) == [ONE]
    file.keys.clear()
    keys.learn(THERE, b"")
    assert keys.is_fresh(THERE) and list(keys.public_keys_of(THERE)) == []


def test_unreadable_keys_are_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    keys = DirectoryKeys(KeysFile(), lambda: 0.0)
    whole = pack_directory_keys([ONE])
    for wrong in (b"x", whole[:-1], whole + b"x", bytes(len(whole))):
        keys.learn(THERE, wrong)
        assert list(keys.public_keys_of(THERE)) == []
    assert "invalid keys" in caplog.text


def test_the_number_of_kept_keys_is_bounded() -> None:
    keys = DirectoryKeys(KeysFile(), lambda: 0.0)
    keys.learn(HERE, pack_directory_keys([ONE]))
    for number in range(MOST):
        keys.learn(b"x" + number.to_bytes(15, "big"), b"")
    assert list(keys.public_keys_of(HERE)) == []
