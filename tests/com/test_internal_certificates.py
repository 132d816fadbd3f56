"""Certificates that the queue manager makes for users, and signatures with them ([MC-MQAC] 3.2.4.2.1)."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

import openmsmq
from command_line import add_user
from daemon import Daemon, eventually
from msrpc.dcom.variant import NOTHING, VT, Variant, to_wire
from openmsmq.com import ComError, Dispatch, close_all
from openmsmq.directory.embedded import EmbeddedDirectory
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.protection import algorithms

ALWAYS, IF_NOT_EXIST = 1, 2
SIGNED = "DIRECT=OS:.\\private$\\signed"
OTHER = "DIRECT=OS:.\\private$\\other"
HERE = "127.0.0.2"


class World:
    """A queue manager with two users, each with their own objects."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.sids = {name: add_user(data, name, "secret") for name in ("alice", "bob")}
        self.daemon = self.started()
        with self.manager() as manager:
            manager.create_queue(".\\private$\\signed", authenticate=True)
            manager.create_queue(".\\private$\\other", authenticate=True)

    def started(self) -> Daemon:
        daemon = Daemon(self.data, "--listen", HERE)
        daemon.__enter__()
        return daemon

    def manager(self) -> openmsmq.QueueManager:
        return openmsmq.connect(HERE, self.daemon.port, user="alice", password="secret")

    def restart(self) -> None:
        self.close()
        self.daemon = self.started()

    def close(self) -> None:
        close_all()
        self.daemon.__exit__(None, None, None)

    def new(self, name: str, user: str = "alice") -> Any:
        return Dispatch(f"MSMQ.{name}", HERE, self.daemon.mapper_port, user=user, password="secret")

    def register(self, flags: int = ALWAYS, user: str = "alice") -> None:
        self.new("MSMQApplication", user).RegisterCertificate(flags)

    def opened(self, name: str, access: int, user: str = "alice") -> Any:
        info = self.new("MSMQQueueInfo", user)
        info.FormatName = name
        return info.Open(access, 0)

    def message(self, level: int, user: str = "alice", **members: Any) -> Any:
        message = self.new("MSMQMessage", user)
        message.Body, message.Label, message.AuthLevel = "hello", "L", level
        for member, value in members.items():
            setattr(message, member, value)
        return message

    def received(self, name: str = SIGNED) -> Any:
        return self.opened(name, 1).Receive(ReceiveTimeout=5000)

    def certificates(self, user: str = "alice") -> list[bytes]:
        async def ask() -> list[bytes]:
            directory = EmbeddedDirectory(self.data / "directory.sqlite")
            try:
                return [found.encoded for found in (await directory.user(self.sids[user])).certificates]
            finally:
                await directory.close()

        return asyncio.run(ask())

    def file(self, user: str = "alice") -> Path:
        return self.data / "keys" / "users" / f"{self.sids[user]}.pem"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "data")
    try:
        yield made
    finally:
        made.close()
    assert "Traceback" not in made.daemon.log, made.daemon.log


def refused(hresult: HResult) -> Any:
    return pytest.raises((MsmqError, ComError), check=lambda error: error.hresult & 0xFFFFFFFF == hresult)


def test_a_certificate_is_made_once_and_anew_when_it_is_asked_for(world: World) -> None:
    world.register(IF_NOT_EXIST)
    (first,) = world.certificates()
    world.register(IF_NOT_EXIST)
    assert world.certificates() == [first]
    world.register(ALWAYS)
    (second,) = world.certificates()
    assert second != first
    parsed = x509.load_der_x509_certificate(second)
    assert parsed.subject == parsed.issuer
    assert world.sids["alice"] in parsed.subject.rfc4514_string()
    assert stat.S_IMODE(world.file().stat().st_mode) == 0o600
    assert not world.file("bob").exists()


def test_the_result_says_that_there_is_one_already(world: World) -> None:
    application = world.new("MSMQApplication")
    apartment, operation = application._apartment, m.IMSMQApplication3.operation("RegisterCertificate")
    target = apartment.run(apartment.query(application._oleobj_, m.IMSMQApplication3.uuid))  # called through the vtable
    flags, missing = (to_wire(one, lambda target, by_dispatch: None) for one in (Variant(VT.I4, IF_NOT_EXIST), NOTHING))
    results = []
    for _ in range(2):
        assert operation.request is not None
        request = operation.request(a0=flags, a1=missing)
        call = target.exporter.call(m.IMSMQApplication3, target.ipid, operation, request)
        results.append(apartment.run(call).result)
    assert results == [0, HResult.MQ_INFORMATION_INTERNAL_USER_CERT_EXIST]


@pytest.mark.parametrize("level", [1, 4, 8])
def test_a_message_is_signed_for_its_sender(world: World, level: int) -> None:
    world.register()
    world.message(level).Send(world.opened(SIGNED, 2))
    got = world.received()
    assert (got.Body, got.ReceivedAuthenticationLevel, got.IsAuthenticated) == ("hello", 3, 1)
    assert (got.SenderCertificate, got.AuthenticationProviderType) == (world.certificates()[0], 1)


