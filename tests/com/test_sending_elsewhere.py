"""`Send` of the automation objects with each value of MQTRANSACTION, to local and remote queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import openmsmq
from daemon import Daemon, free_port
from openmsmq.com import VT, Dispatch, Variant, close_all
from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import HResult, MsmqError, TransactionUsage

HERE, THERE = "127.0.77.1", "127.0.77.2"
SITE = "6a2c1f00-0000-0000-0000-00000000000b"
NO_TRANSACTION, MTS, XA, SINGLE = 0, 1, 2, 3


@dataclass(frozen=True)
class Pair:
    """Two queue managers that share a directory: `near`, whose objects are used, and `far`."""

    near: Daemon
    far: Daemon
    names: dict[str, str]  # format names of the queues, for programs of `near`

    def new(self, name: str) -> Any:
        return Dispatch(f"MSMQ.{name}", host=HERE, port=self.near.mapper_port)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    path = tmp_path_factory.mktemp("pair")
    (path / "sites.toml").write_text(f'[[foreign_site]]\nidentifier = "{SITE}"\nmachines = ["SAPHOST"]\n')
    port = str(free_port(HERE, THERE))
    common = ("--message-port", port, "--peer-message-port", port, "--directory-path", str(path / "directory"))
    common += ("--peers", f"NEAR={HERE},FAR={THERE}")
    near = Daemon(
        path / "n", "--listen", HERE, "--computer-name", "NEAR", "--config", str(path / "sites.toml"), *common
    )
    far = Daemon(path / "f", "--listen", THERE, "--computer-name", "FAR", *common)
    with near, far:
        yield Pair(near, far, _queues(near, far))
        close_all()
    assert "Traceback" not in near.log + far.log, near.log + far.log


def _queues(near: Daemon, far: Daemon) -> dict[str, str]:
    """Create plain and transactional queues on each machine. Returns their format names, each of another queue."""
    names = {"connector": "DIRECT=OS:SAPHOST\\private$\\q"}
    for kind in ("plain", "tx"):
        for host, daemon in ((HERE, near), (THERE, far)):
            with openmsmq.connect(host, daemon.port) as manager:
                for queue in ("", "os-", "several-"):
                    manager.create_queue(f".\\private$\\{queue}{kind}", transactional=kind == "tx")
        names[f"here {kind}"] = f"DIRECT=OS:.\\private$\\{kind}"
        names[f"tcp {kind}"] = f"DIRECT=TCP:{THERE}\\private$\\{kind}"
        names[f"os {kind}"] = f"DIRECT=OS:FAR\\private$\\os-{kind}"
        info = Dispatch("MSMQ.MSMQQueueInfo", host=THERE, port=far.mapper_port)
        info.PathName = f"FAR\\public-{kind}"
        info.Create(kind == "tx")
        names[f"public {kind}"] = info.FormatName
        info = Dispatch("MSMQ.MSMQQueueInfo", host=HERE, port=near.mapper_port)
        info.PathName = f"NEAR\\public-{kind}"
        info.Create(kind == "tx")
        names[f"public here {kind}"] = info.FormatName
        several = f"private$\\several-{kind}"
        names[f"several {kind}"] = f"DIRECT=OS:.\\{several},DIRECT=TCP:{THERE}\\{several}"
    return names


def readers(pair: Pair, name: str) -> list[tuple[Daemon, str, str]]:
    """Return the daemons and queues in which a message for `name` arrives."""
    where, _, kind = name.rpartition(" ")
    here, there = (pair.near, HERE), (pair.far, THERE)
    private = f"DIRECT=OS:.\\private$\\{'' if where in ('here', 'tcp') else where + '-'}{kind}"
    if where.startswith("public"):
        return [(*(here if where == "public here" else there), pair.names[name])]
    return [(*machine, private) for machine in {"here": [here], "several": [here, there]}.get(where, [there])]


def taken(place: tuple[Daemon, str, str], timeout: float = 20) -> openmsmq.Message:
    daemon, host, name = place
    with openmsmq.connect(host, daemon.port) as manager, manager.open(name, "receive") as queue:
        return queue.receive(timeout=timeout)


def send(pair: Pair, name: str, *transaction: Any, **properties: Any) -> Any:
    info = pair.new("MSMQQueueInfo")
    info.FormatName = pair.names[name]
    message = pair.new("MSMQMessage")
    for key, value in {"Body": name, "Label": str(transaction), **properties}.items():
        setattr(message, key, value)
    message.Send(info.Open(2, 0), *transaction)
    return message


EVERYWHERE = ("here", "public here", "tcp", "os", "public", "several")
AS_NUMBER = [SINGLE, Variant(VT.I2, SINGLE), Variant(VT.UI1, SINGLE), Variant(VT.BSTR, "3"), Variant(VT.R8, 3.0)]


@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_single_message_transaction_reaches_a_transactional_queue_wherever_it_is(pair: Pair, where: str) -> None:
    for value in AS_NUMBER:
        send(pair, f"{where} tx", value)
        for place in readers(pair, f"{where} tx"):
            message = taken(place)
            assert (message.decode(), message.label) == (f"{where} tx", str((value,)))
            assert message.is_transactional


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("arguments", [(), (NO_TRANSACTION,), (MTS,), (XA,), (...,), (False,), (None,)], ids=repr)
def test_a_message_without_transaction_reaches_a_queue_that_is_not_transactional(
    pair: Pair, where: str, arguments: tuple[Any, ...]
) -> None:
    send(pair, f"{where} plain", *arguments)
    for place in readers(pair, f"{where} plain"):
        message = taken(place)
        assert message.decode() == f"{where} plain" and not message.is_transactional


@pytest.mark.parametrize("where", ["here", "public here"])
def test_a_single_message_to_a_local_nontransactional_queue_is_nontransactional(pair: Pair, where: str) -> None:
    """[MC-MQAC] 2.2.2.1: it is "not to be performed in the context of a transaction"."""
    send(pair, f"{where} plain", SINGLE)
    (place,) = readers(pair, f"{where} plain")
    assert not taken(place).is_transactional


@pytest.mark.parametrize("where", ["tcp", "os", "public"])
def test_a_single_message_that_another_machine_refuses_is_a_dead_letter_here(pair: Pair, where: str) -> None:
    send(pair, f"{where} plain", SINGLE, Journal=1)
    with (
        openmsmq.connect(HERE, pair.near.port) as manager,
        manager.open("DIRECT=OS:.\\system$;DEADXACT", "receive") as dead,
    ):
        letter = dead.receive(timeout=30)
    assert letter.decode() == f"{where} plain"
    assert letter.message_class == MessageClass.NACK_NOT_TRANSACTIONAL_Q


def test_a_single_message_to_a_foreign_machine_goes_by_the_queue_for_transactions(pair: Pair) -> None:
    send(pair, "connector", SINGLE)
    send(pair, "connector", NO_TRANSACTION)
    with openmsmq.connect(HERE, pair.near.port) as manager:
        counts = [int(manager.management(f"CONNECTOR={SITE}{suffix}")["message_count"]) for suffix in ("", ";XACTONLY")]
    assert counts == [1, 1]


def test_a_list_of_transactional_and_other_queues_refuses_single_message_transactions(pair: Pair) -> None:
    pair.names["mixed"] = ",".join((pair.names["here plain"], pair.names["tcp tx"]))
    with pytest.raises(TransactionUsage, match="plain is not transactional"):
        send(pair, "mixed", SINGLE)


@pytest.mark.parametrize("arguments", [(), (NO_TRANSACTION,), (MTS,), (False,)], ids=repr)
@pytest.mark.parametrize("where", ["here", "public here"])
def test_a_transactional_queue_of_this_machine_takes_nothing_without_transaction(
    pair: Pair, where: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(TransactionUsage):
        send(pair, f"{where} tx", *arguments)


@pytest.mark.parametrize("value", [True, 4, -1, Variant(VT.BSTR, "no"), Variant(VT.NULL, None)], ids=repr)
@pytest.mark.parametrize("where", ["here tx", "tcp tx", "several tx"])
def test_other_values_are_errors_and_nothing_is_sent(pair: Pair, where: str, value: Any) -> None:
    with pytest.raises(MsmqError) as refused:
        send(pair, where, value)
    assert refused.value.hresult in (HResult.MQ_ERROR_INVALID_PARAMETER, 0x80020005)


def test_a_destination_takes_a_single_message_as_a_queue_does(pair: Pair) -> None:
    destination = pair.new("MSMQDestination")
    destination.FormatName = pair.names["tcp tx"]
    message = pair.new("MSMQMessage")
    message.Body = "by a destination"
    message.Send(destination, SINGLE)
    assert taken(readers(pair, "tcp tx")[0]).decode() == "by a destination"


@pytest.mark.parametrize("where", ["here tx", "public here tx", "public tx"])
def test_an_open_destination_that_is_changed_is_open_again(pair: Pair, where: str) -> None:
    destination = pair.new("MSMQDestination")
    destination.FormatName = pair.names["tcp tx"]
    destination.Open()
    destination.FormatName = pair.names[where]
    assert destination.IsOpen and destination.FormatName == pair.names[where]


def test_single_messages_arrive_in_order_and_once(pair: Pair) -> None:
    info = pair.new("MSMQQueueInfo")
    info.FormatName = pair.names["tcp tx"]
    queue, message = info.Open(2, 0), pair.new("MSMQMessage")
    for number in range(50):
        message.Body = str(number)
        message.Send(queue, SINGLE)
    take = partial(taken, readers(pair, "tcp tx")[0])
    assert [take().decode() for _ in range(50)] == [str(number) for number in range(50)]
