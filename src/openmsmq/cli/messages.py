"""`openmsmq send|peek|receive|copy|export|import`"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import click

from openmsmq.admin.message_json import to_json
from openmsmq.admin.naming import path_of
from openmsmq.admin.queues import demand_certain, is_transactional
from openmsmq.cli.connection import (
    Address,
    connect,
    connected,
    has_server,
    level_option,
    protocol_option,
    server_options,
)
from openmsmq.cli.interrupting import between_messages
from openmsmq.cli.message_files import Export, MessageImport, alone
from openmsmq.cli.numbers import COUNT, LIFETIME, PORT, SECONDS
from openmsmq.cli.output import echo, json_option, output_file, progress, report
from openmsmq.cli.remote import is_elsewhere, send_directly
from openmsmq.cli.showing import show_message, write_body
from openmsmq.client.dead_letters import Forwarding, SentLimits, name_for_any, sendable, walk
from openmsmq.client.open_queue import ProtocolWord
from openmsmq.client.pipelining import MessagesNotSent
from openmsmq.client.sync import Cursor, MessageQueue, QueueManager
from openmsmq.model.constants import Access
from openmsmq.model.errors import (
    AccessDenied,
    HResult,
    MessageAlreadyReceived,
    MessageNotFound,
    MsmqError,
    ReceiveTimeout,
    error_for,
)
from openmsmq.model.message import Message
from openmsmq.model.text import counted, printable_json

Remember = Callable[[Sequence[bool] | None], None]
Name = Callable[[int, Message], str]  # the name of a message for an error, by its position in a part
_PART = 64  # messages sent at the same time outside a transaction: after a crash they may be sent again
_BATCH = 200  # messages in one transaction when many are moved


@click.command()
@click.argument("queue")
@click.argument("body", required=False)
@click.option(
    "--file", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="File with the body."
)
@click.option("--label", default="", help="Label, at most 249 characters.")
@click.option("--priority", type=click.IntRange(0, 7), default=3, show_default=True)
@click.option(
    "--recoverable", is_flag=True, help="Store the message on disk, so that it survives a restart of the server."
)
@click.option("--transaction", is_flag=True, help="Send in a transaction.")
@click.option("--raw", is_flag=True, help="Send the text as UTF-8 bytes, not as a VT_BSTR string.")
@click.option("--ttl", type=LIFETIME, help="Seconds until the message expires if nobody receives it.")
@click.option("--reach-ttl", type=LIFETIME, help="Seconds until the message expires if it has not reached its queue.")
@click.option("--response-queue", default="", help="Format name.")
@click.option(
    "--admin-queue", default="", help="Format name of the administration queue; all acknowledgments are requested."
)
@click.option("--deadletter", is_flag=True, help="Copy to the dead-letter queue if it expires.")
@click.option(
    "--message-port", type=PORT, default=1801, show_default=True, help="Port of the other machine; see above."
)
@click.option("--timeout", type=SECONDS, default=30, show_default=True, help="Seconds to wait for the other machine.")
@json_option
@server_options
@level_option
def send(
    address: Address,
    level: str | None,
    queue: str,
    body: str | None,
    file: Path | None,
    label: str,
    priority: int,
    recoverable: bool,
    transaction: bool,
    raw: bool,
    ttl: int | None,
    reach_ttl: int | None,
    response_queue: str,
    admin_queue: str,
    deadletter: bool,
    message_port: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Send one message: BODY, a file, or standard input.

    If no queue manager runs on this machine, a message to a QUEUE such as DIRECT=OS:server\\private$\\orders is sent
    directly, over one session with the queue manager of that machine (TCP port 1801).
    """
    value: str | bytes
    if body is not None and file is not None:
        raise click.UsageError("give BODY or --file, not both")
    if file is not None:
        value = file.read_bytes()
    elif body is not None:
        value = body.encode() if raw else body
    else:
        value = sys.stdin.buffer.read()
    message = Message.of(
        value,
        label=label,
        priority=priority,
        delivery_guarantee=int(recoverable),
        response_queue_format_name=response_queue,
        administration_queue_format_name=admin_queue,
        acknowledgements_requested=0x0F if admin_queue else 0,
        journaling_requested=int(deadletter),
    )
    if ttl is not None:
        message.time_to_be_received = ttl
    if reach_ttl is not None:
        message.time_to_reach_queue = reach_ttl
    elsewhere = None if has_server(address) else is_elsewhere(queue)
    if elsewhere is not None:
        send_directly(
            elsewhere, message, port=message_port, timeout=timeout, transactional=transaction, as_json=as_json
        )
        return
    with connect(address, level) as qm, qm.open(path_of(queue), "send") as opened:
        if transaction:
            with qm.transaction() as tx:
                identifier = opened.send(message, transaction=tx)
        else:
            identifier = opened.send(message)
    report(as_json, identifier, {"id": identifier})


