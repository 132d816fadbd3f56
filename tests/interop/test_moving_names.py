"""Names by which programs find a queue that has moved: the settings that `adopt switch` prints work."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daemon import Daemon, eventually
from interop.moving import Move, connect, moving
from interop.mqqb_peer import Message as Packet
from interop.mqqb_peer import Peer

ORDERS = r"DIRECT=OS:old\private$\orders"


def address(daemon: Daemon) -> str:
    return daemon.options[daemon.options.index("--listen") + 1]


def bodies(daemon: Daemon, queue: str) -> list[object]:
    with connect(daemon) as manager, manager.open(queue, "peek") as opened:
        return [message.decode() for message in opened]


def send(daemon: Daemon, queue: str, body: str, **properties: object) -> None:
    with connect(daemon) as manager, manager.open(queue, "send") as opened:
        opened.send(body, recoverable=True, **properties)


def waiting(daemon: Daemon) -> int:
    """Return the number of messages that a queue manager has for the old machine."""
    with connect(daemon) as manager:
        return int(manager.management(ORDERS)["message_count"])


def create(move: Move, *names: str) -> None:
    for daemon in (move.old, move.new):
        with connect(daemon) as manager:
            for name in names:
                manager.create_queue(f".\\private$\\{name}")


def shadow(move: Move, name: str) -> None:
    move.done("adopt", "shadow", name, "--from", "old")
    move.when(name, empty_since=True)


def switch(move: Move, name: str) -> dict[str, str]:
    """Switch a queue. Returns the settings that the command prints, with the name of the new machine replaced by its
    address, as a resolver does."""
    said = move.done("adopt", "switch", name)
    settings = dict(re.findall(r'(\w+) = "([^"]*)"', said))
    return {key: value.replace("NEW", address(move.new)) for key, value in settings.items()}


def restart(daemon: Daemon, *options: str) -> None:
    daemon.stop()
    daemon.options = (*daemon.options, *options)
    daemon.start()


@contextmanager
def third(move: Move, directory: Path, host: str) -> Iterator[Daemon]:
    """A queue manager that sends to the old machine."""
    port = str(move.message_port)
    with Daemon(
        directory / "third", "--listen", host, "--computer-name", "THIRD", "--message-port", port,
        "--peer-message-port", port, "--peers", f"old={address(move.old)}",
    ) as daemon:  # fmt: skip
        yield daemon


def test_senders_find_a_queue_with_the_settings_printed_at_the_switch(tmp_path: Path) -> None:
    with moving(tmp_path, 97) as move, third(move, tmp_path, "127.0.97.3") as sender:
        create(move, "orders")
        shadow(move, "orders")
        send(sender, ORDERS, "before")
        eventually(lambda: bodies(move.new, r".\private$\orders") == ["before"])
        eventually(lambda: not waiting(sender))  # a message that the old machine has not acknowledged is resent
        settings = switch(move, "orders")
        assert settings.keys() == {"peers", "aliases"}
        move.old.kill()  # the message did not pass through the old machine
        restart(move.new, "--aliases", settings["aliases"])
        restart(sender, "--peers", settings["peers"])
        send(sender, ORDERS, "by peers")
        eventually(lambda: bodies(move.new, r".\private$\orders") == ["before", "by peers"])
        send(move.new, ORDERS, "by alias")  # DNS has directed the program here
        send(move.new, r"old\private$\orders", "by path name and alias")
        expected = ["before", "by peers", "by alias", "by path name and alias"]
        eventually(lambda: bodies(move.new, r".\private$\orders") == expected)
        move.old.start()


def test_a_move_back_warns_that_an_alias_would_loop_messages(tmp_path: Path) -> None:
    with moving(tmp_path, 98) as move:
        create(move, "orders")
        shadow(move, "orders")
        settings = switch(move, "orders")
        restart(move.new, "--aliases", settings["aliases"])
        send(move.new, r".\private$\orders", "for the old one")
        move.done("adopt", "back", "orders")
        eventually(lambda: "remove old from the setting aliases" in move.status("orders")["trouble"])
        restart(move.new, "--aliases", "")
        move.when("orders", empty_since=True, trouble="", unconfirmed=0)
        assert bodies(move.old, r".\private$\orders") == ["for the old one"]


def reply(move: Move, name: str) -> str:
    """Reply to the first request in a queue of the new machine, as programs do; returns the response queue."""
    with connect(move.new) as manager, manager.open(name) as requests:
        request = requests.receive(60)
        with manager.open(request.response_queue_format_name, "send") as responses:
            responses.send(f"reply to {request.decode()}", recoverable=True, correlation_identifier=request.identifier)
        return request.response_queue_format_name


def test_replies_to_a_moved_response_queue_arrive_through_the_old_machine_and_then_through_the_alias(
    tmp_path: Path,
) -> None:
    with moving(tmp_path, 99) as move:
        create(move, "requests", "replies")
        for number in range(3):
            send(move.old, r".\private$\requests", str(number),
                 response_queue_format_name=r"DIRECT=OS:old\private$\replies")  # fmt: skip
        with connect(move.old) as manager:
            identifiers = [message.identifier for message in manager.open("requests", "peek")]
        for name in ("requests", "replies"):
            shadow(move, name)
        assert reply(move, "requests") == r"DIRECT=OS:old\private$\replies"
        eventually(lambda: bodies(move.new, r".\private$\replies") == ["reply to 0"])
        settings = switch(move, "replies")
        reply(move, "requests")
        eventually(lambda: len(bodies(move.new, r".\private$\replies")) == 2)
        move.old.kill()
        restart(move.new, "--aliases", settings["aliases"])
        reply(move, "requests")
        eventually(lambda: len(bodies(move.new, r".\private$\replies")) == 3)
        with connect(move.new) as manager, manager.open("replies", "peek") as opened:
            assert [message.correlation_identifier for message in opened] == identifiers
        move.old.start()


def test_replies_to_a_private_format_name_arrive_if_the_routing_file_has_the_old_machine(
    tmp_path: Path,
) -> None:
    with moving(tmp_path, 100) as move:
        create(move, "requests", "replies")
        with connect(move.old) as manager:
            private = manager.format_name(r".\private$\replies")
            identifier = manager.machine_id
        assert private.lower().startswith(f"private={identifier}".lower())
        send(move.old, r".\private$\requests", "one", response_queue_format_name=private)
        for each in ("requests", "replies"):
            shadow(move, each)
        routing = tmp_path / "routing.toml"
        routing.write_text(
            f'[[queue_manager]]\nname = "OLD"\nidentifier = "{identifier}"\nhost = "{address(move.old)}"\n'
        )
        restart(move.new, "--routing-file", str(routing))
        assert reply(move, "requests") == private
        eventually(lambda: bodies(move.new, r".\private$\replies") == ["reply to one"])


def send_in_order(daemon: Daemon, *bodies: str) -> None:
    """Send each message in its own transaction to the queue of the old machine."""
    with connect(daemon) as manager, manager.open(ORDERS, "send") as opened:
        for body in bodies:
            with manager.transaction() as transaction:
                opened.send(body, transaction=transaction)


def senders(daemon: Daemon) -> list[dict[str, Any]]:
    """Return the queue managers that send transactional messages to the queue (by MS-MQMR)."""
    with connect(daemon) as manager:
        return list(manager.management(r".\private$\orders")["eod_source_info"])


def test_a_live_sender_of_transactions_is_known_before_and_after_the_move_and_keeps_its_order(tmp_path: Path) -> None:
    with moving(tmp_path, 101) as move, third(move, tmp_path, "127.0.101.3") as sender:
        for daemon in (move.old, move.new):
            with connect(daemon) as manager:
                manager.create_queue(r".\private$\orders", transactional=True)
        with connect(sender) as manager:
            identifier = manager.machine_id
        send_in_order(sender, "0", "1")
        eventually(lambda: bodies(move.old, r".\private$\orders") == ["0", "1"])
        (known,) = senders(move.old)
        assert (str(known["sender"]), known["reject_count"]) == (str(identifier), 0)
        assert known["format_name"] and known["last_access_time"] > 0
        found = json.loads(move.done("adopt", "inventory", address(move.old), "--port", str(move.old.port), "--json"))
        (listed,) = [each["senders"] for each in found["queues"] if each["name"] == "orders"]
        assert [each["queue_manager"] for each in listed] == [str(identifier)]
        said = [each["said"] for each in found["remarks"] if each["about"] == "orders"]
        assert "transactional messages come from 1 queue manager" in said
        shadow(move, "orders")
        assert bodies(move.new, r".\private$\orders") == ["0", "1"]
        assert senders(move.new) == [], "a relay is not a queue manager that sends in order"
        send_in_order(sender, "2", "3")
        eventually(lambda: bodies(move.new, r".\private$\orders") == ["0", "1", "2", "3"])
        eventually(lambda: not waiting(sender))
        settings = switch(move, "orders")
        move.when("orders", empty_since=True, waiting=0, unconfirmed=0)
        move.old.kill()
        restart(move.new, "--aliases", settings["aliases"])
        restart(sender, "--peers", settings["peers"])
        send_in_order(sender, "4", "5")
        eventually(lambda: bodies(move.new, r".\private$\orders") == ["0", "1", "2", "3", "4", "5"])
        (known,) = senders(move.new)
        assert (str(known["sender"]), known["reject_count"]) == (str(identifier), 0)
        move.old.start()


def sent_by_hand(daemon: Daemon, port: int, *messages: Packet) -> None:
    """Deliver messages in a separate session, which ends when all are acknowledged."""
    with Peer(address(daemon), port) as peer:
        peer.open()
        for message in messages:
            peer.send(message)
        while peer.acknowledged < len(messages):
            assert peer.read(60) is not None


def test_a_message_sent_here_after_a_relay_fetched_it_is_a_duplicate(tmp_path: Path) -> None:
    with moving(tmp_path, 102, "--aliases", "old") as move:
        create(move, "orders")
        saved, express, later = (
            Packet(b"\x77" * 16, number, r"OS:old\private$\orders", recoverable=number != 2) for number in (1, 2, 3)
        )
        sent_by_hand(move.old, move.message_port, saved, express)
        shadow(move, "orders")
        move.when("orders", moved=2)
        sent_by_hand(move.new, move.message_port, saved, express, later)
        eventually(lambda: len(bodies(move.new, r".\private$\orders")) == 3)
        move.new.kill()
        move.new.start()
        last = Packet(b"\x77" * 16, 4, r"OS:old\private$\orders", recoverable=True)
        sent_by_hand(move.new, move.message_port, saved, last)
        with connect(move.new) as manager, manager.open("orders", "peek") as opened:
            numbers = [int.from_bytes(message.identifier[16:], "little") for message in opened]
        assert sorted(number for number in numbers if number != 2) == [1, 3, 4], "an express message is gone"
