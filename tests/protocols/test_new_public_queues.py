"""Names of public queues, and queues that another machine has just created here."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from openmsmq.directory.provider import QueueRecord
from openmsmq.interfaces.ms_mqmp import OBJECT_FORMAT
from openmsmq.interfaces.ms_mqmq import tag_inner_PROPVARIANT as PROPVARIANT
from openmsmq.model import names
from openmsmq.model.constants import PropId, VarType
from openmsmq.model.default_descriptors import default_queue_security
from openmsmq.model.errors import HResult as H
from openmsmq.model.errors import MsmqError
from protocols.clients import object_format, queue_format
from protocols.with_directory import (
    OWN,
    RECEIVE,
    SEND,
    Run,
    ServerWithDirectory,
    answered,
    public,
)
from queueing.world import ALICE


def test_names_of_a_queue_of_another_machine_are_those_of_that_machine(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        far = await here.elsewhere(security=default_queue_security(ALICE.sid).pack())
        near = await here.public.create(".\\near", {}, ALICE)

        async def directory_path(identifier: UUID) -> str:
            return f"LDAP://CN={identifier}"

        here.provider._real.directory_path = directory_path  # type: ignore[method-assign]
        client = here.server.client()
        wanted = [PropId.PROPID_Q_PATHNAME, PropId.PROPID_Q_PATHNAME_DNS, PropId.PROPID_Q_ADS_PATH]

        async def names_of(record: QueueRecord) -> list[str | None]:
            pending = client.start(
                "R_QMGetObjectProperties", pObjectFormat=OBJECT_FORMAT(1, queue_format(str(public(record)))), cp=3,
                aProp=[*wanted], apVar=[PROPVARIANT(vt=VarType.VT_NULL)] * 3,
            )  # fmt: skip
            return [variant.pwszVal for variant in (await answered(here, pending)).apVar]

        assert await names_of(far) == [
            "ELSEWHERE\\far", "elsewhere.example.com\\far", f"LDAP://CN={far.identifier}"
        ]  # fmt: skip
        assert await names_of(near) == ["HERE\\near", "here.example.com\\near", f"LDAP://CN={near.identifier}"]
        here.provider.away = True
        assert await names_of(near) == ["HERE\\near", "here.example.com\\near", ""]

    run(test)


def test_times_after_2038_are_shown_as_the_last_one(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        here.world.now = 2_208_988_800_000  # 2040
        client = here.server.client()
        assert client.create().result == H.MQ_OK
        answer = client.call(
            "R_QMGetObjectProperties", pObjectFormat=object_format("q"), cp=2,
            aProp=[PropId.PROPID_Q_CREATE_TIME, PropId.PROPID_Q_MODIFY_TIME], apVar=[PROPVARIANT(vt=1)] * 2,
        )  # fmt: skip
        assert [variant.lVal for variant in answer.apVar] == [0x7FFFFFFF] * 2

    run(test)


def test_a_path_name_among_the_properties_repeats_that_of_the_queue(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        with pytest.raises(MsmqError) as refused:
            await here.public.create(".\\one", {PropId.PROPID_Q_PATHNAME: ".\\two"}, ALICE)
        assert refused.value.hresult == H.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
        assert not here.registry.public
        await here.public.create(".\\one", {PropId.PROPID_Q_PATHNAME: "HERE\\ONE"}, ALICE)

    run(test)


@pytest.mark.parametrize("direct", [False, True])
def test_a_queue_that_another_machine_has_just_created_here_is_opened(run: Run, direct: bool) -> None:
    async def test(here: ServerWithDirectory) -> None:
        guarded = default_queue_security(ALICE.sid).pack()
        made = [
            await here.provider.create_queue(QueueRecord(uuid4(), OWN, f"HERE\\{name}", security=guarded))
            for name in ("first", "second", "third")
        ]
        by_path = ["DIRECT=OS:.\\first", "DIRECT=OS:.\\second", "DIRECT=OS:.\\third"]
        first, second, third = by_path if direct else [str(public(record)) for record in made]
        client = here.server.client()
        for name, access in ((first, RECEIVE), (second, SEND)):
            opened = await answered(here, here.start_open(client, name, access))
            assert opened.result == H.MQ_OK, name
        remote = client.start(
            "R_QMOpenRemoteQueue", pQueueFormat=queue_format(third), dwCallingProcessID=0, dwDesiredAccess=RECEIVE,
            dwShareMode=0, pLicGuid=bytes(16), dwMQS=0,
        )  # fmt: skip
        assert (await answered(here, remote)).result == H.MQ_OK
        assert {queue.name for queue in here.registry.public.values()} == {"first", "second", "third"}
        missing = await answered(here, here.start_open(client, "DIRECT=OS:.\\missing", RECEIVE))
        assert missing.result == H.MQ_ERROR_QUEUE_NOT_FOUND

    run(test)


def test_a_message_for_a_queue_that_has_just_been_created_here_finds_it(run: Run) -> None:
    async def test(here: ServerWithDirectory) -> None:
        guarded = default_queue_security(ALICE.sid).pack()
        record = await here.provider.create_queue(QueueRecord(uuid4(), OWN, "HERE\\first", security=guarded))
        await here.provider.create_queue(QueueRecord(uuid4(), OWN, "HERE\\second", security=guarded))
        far = await here.elsewhere()
        for name, queue in (
            (str(public(record)), "first"), ("DIRECT=OS:.\\second", "second"), ("DIRECT=OS:.\\third", ""),
            (str(public(far)), ""),
        ):  # fmt: skip
            parsed = names.parse_format_name(name)
            looking = here.public.find(parsed)
            assert looking is not None
            await looking
            assert (here.registry.local_queue(parsed) is not None) is bool(queue)
            assert here.public.find(parsed) is None, "it was asked for a moment ago"
        assert {queue.name for queue in here.registry.public.values()} == {"first", "second"}
        here.provider.away = True
        looking = here.public.find(names.PublicFormatName(uuid4()))
        assert looking is not None
        await looking

    run(test)
