"""Every call accepts the short queue name; type checkers reject unknown properties and literals."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

import openmsmq
from openmsmq.client.arguments import as_message
from openmsmq.client.operations import PROPERTIES
from openmsmq.client.properties import MessageProperties, NewQueueProperties, QueuePropertyName
from openmsmq.model.bodies import decode_body

PROGRAM = """
import openmsmq
from openmsmq import aio

with openmsmq.connect("server") as qm, qm.open("orders", "send") as queue:
    queue.send("x", label="a", recoverable=True)
    queue.send_many(["x"], priority=3)
    qm.create_queue("orders", transactional=True)
    print(qm.properties("orders", "label"))


async def program() -> None:
    async with aio.connect("server") as qm, qm.open("orders", "peek") as queue, qm.transaction() as transaction:
        print((await queue.receive_by_lookup_id(1, "next")).label, transaction.uow)
"""
WRONG = {
    'label="a"': 'lable="a"', '"orders", "send")': '"orders", "sned")', "priority=3": "prioriti=3",
    "transactional=True": "transactinal=True", '"orders", "label"': '"orders", "lable"', '1, "next"': '1, "nxet"',
    '"orders", "peek"': '"orders", "peak"',
}  # fmt: skip


def checked(tmp_path, program):
    file = tmp_path / "program.py"
    file.write_text(program)
    options = ["--strict", "--cache-dir", tmp_path / "cache", "--config-file", "/dev/null"]
    command = [sys.executable, "-m", "mypy", *options, file]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_mypy_refuses_each_word_that_does_not_exist(tmp_path):
    right = checked(tmp_path, PROGRAM)
    assert right.returncode == 0, right.stdout + right.stderr
    program = PROGRAM
    for correct, wrong in WRONG.items():
        assert correct in program
        program = program.replace(correct, wrong)
    refused = checked(tmp_path, program)
    assert refused.returncode == 1
    lines = {number for number, line in enumerate(program.splitlines(), 1) if any(w in line for w in WRONG.values())}
    assert {int(line.split(":")[1]) for line in refused.stdout.splitlines() if ": error:" in line} == lines


def test_the_typed_properties_match_the_existing_ones():
    known = {field.name for field in fields(openmsmq.Message)} | {"recoverable"}
    assert get_type_hints(MessageProperties).keys() <= known
    assert set(get_args(QueuePropertyName)) == set(PROPERTIES)
    assert get_type_hints(NewQueueProperties).keys() <= PROPERTIES.keys()


def test_the_short_name_of_a_queue_works_in_every_call(qm):
    assert qm.create_queue("short", label="x") == r"DIRECT=OS:.\private$\short"
    qm.set_properties("short", journal=True)
    assert qm.properties("short", "label") == {"label": "x"}
    qm.set_security("short", qm.security("short"), 4)
    assert qm.format_name("short") == qm.format_name(r".\private$\short")
    with qm.open("short", "send") as queue:
        queue.send("a", label="first")
    with qm.open("short") as queue:
        message = next(iter(queue))
        queue.move(message.lookup_identifier, "aside")
    assert (qm.counts("short")["message_count"], qm.subqueues("short")) == (0, ["aside"])
    with qm.open("short;aside") as queue:
        assert queue.receive(1).label == "first"
    with qm.open("short;journal") as journal, qm.open("deadletter", "peek") as dead:
        assert [each.label for each in journal] == ["first"] and list(dead) == []
    assert qm.management("short")["location"] == "LOCAL"
    with pytest.raises(openmsmq.MsmqError, match=r"PROPID: unknown management property 'place'; allowed: .*location"):
        qm.management("short", "place")
    qm.delete_queue("short")
    with pytest.raises(openmsmq.QueueNotFound, match="short"):
        qm.open("short")


def test_a_body_that_is_not_of_its_type_is_an_error_of_this_package():
    with pytest.raises(openmsmq.MsmqError) as caught:
        decode_body(b"x", 3)
    assert isinstance(caught.value, openmsmq.BodyError | ValueError)
    with pytest.raises(openmsmq.BodyError):
        openmsmq.Message.of(object())


def test_a_message_whose_body_is_no_bytes_is_refused_with_the_way_out() -> None:
    with pytest.raises(openmsmq.BodyError, match=r"is a str, allowed: bytes; Message.of\(value\) encodes"):
        as_message(openmsmq.Message(body="text"), {})  # type: ignore[arg-type]
    assert as_message(openmsmq.Message(body=b"text"), {}).body == b"text"
