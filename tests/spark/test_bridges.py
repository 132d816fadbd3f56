"""The programs of docs/bridges.md, against librdkafka's mock of a Kafka cluster and against RabbitMQ."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon import Daemon
from requirements import missing

pytestmark = pytest.mark.slow  # needs third-party brokers

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "bridges.md").read_text(encoding="utf-8")
COUNT = 50
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # Debian's


def program(name: str, **values: Any) -> str:
    """Return a code block of the document, with some constants replaced."""
    block = re.search(rf"```python\n# bridge: {name}\n(.*?)```", DOCUMENT, re.DOTALL)
    assert block is not None, name
    source = block.group(1)
    for constant in values:
        assert constant in source, constant
    set_here = "\n".join(f"{constant} = {value!r}" for constant, value in values.items())
    lines = source.splitlines()
    last = max(index for index, line in enumerate(lines) if re.match(r"[A-Z, ]+ = ", line))
    return "\n".join([*lines[: last + 1], set_here, *lines[last + 1 :]])


def run(source: str, service: Daemon) -> None:
    """Run a program of the document with the address of the daemon added; the document uses the defaults."""
    flight = service.ready["endpoints"]["flight"]["port"]
    options = f'.option("host", "127.0.0.1").option("port", {service.port}).option("flightPort", {flight})'
    exec(compile(source.replace('.format("msmq")', f'.format("msmq"){options}'), "bridges.md", "exec"), {})


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    """A cluster of one broker in this process, which speaks Kafka's protocol."""
    from confluent_kafka import Producer

    cluster = Producer({"test.mock.num.brokers": 1})
    [broker] = cluster.list_topics(timeout=20).brokers.values()
    yield f"{broker.host}:{broker.port}"
    cluster.flush()


def consumed(brokers: str, topic: str, count: int) -> list[Any]:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Any] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += [record for record in consumer.consume(100, 1) if not record.error()]
    consumer.close()
    return found


def test_a_queue_goes_to_a_topic_and_leaves_the_queue(
    spark: Any, service: Daemon, qm: Any, brokers: str, tmp_path: Path
) -> None:
    qm.create_queue(r".\private$\tokafka")
    with qm.open(r".\private$\tokafka", "send") as queue:
        sent = {queue.send(b"%d" % number, label=f"label {number}"): b"%d" % number for number in range(COUNT)}
    source = program("queue to kafka", BROKERS=brokers, TOPIC="there", QUEUE="tokafka", CHECKPOINT=str(tmp_path))
    run(source, service)
    found = consumed(brokers, "there", COUNT)
    assert {record.key().decode(): record.value() for record in found} == sent
    assert qm.counts(r".\private$\tokafka")["message_count"] == 0


def test_a_topic_goes_to_a_queue_and_its_offset_moves_on(service: Daemon, qm: Any, brokers: str) -> None:
    from confluent_kafka import Producer

    qm.create_queue(r".\private$\fromkafka", transactional=True)
    producer = Producer({"bootstrap.servers": brokers})
    for number in range(COUNT):
        producer.produce("back", value=b"%d" % number, key=f"key {number}", partition=0)
    producer.flush()
    source = program(
        "kafka to queue", BROKERS=brokers, TOPIC="back", HOST="127.0.0.1", PORT=service.port,
        QUEUE=r".\private$\fromkafka", WAIT=8,
    )  # fmt: skip
    for _ in range(2):  # a second run finds nothing new
        run(source, service)
        with qm.open(r".\private$\fromkafka", "peek") as queue:
            found = [(message.label, message.body) for message in queue]
        assert found == [(f"key {number}", b"%d" % number) for number in range(COUNT)]


def test_messages_go_to_rabbitmq_and_come_back(
    spark: Any, service: Daemon, qm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not RABBITMQ.exists():
        missing("rabbitmq-server is not installed: make rabbitmq")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import pika
    import systems

    for name in (r".\private$\torabbit", r".\private$\fromrabbit"):
        qm.create_queue(name, transactional=name.endswith("fromrabbit"))
    with qm.open(r".\private$\torabbit", "send") as queue:
        sent = [queue.send(b"%d" % number) for number in range(COUNT)]
    with systems.broker(tmp_path / "broker") as (server, _):
        amqp = f"amqp://guest:guest@127.0.0.1:{server.port}"
        with pika.BlockingConnection(pika.URLParameters(amqp)) as connection:
            connection.channel().queue_declare("bridge", durable=True)
        source = program(
            "queue to rabbitmq", AMQP=amqp, TARGET="bridge", QUEUE="torabbit", CHECKPOINT=str(tmp_path / "c")
        )
        run(source, service)
        assert qm.counts(r".\private$\torabbit")["message_count"] == 0
        back = program(
            "rabbitmq to queue", AMQP=amqp, SOURCE="bridge", HOST="127.0.0.1", PORT=service.port,
            QUEUE=r".\private$\fromrabbit", WAIT=2,
        )  # fmt: skip
        run(back, service)
    with qm.open(r".\private$\fromrabbit", "peek") as queue:
        assert sorted((message.label, message.body) for message in queue) == sorted(
            (identifier, b"%d" % number) for number, identifier in enumerate(sent)
        )
