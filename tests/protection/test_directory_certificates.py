"""The certificate cache in front of a slow directory."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from openmsmq.model.security import sid_text
from openmsmq.protection.directories import DirectoryUnavailable
from openmsmq.protection.directory_certificates import SECONDS, DirectoryCertificates, KnownSender
from protection.material import ALICE
from protection.world import Directory

MACHINE = UUID("6a2c1f00-7f5e-4a53-9d6e-3f1f6a1b7c10")
ONE, TWO, THREE = b"one", b"two", b"three"


class World:
    """Local files with one certificate of Alice, a directory with another."""

    def __init__(self) -> None:
        self.files, self.now, self.questions, self.away = Directory(), 0.0, 0, False
        self.files.users = {ALICE: [ONE]}
        self.registered = {sid_text(ALICE): [TWO]}
        self.groups: frozenset[str] = frozenset()
        self.of_machine = {MACHINE: [TWO]}
        self.certificates = self.cache()

    def cache(self, *, has_groups: bool = False) -> DirectoryCertificates:
        return DirectoryCertificates(
            self.files, self.ask, self.ask_machine, lambda: self.now, has_groups=has_groups
        )  # fmt: skip

    async def ask(self, sid: str) -> KnownSender:
        self.questions += 1
        if self.away:
            raise DirectoryUnavailable("no server")
        return KnownSender(self.registered.get(sid, ()), self.groups)

    async def ask_machine(self, identifier: UUID) -> KnownSender:
        self.questions += 1
        return KnownSender(self.of_machine.get(identifier, ()))

    def find(self, certificate: bytes, sid: bytes = ALICE) -> bool:
        """Look up a certificate like the arrival checks."""
        look_up = self.certificates.look_up(sid, certificate)
        if look_up is not None:
            asyncio.run(_await(look_up))
        return certificate in self.certificates.certificates_of_user(sid)


async def _await(look_up: object) -> None:
    await look_up  # type: ignore[misc]


def test_a_certificate_file_needs_no_lookup() -> None:
    world = World()
    assert world.find(ONE)
    assert world.questions == 0


def test_the_directory_is_queried_once_within_the_lifetime() -> None:
    world = World()
    assert world.find(TWO) and world.find(TWO)
    assert world.questions == 1
    world.now = SECONDS
    assert world.find(TWO)
    assert world.questions == 2


def test_a_certificate_registered_later_is_found() -> None:
    world = World()
    assert world.find(TWO) and not world.find(THREE)
    world.registered[sid_text(ALICE)].append(THREE)
    assert world.find(THREE)


def test_a_removed_certificate_is_forgotten_on_notice_or_after_the_lifetime() -> None:
    world = World()
    assert world.find(TWO)
    world.registered.clear()
    assert world.find(TWO)
    world.certificates.forget(ALICE)
    assert not world.find(TWO)


def test_an_unavailable_directory_differs_from_an_empty_one() -> None:
    world = World()
    world.away, world.files.users = True, {}
    with pytest.raises(DirectoryUnavailable, match="no server"):
        world.find(TWO)
    world.away = False
    assert world.find(TWO)


def test_unreadable_files_fail_the_verification() -> None:
    world = World()
    world.files.fails = True
    with pytest.raises(DirectoryUnavailable):
        world.find(ONE)


def test_invalid_sids_are_not_looked_up() -> None:
    world = World()
    assert not world.find(TWO, b"\1\2\3")
    assert world.questions == 0


def test_a_failing_directory_counts_as_unavailable() -> None:
    world = World()
    world.files.users, world.registered = {}, None  # type: ignore[assignment]
    with pytest.raises(DirectoryUnavailable, match="NoneType"):
        world.find(TWO)


def test_groups_are_asked_for_of_every_sender_where_the_directory_has_them() -> None:
    world = World()
    world.groups = frozenset(["S-1-5-21-1-2-3-1105"])
    assert world.find(ONE) and world.certificates.groups_of(ALICE) == frozenset()
    assert world.questions == 0  # the directory has no groups
    world.certificates = world.cache(has_groups=True)
    assert world.find(ONE) and world.find(ONE) and world.find(TWO)
    assert world.questions == 1
    assert world.certificates.groups_of(ALICE) == world.groups
    world.now = SECONDS
    assert world.certificates.groups_of(ALICE) == frozenset()


def test_certificates_of_a_queue_manager_are_not_those_of_a_sid_with_the_same_bytes() -> None:
    world = World()
    identifier = MACHINE.bytes_le
    look_up = world.certificates.look_up_machine(identifier, TWO)
    assert look_up is not None
    asyncio.run(_await(look_up))
    assert TWO in world.certificates.certificates_of_machine(identifier)
    assert world.certificates.look_up_machine(identifier, TWO) is None
    assert TWO not in world.certificates.certificates_of_user(identifier)
    assert world.certificates.look_up_machine(identifier[:8], TWO) is None
