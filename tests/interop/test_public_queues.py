"""Public queues in the daemon's directory, accessed by impacket's objects and ours, over MS-MQMP and MS-MQRR."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import CertificateBuilder, Name, NameAttribute
from cryptography.x509.oid import NameOID

from com_client import MISSING, Connection, Object, Refused, TypedValue
from command_line import add_user, at, checked
from daemon import Daemon
from openmsmq.com import Dispatch, close_all
from openmsmq.directory.embedded import EmbeddedDirectory
from openmsmq.interfaces import mc_mqac as m
from openmsmq.model.errors import HResult, MsmqError

RECEIVE, SEND, PEEK = 1, 2, 0x20
NOP, EQ, NEQ, LT, GT, LE, GE = range(7)
DATE = 7
numbers = count(1)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("here") / "data", "--computer-name", "HERE") as running:
        yield running
    assert "Traceback" not in running.log, running.log


@pytest.fixture
def objects(here: Daemon) -> Iterator[Connection]:
    connection = Connection("127.0.0.1", here.mapper_port)
    yield connection
    connection.disconnect()


def created(objects: Any, name: str = "", **properties: Any) -> Object:
    info = objects.new("QueueInfo")
    info.put("PathName", f"HERE\\{name or f'q{next(numbers)}'}")
    for key, value in properties.items():
        info.put(key, value)
    info.call("Create")
    return info


def found(objects: Any, *positions: Any, **named: Any) -> list[str]:
    """Return the path names that a query finds."""
    infos = objects.new("Query").call("LookupQueue", *positions, **named)
    names = []
    while (info := infos.call("Next")) is not None:
        names.append(info.get("PathName"))
    return names


def test_a_public_queue_is_created_found_opened_by_mqmp_sent_to_and_received_from(
    here: Daemon, objects: Connection
) -> None:
    info = created(objects, "first", Label="the first")
    name = info.get("FormatName")
    assert name.startswith("PUBLIC=")
    assert found(objects, Label="THE first") == ["HERE\\first"]
    with here.connect() as manager:
        with manager.open(name, "send") as queue:
            queue.send(b"through everything")
        with manager.open(name, "receive") as queue:
            assert queue.receive(timeout=5).body == b"through everything"
        with manager.open("DIRECT=OS:HERE\\first", "send") as queue:
            queue.send(b"by its path")
        with manager.open(name, "peek") as queue:
            assert queue.peek(timeout=5).body == b"by its path"


def interface(target: Object, described: Any) -> Object:
    return target.query(str(described.uuid))


def test_queues_are_found_by_every_operator_and_property(objects: Connection) -> None:
    kind = f"{{{uuid4()}}}"
    for name, label, address in (("m1", "b", ""), ("m2", "c", "234.1.1.1:8001"), ("m3", "", "234.1.1.2:8001")):
        created(objects, name, ServiceTypeGuid=kind, Label=label, MulticastAddress=address)
    guid = objects.new("QueueInfo")
    guid.put("PathName", "HERE\\m2")
    identifier = guid.get("QueueGuid")

    def those(**criteria: Any) -> str:
        return "".join(name[-1] for name in found(objects, ServiceTypeGuid=kind, **criteria))

    assert those() == "123"
    assert found(objects, QueueGuid=f"{{{identifier}}}") == found(objects, QueueGuid=identifier) == ["HERE\\m2"]
    assert found(objects, QueueGuid=str(uuid4())) == []
    by_label = {EQ: "2", NEQ: "13", LT: "1", GT: "", LE: "12", GE: "2", NOP: "123"}
    assert {relation: those(Label="C", RelLabel=relation) for relation in by_label} == by_label
    by_address = {EQ: "2", NEQ: "13", LT: "", GT: "3", LE: "2", GE: "23", NOP: "123"}
    address = "234.1.1.1:8001"
    assert {
        r: those(MulticastAddress=address, RelMulticastAddress=r) for r in by_address
    } == by_address  # fmt: skip
    assert those(MulticastAddress="") == "1"
    assert those(MulticastAddress="", RelMulticastAddress=NEQ) == "23"
    now = TypedValue(DATE, 25569.0 + (time.time() + 3600) / 86400)
    by_time = {EQ: "", NEQ: "123", LT: "123", GT: "", LE: "123", GE: "", NOP: "123"}
    for attribute in ("CreateTime", "ModifyTime"):
        assert {r: those(**{attribute: now, f"Rel{attribute}": r}) for r in by_time} == by_time
    assert found(objects, ServiceTypeGuid=kind, RelServiceType=NEQ, Label="c") == []
    assert found(objects, MISSING, kind, "b") == ["HERE\\m1"]


def test_each_revision_of_a_query_returns_its_own_revision_of_the_results(objects: Connection) -> None:
    label = f"revisions{next(numbers)}"
    created(objects, label, Label=label)
    query = objects.new("Query")
    for described, name in (
        (m.IMSMQQuery, "LookupQueue"), (m.IMSMQQuery2, "LookupQueue"), (m.IMSMQQuery3, "LookupQueue_v2"),
        (m.IMSMQQuery3, "LookupQueue"), (m.IMSMQQuery4, "LookupQueue_v2"), (m.IMSMQQuery4, "LookupQueue"),
    ):  # fmt: skip
        infos = interface(query, described).call(name, Label=label)
        assert infos.call("Next").get("Label") == label
        assert infos.call("Next") is None


def test_results_follow_the_directory_while_they_are_read(objects: Connection) -> None:
    label = f"live{next(numbers)}"
    first, second, third = (created(objects, f"{label}{n}", Label=label) for n in range(3))
    infos = objects.new("Query").call("LookupQueue", Label=label)
    assert infos.call("Next").get("PathName").endswith("0")
    second.call("Delete")
    assert infos.call("Next").get("PathName").endswith("2")
    assert infos.call("Next") is None
    created(objects, f"{label}3", Label=label)
    assert infos.call("Next").get("PathName").endswith("3")
    third.put("Label", "another")
    third.call("Update")
    infos.call("Reset")
    paths = []
    while (info := infos.call("Next")) is not None:
        paths.append(info.get("PathName")[-1])
    assert paths == ["0", "3"]
    assert first.get("Label") == label


@pytest.mark.parametrize(
    ("criteria", "hresult"),
    [
        ({"QueueGuid": "no guid"}, "C00E0006"),
        ({"ServiceTypeGuid": "{}"}, "C00E0006"),
        ({"Label": "x", "RelLabel": 7}, "C00E0006"),
        ({"Label": "x", "RelLabel": -1}, "C00E0006"),
        ({"CreateTime": TypedValue(DATE, float("nan"))}, "C00E0006"),
        ({"CreateTime": TypedValue(DATE, float("inf"))}, "C00E0006"),
        ({"CreateTime": TypedValue(DATE, 1e300)}, "C00E0018"),
        ({"ModifyTime": "yesterday"}, "80020005"),
    ],
)
def test_an_invalid_query_is_refused(objects: Connection, criteria: dict[str, Any], hresult: str) -> None:
    with pytest.raises(Refused, match=hresult):
        found(objects, **criteria)


def test_text_with_special_characters_is_kept_unchanged(objects: Connection) -> None:
    for label in ("'; DROP TABLE queue; --", "%", "_", '"', "é" * 124):
        created(objects, Label=label)
        assert len(found(objects, Label=label)) == 1, label
    assert found(objects, Label="no such label") == []


def test_a_label_with_a_nul_which_no_client_of_ms_mqmp_could_read_is_refused(objects: Connection) -> None:
    with pytest.raises(Refused, match=r"C00E0018.*without NUL"):
        created(objects, Label="a\x00b")
    assert found(objects, Label="a\x00b") == found(objects, Label="a") == []


def test_a_client_cannot_make_results_itself(objects: Connection) -> None:
    infos = Object(objects.dispatch("d7d6e07e-dccd-11d0-aa4b-0060970debae"))
    for name in ("Next", "Reset"):
        with pytest.raises(Refused, match="80040007"):
            infos.call(name)


def test_properties_are_written_to_the_directory_and_to_the_queue(here: Daemon, objects: Connection) -> None:
    info = created(objects, "written", Label="before")
    assert info.get("BasePriority") == 0
    info.put("BasePriority", 7)
    info.put("Label", "after")
    info.put("Quota", 1)
    other = objects.new("QueueInfo")
    other.put("PathName", ".\\WRITTEN")
    assert other.get("Label") == "before"
    info.call("Update")
    other.call("Refresh")
    assert (other.get("Label"), other.get("BasePriority"), other.get("Quota")) == ("after", 7, 1)
    assert other.get("PathNameDNS").endswith("\\written")
    assert other.get("IsWorldReadable2") is True
    assert other.get("IsTransactional2") is False
    with pytest.raises(Refused, match="C00E006A"):
        other.get("ADsPath")
    with here.connect() as manager, manager.open(info.get("FormatName"), "send") as queue:
        with pytest.raises(MsmqError) as caught:
            queue.send(bytes(2000))
        assert caught.value.hresult == HResult.MQ_ERROR_INSUFFICIENT_RESOURCES
        management = manager.management(info.get("FormatName"))
        assert (management["type"], management["location"], management["foreign"]) == ("PUBLIC", "LOCAL", "NO")
    lines = [line.split() for line in checked("queue", "show", info.get("FormatName"), **at(here)).splitlines()]
    assert ["kind", "PUBLIC"] in lines and ["label", "after"] in lines


def test_a_public_queue_is_deleted_with_its_messages(here: Daemon, objects: Connection) -> None:
    info = created(objects, "mortal")
    name = info.get("FormatName")
    with here.connect() as manager:
        with manager.open(name, "send") as queue:
            queue.send(b"x")
        with manager.open(name, "receive") as queue:
            info.call("Delete")
            with pytest.raises(MsmqError):
                queue.receive(timeout=0)
        with pytest.raises(Refused, match="0xC00E0006"):  # the object refers to no queue any more, [MC-MQAC] 3.10.4.1.6
            info.get("PathName")
        for access in ("receive", "send"):
            with pytest.raises(MsmqError) as caught:
                manager.open(name, access)
            assert caught.value.hresult == (
                HResult.MQ_ERROR_QUEUE_NOT_FOUND
                if access == "receive"
                else HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
            )
    gone = objects.new("QueueInfo")
    gone.put("PathName", "HERE\\mortal")
    for call in (lambda: gone.get("FormatName"), lambda: gone.call("Refresh"), lambda: gone.call("Delete")):
        with pytest.raises(Refused, match="C00E0003"):
            call()
    created(objects, "mortal")


@pytest.mark.parametrize(
    ("path", "hresult"),
    [
        ("HERE\\taken", "C00E0005"), ("here\\TAKEN", "C00E0005"), ("elsewhere\\q", "C00E000D"),
        ("HERE\\" + "x" * 64, "C00E0014"), ("HERE\\a;b", "C00E0014"), ("HERE\\", "C00E0014"),
    ],
)  # fmt: skip
def test_invalid_creations_are_refused(objects: Connection, path: str, hresult: str) -> None:
    if not found(objects, Label="taken"):
        created(objects, "taken", Label="taken")
    info = objects.new("QueueInfo")
    info.put("PathName", path)
    with pytest.raises(Refused, match=hresult):
        info.call("Create")


def test_messages_and_destinations_name_public_queues_by_their_paths(objects: Connection) -> None:
    made, answers = created(objects, "target"), created(objects, "answers")
    target, answer = objects.new("Destination"), objects.new("QueueInfo")
    target.put("PathName", "HERE\\target")
    answer.put("PathName", "HERE\\answers")
    message = objects.new("Message")
    message.put("ResponseQueueInfo", answer)
    message.put("Body", "text")
    message.call("Send", target)
    received = made.call("Open", RECEIVE, 0).call("Receive")
    assert received.get("Body") == "text"
    assert received.get("ResponseQueueInfo").get("FormatName") == answers.get("FormatName")
    with pytest.raises(Refused, match="C00E0003"):
        target.put("PathName", "HERE\\missing")
    with pytest.raises(Refused, match="C00E0003"):
        target.put("ADsPath", "LDAP://CN=target,CN=msmq,CN=HERE")


def directory_of(daemon: Daemon, *arguments: str) -> str:
    return checked("directory", "--data-dir", str(daemon.directory), *arguments)


def test_a_distribution_list_sends_to_each_of_its_queues_once(here: Daemon, objects: Connection) -> None:
    names = [created(objects).get("FormatName") for _ in range(3)]
    inner = directory_of(here, "lists", "create", "inner", names[1], names[2]).strip()
    outer = directory_of(here, "lists", "create", "outer", names[0], names[1].upper(), inner).strip()
    directory_of(here, "lists", "add", "inner", outer)  # they contain each other
    with here.connect() as manager:
        with manager.open(outer, "send") as queue:
            queue.send(b"to all")
        for name in names:
            with manager.open(name, "receive") as queue:
                assert queue.receive(timeout=5).body == b"to all"
                with pytest.raises(MsmqError):
                    queue.receive(timeout=0)
        with pytest.raises(MsmqError) as caught:
            manager.open(outer, "receive", protocol="qmcomm")
        assert caught.value.hresult == HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    destination = objects.new("Destination")
    destination.put("FormatName", outer)
    message = objects.new("Message")
    message.put("Body", "again")
    message.call("Send", destination)
    for name in names:
        info = objects.new("QueueInfo")
        info.put("FormatName", name)
        assert info.call("Open", RECEIVE, 0).call("Receive", ReceiveTimeout=0).get("Body") == "again"


def test_a_list_with_a_member_that_cannot_be_opened_is_not_opened_at_all(here: Daemon, objects: Connection) -> None:
    there = created(objects).get("FormatName")
    broken = directory_of(here, "lists", "create", "broken", there, f"PUBLIC={uuid4()}").strip()
    empty = directory_of(here, "lists", "create", "empty").strip()
    with here.connect() as manager:
        for name, hresult in (
            (broken, HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
            (empty, HResult.MQ_ERROR_QUEUE_NOT_FOUND),
            (f"DL={uuid4()}", HResult.MQ_ERROR_QUEUE_NOT_FOUND),
        ):
            with pytest.raises(MsmqError) as caught:
                manager.open(name, "send")
            assert caught.value.hresult == hresult, name


def test_certificates_are_registered_for_the_caller(tmp_path: Path) -> None:
    key = generate_private_key(65537, 2048)
    name = Name([NameAttribute(NameOID.COMMON_NAME, "alice")])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    builder = CertificateBuilder(name, name, key.public_key(), 1, start, start.replace(year=2030))
    encoded = builder.sign(key, SHA256()).public_bytes(Encoding.DER)
    sid = add_user(tmp_path / "data", "alice", "secret")
    with Daemon(tmp_path / "data", "--listen", "127.0.0.2") as daemon:
        security = {"user": "alice", "password": "secret"}
        alice, nobody = (
            Dispatch("MSMQ.MSMQApplication", "127.0.0.2", daemon.mapper_port, **more) for more in (security, {})
        )
        try:
            assert alice.IsDsEnabled is True
            alice.RegisterCertificate(1, encoded)
            alice.RegisterCertificate(ExternalCertificate=encoded)
            for application, certificate, flags, hresult in (
                (alice, encoded, 2, 0xC00E0006), (alice, encoded, 3, 0xC00E0006), (alice, b"none", 1, 0xC00E002C),
                (alice, encoded[:-1], 1, 0xC00E002C), (alice, encoded + bytes(1 << 17), 1, 0xC00E002C),
                (nobody, b"", 1, 0xC00E0011), (nobody, encoded, 1, 0xC00E0011),
            ):  # fmt: skip
                with pytest.raises(MsmqError) as caught:
                    application.RegisterCertificate(flags, certificate)
                assert caught.value.hresult == hresult
            alice.Machine = "elsewhere"
            with pytest.raises(MsmqError) as caught:
                alice.RegisterCertificate(1, encoded)
            assert caught.value.hresult == 0x80004001
        finally:
            close_all()

    async def stored() -> Any:
        directory = EmbeddedDirectory(tmp_path / "data" / "directory.sqlite")
        try:
            return await directory.user(sid)
        finally:
            await directory.close()

    user = asyncio.run(stored())
    assert [(each.digest, each.encoded) for each in user.certificates] == [(hashlib.md5(encoded).digest(), encoded)]
