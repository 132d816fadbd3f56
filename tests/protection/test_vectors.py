"""C15: known-answer tests, on which `cryptography` and `pycryptodomex` agree."""

from __future__ import annotations

import pytest
from Cryptodome.Cipher import AES, ARC2, ARC4, PKCS1_v1_5
from Cryptodome.Hash import SHA512
from Cryptodome.PublicKey import RSA
from Cryptodome.Signature import pkcs1_15

from openmsmq.packet.errors import BadPacket
from openmsmq.protection import algorithms
from openmsmq.protection.certificates import public_key_of
from openmsmq.protection.keys import pack_public_key, pack_sealed_key, unpack_public_key, unpack_sealed_key
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.protection.seal import decipher, encipher
from openmsmq.protection.sign import Version, sign, signed_bytes
from openmsmq.protection.unseal import unseal_body, unseal_key
from openmsmq.protection.verify import verify
from protection.material import certificate_of, key_of, public_of, signed_packet, vector_packet

PUBLIC_KEY = bytes.fromhex(
    "0602000000a40000525341310004000001000100a90e4b32a912150b68d60b4efbbc343e35338b26b9a314cfeee14c561cf23086"
    "aab121826abdd42fe6eaa451a712d4b10410af01f630eb198905f7b3e67a4e9fc4373343104a23da5c9ded7fadb48b05a827bb90"
    "89a7e50f771f5756486fcdb65f3f5353c1b5d8cc54aa904bdc8544b408fb225a1ef3603633214dfeaf4c24b8"
)
SIGNED = bytes.fromhex(
    "00000000000000000000000000000000000000000403020168656c6c6f4c00000010004f0053003a00610062005c007100000033"
    "221100554477668899aabbccddeeff010301050000080000000000000000000000000000000000000007000000"
)
SIGNATURE = bytes.fromhex(
    "2c8ed29287af15b002ea8744c0b15d320cfde8fc91dbf010b2acaa384fe804ac07c02fce8df60aa9c35d31ca8c2e0f50b25a636899"
    "e5d9c0839c798b9708f796225b824a5abb87ed6639029fa21bfb26742718616a74f6132bed221bb20ccf2e457c2afe345c31b3502b"
    "ae5c90f9f73eaacdca8a20660062e369e931993b3832"
)
SEALED_KEY = bytes.fromhex(
    "010200000e66000000a40000289e6e7df933b64d564eae6bf10e43214704220124c25e498d358d4e75dd31aec96a8fc5c35c167a13"
    "c4a9636243cf787f9d2d682ada4a93791e0f8176f270cfea9ebcf589413c064c88eacf3859bba78ed9a654bbbc965481b650551bd1"
    "a8902a1c6fdb9921b7a201bbe6d1d202826d261e0ba0e5174f104ab4a5eb6ed66816"
)
BODIES = {
    "AES-128": (algorithms.AES128, bytes(range(16)), b"hello", "5d8749e2af7531b2bf6661e9e5daf012"),
    "AES-256": (algorithms.AES256, bytes(range(32)), b"hello", "91684487c34c3456eb4e901cef884a1e"),
    "AES-256, nothing": (algorithms.AES256, bytes(range(32)), b"", "9f3b7504926f8bd36e3118e903a4cd4a"),
    "RC2-128": (algorithms.RC2, bytes(range(16)), b"hello", "ccd28f2b32cfd04c"),
    "RC2-40": (algorithms.RC2, bytes(range(5)), b"hello", "d1802eb250d19077"),
    "RC2-40 with 11 zeros": (algorithms.RC2, bytes(range(5)) + bytes(11), b"hello", "478da33c49db72e2"),
    "RC4-128": (algorithms.RC4, bytes(range(16)), b"hello", "81f92c9528"),
    "RC4-40": (algorithms.RC4, bytes(range(5)), b"hello", "9678675f8b"),
    "RC4-40 with 11 zeros": (algorithms.RC4, bytes(range(5)) + bytes(11), b"hello", "49ca432fd6"),
}


