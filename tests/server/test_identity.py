"""A store that is opened with another computer name, and the listening ports of the daemon."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress

import pytest

import openmsmq
from command_line import at, checked, command
from daemon import Daemon, eventually, free_port
from openmsmq.server.config import ConfigurationError
from openmsmq.server.loading import load

NAME = ".\\private$\\orders"


def names_of(directory, name):
    return Daemon(directory, "--computer-name", name, "--name-change", "moved")


def test_a_store_under_another_name_continues_under_both(tmp_path):
    with names_of(tmp_path / "data", "OLD") as old, old.connect() as manager:
        manager.create_queue(NAME, label="kept")
        assert manager.queues() == ["OLD\\private$\\orders"]
    with names_of(tmp_path / "data", "new") as new, new.connect() as manager:
        assert "the computer name was OLD and is now new" in new.log
        manager.create_queue("NEW\\private$\\later")
        manager.create_queue("old\\private$\\later2")
        assert manager.queues() == ["new\\private$\\orders", "new\\private$\\later", "new\\private$\\later2"]
        for prefix in ("OLD", "new", "."):
            path = f"{prefix}\\private$\\orders"
            assert manager.properties(path, "label") == {"label": "kept"}
            assert manager.properties(path, "path_name_dns")["path_name_dns"].endswith("\\private$\\orders")
            with manager.open(f"DIRECT=OS:{path}", "send") as queue:
                queue.send(prefix)
        assert manager.counts("old\\private$\\orders")["message_count"] == 3
        assert not manager.outgoing()
        rows = [json.loads(line) for line in checked("queue", "list", "--json", **at(new)).splitlines()]
        assert [row["message_count"] for row in rows] == [0, 0, 3], "in the order of their names"
    with names_of(tmp_path / "data", "third") as third, third.connect() as manager:
        assert "the computer name was OLD, new and is now" in third.log
        assert manager.counts("new\\private$\\later")["message_count"] == 0
    with names_of(tmp_path / "data", "OLD") as again, again.connect() as manager:
        with manager.open("third\\private$\\orders", "peek"):
            assert not manager.outgoing()


def test_a_store_with_another_computer_name_is_refused_until_the_user_decides(tmp_path):
    data, path = tmp_path / "data", "DIRECT=OS:elsewhere\\private$\\q"
    with Daemon(data, "--computer-name", "one") as one, one.connect() as manager:
        manager.create_queue(NAME)
        identifier = manager.machine_id
        with manager.open(path, "send") as far:
            far.send("waits", recoverable=True)
    shutil.copytree(data, tmp_path / "copy")
    with pytest.raises(RuntimeError, match=f"belongs to the queue manager one .{identifier}.*name_change = moved"):
        Daemon(data, "--computer-name", "two").start()
    with Daemon(data, "--computer-name", "two", "--aliases", "one") as two, two.connect() as manager:
        assert manager.machine_id == identifier  # because of the alias
    with Daemon(data, "--computer-name", "two") as two, two.connect() as manager:
        assert manager.counts("one\\private$\\orders")["message_count"] == 0
    with Daemon(tmp_path / "copy", "--computer-name", "two", "--name-change", "copied") as two:
        with two.connect() as manager:
            assert manager.machine_id != identifier
            assert manager.management()["connected"] == "DISCONNECTED"
            assert manager.counts(NAME)["message_count"] == 0
            with manager.open("one\\private$\\orders", "send") as far:  # "one" is another machine now
                far.send("for the other one")
            assert len(manager.outgoing()) == 2
            identifier = manager.machine_id
    for connected in ("DISCONNECTED", "CONNECTED"):  # until an operator connects it
        options = ("--computer-name", "two", "--name-change", "copied", "--anonymous-is-administrator")
        with Daemon(tmp_path / "copy", *options) as two:
            with two.connect() as manager:
                assert manager.machine_id == identifier
                assert manager.management(None, "connected")["connected"] == connected
                assert "stays disconnected until" in two.log
                manager.connect_machine()


def test_messages_waiting_for_a_name_that_becomes_local_are_reported(tmp_path):
    with Daemon(tmp_path / "data") as daemon, daemon.connect() as manager:
        manager.create_queue(NAME)
        with manager.open("other\\private$\\orders", "send") as far:
            far.send("waits", recoverable=True)
    with Daemon(tmp_path / "data", "--aliases", "other, third") as daemon, daemon.connect() as manager:
        assert "1 messages wait in the outgoing queue DIRECT=OS:other\\private$\\orders" in daemon.log
        with manager.open("third\\private$\\orders", "send") as queue:
            queue.send("here")
        assert manager.counts(NAME)["message_count"] == 1


def test_an_alias_is_a_computer_name():
    assert load(options={"aliases": "a, b"}).alias_names == ("a", "b")
    with pytest.raises(ConfigurationError, match="aliases"):
        load(options={"aliases": "a;b"})


def test_an_offset_applies_to_default_ports_only():
    moved = load(options={"port_offset": 1000, "rpc_port": 4000})
    assert [moved.port(name, 1000) for name in ("endpoint_mapper_port", "rpc_port", "flight_port")] == [
        1135, 4000, 19020,
    ]  # fmt: skip


def taken():
    """Return a listener and its port. The port 11 above, which is tried next, is free."""
    while True:
        port = free_port("127.0.0.1")
        with suppress(OSError):
            socket.create_server(("127.0.0.1", port + 11)).close()
            return socket.create_server(("127.0.0.1", port)), port


def test_a_configured_port_in_use_is_an_error_that_names_the_setting(tmp_path):
    for option in ("endpoint-mapper-port", "rpc-port", "message-port"):
        listener, port = taken()
        said = rf"can't listen on 127.0.0.1:{port}.*{option.replace('-', '_')}"
        with listener, pytest.raises(RuntimeError, match=said):
            Daemon(tmp_path / option, f"--{option}", str(port)).start()


def test_a_default_port_in_use_is_replaced_by_the_next_one(tmp_path):
    listener, port = taken()
    with listener:
        serve = command("serve", "--data-dir", str(tmp_path / "data"))
        serve += ["--endpoint-mapper-port", "0", "--message-port", "0", "--port-offset", str(port - 2103)]
        process = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            ready = json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
        assert ready["endpoints"]["qmcomm"]["port"] == port + 11


@pytest.mark.skipif(not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"), reason="no IPv6 here")
def test_a_daemon_listens_on_an_address_of_ipv6_and_clients_reach_it(tmp_path):
    with Daemon(tmp_path / "data", "--listen", "::1") as daemon:
        for host in ("::1", "[::1]"):
            with openmsmq.connect(host, daemon.port) as manager:
                assert manager.machine_id
        assert eventually(lambda: "loopback only" in daemon.log)
