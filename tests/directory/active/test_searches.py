"""Paged searches on a domain controller."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from openmsmq.directory.active.session import ControllerTimeout, LdapSession, Scope
from openmsmq.directory.provider import (
    DirectoryDenied,
    DirectoryError,
    DirectoryNotConnected,
    ObjectExists,
    ObjectNotFound,
)


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
        self.values: dict[str, list[bytes]] = {}

    def search_ext(self, base: str, scope: int, condition: str, attributes: list[str], serverctrls: list[Any]) -> int:
        self.asked.append(serverctrls)
        return len(self.asked)

    def result3(self, call: int) -> Any:
        page = self.pages.pop(0)
        cookie = FakeControl(True, cookie="")
        cookie.cookie = b"more" if self.pages else b""
        return None, [(name, dict(self.values)) for name in page], call, [cookie]


def session_of(connection: FakeConnection, monkeypatch: pytest.MonkeyPatch) -> Any:
    session = LdapSession.__new__(LdapSession)
    controls = SimpleNamespace(
        SimplePagedResultsControl=FakeControl, sss=SimpleNamespace(SSSRequestControl=FakeControl),
        LDAPControl=FakeControl,
    )  # fmt: skip
    made: Any = session
    made._ldap, made._connection = SimpleNamespace(controls=controls), connection
    monkeypatch.setattr(LdapSession, "_failures", lambda _, base: nullcontext())
    return made


def test_pages_are_put_together_and_no_controller_may_leave_a_control_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = session_of(FakeConnection(["a", "b"], ["c"]), monkeypatch)
    found = made.look("base", "(x=*)", ["nTSecurityDescriptor"], Scope.SUBTREE, order="cn").entries
    assert [entry.name for entry in found] == ["a", "b", "c"]
    for controls_of_page in made._connection.asked:
        assert [control.criticality for control in controls_of_page] == [True] * 3


def test_an_attribute_with_more_values_than_a_controller_returns_has_those_of_their_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = FakeConnection(["CN=group"])
    connection.values = {"cn": [b"group"], "member": [], "member;range=0-1499": [b"CN=a", b"CN=b"]}
    (found,) = session_of(connection, monkeypatch).search("base", "(x=*)", ["cn", "member"])
    assert found.values == {"cn": [b"group"], "member": [b"CN=a", b"CN=b"]}


class Refusal(Exception):
    """An error of python-ldap."""


@pytest.mark.parametrize(
    ("error", "becomes"),
    [("NO_SUCH_OBJECT", ObjectNotFound), ("ALREADY_EXISTS", ObjectExists), ("INSUFFICIENT_ACCESS", DirectoryDenied),
     ("TIMEOUT", ControllerTimeout), ("BUSY", DirectoryNotConnected), ("SERVER_DOWN", DirectoryNotConnected),
     # no LDAP, or the security layer has failed
     ("DECODING_ERROR", DirectoryNotConnected), ("LOCAL_ERROR", DirectoryNotConnected), ("OTHER", DirectoryError)],
)  # fmt: skip
def test_each_refusal_of_a_controller_has_its_error(error: str, becomes: type[Exception]) -> None:
    names = ("NO_SUCH_OBJECT", "ALREADY_EXISTS", "INSUFFICIENT_ACCESS", "REFERRAL", "TIMEOUT", "SERVER_DOWN",
             "CONNECT_ERROR", "UNAVAILABLE", "BUSY", "DECODING_ERROR", "LOCAL_ERROR", "OTHER")  # fmt: skip
    library = {name: type(name, (Refusal,), {}) for name in names}

    def refuse(*_: object) -> None:
        raise library[error]({"desc": "why"})

    made: Any = LdapSession.__new__(LdapSession)
    made._ldap, made._patience = SimpleNamespace(LDAPError=Refusal, **library), 5.0
    made._connection = SimpleNamespace(add_s=refuse)
    with pytest.raises(DirectoryError) as raised:
        made.add("CN=x", {"cn": [b"x"]})
    assert type(raised.value) is becomes