def cryptodome_key() -> RSA.RsaKey:
    numbers = key_of().private_numbers()
    return RSA.construct((numbers.public_numbers.n, numbers.public_numbers.e, numbers.d))


def test_c15_a_public_key_blob() -> None:
    assert pack_public_key(public_of(key_of())) == PUBLIC_KEY
    assert unpack_public_key(PUBLIC_KEY) == public_of(key_of())
    assert unpack_public_key(PUBLIC_KEY[8:]) == public_of(key_of())  # without BLOBHEADER, as possible in directories


def test_c15_the_data_of_a_2_0_signature_begins_with_that_of_1_0() -> None:
    assert signed_bytes(vector_packet(), Version.MSMQ_2, b"hello") == SIGNED
    assert signed_bytes(vector_packet(), Version.MSMQ_1, b"hello") == SIGNED[:51]


def test_c15_a_signature() -> None:
    assert sign(SIGNED, algorithms.SHA512, key_of()) == SIGNATURE
    assert pkcs1_15.new(cryptodome_key()).sign(SHA512.new(SIGNED))[::-1] == SIGNATURE
    packet = signed_packet()
    assert packet.security is not None and packet.security.signature == SIGNATURE
    assert verify(packet, b"hello", CryptoPolicy()) is Version.MSMQ_2


def test_c15_a_sealed_key() -> None:
    assert unpack_sealed_key(SEALED_KEY)[0] == algorithms.AES128
    assert unseal_key(SEALED_KEY, 16, key_of()) == (bytes(range(16)), True)
    encrypted = unpack_sealed_key(SEALED_KEY)[1]
    assert PKCS1_v1_5.new(cryptodome_key()).decrypt(encrypted, b"") == bytes(range(16))
    assert pack_sealed_key(algorithms.AES128, encrypted) == SEALED_KEY


@pytest.mark.parametrize("name", BODIES)
def test_c15_a_sealed_body(name: str) -> None:
    algorithm, key, body, expected = BODIES[name]
    assert encipher(body, algorithm, key).hex() == expected
    assert unseal_body(bytes.fromhex(expected), algorithm, key, True) == body


def test_c15_the_other_library_has_the_same_ciphers() -> None:
    body, key = bytes(range(48)), bytes(range(16))
    assert decipher(AES.new(key, AES.MODE_CBC, iv=bytes(16)).encrypt(body), algorithms.AES128, key) == body
    assert decipher(ARC4.new(key).encrypt(body), algorithms.RC4, key) == body
    assert (
        decipher(ARC2.new(key, ARC2.MODE_CBC, iv=bytes(8), effective_keylen=128).encrypt(body), algorithms.RC2, key)
        == body
    )


def test_a_signature_of_msmq_3_covers_only_the_list_of_destinations() -> None:
    packet = signed_packet(Version.MSMQ_3)
    before = signed_bytes(packet, Version.MSMQ_3, b"hello")
    assert packet.multi_queue is not None
    packet.multi_queue.response = packet.multi_queue.administration = packet.multi_queue.destination[:1]
    assert signed_bytes(packet, Version.MSMQ_3, b"hello") == before


def test_a_certificate_has_the_key_that_made_it() -> None:
    assert public_key_of(certificate_of()) == public_of(key_of())


@pytest.mark.parametrize(
    "damaged", [PUBLIC_KEY[:-1], PUBLIC_KEY + b"\0", b"\7" + PUBLIC_KEY[1:], PUBLIC_KEY[:8], b"",
                PUBLIC_KEY[:16] + bytes(4) + PUBLIC_KEY[20:]]
)  # fmt: skip
def test_a_damaged_key_is_refused(damaged: bytes) -> None:
    with pytest.raises(BadPacket):
        unpack_public_key(damaged)
