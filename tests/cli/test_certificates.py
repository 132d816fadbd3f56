"""Removal of certificates from a domain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from command_line import checked
from openmsmq.cli import keyring

SID = "S-1-5-21-1-2-3-1001"


def test_a_certificate_is_removed_from_the_domain_without_a_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[tuple[str, Callable[..., Any]]] = []
    monkeypatch.setattr(keyring, "_change_in_domain", lambda _, owner, change: changes.append((owner, change)))
    checked("certificates", "--data-dir", str(tmp_path), "remove", SID, "0a" * 16, "--domain")
    [(owner, change)] = changes
    directory = mock.Mock()
    change(directory, SID)
    assert owner == SID and directory.mock_calls == [mock.call.remove_certificate(SID, b"\n" * 16)]
