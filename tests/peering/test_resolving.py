"""Next hops from the directory, for queue managers that the routing table does not contain."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from openmsmq.model.errors import HResult, MsmqError
from openmsmq.peering.resolving import ResolvedTarget, Resolver, Unknown, Unresolved
from openmsmq.transport.connecting import NextHop
from openmsmq.transport.routing import Manager, Routing

THERE = UUID(int=7)


class Records:
    """A directory with the record of one machine, or an error."""

    exists = True

    def __init__(self, found: SimpleNamespace | MsmqError) -> None:
        self._found = found

    async def ask(self, look: Callable[[Any], Any]) -> Any:
        return look(self)

    def machine(self, identifier: UUID) -> SimpleNamespace:
        assert identifier == THERE
        if isinstance(self._found, MsmqError):
            raise self._found
        return self._found


def hops(
    monkeypatch: pytest.MonkeyPatch, directory: Records | None, addresses: Mapping[str, Sequence[str]],
    routing: Routing | None = None, configured: Mapping[str, tuple[str, int]] | None = None,
) -> list[NextHop]:  # fmt: skip
    def look(host: str, *_: Any, **__: Any) -> list[Any]:
        if host not in addresses:
            raise socket.gaierror(socket.EAI_NONAME, f"no {host}")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look)
    resolver = Resolver(configured or {}, routing or Routing(bytes(16)), directory)  # type: ignore[arg-type]
    return asyncio.run(resolver.hops(ResolvedTarget(identifier=THERE.bytes_le)))


RECORD = SimpleNamespace(dns_names=("a.example", "b.example"), computer_name="A")


@pytest.mark.parametrize("name", ["a.example", "b.example", "A"])
def test_the_first_name_that_has_addresses_counts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = hops(monkeypatch, Records(RECORD), {name: ["192.0.2.1", "192.0.2.2"]})
    assert found == [NextHop(address, name, THERE.bytes_le) for address in ("192.0.2.1", "192.0.2.2")]


@pytest.mark.parametrize("known", [False, True])
def test_the_keys_of_a_routed_queue_manager_are_read_from_the_directory(known: bool) -> None:
    """Otherwise messages that waited during a restart could not be encrypted for it, and would be lost."""
    directory = Records(RECORD)
    asked: list[UUID] = []
    directory.machine = lambda identifier: asked.append(identifier) or RECORD  # type: ignore[method-assign,assignment]
    routing = Routing(bytes(16), [Manager(THERE.bytes_le, "192.0.2.1", ("A",)), Manager(bytes(16), "here", ("A",))])
    resolver = Resolver({}, routing, directory, lambda identifier: known)  # type: ignore[arg-type]
    found = asyncio.run(resolver.hops(ResolvedTarget(identifier=THERE.bytes_le)))
    assert found == [NextHop("192.0.2.1", "192.0.2.1", THERE.bytes_le)]
    assert asked == ([] if known else [THERE])


def test_an_address_in_the_settings_precedes_names_in_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"a.example": ["192.0.2.1"], "192.0.2.7": ["192.0.2.7"]}
    found = hops(monkeypatch, Records(RECORD), addresses, configured={"a": ("192.0.2.7", 0)})
    assert found == [NextHop("192.0.2.7", "A", THERE.bytes_le)]


@pytest.mark.parametrize("host", ["a..b", "h" * 64])
def test_a_name_that_no_host_can_have_is_not_resolved(host: str) -> None:
    """Messages for it wait with this reason, and are tried again."""
    resolver = Resolver({}, Routing(bytes(16)), None)
    with pytest.raises(Unresolved, match="no host can have this name"):
        asyncio.run(resolver.hops(ResolvedTarget(host=host)))


def test_names_without_addresses_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unresolved, match=r"none of the names of .* can be resolved: .*\bA\b"):
        hops(monkeypatch, Records(RECORD), {})


def test_a_machine_without_record_is_unknown_and_a_failing_directory_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(Unknown, match="has not connected since the start"):
        hops(monkeypatch, Records(MsmqError(HResult.MQ_ERROR_QUEUE_NOT_FOUND)), {})
    with pytest.raises(Unresolved, match="no address is known for") as failed:
        hops(monkeypatch, Records(MsmqError(HResult.MQ_ERROR_NO_DS)), {})
    assert not isinstance(failed.value, Unknown)


def test_a_router_whose_name_has_no_address_does_not_keep_messages_from_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, one, other = bytes([1]) * 16, bytes([2]) * 16, bytes([3]) * 16
    managers = [
        Manager(own, "here", out_routing_servers=(one, other)), Manager(one, "one"), Manager(other, "other"),
        Manager(THERE.bytes_le, "there"),
    ]  # fmt: skip
    routing = Routing(own, managers)
    assert hops(monkeypatch, None, {"other": ["192.0.2.3"]}, routing) == [NextHop("192.0.2.3", "other", other)]
    with pytest.raises(Unresolved, match=r"cannot resolve the name one: .*; cannot resolve the name other: "):
        hops(monkeypatch, None, {"there": ["192.0.2.9"]}, routing)
