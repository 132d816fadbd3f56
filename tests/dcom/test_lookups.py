"""Queries of objects to other parties: interfaces of a sink, format names in the directory."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from dcom.world import ComWorld
from msrpc.hresults import ComResult
from openmsmq.model.errors import ComError
from openmsmq.protocols.mqac import queue_info
from openmsmq.protocols.mqac.sinks import _first

IIDS = (UUID(int=1), UUID(int=2))


class Sink:
    """A sink with the given interfaces."""

    def __init__(self, *has: UUID) -> None:
        self._has = has

    async def query(self, ipid: bytes, iid: UUID) -> UUID:
        if iid not in self._has:
            raise ComError(ComResult.E_NOINTERFACE, str(iid))
        return iid


def test_a_sink_is_called_by_the_first_interface_that_it_has() -> None:
    for has, found in ((IIDS, IIDS[0]), (IIDS[1:], IIDS[1])):
        sink: Any = Sink(*has)
        assert asyncio.run(_first(sink, bytes(16), IIDS)) == found


def test_a_sink_without_any_of_the_interfaces_is_refused() -> None:
    sink: Any = Sink()
    with pytest.raises(ComError, match=str(IIDS[1])):
        asyncio.run(_first(sink, bytes(16), IIDS))


@pytest.mark.parametrize(("meanwhile", "found"), [("m\\q", "PUBLIC=1"), ("m\\other", None)])
def test_a_format_name_found_in_the_directory_is_that_of_the_right_queue(
    monkeypatch: pytest.MonkeyPatch, meanwhile: str, found: str | None
) -> None:
    info = ComWorld().new("QueueInfo")
    info.path_name = "m\\q"

    async def answers(environment: object, path_name: str) -> str:
        info.path_name = meanwhile
        return "PUBLIC=1"

    monkeypatch.setattr(queue_info, "format_name_in_directory", answers)
    asyncio.run(info._look_up("m\\q"))
    assert info.format_name == found