@click.command()
@click.argument("queue")
@click.option(
    "--count", "-n", type=COUNT, default=10, show_default=True, help="Maximum number of messages (0: no limit)."
)
@protocol_option
@json_option
@connected
def peek(qm: QueueManager, queue: str, count: int, protocol: ProtocolWord, as_json: bool) -> None:
    """Show messages without removing them."""
    show_first(qm, path_of(queue), Access.PEEK, count, as_json, protocol)


def show_first(
    qm: QueueManager, queue: str, access: Access, count: int, as_json: bool, protocol: ProtocolWord = "auto"
) -> None:
    """Show the first `count` messages of a queue, all of them for 0."""
    with qm.open(queue, access, protocol=protocol) as opened:
        for number, message in enumerate(opened):
            if count and number >= count:
                break
            show_message(message, number, as_json)


@click.command()
@click.argument("queue")
@click.option(
    "--count",
    "-n",
    type=COUNT,
    default=1,
    show_default=True,
    help="Maximum number of messages (0: all messages in the queue).",
)
@click.option("--timeout", type=SECONDS, default=0.0, show_default=True, help="Seconds to wait for the first message.")
@click.option("--body-only", is_flag=True, help="Write only the bytes of the body.")
@protocol_option
@json_option
@connected
def receive(
    qm: QueueManager, queue: str, count: int, timeout: float, body_only: bool, protocol: ProtocolWord, as_json: bool
) -> None:
    """Receive messages; each is removed after it has been written to the output. Each message of a transactional queue
    is received in its own transaction.

    With qmcomm, a message of a queue that is not transactional is peeked, written and then removed. Two programs that
    receive at the same time may both write it; the later one reports this.
    """
    with qm.open(path_of(queue), protocol=protocol) as opened:
        transactional = _is_received_in_transactions(qm, path_of(queue))
        number = 0
        while not count or number < count:
            patience = timeout if number == 0 else 0
            try:
                if transactional is not False:
                    with qm.transaction() as tx:
                        _write(opened.receive(patience, transaction=tx), number, body_only, as_json)
                elif opened.protocol == "remoteread":
                    with opened.receive_lock(patience) as message:
                        _write(message, number, body_only, as_json)
                else:
                    with opened.cursor() as cursor:
                        message = cursor.peek(patience)
                        _write(message, number, body_only, as_json)
                        _remove(cursor, message)
            except ReceiveTimeout:
                if number == 0:
                    raise
                break
            except MsmqError as error:
                if transactional is not None or error.hresult != HResult.MQ_ERROR_TRANSACTION_USAGE:
                    raise
                transactional = False
                continue
            number += 1


def _is_received_in_transactions(qm: QueueManager, path: str) -> bool | None:
    """Whether receives must be in transactions. None if the caller may not read this property: then the first receive
    determines it."""
    try:
        return is_transactional(qm, path)
    except AccessDenied:
        return None


def _remove(cursor: Cursor, message: Message) -> None:
    """Remove the current message of the cursor, which has been written to the output."""
    try:
        cursor.receive(0)
    except (MessageAlreadyReceived, MessageNotFound, ReceiveTimeout):
        echo(f"message {message.id} was written here and also received by another program", err=True)


def _write(message: Message, number: int, body_only: bool, as_json: bool) -> None:
    if body_only:
        write_body(message)
    else:
        show_message(message, number, as_json)


