"""Objects in an apartment of the client program."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from msrpc.ndr import Interface, Operation
from openmsmq.com import ComError, proxies


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
