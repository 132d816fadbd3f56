"""Keys derived from passwords (examples of RFC 3962), and keytab files that other programs read."""

from __future__ import annotations

from pathlib import Path

import pytest
from impacket.krb5.crypto import string_to_key
from impacket.krb5.keytab import Keytab

from msrpc.rpc.keytab import AES128, AES256, computer_salt, keys_of, pack_keytab


@pytest.mark.parametrize(
    ("iterations", "short", "long"),
    [
        (1, "42263c6e89f4fc28b8df68ee09799f15", "fe697b52bc0d3ce14432ba036a92e65bbb52280990a2fa27883998d72af30161"),
        (2, "c651bf29e2300ac27fa469d693bdda13", "a2e16d16b36069c135d5e9d2e25f896102685618b95914b467c67622225824ff"),
        (1200, "4c01cd46d632d01e6dbe230a01ed642a", "55a6ac740ad17b4846941051e1e8b0a7548d93b0ab30a8bc3ff16280382b8c2a"),
    ],
)
def test_the_examples_of_the_specification(iterations: int, short: str, long: str) -> None:
    keys = keys_of("password", "ATHENA.MIT.EDUraeburn", iterations)
    assert [(key.kind, key.octets.hex()) for key in keys] == [(AES256, long), (AES128, short)]


def test_another_implementation_derives_the_same_keys_of_a_computer() -> None:
    salt = computer_salt("rig.test", "MQ1")
    assert salt == "RIG.TESThostmq1.rig.test"
    for key in keys_of("Pässword", salt):
        assert string_to_key(key.kind, "Pässword", salt).contents == key.octets


def test_another_implementation_reads_the_file(tmp_path: Path) -> None:
    keys, path = keys_of("secret", "salt"), tmp_path / "keytab"
    path.write_bytes(pack_keytab(["MQ1$", "host/mq1.rig.test"], "RIG.TEST", 300, keys, 1_795_348_800))
    entries = Keytab.loadFile(str(path)).entries
    found = [
        (entry.main_part["principal"].prettyPrint(), entry.main_part["keyblock"]["keytype"], entry.rest[:4])
        for entry in entries
    ]
    version = (300).to_bytes(4, "big")
    assert found == [
        (principal, kind, version)
        for principal in (b"MQ1$@RIG.TEST", b"host/mq1.rig.test@RIG.TEST")
        for kind in (AES256, AES128)
    ]
    assert bytes(entries[0].main_part["keyblock"]["keyvalue"]["data"]) == keys[0].octets