_transaction_option = click.option(
    "--transaction", is_flag=True, help="Send in transactions; for a transactional queue of another machine."
)


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--move", is_flag=True, help="Remove the messages from SOURCE after they are in TARGET.")
@_transaction_option
@json_option
@connected
def copy(qm: QueueManager, source: str, target: str, move: bool, transaction: bool, as_json: bool) -> None:
    """Copy all messages of one queue to another, with their properties.

    To a queue of another machine, --move requires --transaction, because that machine may refuse messages; `forward to`
    moves messages to a queue that is not transactional.
    """
    source, target = path_of(source), path_of(target)
    wanted = qm.counts(source)["message_count"]
    transactional = transaction or is_transactional(qm, target)
    if move:
        demand_certain(qm, target, in_transaction=transactional)
        copied = _move_all(qm, source, target, wanted, transactional)
    else:
        with qm.open(source, "peek") as incoming, qm.open(name_for_any(qm, target), "send") as outgoing:
            copied = _send_all(qm, outgoing, _limited(incoming, wanted), wanted, transactional, "copying", _by_id)
    verb = "moved" if move else "copied"
    document = {verb: copied, "source": source, "target": target}
    report(as_json, f"{verb} {counted(copied, 'message')} from {source} to {target}", document)


def _move_all(qm: QueueManager, source: str, target: str, wanted: int, transactional: bool) -> int:
    """Move each message in one transaction if both queues are transactional; otherwise send it first and remove it
    afterwards. Moves at most the number of messages that SOURCE had at the beginning.
    """
    together = is_transactional(qm, source)
    both = transactional and together
    protocol: ProtocolWord = "qmcomm" if together else "auto"  # as in `selection.act`
    count = 0
    with (
        qm.open(source, protocol=protocol) as incoming,
        SentLimits(qm, source, incoming.protocol) as limits,
        Forwarding(qm) as forwarding,
        progress("moving") as bar,
    ):
        task = bar.add_task("", total=wanted, rate="")
        started = time.monotonic()
        try:
            with between_messages() as end:
                for cursor, message in islice(walk(incoming), wanted):
                    limits.restore(message)
                    try:
                        forwarding.forward(cursor, message, target, both=both, in_transaction=transactional)
                    except MessageAlreadyReceived:
                        continue
                    except MsmqError as error:
                        raise _refused(error, _by_id(count, message)) from error
                    count += 1
                    bar.update(task, completed=count, rate=_rate(count, started))
                    end()
        except BaseException:
            echo(f"moved {count} of {counted(wanted, 'message')}", err=True)
            raise
    return count


def _limited(messages: Iterable[Message], count: int) -> Iterator[Message]:
    """Yield at most `count` messages, the number at the beginning: a copy into the same queue would never end."""
    for number, message in enumerate(messages):
        if number >= count:
            return
        yield message


@click.command()
@click.argument("queue")
@output_file
@click.option("--resume", is_flag=True, help="Append to FILE the messages that it does not contain yet.")
@protocol_option
@connected
def export(qm: QueueManager, queue: str, file: Path | None, resume: bool, protocol: ProtocolWord) -> None:
    """Write all messages as JSON lines to FILE or standard output (-): every property, the body in base64.

    Removes no message.
    """
    if resume and file is None:
        raise click.UsageError("--resume requires FILE")
    with nullcontext() if file is None else alone(file, "ab"):
        _export(qm, queue, file, resume, protocol)


def _export(qm: QueueManager, queue: str, file: Path | None, resume: bool, protocol: ProtocolWord) -> None:
    written = Export(file) if resume and file is not None else None
    total = _count(qm, path_of(queue))
    count = skipped = 0
    with (
        qm.open(path_of(queue), "peek", protocol=protocol) as opened,
        progress("exporting") as bar,
        written.append()
        if written
        else file.open("w", encoding="utf-8")
        if file
        else nullcontext(sys.stdout) as output,
    ):
        task = bar.add_task("", total=total, rate="")
        started = time.monotonic()
        for message in opened:
            if written is not None and message.identifier.hex() in written.identifiers:
                skipped += 1
            else:
                output.write(printable_json(to_json(message)) + "\n")
                count += 1
            bar.update(task, completed=count + skipped, rate=_rate(count, started))
        if file is not None:  # the queue may be purged next
            output.flush()
            os.fsync(output.fileno())
    known = f"; {skipped} were already in the file" if skipped else ""
    echo(f"exported {counted(count, 'message')} of {path_of(queue)}{known}", err=True)


