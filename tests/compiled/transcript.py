"""Print the results of seeded work of ndr, store, queueing and conversion as lines: `transcript.py SEED [sources]`.

`test_differential.py` runs it with the compiled modules and with their sources; results and errors must be equal.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

sys.path.insert(0, str(Path(__file__).parents[1]))
import sources

if __name__ == "__main__" and "sources" in sys.argv[2:]:
    sources.prefer()

from msrpc.errors import BadStubData
from ndr.vector_args import load, operation, vectors
from openmsmq import compiled
from openmsmq.conversion.queue_format import from_queue_format, to_queue_format
from openmsmq.conversion.receive_buffer import BufferSizes, fill, message_from_receive, receive_buffer
from openmsmq.conversion.send_buffer import message_from_send, send_buffer
from openmsmq.model.constants import Access, ReceiveAction
from openmsmq.model.errors import MsmqError, NdrError
from openmsmq.model.message import Message
from openmsmq.model.names import parse_format_name
from openmsmq.store import Store
from queueing.world import World
from store.memory_vfs import MemoryVfs
from store.oracle import DIRECTORY, Oracle, snapshot

DAMAGED_STUBS, MESSAGES = 60, 400
STORE_PROGRAMS, STORE_STEPS, QUEUE_PROGRAMS, QUEUE_STEPS = 12, 150, 30, 150
QUEUES, NOW = ("plain", "kept", "xact"), 1_700_000_100


def answer(work: Callable[[], Any]) -> str:
    """Return the result or error of a call; for built-in exceptions only the type, since compilers change the text."""
    try:
        return repr(work())
    except (MsmqError, NdrError, BadStubData) as error:
        return f"{type(error).__name__}: {error}"
    except (ValueError, TypeError, OverflowError) as error:
        return type(error).__name__


def ndr(chance: random.Random) -> Iterator[str]:
    """Decode and re-encode recorded stubs, intact and damaged."""
    for path in vectors():
        vector = load(path)
        codec, stub = operation(vector), bytes.fromhex(vector["stub_hex"])
        order = ">" if "BE" in vector["transfer_syntax"] else "<"
        request = vector["direction"] == "request"
        decode, encode = (
            (codec.decode_request, codec.encode_request) if request else (codec.decode_response, codec.encode_response)
        )
        stubs = [stub, stub[: chance.randrange(len(stub) + 1)]]
        for _ in range(DAMAGED_STUBS):
            damaged = bytearray(stub or b"\0")
            damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            stubs.append(bytes(damaged))
        for number, given in enumerate(stubs):
            yield f"{path.stem} {number}: {answer(lambda: decode(given, order))}"  # noqa: B023
            yield f"{path.stem} {number}: {answer(lambda: encode(decode(given, order)).hex())}"  # noqa: B023


def store(chance: random.Random) -> Iterator[str]:
    """Random programs: file system calls, the bytes of the files, and the result of recovery."""
    for number in range(STORE_PROGRAMS):
        vfs = MemoryVfs()
        oracle = Oracle(Store.open(DIRECTORY, vfs=vfs, segment_size=8192, entropy=bytes), chance)
        for step in range(STORE_STEPS):
            oracle.step()
            # The frequency of ownership checks depends on the time.
            calls = [call for call in vfs.calls if call[0] not in ("exists", "holds")]
            yield f"store {number} {step}: {len(calls)} calls, the last {calls[-1]}, {oracle.store.end}"
        oracle.sync()
        oracle.store.close()
        yield from files(vfs)
        yield repr(snapshot(Store.open(DIRECTORY, vfs=vfs, segment_size=8192, entropy=bytes)))


def files(vfs: MemoryVfs) -> Iterator[str]:
    for name, inode in sorted(vfs.names.items()):
        yield f"{name}: {len(inode.content)} {sha256(inode.content).hexdigest()}"


def queueing(chance: random.Random) -> Iterator[str]:
    """Random programs of senders, readers and transactions on three queues, across restarts."""
    for number in range(QUEUE_PROGRAMS):
        world = World()
        world.create("plain", JOURNAL=1)
        world.create("kept", QUOTA=2)
        world.create("xact", TRANSACTION=1)
        for step in range(QUEUE_STEPS):
            yield f"queueing {number} {step}: {answer(lambda: one_step(world, chance, step))}"  # noqa: B023
            for name in QUEUES:
                yield f"  {name}: {world.labels(name)} {world.queue(name).total_bytes}"
        world.store.close()
        yield from files(world.vfs)


def one_step(world: World, chance: random.Random, step: int) -> Any:
    dice, name = chance.random(), chance.choice(QUEUES)
    if dice < 0.4:
        transaction = world.begin(step + 1) if name == "xact" else None
        life = chance.choice(({}, {}, {"time_to_be_received": 1, "journaling_requested": 1}))
        sent = [
            world.send(
                name, f"{step} {part}", transaction, body=chance.randbytes(chance.choice((0, 10, 900))),
                priority=chance.randrange(8), delivery_guarantee=chance.randrange(2), **life,
            )
            for part in range(chance.randrange(1, 4))
        ]  # fmt: skip
        if transaction is not None:
            (world.manager.transactions.commit if chance.random() < 0.7 else world.manager.transactions.abort)(
                transaction
            )
        return sent
    if dice < 0.7:
        transaction = world.begin(step + 1) if name == "xact" and chance.random() < 0.7 else None
        action = chance.choice((ReceiveAction.RECEIVE, ReceiveAction.RECEIVE, ReceiveAction.PEEK_CURRENT))
        outcome = world.read(world.open(name), action, transaction=transaction)
        found = [(int(status), message) for status, message in outcome.answers] if outcome.over else None
        if transaction is not None:
            (world.manager.transactions.commit if chance.random() < 0.5 else world.manager.transactions.abort)(
                transaction
            )
        return found
    if dice < 0.8:
        return world.advance(chance.choice((1, 700, 5000)))
    if dice < 0.84:
        return world.manager.reading.purge(world.open(name))
    if dice < 0.9:
        return world.open(name, chance.choice((Access.PEEK, Access.SEND))).access
    return world.restart(checkpoint=chance.random() < 0.5)


def transfer(chance: random.Random) -> Iterator[str]:
    """Messages through send and read buffers, also if those are too small; format names parsed and formatted."""
    formats = ["DIRECT=OS:h\\private$\\q", "DIRECT=TCP:10.0.0.1\\q;journal", f"PUBLIC={UUID(int=7)}", ""]
    for number in range(MESSAGES):
        message = Message(
            body=chance.randbytes(chance.randrange(40)), label="l" * chance.randrange(260),
            priority=chance.randrange(10), delivery_guarantee=chance.randrange(3),
            acknowledgements_requested=chance.randrange(20),
            journaling_requested=chance.randrange(5), tracing_requested=chance.randrange(3),
            application_tag=chance.randrange(1 << 32), extension=chance.randbytes(chance.randrange(30)),
            privacy_level=chance.randrange(6), response_queue_format_name=chance.choice(formats), sent_time=NOW - 9,
            time_to_reach_queue=chance.randrange(100), time_to_be_received=chance.randrange(100),
        )  # fmt: skip
        yield f"send {number}: {answer(lambda: message_from_send(send_buffer(message), b''))}"  # noqa: B023
        sizes = BufferSizes(body=chance.randrange(50), extension=chance.randrange(50), format_name=chance.randrange(60))
        ptb = receive_buffer(chance.choice((ReceiveAction.RECEIVE, ReceiveAction.PEEK_CURRENT)), 0, sizes=sizes)
        yield f"read {number}: {answer(lambda: int(fill(ptb, message, NOW)))} {ptb}"  # noqa: B023
        yield f"read {number}: {answer(lambda: message_from_receive(ptb))}"  # noqa: B023
    for text in [name for name in formats if name]:
        yield f"{text}: {answer(lambda: from_queue_format(to_queue_format(parse_format_name(text))))}"  # noqa: B023


PARTS = {"ndr": ndr, "store": store, "queueing": queueing, "transfer": transfer}

if __name__ == "__main__":
    print("native" if compiled.is_native() else "interpreted")
    for name, part in PARTS.items():
        for line in part(random.Random(f"{sys.argv[1]} {name}")):
            print(name, line)
