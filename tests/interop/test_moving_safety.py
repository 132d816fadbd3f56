"""Relays whose machines are not what they seem."""

from __future__ import annotations

from pathlib import Path

from daemon import eventually
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
