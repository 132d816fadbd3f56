"""An access error names the missing right and a command that grants it; the command works."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress

import pytest

import openmsmq
from command_line import add_user, at, checked
from daemon import Daemon, eventually
from openmsmq.model.rights import short_name
from openmsmq.model.roles import Role, missing_role

ORDERS = r".\private$\orders"
DEAD = r"DIRECT=OS:.\SYSTEM$;DEADLETTER"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    directory = tmp_path_factory.mktemp("rights") / "data"
    with Daemon(directory, "--no-anonymous-is-administrator", "--system-queue-readers", "") as running:
        add_user(directory, "root", "Passw0rd!", "--admin")
        add_user(directory, "night", "Passw0rd!")
        with running.connect(user="root", password="Passw0rd!") as manager:
            manager.create_queue(ORDERS)
            manager.create_queue(r".\private$\bills")
        yield running


ACTS = {
    "receive": (lambda qm: qm.open(ORDERS, "receive").close(), "queue grant orders USER ReceiveMessage"),
    "receive by qmcomm": (
        lambda qm: qm.open(r".\private$\bills", protocol="qmcomm").close(), "queue grant bills USER ReceiveMessage",
    ),
    "receive of a journal": (
        lambda qm: qm.open(ORDERS + ";journal").close(), "queue grant orders USER ReceiveJournalMessage"
    ),
    "peek at dead letters": (lambda qm: qm.open(DEAD, "peek").close(), "machine grant USER PeekDeadLetter"),
    "receive dead letters": (lambda qm: qm.open(DEAD).close(), "machine grant USER ReceiveDeadLetter"),
    "set properties": (
        lambda qm: qm.set_properties(ORDERS, label="x"), "queue grant orders USER SetQueueProperties"
    ),
    "delete": (lambda qm: qm.delete_queue(r".\private$\bills"), "queue grant bills USER DeleteQueue"),
    "see the permissions": (lambda qm: qm.security(ORDERS), "queue grant orders USER GetQueuePermissions"),
    "act on the machine": (lambda qm: qm.tidy(), "machine grant USER SetProperties"),
}  # fmt: skip


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_refusal_names_a_command_after_which_it_is_allowed(service, monkeypatch, act):
    monkeypatch.setenv("OPENMSMQ_PASSWORD", "Passw0rd!")
    do, command = act
    as_root = ("--data-dir", str(service.directory), "--yes")
    if command.startswith("queue"):
        as_root += ("--user", "root")
        queue, right = command.split()[2], command.split()[-1]
        checked("queue", "grant", queue, "night", right, "--deny", *as_root, **at(service))
    with (
        service.connect(user="night", password="Passw0rd!") as manager,
        pytest.raises(openmsmq.AccessDenied, match="is missing; an administrator grants it") as refused,
    ):
        do(manager)
    said = re.search(r"openmsmq ((?:queue|machine) grant .*)", str(refused.value)).group(1)
    assert said == command
    checked(*shlex.split(said.replace("USER", "night")), *as_root, **at(service))

    def is_allowed():
        with service.connect(user="night", password="Passw0rd!") as manager, suppress(openmsmq.AccessDenied):
            do(manager)
            return True
        return False

    eventually(is_allowed)  # the daemon checks for changed machine permissions once a second


def test_names_of_private_queues_are_short_in_commands():
    assert short_name(ORDERS) == short_name("DIRECT=OS:" + ORDERS) == "orders"
    for whole in (r".\private$\journal", r"DIRECT=OS:there\private$\orders", r".\orders", "PRIVATE=1\\2"):
        assert short_name(whole) == whole


def test_a_role_that_is_not_enough_names_the_command_that_gives_it():
    assert missing_role(Role.OPERATOR, "night", Role.MONITOR).endswith("openmsmq user role night operator")
    assert "the token 5f0c has the role monitor" in missing_role(Role.OPERATOR, "night", Role.MONITOR, "5f0c")
