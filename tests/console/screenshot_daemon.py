"""A daemon with realistic content, for screenshots of the console."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from console.browser import ADMINISTRATOR, PASSWORD, Client
from console.conftest import OPTIONS, users
from console.test_transactions import IN_DOUBT, leave
from daemon import Daemon, eventually

_ALARMS = ("--alarm-dead-letters", "10", "--alarm-by-queue", "orders:oldest=10, app05.events:oldest=10")
_NAMES = (
    "handles", "outgoing", "deadletters", "alarms", "jobs", "users", "tokens", "definitions", "backups", "clients",
    "moves", "sequences", "transactions", "settings", "audit", "queues", "new-queue",
)  # fmt: skip


@contextmanager
def shop(directory: Path) -> Iterator[tuple[Daemon, dict[str, str]]]:
    """Run a daemon with content. Yields it and the path of each page by page name."""
    users(directory)
    (directory.parent / "backups").mkdir()
    options = (*OPTIONS, *_ALARMS, "--backup-directory", str(directory.parent / "backups"),
               "--distributed-transactions", "none", "--computer-name", "shop")  # fmt: skip
    with Daemon(directory, *options) as daemon:
        client = Client(daemon)
        client.send(client.post("/queues", name="q", transactional=True, label="Payments")["id"], "old")
        daemon.stop()
        leave(directory, computer_name="shop")
        daemon.start()
        orders = client.post("/queues", name="orders", label="Orders of the web shop", quota=20)["id"]
        for number in range(40):
            client.send(orders, f"order {number}", text=f'{{"order": {number}, "lines": [{{"sku": "A-{number}"}}]}}',
                        priority=3, recoverable=True, response_queue="replies")  # fmt: skip
        slow = client.post("/queues", name="slow", journal=True)["id"]
        client.send(slow, *(f"invoice {number}" for number in range(50)), deadletter=True, time_to_be_received=1)
        for number in range(12):
            queue = client.post("/queues", name=f"app{number:02}.events")["id"]
            client.send(queue, *(f"event {each}" for each in range(3 * number)))
        with daemon.connect(user=ADMINISTRATOR, password=PASSWORD) as manager:
            for host in ("winserver", "203.0.113.9"):
                way = "TCP" if host[0].isdigit() else "OS"
                with manager.open(f"DIRECT={way}:{host}\\private$\\far", "send") as opened:
                    opened.send("x", label="far")
            reader = manager.open(".\\private$\\app03.events", "receive")
            eventually(lambda: client.get("/deadletters/groups")["groups"])
            job = client.post(f"/queues/{orders}/jobs", act="copy", label="order*", to="app01.events")["job"]["id"]
            eventually(lambda: client.get(f"/jobs/{job}")["job"]["state"] == "done")
            client.post("/tokens", name="nightly backup", role="operator")
            client.post("/groups", name="clerks", members=["bob"])
            client.post(f"/queues/{slow}/relay", host="oldserver.invalid")
            client.post("/backups", name="before-the-move")
            client.post("/alarms/silences", alarm="oldest", subject="app05.events", duration="2h",
                        reason="its reader is being replaced")  # fmt: skip
            client.put("/alarms/thresholds/outgoing", threshold=600)
            eventually(lambda: len(client.get("/alarms")["active"]) > 2, 120)
            lookup = client.messages(orders)[3]["lookup"]
            parts = ("subqueues", "activity", "readers", "rights", "settings", "send")
            yield daemon, {
                "overview": "/", **{name: f"/{name}" for name in _NAMES}, "queue": f"/queues/{orders}",
                "journal": f"/queues/{slow}j", **{f"queue-{part}": f"/queues/{orders}/{part}" for part in parts},
                "message": f"/queues/{orders}/messages/{lookup}", "edit": f"/queues/{orders}/messages/{lookup}/edit",
                "job": f"/jobs/{job}", "transaction": f"/transactions/{IN_DOUBT}", "missing": "/queues/p999999",
            }  # fmt: skip
            reader.close()
