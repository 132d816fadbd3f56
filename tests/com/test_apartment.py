"""Objects in an apartment of the client program."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from msrpc.ndr import Interface, Operation
from openmsmq.com import ComError, proxies
from openmsmq.com.apartment import Apartment


class Enumerator:
    """An exporter of a collection whose enumerator fails."""

    async def call(self, interface: Interface, ipid: bytes, operation: Operation, request: Any) -> Any:
        failed = operation.name == "Next"
        return SimpleNamespace(result=0x80004005 if failed else 0, pVarResult=None, rgVar=[], pCeltFetched=0)


def test_a_collection_that_cannot_be_enumerated_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "from_wire", lambda *_: SimpleNamespace(resolved=SimpleNamespace(value=None)))
    target = SimpleNamespace(exporter=Enumerator(), ipid=bytes(16))

    async def itself(*_: object) -> Any:
        return target

    collection: Any = SimpleNamespace(_oleobj_=target, _apartment=SimpleNamespace(adopt=itself, query=itself))
    member: Any = SimpleNamespace(dispid=-4)
    with pytest.raises(ComError, match="IEnumVARIANT::Next"):
        asyncio.run(proxies.ComCollection._enumerated(collection, member))


class Stopped(BaseException):
    """Raised by the handler of a signal."""


def test_a_call_that_a_signal_ends_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only by Ctrl-C: the receive of a service that SIGTERM ends must not take the next message."""
    apartment, begun, cancelled = Apartment("127.0.0.1"), threading.Event(), threading.Event()

    async def receive() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupted(*_: object) -> None:
        begun.wait()
        raise Stopped

    try:
        with monkeypatch.context() as patch:
            patch.setattr(Future, "result", interrupted)
            with pytest.raises(Stopped):
                apartment.run(receive())
        assert cancelled.wait(5)
    finally:
        apartment.close()
