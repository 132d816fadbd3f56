"""`openmsmq decode`"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from msrpc.ndr import Interface
from msrpc.ndr.runtime import Operation
from openmsmq.cli.captures import BadCapture, is_capture, pieces
from openmsmq.cli.dissecting import INTERFACES, Conversation, DissectionFinding, find, find_stub
from openmsmq.cli.output import echo, json_option, print_json

_LONGEST = 64  # bytes of a field in the output for people; --json shows all
_SEPARATORS = re.compile(r"[\s:,]+|\b0x")
_NAMES = [interface.name for interface in INTERFACES]


@click.command()
@click.argument("hexadecimal", metavar="[HEX]", required=False)
@click.option(
    "--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="HEX in a file, or a pcap file."
)
@click.option("--interface", type=click.Choice(_NAMES), help="Interface of calls whose bind PDU is not in the input.")
@click.option("--operation", help="Decode the bytes as the request stub of this operation, without any header.")
@click.option("--response", is_flag=True, help="With --operation: decode a response stub.")
@click.option("--big-endian", is_flag=True, help="With --operation: the stub is big-endian.")
@json_option
def decode(
    hexadecimal: str | None, file: Path | None, interface: str | None, operation: str | None, response: bool,
    big_endian: bool, as_json: bool,
) -> None:  # fmt: skip
    """Decode bytes from the network: DCE/RPC PDUs with the fields of their calls, and message packets.

    HEX is an argument, a file or standard input. A pcap file contains whole connections. Exit code 1 if anything could
    not be decoded.
    """
    if hexadecimal is not None and file is not None:
        raise click.UsageError("give HEX or --file, not both")
    if operation is None and (response or big_endian):
        raise click.UsageError("--response and --big-endian need --operation")
    given = next((each for each in INTERFACES if each.name == interface), None)
    data = hexadecimal.encode() if hexadecimal is not None else file.read_bytes() if file else sys.stdin.buffer.read()
    if operation is not None:
        found = iter([find_stub(_bytes_of(data), _operation(operation, given), response, ">" if big_endian else "<")])
    elif is_capture(data):
        found = _of_capture(data, given)
    else:
        found = find(_bytes_of(data), given)
    failed = False
    for finding in found:
        failed |= bool(finding.error)
        _show(finding, as_json)
    sys.exit(1 if failed else 0)


def _bytes_of(text: bytes) -> bytes:
    try:
        return bytes.fromhex(_SEPARATORS.sub("", text.decode("ascii")))
    except ValueError as error:
        raise click.UsageError(f"neither hexadecimal digits nor a pcap file: {error}") from None


def _operation(name: str, interface: Interface | None) -> Operation:
    for each in [interface] if interface else INTERFACES:
        for operation in each.operations:
            if operation.name == name and operation.used_on_wire:
                return operation
    raise click.UsageError(f"no interface has an operation {name!r}; `openmsmq protocols` lists the operations")


def _of_capture(data: bytes, interface: Interface | None) -> Iterator[DissectionFinding]:
    conversations: dict[frozenset[str], Conversation] = {}
    try:
        for piece in pieces(data):
            both = f"{piece.source} to {piece.destination}: "
            conversation = conversations.setdefault(
                frozenset((piece.source, piece.destination)), Conversation(interface)
            )
            for finding in conversation.feed(piece.source, piece.data):
                yield DissectionFinding(both + finding.heading, finding.fields, finding.error)
            if piece.error:
                yield DissectionFinding(both + "a gap", {}, piece.error)
    except BadCapture as error:
        yield DissectionFinding("capture", {}, str(error))
    for ends, conversation in conversations.items():
        for finding in conversation.end():
            yield DissectionFinding(f"{' and '.join(sorted(ends))}: {finding.heading}", finding.fields, finding.error)


# -- output -----------------------------------------------------------------------------------------------------


def _show(finding: DissectionFinding, as_json: bool) -> None:
    if as_json:
        error = {"error": finding.error} if finding.error else {}
        print_json({"found": finding.heading, "fields": finding.fields, **error})
        return
    echo(finding.heading)
    for line in _lines(finding.fields, 1):
        echo(line)
    if finding.error:
        echo(f"  ERROR {finding.error}")


def _lines(values: Mapping[str, Any], depth: int) -> Iterator[str]:
    for name, value in values.items():
        indented = f"{'  ' * depth}{name}"
        if isinstance(value, list) and value:
            value = {f"[{index}]": element for index, element in enumerate(value)}
        if isinstance(value, Mapping):
            yield indented
            yield from _lines(value, depth + 1)
        else:
            yield f"{indented} = {_text(value)}"


def _text(value: Any) -> str:
    match value:
        case bytes() if len(value) > _LONGEST:
            return f"{value[:_LONGEST].hex()}... ({len(value)} bytes)"
        case bytes():
            return f"{value.hex()} ({len(value)} bytes)" if value else "no bytes"
        case str():
            return f'"{value}"'
        case bool() | None:
            return str(value)
        case int() if value > 9:
            return f"{value} ({value:#x})"
    return str(value)
