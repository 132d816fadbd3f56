"""Error messages of the command line and the client name the queue, the limit and the remedy."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

import openmsmq
from command_line import at, invoke
from daemon import Daemon
from openmsmq.model.bodies import BodyError
from openmsmq.model.errors import HResult
from openmsmq.model.security import SecurityDescriptor

QUEUE, LEDGER, MISSING = r".\private$\q", r".\private$\ledger", r".\private$\missing"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("people") / "data") as running:
        with running.connect() as manager:
            manager.create_queue(QUEUE)
            manager.create_queue(LEDGER, transactional=True)
        yield running


@pytest.fixture
def qm(service):
    with service.connect() as manager:
        yield manager


@pytest.fixture
def run(service):
    def run(*arguments, code=0, **environment):
        result = invoke(*arguments, **{**at(service), **environment})
        assert result.code == code, (arguments, *result)
        return result.stdout + result.stderr

    return run


def test_a_missing_queue_is_named_by_every_command(qm):
    for operation in (qm.open, qm.delete_queue, qm.properties, qm.counts, qm.security, qm.format_name):
        with pytest.raises(openmsmq.QueueNotFound, match="missing"):
            operation(MISSING)
    with pytest.raises(openmsmq.QueueNotFound, match="missing"):
        qm.open(MISSING, "send")


def test_a_property_that_is_no_number_is_named(run):
    for text in ("quota=many", "quota=", "delivery_limit=0x"):
        assert f"{text!r}: expected a whole number" in run("queue", "set", QUEUE, text, code=2)


def test_what_a_domain_needs_is_named_with_what_to_do(run, tmp_path):
    said = run("domain", "status", code=1, OPENMSMQ_DATA_DIR=str(tmp_path))
    assert "missing" in said and ("kerberos_keytab" in said or "openmsmq[domain]" in said)
    [last] = [json.loads(line) for line in run("domain", "status", "--json", code=1).splitlines()][-1:]
    assert last["ok"] is False and last["advice"]


def test_a_label_that_would_be_cut_is_refused(qm):
    with qm.open(QUEUE, "send") as queue:
        queue.send("x", label="a" * 249)
        for label, length in (("a" * 250, 250), ("\N{GRINNING FACE}" * 125, 250)):
            with pytest.raises(
                openmsmq.MsmqError, match=f"{length} UTF-16 characters, allowed: at most 249"
            ) as refused:
                queue.send("x", label=label)
            assert refused.value.hresult == HResult.MQ_ERROR_LABEL_TOO_LONG
        with pytest.raises(openmsmq.IllegalPropertyValue, match="label contains NUL"):
            queue.send("x", label="a\0b")


def test_a_decimal_that_a_currency_cannot_hold_is_refused():
    assert openmsmq.Message.of(Decimal("1.2500000")).decode() == Decimal("1.25")
    with pytest.raises(BodyError, match=r"0.00001 has more than 4 decimals"):
        openmsmq.Message.of(Decimal("0.00001"))


def test_the_error_of_a_message_over_the_limit_names_the_limit(qm):
    with qm.open(QUEUE, "send") as queue:
        for size in ((4 << 20), (4 << 20) + 1, 8 << 20):
            with pytest.raises(openmsmq.InsufficientResources, match=r"(at most|exceeds) 4194304"):
                queue.send(b"x" * size)


def test_errors_of_transactional_mismatches_name_the_remedy(qm):
    with qm.open(LEDGER, "send") as queue, pytest.raises(openmsmq.TransactionUsage, match=r"ledger.*transaction=tx"):
        queue.send("x")


def test_a_second_commit_and_a_closed_queue_are_explained(qm):
    transaction = qm.transaction()
    transaction.commit()
    for operation in (transaction.commit, transaction.abort):
        with pytest.raises(openmsmq.TransactionUsage, match="been committed or aborted"):
            operation()
    queue = qm.open(QUEUE)
    queue.close()
    queue.close()
    for operation in (queue.receive, queue.purge, queue.cursor, lambda: queue.send("x")):
        with pytest.raises(openmsmq.MsmqError, match=r"q was closed by this program"):
            operation()


def test_a_format_name_with_the_prefix_of_system_messaging_says_what_to_leave_out(qm):
    with pytest.raises(openmsmq.IllegalFormatName, match="leave out"):
        qm.open("FormatName:DIRECT=OS:" + QUEUE)


def test_a_queue_that_refuses_the_caller_does_not_hide_the_others(service, run):
    with service.connect() as manager:
        manager.create_queue(r".\private$\secret")
        descriptor = SecurityDescriptor.parse(manager.security(r".\private$\secret"))
        nobody = SecurityDescriptor(owner=descriptor.owner, group=descriptor.group, dacl=())
        manager.set_security(r".\private$\secret", nobody.pack(), 4)
    listed = run("queue", "list")
    assert "ledger" in listed and "MQ_ERROR_ACCESS_DENIED" in listed
    assert '"error": "MQ_ERROR_ACCESS_DENIED"' in run("queue", "list", "--json")


def test_a_mistyped_variable_is_pointed_out_and_the_daemon_refuses_it(run):
    said = run("queue", "list", OPENMSMQ_PORTOFFSET="1")
    assert "unknown environment variable OPENMSMQ_PORTOFFSET; did you mean OPENMSMQ_PORT_OFFSET?" in said
    said = run("serve", code=2, OPENMSMQ_LISTN="::1")
    assert "OPENMSMQ_LISTN; did you mean OPENMSMQ_LISTEN?" in said


def test_a_user_is_written_with_one_backslash(run):
    assert r"DOMAIN\USER or USER" in run("queue", "list", "--help")
    said = run("queue", "list", "--user", r"DOMAIN\\alice", code=2, OPENMSMQ_PASSWORD="x")
    assert "one backslash" in said


@pytest.mark.parametrize("content", ["[]", "not json", '{"users": [{}]}'])
def test_a_daemon_whose_users_cannot_be_read_does_not_start(tmp_path, content):
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "users.json").write_text(content)
    (directory / "users.json").chmod(0o600)
    with pytest.raises(RuntimeError, match=r"users.json is not a valid file of users"):
        Daemon(directory).start()


def test_a_refused_read_names_the_access_of_the_queue(qm):
    with qm.open(QUEUE, "send") as queue, pytest.raises(openmsmq.AccessDenied, match="opened with the access 'send'"):
        queue.receive(0)


def test_an_error_of_a_file_names_the_file_and_no_number(run, service, tmp_path):
    file = tmp_path / "missing" / "keys"
    said = run("keys", "export", str(file), code=1, OPENMSMQ_DATA_DIR=str(service.directory))
    assert said == f"openmsmq: {file}: No such file or directory\n"
