"""Untrusted JSON."""

from __future__ import annotations

import pytest

from openmsmq.admin.checked_json import parsed


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b"-Infinity", b"1e999", b"{", b"\xff", b"[" * 100_000])
def test_invalid_json_gives_none(text: bytes) -> None:
    assert parsed(text) is None
