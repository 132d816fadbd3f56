"""Signed and encrypted messages with a daemon: commands for certificates and keys, sends and receives of the client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from command_line import checked, invoke
from daemon import Daemon
from openmsmq.client.sync import QueueManager
from openmsmq.conversion.packets import user_message_of
from openmsmq.directory.embedded import EmbeddedDirectory
from openmsmq.directory.provider import Certificate
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from openmsmq.protection import algorithms
from openmsmq.protection.certificates import digest_of
from openmsmq.protection.keys import pack_directory_keys, unpack_directory_keys
from openmsmq.protection.sign import Version, sign, signed_bytes
from protection.material import ALICE, certificate_of, key_of
from protection.world import published

SID = "S-1-5-21-1-2-3-1001"
OTHER = "aaaaaaaa-0000-0000-0000-000000000001"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("security") / "data") as running:
        yield running
    assert "Traceback" not in running.log


@pytest.fixture
def qm(service: Daemon) -> Iterator[QueueManager]:
    with service.connect() as manager:
        yield manager


def certificates(service: Daemon, *arguments: str) -> str:
    return checked("certificates", "--data-dir", str(service.directory), *arguments)


def keys(service: Daemon, *arguments: str) -> str:
    return checked("keys", "--data-dir", str(service.directory), *arguments)


def signed(qm: QueueManager, destination: str) -> Message:
    message = Message(
        b"hello", "L", sender_identifier_type=1, sender_identifier=ALICE, sender_certificate=certificate_of(),
        hash_algorithm=algorithms.SHA512, default_provider=True,
    )  # fmt: skip
    source = UUID(str(qm.machine_id)).bytes_le
    packet = user_message_of(
        replace(message, destination_queue_format_name=destination, source_machine_identifier=source)
    )
    message.signature = sign(signed_bytes(packet, Version.MSMQ_2, b"hello"), message.hash_algorithm, key_of())
    return message


def test_a_registered_certificate_makes_its_messages_authentic(
    service: Daemon, qm: QueueManager, tmp_path: Path
) -> None:
    name = ".\\private$\\signed"
    qm.create_queue(name, authenticate=True)
    message = signed(qm, f"DIRECT=OS:{name}")
    with qm.open(name, "send") as queue:
        with pytest.raises(MsmqError, match="certificates register") as refused:
            queue.send(message)
        assert refused.value.hresult == HResult.MQ_ERROR_NO_INTERNAL_USER_CERT
        file = tmp_path / "alice.pem"
        file.write_bytes(x509.load_der_x509_certificate(certificate_of()).public_bytes(Encoding.PEM))
        digest = certificates(service, "register", SID, str(file)).strip()
        assert digest == digest_of(certificate_of()).hex()
        queue.send(message)
        with pytest.raises(MsmqError, check=lambda e: e.hresult == HResult.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED):
            queue.send(b"unsigned")
        with pytest.raises(MsmqError, check=lambda e: e.hresult == HResult.MQ_ERROR_FAIL_VERIFY_SIGNATURE_EX):
            queue.send(replace(message, body=b"other"))
    (listed,) = [json.loads(line) for line in certificates(service, "list", "--json").splitlines()]
    assert (listed["owner"], listed["digest"], listed["rsa_bits"]) == (SID, digest, 1024)
    assert "CN=openmsmq" in certificates(service, "list")
    with qm.open(name) as queue:
        got = queue.receive(0)
    assert (got.authentication_level, got.body, got.signature) == (3, b"hello", message.signature)
    assert certificates(service, "export", SID, digest) == file.read_text()
    certificates(service, "remove", SID, digest)
    with qm.open(name, "send") as queue, pytest.raises(MsmqError):
        queue.send(message)


def test_public_keys_are_exported_for_others(service: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    keys(service, "export", str(file))
    (exported,) = unpack_directory_keys(file.read_bytes())
    assert (exported.provider, exported.key.bits) == (algorithms.PROVIDERS[algorithms.ADVANCED].name, 2048)
    (listed,) = [json.loads(line) for line in keys(service, "list", "--json").splitlines()]
    assert (listed["queue_manager"], listed["privacy_level"]) == ("this queue manager", 5)
    keys(service, "export", str(tmp_path / "again"))
    assert (tmp_path / "again").read_bytes() == file.read_bytes()


def test_private_messages_are_sent_to_a_queue_manager_whose_keys_are_known(
    service: Daemon, qm: QueueManager, tmp_path: Path
) -> None:
    name = f"PRIVATE={OTHER}\\00000007"
    with qm.open(name, "send") as queue:
        with pytest.raises(MsmqError, check=lambda e: e.hresult == HResult.MQ_ERROR_PUBLIC_KEY_NOT_FOUND):
            queue.send(b"secret", privacy_level=5)
        file = tmp_path / "there"
        file.write_bytes(pack_directory_keys(published(algorithms.ADVANCED)))
        keys(service, "register", OTHER, str(file))
        assert OTHER in keys(service, "list")
        queue.send(b"secret", privacy_level=5)
        keys(service, "remove", OTHER)
        with pytest.raises(MsmqError):
            queue.send(b"secret", privacy_level=5)


def test_commands_explain_errors(service: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "no-certificate"
    file.write_bytes(b"text")
    directory = ("--data-dir", str(service.directory))
    for arguments, said in (
        (("certificates", *directory, "register", SID, str(file)), "cannot use"),
        (("certificates", *directory, "register", "nobody", str(file)), "cannot use"),
        (("certificates", *directory, "remove", SID, "00"), "certificates list"),
        (("certificates", *directory, "remove", "nobody", "00"), "is not a user"),
        (("certificates", *directory, "export", SID, "zz"), "is not a digest"),
        (("keys", *directory, "register", "x", str(file)), "MQDSPUBLICKEYS"),
        (("keys", *directory, "remove", "x"), "is not a GUID"),
        (("keys", *directory, "remove", OTHER), "keys list"),
    ):
        ended = invoke(*arguments)
        assert ended.code in (1, 2) and said in ended.stderr, (arguments, ended)


def test_switches_are_a_table_of_the_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[security]\nunverified_local_signatures = true\n")
    with Daemon(tmp_path / "data", "--config", str(file)) as running, running.connect() as qm:
        qm.create_queue(".\\private$\\q")
        with qm.open(".\\private$\\q", "send") as queue:
            queue.send(signed(qm, "DIRECT=OS:elsewhere\\private$\\q"))
        with qm.open(".\\private$\\q") as queue:
            assert queue.receive(0).authentication_level == 0


def test_a_daemon_does_not_start_with_keys_that_others_may_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    checked("keys", "--data-dir", str(data), "export", str(tmp_path / "out"))
    (data / "keys" / "level-5.pem").chmod(0o644)
    with pytest.raises(RuntimeError, match="set its mode to 0600"):
        Daemon(data).start()


def test_certificates_of_the_directory_count_as_those_of_the_file(service: Daemon, qm: QueueManager) -> None:
    name = ".\\private$\\by-directory"
    qm.create_queue(name, authenticate=True)
    message = signed(qm, f"DIRECT=OS:{name}")
    encoded = certificate_of()
    record = Certificate(digest_of(encoded), UUID(int=1), encoded)

    async def change(work: Callable[[EmbeddedDirectory], Awaitable[None]]) -> None:
        directory = EmbeddedDirectory(service.directory / "directory.sqlite")
        try:
            await work(directory)
        finally:
            await directory.close()

    with qm.open(name, "send") as queue:
        with pytest.raises(MsmqError, check=lambda e: e.hresult == HResult.MQ_ERROR_NO_INTERNAL_USER_CERT):
            queue.send(message)
        asyncio.run(change(lambda directory: directory.add_certificate(SID, record)))
        queue.send(message)
    with qm.open(name) as queue:
        assert queue.receive(0).authentication_level == 3
    asyncio.run(change(lambda directory: directory.remove_certificate(SID, record.digest)))
