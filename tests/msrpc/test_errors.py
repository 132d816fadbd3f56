"""The exception hierarchy, and programs that raise their own subclasses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from msrpc import errors
from msrpc.hresults import ComResult

PROGRAM = """
from msrpc.errors import RpcConnectionError, raised_class, raised_for
from msrpc.rpc.client import connect

class ProgramError(Exception):
    pass

@raised_for(RpcConnectionError)
class Lost(ProgramError, RpcConnectionError):
    hresult = 7

assert raised_class(RpcConnectionError) is Lost
try:
    connect("127.0.0.1", 1, timeout=60)
except ProgramError as error:
    print(type(error).__name__, error.hresult, isinstance(error, RpcConnectionError), isinstance(error, OSError))
"""


def test_a_program_gets_the_subclass_that_it_has_registered() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "Lost 7 True True\n"


def test_only_a_subclass_can_be_raised_for_an_error() -> None:
    class Other(errors.HResultError):
        pass

    with pytest.raises(ValueError, match="Other"):
        errors.raised_for(errors.RpcError)(Other)
    assert errors.raised_class(errors.RpcError) is errors.RpcError


def test_a_second_subclass_for_the_same_error_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_RAISED_AS", {})

    @errors.raised_for(errors.RpcError)
    class First(errors.RpcError):
        pass

    assert type(errors.RpcError("lost")) is First
    with pytest.raises(ValueError, match="First"):

        @errors.raised_for(errors.RpcError)
        class Second(errors.RpcError):
            pass


def test_an_error_shows_its_hresult_and_its_detail_without_what_a_terminal_obeys() -> None:
    assert str(errors.HResultError(0xC00E0003, "no \x1b[1m queue")) == r"0xC00E0003: no \x1b[1m queue"
    assert str(errors.HResultError()) == "0x80004005"


def test_the_name_of_an_error_of_com_is_that_of_its_hresult() -> None:
    error = errors.ComError(-0x7FFFBFFE)
    assert (error.hresult, error.name) == (ComResult.E_NOINTERFACE, "E_NOINTERFACE")


def test_the_user_of_a_refused_login_is_no_error_number() -> None:
    error = errors.AuthenticationError("wrong password", "anna")
    assert (str(error), error.user, error.errno, error.args) == ("wrong password", "anna", None, ("wrong password",))
