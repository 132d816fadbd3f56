"""Sockets of this machine, also at paths that are longer than the name of a socket."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from msrpc.rpc.unix_sockets import bind_unix, connect_unix

LONGEST = 107  # bytes of a socket's name


@pytest.mark.parametrize("length", [LONGEST, LONGEST + 1, 300])
def test_a_path_may_be_longer_than_the_name_of_a_socket(tmp_path: Path, length: int) -> None:
    directory = tmp_path
    while len(os.fsencode(directory)) + 1 < length - 100:
        directory /= "d" * 99
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / ("s" * (length - len(os.fsencode(directory)) - 1))
    before = len(os.listdir("/proc/self/fd"))
    with bind_unix(path):
        pass
    assert path.stat().st_mode & 0o777 == 0o600
    with bind_unix(path) as listener:  # it replaces what the first one left
        listener.listen()
        with connect_unix(str(path), 5) as client:
            client.sendall(b"here")
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.recv(10) == b"here"
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_socket_that_nobody_made_leaves_nothing_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in (tmp_path / "socket", tmp_path / ("d" * 120) / "socket"):
        with pytest.raises(FileNotFoundError):
            connect_unix(str(path), 5)
        with pytest.raises(FileNotFoundError):
            bind_unix(path / "inside" if path.parent == tmp_path else path)
    assert len(os.listdir("/proc/self/fd")) == before
