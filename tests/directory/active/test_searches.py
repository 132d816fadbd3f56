"""Paged searches on a domain controller."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from openmsmq.directory.active.session import LdapSession, Scope


class FakeControl:
    """A control like those of python-ldap."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.criticality = next(value for value in given if isinstance(value, bool))
        self.controlType, self.cookie = named.get("cookie") is not None, b""


class FakeConnection:
    """A connection that returns pages."""

    def __init__(self, *pages: list[str]) -> None:
        self.pages = list(pages)
        self.asked: list[Any] = []

    def search_ext(self, base: str, scope: int, condition: str, attributes: list[str], serverctrls: list[Any]) -> int:
        self.asked.append(serverctrls)
        return len(self.asked)

    def result3(self, call: int) -> Any:
        page = self.pages.pop(0)
        cookie = FakeControl(True, cookie="")
        cookie.cookie = b"more" if self.pages else b""
        return None, [(name, {}) for name in page], call, [cookie]


def test_pages_are_put_together_and_no_controller_may_leave_a_control_out(monkeypatch: pytest.MonkeyPatch) -> None:
    session = LdapSession.__new__(LdapSession)
    controls = SimpleNamespace(
        SimplePagedResultsControl=FakeControl, sss=SimpleNamespace(SSSRequestControl=FakeControl),
        LDAPControl=FakeControl,
    )  # fmt: skip
    made: Any = session
    made._ldap, made._connection = SimpleNamespace(controls=controls), FakeConnection(["a", "b"], ["c"])
    monkeypatch.setattr(LdapSession, "_failures", lambda _, base: nullcontext())
    found = session.look("base", "(x=*)", ["nTSecurityDescriptor"], Scope.SUBTREE, order="cn").entries
    assert [entry.name for entry in found] == ["a", "b", "c"]
    for controls_of_page in made._connection.asked:
        assert [control.criticality for control in controls_of_page] == [True] * 3