def test_a_message_for_several_queues_is_signed_with_msmq_3(world: World) -> None:
    world.register()
    world.message(1).Send(world.opened(f"{SIGNED},{OTHER}", 2))
    assert [world.received(name).ReceivedAuthenticationLevel for name in (SIGNED, OTHER)] == [5, 5]


def test_a_signature_covers_what_a_transaction_changes(world: World) -> None:
    with world.manager() as manager:
        manager.create_queue(".\\private$\\transactional", transactional=True, authenticate=True)
    world.register()
    name = "DIRECT=OS:.\\private$\\transactional"
    world.message(4, Priority=5, Delivery=0).Send(world.opened(name, 2), 3)
    assert world.received(name).ReceivedAuthenticationLevel == 3


def test_a_restarted_queue_manager_asks_the_directory_before_the_verdict(world: World) -> None:
    world.register()
    world.restart()
    world.message(4).Send(world.opened(SIGNED, 2))
    assert world.received().ReceivedAuthenticationLevel == 3


def test_a_user_without_certificate_cannot_sign(world: World) -> None:
    world.register(user="alice")
    queue = world.opened(SIGNED, 2, "bob")
    with refused(HResult.MQ_ERROR_NO_INTERNAL_USER_CERT):
        world.message(4, "bob").Send(queue)


def test_a_received_message_cannot_be_signed_in_its_senders_name(world: World) -> None:
    world.register()
    world.message(4).Send(world.opened(SIGNED, 2))
    got = world.opened(SIGNED, 1, "bob").Receive(ReceiveTimeout=5000)
    got.Body, got.AuthLevel = "bye", 4
    queue = world.opened(SIGNED, 2, "bob")
    with refused(HResult.MQ_ERROR_NO_INTERNAL_USER_CERT):
        got.Send(queue)
    world.register(user="bob")
    got.Send(queue)
    again = world.received()
    assert (again.Body, again.ReceivedAuthenticationLevel) == ("bye", 3)
    assert again.SenderCertificate == world.certificates("bob")[0]


def test_the_security_context_is_that_of_the_user_who_attached_it(world: World) -> None:
    world.register()
    message = world.message(4)
    message.AttachCurrentSecurityContext2()
    before = world.certificates()
    world.register()  # the context keeps the unregistered certificate
    queue = world.opened(SIGNED, 2)
    with refused(HResult.MQ_ERROR_NO_INTERNAL_USER_CERT):
        message.Send(queue)
    message.AttachCurrentSecurityContext()
    message.Send(queue)
    assert world.received().SenderCertificate == world.certificates()[0] != before[0]


@pytest.mark.slow
def test_a_certificate_that_was_removed_elsewhere_and_is_not_cached_is_refused(world: World) -> None:
    world.register()
    world.restart()

    async def remove() -> None:
        directory = EmbeddedDirectory(world.data / "directory.sqlite")
        try:
            (found,) = (await directory.user(world.sids["alice"])).certificates
            await directory.remove_certificate(world.sids["alice"], found.digest)
        finally:
            await directory.close()

    asyncio.run(remove())
    queue = world.opened(SIGNED, 2)
    with refused(HResult.MQ_ERROR_NO_INTERNAL_USER_CERT):
        world.message(4).Send(queue)


def test_only_hashes_that_protect_are_signed_with(world: World) -> None:
    world.register()
    queue = world.opened(SIGNED, 2)
    with refused(HResult.MQ_ERROR_CANNOT_HASH_DATA_EX):
        world.message(4, HashAlgorithm=algorithms.SHA1).Send(queue)
    world.message(4, HashAlgorithm=algorithms.SHA256).Send(queue)
    assert world.received().HashAlgorithm == algorithms.SHA256


@pytest.mark.slow
def test_a_certificate_of_another_key_is_not_signed_with(world: World) -> None:
    world.register(user="alice")
    world.register(user="bob")
    queue = world.opened(SIGNED, 2)
    with refused(HResult.MQ_ERROR_CANNOT_SIGN_DATA_EX):
        world.message(4, SenderCertificate=world.certificates("bob")[0]).Send(queue)
    world.message(4, SenderCertificate=world.certificates()[0]).Send(queue)
    assert world.received().ReceivedAuthenticationLevel == 3


def test_an_unreadable_file_is_reported_and_replaced(world: World) -> None:
    world.register()
    world.file().write_bytes(b"nonsense")
    queue = world.opened(SIGNED, 2)
    with refused(HResult.MQ_ERROR_CORRUPTED_INTERNAL_CERTIFICATE):
        world.message(4).Send(queue)
    with refused(HResult.MQ_ERROR_CORRUPTED_INTERNAL_CERTIFICATE):
        world.register(IF_NOT_EXIST)
    world.register(ALWAYS)
    world.message(4).Send(queue)
    assert world.received().ReceivedAuthenticationLevel == 3
    assert eventually(lambda: "can't be read" in world.daemon.log)