def _count(qm: QueueManager, path: str) -> int | None:
    """Return the number of messages; None if the caller may peek but not read the properties of the queue."""
    try:
        return qm.counts(path)["message_count"]
    except AccessDenied:
        return None


@click.command("import")
@click.argument("queue")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--restart", is_flag=True, help="Start from the beginning instead of resuming an interrupted import.")
@_transaction_option
@json_option
@connected
def import_(qm: QueueManager, queue: str, file: Path, restart: bool, transaction: bool, as_json: bool) -> None:
    """Send the messages of a file that `export` wrote.

    Progress is stored in FILE.progress. An interrupted import resumes if the queue, the queue manager and the lines
    already sent are unchanged; otherwise it is refused. If the queue manager refuses a message, the error has the
    number of its line: correct or remove it, and repeat the command. After a crash, messages in flight may be sent
    again: at most 64, or 200 in a transaction.
    """
    target = path_of(queue)
    with alone(file, "rb"), qm.open(name_for_any(qm, target), "send") as opened:
        source = MessageImport(file, f"{target} of queue manager {qm.machine_id}", restart=restart)
        transactional = transaction or is_transactional(qm, target)
        left = source.total - source.done
        count = _send_all(qm, opened, source.messages(), left, transactional, "importing", source.name, source.remember)
        source.finish()
    skipped = f"; {source.done} had already been imported" if source.done else ""
    document = {"imported": count, "skipped": source.done, "queue": target}
    report(as_json, f"imported {counted(count, 'message')} into {target}{skipped}", document, err=True)


def _send_all(
    qm: QueueManager,
    target: MessageQueue,
    messages: Iterable[Message],
    total: int,
    transactional: bool,
    verb: str,
    name: Name,
    remember: Remember | None = None,
) -> int:
    """Send messages with a progress bar, many at a time, in transactions of bounded size if the queue is transactional.

    `remember` is called after each part: with None if all its messages were sent, else with a flag for each. Raises
    MsmqError, which has the `name` of the first message that failed.
    """
    count = 0
    with progress(verb) as bar, between_messages() as end:
        task = bar.add_task("", total=total, rate="")
        started = time.monotonic()
        waiting = map(sendable, messages)
        while sent := _send_part(qm, target, waiting, transactional, name, remember):
            count += sent
            bar.update(task, completed=count, rate=_rate(count, started))
            end()
    return count


def _send_part(
    qm: QueueManager,
    target: MessageQueue,
    waiting: Iterator[Message],
    transactional: bool,
    name: Name,
    remember: Remember | None,
) -> int:
    part: list[Message] = []
    try:
        if transactional:
            with qm.transaction() as transaction:
                sent = target.send_many(_kept(islice(waiting, _BATCH), part), transaction=transaction)
        else:
            sent = target.send_many(_kept(islice(waiting, _PART), part))
    except MessagesNotSent as error:
        index, first = min(error.errors.items())
        where = name(index, part[index])
        if remember is not None:
            remember([] if transactional else [identifier is not None for identifier in error.sent])
        raise _refused(first, where) from error
    except ValueError:  # an unreadable line of the file: the messages before it were sent
        if remember is not None:
            remember([] if transactional else None)
        raise
    if remember is not None:
        remember(None)
    return len(sent)


def _kept(messages: Iterable[Message], part: list[Message]) -> Iterator[Message]:
    for message in messages:
        part.append(message)
        yield message


def _by_id(position: int, message: Message) -> str:
    return f"message {message.id}"


def _refused(error: MsmqError, where: str) -> MsmqError:
    """Return the error of a queue manager with the name of the message; others do not depend on the message."""
    if error.hresult is None or isinstance(error, ConnectionError):
        return error
    return error_for(error.hresult, f"{where}: {error.detail}")


def _rate(count: int, started: float) -> str:
    elapsed = time.monotonic() - started
    return f"{count / elapsed:,.0f}/s" if elapsed > 0.5 else ""
