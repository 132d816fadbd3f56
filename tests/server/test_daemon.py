"""The daemon itself: ports, protection, start and stop."""

from __future__ import annotations

import asyncio
import subprocess
from errno import EACCES

import pytest

import openmsmq
from command_line import command, invoke
from console.browser import ask, port_of
from daemon import Daemon, eventually
from msrpc.rpc.pdu import AuthLevel
from openmsmq.accounts.users import UsersFile
from openmsmq.model.constants import Access, Share
from openmsmq.model.message import Message
from openmsmq.model.names import parse_format_name
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.queue import Queue
from openmsmq.server import daemon as server
from openmsmq.server.config import Configuration
from openmsmq.server.listening import Ports
from openmsmq.server.loading import load


def test_a_second_daemon_on_the_same_directory_is_refused(tmp_path):
    with Daemon(tmp_path / "data") as running:
        second = subprocess.run(
            command("serve", "--data-dir", str(running.directory), "--rpc-port", "0"),
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert second.returncode == 1
        assert "another process uses this store" in second.stderr


def test_an_invalid_routing_file_is_named_and_the_daemon_does_not_start(tmp_path):
    (tmp_path / "routing.toml").write_text("[[router]]\n")
    settings = tmp_path / "openmsmq.toml"
    settings.write_text(f'routing_file = "{tmp_path / "routing.toml"}"\n')
    refused = subprocess.run(
        command("serve", "--data-dir", str(tmp_path / "data"), "--config", str(settings), "--rpc-port", "0"),
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert refused.returncode != 0
    assert "routing_file: " in refused.stderr and "unknown table 'router'" in refused.stderr


def test_sigterm_stops_cleanly_and_the_next_start_uses_the_checkpoint(tmp_path):
    service = Daemon(tmp_path / "data").start()
    with service.connect() as manager:
        queue = manager.create_queue(r".\private$\q", label="stays")
        with manager.open(queue, "send") as opened:
            opened.send("express")
            opened.send("recoverable", recoverable=True)
    assert service.stop() == 0
    service.start()
    with service.connect() as manager:
        assert manager.properties(queue, "label") == {"label": "stays"}
        with manager.open(queue, "peek") as opened:
            assert [m.decode() for m in opened] == ["recoverable"]
    assert service.stop() == 0
    assert "1 queues with 1 messages recovered from a checkpoint" in service.log


def written(service: Daemon) -> int:
    """Return the time of the last write to the store, in nanoseconds."""
    return max(file.stat().st_mtime_ns for file in (service.directory / "store").glob("segment-*"))


def test_aborted_receives_are_counted_even_if_the_daemon_is_killed_shortly_afterwards(tmp_path):
    path = r".\private$\t"
    with Daemon(tmp_path / "data") as service:
        with service.connect() as manager:
            manager.create_queue(path, transactional=True)
            with manager.open(path, "send") as sender, manager.transaction() as transaction:
                sender.send("poison", transaction=transaction)
        for _ in range(2):
            with service.connect() as manager, manager.open(path, protocol="qmcomm") as queue:
                transaction = manager.transaction()
                assert queue.receive(transaction=transaction).decode() == "poison"
                before = written(service)
                transaction.abort()
                eventually(lambda before=before: written(service) > before)  # no caller waits for it
            service.kill()
            service.start()
        with service.connect() as manager, manager.open(path, "peek", protocol="remoteread") as queue:
            assert queue.peek().abort_count == 2


def test_an_interface_with_a_minimum_level_refuses_weaker_callers(tmp_path):
    with Daemon(tmp_path / "data", "--interface-levels", "qmcomm2=privacy") as service:
        UsersFile(service.directory / "users.json").add("u", "p")
        for options, works in (({}, False), ({"user": "u", "password": "p"}, False),
                               ({"user": "u", "password": "p", "level": AuthLevel.PKT_PRIVACY}, True)):  # fmt: skip
            with service.connect(**options) as manager:
                if not manager.queues():
                    manager.create_queue(r".\private$\q")
                with manager.open(r".\private$\q", "send") as opened:
                    if works:
                        opened.send("x")
                    else:
                        with pytest.raises(openmsmq.MsmqError, match="refuses this caller"):
                            opened.send("x")


def test_anonymous_callers_can_be_refused(tmp_path):
    with Daemon(tmp_path / "data", "--no-allow-anonymous") as service:
        with pytest.raises(openmsmq.MsmqError, match="ACCESS_DENIED"):
            service.connect()
        UsersFile(service.directory / "users.json").add("u", "p")
        with service.connect(user="u", password="p") as manager:
            assert manager.machine_id


def test_undelivered_messages_expire_after_the_configured_time(tmp_path):
    with Daemon(tmp_path / "data", "--time-to-reach-queue", "1") as running, running.connect() as manager:
        with manager.open(r"DIRECT=OS:there\private$\q", "send") as queue:
            queue.send("lost", journaling_requested=1, recoverable=True)

        with manager.open("DIRECT=OS:.\\SYSTEM$;DEADLETTER") as dead:
            message = dead.receive(timeout=20)
        assert (message.decode(), message.message_class) == ("lost", 0x8002)
        eventually(lambda: manager.outgoing() == [])


def test_anonymous_callers_administer_only_if_configured(tmp_path):
    for options, connected in (((), "CONNECTED"), (("--anonymous-is-administrator",), "DISCONNECTED")):
        with Daemon(tmp_path / "data", *options) as running, running.connect() as manager:
            if options:
                manager.disconnect_machine()
            else:
                with pytest.raises(openmsmq.AccessDenied):
                    manager.disconnect_machine()
            assert manager.management()["connected"] == connected


def test_a_nearly_full_disk_refuses_sends_but_allows_receives_and_is_ready_for_them(tmp_path):
    with Daemon(tmp_path / "data") as service:
        with service.connect() as manager:
            manager.create_queue(".\\private$\\q")
            with manager.open(".\\private$\\q", "send") as sender:
                sender.send("before", recoverable=True)
        service.stop()
        service.options = ("--minimum-free-megabytes", str(1 << 40), "--web", "--web-port", "0")
        service.start()
        eventually(lambda: "refusing messages" in service.log)
        with service.connect() as manager:
            with manager.open(".\\private$\\q", "send") as sender:
                with pytest.raises(openmsmq.MsmqError, match="MQ_ERROR_INSUFFICIENT_RESOURCES"):
                    sender.send("after")
            with manager.open(".\\private$\\q") as receiver:
                assert receiver.receive(0).decode() == "before"
        ready = ask(service, "GET", "/readyz")
        assert ready.status == 200 and "disk: nearly full: no messages are accepted" in ready.text
        health = invoke("health", "--port", str(service.port), "--url", f"http://127.0.0.1:{port_of(service)}")
        assert health.code == 1 and "nearly full" in health.stdout


def test_a_change_that_fails_in_memory_stops_the_daemon_and_the_log_prevails(tmp_path, monkeypatch):
    def breaks(*arguments: object) -> None:
        raise AttributeError("a mistake in the queues")

    async def run() -> BaseException | None:
        started = server.Daemon(load(options=options, environment={}))
        await started.start()
        administration, handles = started.manager.administration, started.manager.handles
        administration.create_queue(".\\private$\\q", {}, None, SYSTEM)
        name = parse_format_name("DIRECT=OS:.\\private$\\q")
        sender = handles.open_queue(name, Access.SEND, Share.DENY_NONE, SYSTEM)
        await started._committer.drain()
        with monkeypatch.context() as patch:
            patch.setattr(Queue, "insert", breaks)
            with pytest.raises(openmsmq.MsmqError, match="STORAGE"):
                started.manager.sending.enqueue(sender, Message(delivery_guarantee=1))
        await asyncio.wait_for(started.stopping.wait(), 5)
        await started.stop()
        started.store.close()  # as at the end of the process
        return started.failure

    options = {"data_dir": tmp_path / "data", "port_offset": 0, "endpoint_mapper_port": 0, "rpc_port": 0}
    assert isinstance(asyncio.run(run()), AttributeError)
    with Daemon(tmp_path / "data") as service, service.connect() as manager:
        assert manager.counts(".\\private$\\q")["message_count"] == 0


class UnprivilegedRpc:
    """An RPC server of a user who may not open ports below 1024."""

    async def listen(self, address, port, table):
        if port < 1024:
            raise PermissionError(EACCES, "denied")
        return address, port


def test_without_privileges_all_standard_ports_are_moved(caplog):
    ports = Ports(Configuration())
    asyncio.run(ports.listen(UnprivilegedRpc(), None, None))
    address = Configuration().listen
    assert ports.endpoints == {"ept": (address, 10135), "qmcomm": (address, 12103)}
    assert "using port offset 10000" in caplog.text and ports.number("message_port") == 11801
    for given in ({"endpoint_mapper_port": 136}, {"port_offset": 1}):
        with pytest.raises(PermissionError, match="can't listen on"):
            asyncio.run(Ports(Configuration(**given)).listen(UnprivilegedRpc(), None, None))
