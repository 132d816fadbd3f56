"""Relays whose machines are not what they seem: the other machine is this one, or this one is a copy."""

from __future__ import annotations

import shutil
from copy import copy as duplicate
from pathlib import Path

from console.browser import ADMINISTRATOR, PASSWORD
from daemon import Daemon, eventually
from interop.moving import Move, connect, moving
from interop.test_moving_names import address, bodies, create, restart, send, shadow


def redirect(move: Move, host: str, port: int) -> None:
    """Let the name `old` lead to another address for the new machine, as after a change in DNS."""
    restart(move.new, "--peers", f"old={host}:{port}")


def test_a_relay_whose_name_leads_to_this_machine_moves_nothing_until_it_has_the_address(tmp_path: Path) -> None:
    with moving(tmp_path, 103) as move:
        create(move, "orders", "out")
        shadow(move, "orders")
        move.done("forward", "to", "out", "--to", "old")
        redirect(move, address(move.new), move.new.port)
        for name in ("orders", "out"):
            eventually(lambda name=name: "old leads to this machine" in move.status(name)["trouble"])  # type: ignore[misc]
            assert 'set peers = "old=' in move.status(name)["trouble"]
            send(move.new, f".\\private$\\{name}", name)
        with connect(move.new) as manager:
            counts = [manager.counts(f".\\private$\\{name}")["message_count"] for name in ("orders", "out")]
        assert counts == [1, 1]
        redirect(move, address(move.old), move.old.port)
        move.when("orders", empty_since=True, trouble="")
        eventually(lambda: bodies(move.old, r".\private$\out") == ["out"])


def test_an_alias_of_this_machine_with_the_address_of_the_other_one_is_no_loop(tmp_path: Path) -> None:
    with moving(tmp_path, 104, "--aliases", "old") as move:
        create(move, "orders")
        send(move.old, r".\private$\orders", "there")
        shadow(move, "orders")
        assert bodies(move.new, r".\private$\orders") == ["there"]


def test_the_relays_of_a_disconnected_machine_stop_and_continue_once_it_is_connected(tmp_path: Path) -> None:
    with moving(tmp_path, 105) as move, connect(move.new, user=ADMINISTRATOR, password=PASSWORD) as manager:
        create(move, "orders", "out")
        shadow(move, "orders")
        move.done("forward", "to", "out", "--to", "old")
        manager.disconnect_machine()
        send(move.new, r".\private$\out", "later")
        send(move.old, r".\private$\orders", "later")
        for name in ("orders", "out"):
            eventually(lambda name=name: "machine is disconnected" in move.status(name)["trouble"])  # type: ignore[misc]
        assert (bodies(move.new, r".\private$\orders"), bodies(move.new, r".\private$\out")) == ([], ["later"])
        eventually(lambda: bodies(move.old, r".\private$\orders") == ["later"])
        manager.connect_machine()
        for daemon, name in ((move.new, "orders"), (move.old, "out")):
            eventually(lambda at=daemon, name=name: bodies(at, f".\\private$\\{name}") == ["later"])  # type: ignore[misc]


def test_a_copy_takes_no_messages_of_the_original(tmp_path: Path) -> None:
    with moving(tmp_path, 106) as move:
        create(move, "orders")
        shadow(move, "orders")
        move.new.stop()
        shutil.copytree(move.new.directory, tmp_path / "copy")
        options = {"--listen": "127.0.106.3", "--computer-name": "COPY"}
        given = move.new.options
        copied = [options.get(before, each) for before, each in zip(("", *given), given, strict=False)]
        with Daemon(tmp_path / "copy", *copied, "--name-change", "copied") as copy:
            assert "end its relays" in copy.log
            send(move.old, r".\private$\orders", "of the original")
            there = duplicate(move)  # with its token, which the copy has, too
            there.new = copy
            eventually(lambda: "machine is disconnected" in there.status("orders")["trouble"])
            assert (bodies(copy, r".\private$\orders"), bodies(move.old, r".\private$\orders")) == (
                [], ["of the original"],
            )  # fmt: skip
            move.new.start()
            move.when("orders", moved=1, empty_since=True)
            assert bodies(copy, r".\private$\orders") == []
