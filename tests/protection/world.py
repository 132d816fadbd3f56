"""Both ends of a transfer, with directories in memory and a clock set by the test."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from openmsmq.packet.user_message import UserMessage
from openmsmq.protection import algorithms
from openmsmq.protection.arrival import ArrivalProtection, Demands, Verdict
from openmsmq.protection.departure import DepartureProtection
from openmsmq.protection.directories import DirectoryUnavailable
from openmsmq.protection.keys import DirectoryKey
from openmsmq.protection.policy import CryptoPolicy
from protection.material import ALICE, HERE, certificate_of, key_of, over_the_wire, public_of


class Directory:
    """A directory of users, machines and keys in dictionaries."""

    def __init__(self) -> None:
        self.users: dict[bytes, list[bytes]] = {ALICE: [certificate_of()]}
        self.machines: dict[bytes, list[bytes]] = {}
        self.private = {level: key_of("here") for level in algorithms.PROVIDERS}
        self.published = {HERE: published(*algorithms.PROVIDERS)}
        self.fails = False

    def _answer(self) -> None:
        if self.fails:
            raise DirectoryUnavailable("no server")

    def look_up_machine(self, identifier: bytes, certificate: bytes) -> None:
        pass

    def look_up(self, sid: bytes, certificate: bytes) -> None:
        return None

    def forget(self, sid: bytes) -> None:
        pass

    def certificates_of_user(self, sid: bytes) -> Collection[bytes]:
        self._answer()
        return self.users.get(sid, ())

    def certificates_of_machine(self, identifier: bytes) -> Collection[bytes]:
        self._answer()
        return self.machines.get(identifier, ())

    def public_keys_of(self, identifier: bytes) -> Sequence[DirectoryKey]:
        self._answer()
        return self.published.get(identifier, ())

    def private_key(self, level: int) -> RSAPrivateKey | None:
        return self.private.get(level)


def published(*levels: int, name: str = "here") -> list[DirectoryKey]:
    """Return keys for the providers of some privacy levels."""
    providers = [algorithms.PROVIDERS[level] for level in levels]
    return [DirectoryKey(provider.name, provider.type, public_of(key_of(name))) for provider in providers]


class SenderAndReceiver:
    """A sender and a receiver with the same directory and policy."""

    def __init__(self, **switches: bool) -> None:
        self.directory, self.now, self.keys_drawn = Directory(), 0.0, 0
        policy = CryptoPolicy(**switches)  # type: ignore[arg-type]
        self.arrival = ArrivalProtection(policy, self.directory, self.directory, lambda: self.now)
        self.departure = DepartureProtection(policy, self.directory, self.random)

    def random(self, size: int) -> bytes:
        self.keys_drawn += 1
        return bytes((self.keys_drawn + place) & 0xFF for place in range(size))

    def sent(self, packet: UserMessage, level: int) -> UserMessage:
        """Return the packet as it arrives if its sender requests a privacy level."""
        packet.properties.privacy_level = level
        self.departure.protect(packet, HERE)
        return over_the_wire(packet)

    def judged(self, packet: UserMessage, authentication: bool = False, privacy_level: int = 1) -> Verdict:
        return self.arrival.judge(over_the_wire(packet), Demands(authentication, privacy_level))
