"""Captures read by tshark: the tree of Wireshark's dissectors as Python objects.

    layers = read(path, {2103: "dcerpc"}, tmp_path)

Every PDU is a layer of its own, also if several are in one segment, or one is in several segments.
"""

from __future__ import annotations

import os
import struct
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from requirements import program

WARNING = 0x600000  # _ws.expert.severity; errors are above
_BELOW = {"geninfo", "frame", "eth", "ip", "tcp"}
REQUEST, RESPONSE, FAULT, BIND, BIND_ACK, ALTER, ALTER_RESPONSE = 0, 2, 3, 11, 12, 14, 15
LAST, _OBJECT = 2, 0x80


@dataclass(frozen=True)
class Layer:
    """One PDU or message, as Wireshark reads it."""

    client_port: int
    is_from_client: bool
    frame: int
    element: ET.Element

    @property
    def name(self) -> str:
        return self.element.get("name", "")

    def texts(self, field: str) -> list[str]:
        """Return all values of a field, without those that Wireshark hides."""
        found = (part for part in self.element.iter("field") if part.get("name") == field)
        return [part.get("show", "") for part in found if part.get("hide") != "yes"]

    def text(self, field: str) -> str:
        (value,) = self.texts(field)
        return value

    def numbers(self, field: str) -> list[int]:
        return [int(value, 0) for value in self.texts(field)]

    def number(self, field: str) -> int:
        return int(self.text(field), 0)

    def octets(self, field: str) -> bytes:
        """Return the last value of a field: for fragments, it is that of the whole."""
        found = [part for part in self.element.iter("field") if part.get("name") == field]
        return bytes.fromhex(found[-1].get("value", "")) if found else b""

    @property
    def concerns(self) -> list[str]:
        """The texts of warnings and errors, which include failed dissections."""
        experts = [part for part in self.element.iter("field") if part.get("name") == "_ws.expert"]
        severe = [expert for expert in experts if int(_shown(expert, "_ws.expert.severity")) >= WARNING]
        return [_shown(expert, "_ws.expert.message") for expert in severe]


def _shown(element: ET.Element, name: str) -> str:
    """Return the value of the first field of this name, also if it is hidden."""
    return next(part.get("show", "") for part in element.iter("field") if part.get("name") == name)


def read(capture: Path, protocols: Mapping[int, str], password: str, directory: Path) -> list[Layer]:
    """Return the layers above TCP, and those of TCP that Wireshark warns of. `password` decrypts what is sealed with
    NTLM; the settings of the user who runs the tests do not count."""
    command = [program("tshark", "make wireshark"), "-n", "-r", str(capture), "-T", "pdml"]
    for port, protocol in protocols.items():
        command += ["-d", f"tcp.port=={port},{protocol}"]
    for option in ("ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", f"ntlmssp.nt_password:{password}"):
        command += ["-o", option]
    command += ["-Y", f"tcp.len > 0 or _ws.expert.severity >= {WARNING}"]
    environment = os.environ | {"WIRESHARK_CONFIG_DIR": str(directory), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    packets = ET.fromstring(done.stdout.encode())
    return [layer for packet in packets.iter("packet") for layer in _layers(packet, set(protocols))]


def _layers(packet: ET.Element, server_ports: set[int]) -> Iterator[Layer]:
    protocols = {part.get("name", ""): part for part in packet.findall("proto")}
    frame = int(_shown(protocols["geninfo"], "num"), 0)
    source, destination = (int(_shown(protocols["tcp"], name)) for name in ("tcp.srcport", "tcp.dstport"))
    is_from_client = destination in server_ports
    for part in packet.findall("proto"):
        layer = Layer(source if is_from_client else destination, is_from_client, frame, part)
        if layer.name not in _BELOW or layer.concerns:
            yield layer


def reads_arguments_twice(invoke: Layer) -> bool:
    """Whether Wireshark finds fields that follow the arguments of Invoke ([MS-OAUT] 3.1.4.4) within the arguments.

    This holds only if the arguments end where they have to: what is left has the size of rgdispidNamedArgs, if there
    are named arguments, cVarRef, which is 0, and two conformant arrays without elements (C706 14.3.3)."""
    end, is_within = 0, False
    for part in invoke.element.iter("field"):
        if part.get("name") == "dispatch.arg":
            end = sum(_extent(part))
        elif part.get("name") in _AFTER_ARGUMENTS and _extent(part)[0] < end:
            is_within = True
    start, size = _extent(invoke.element)
    if not is_within:
        return False
    named = invoke.number("dispatch.named_args")
    padding = (start - end) % 4
    return start + size - end == padding + (4 + 4 * named if named else 0) + 12


_AFTER_ARGUMENTS = {"dispatch.id", "dispatch.varref"}  # rgdispidNamedArgs, cVarRef


def _extent(element: ET.Element) -> tuple[int, int]:
    """Return position and size."""
    return int(element.get("pos", "")), int(element.get("size", ""))


# -- DCE/RPC -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Header:
    """The header of a PDU (C706 12.6.3) with the head of its authentication trailer ([MS-RPCE] 2.2.2.11).

    `call` has alloc_hint, the context and, in requests, the operation; `security` has type, level, padding and context.
    """

    kind: int
    flags: int
    is_little_endian: bool
    length: int
    auth_length: int
    call_id: int
    call: tuple[int, ...]
    security: tuple[int, ...]

    @property
    def stub_length(self) -> int:
        fixed = 24 + (16 if self.flags & _OBJECT else 0)
        return self.length - fixed - (self.auth_length + 8 + self.security[2] if self.auth_length else 0)


def sent_headers(stream: bytes) -> Iterator[Header]:
    """Parse the headers of one direction of a connection."""
    while stream:
        order = "<" if stream[4] & 0x10 else ">"
        kind, flags = stream[2:4]
        length, auth_length, call_id = struct.unpack_from(f"{order}HHI", stream, 8)
        call: tuple[int, ...] = struct.unpack_from(f"{order}IHH", stream, 16) if kind in _WITH_STUB else ()
        trailer = struct.unpack_from(f"{order}BBBxI", stream, length - auth_length - 8) if auth_length else ()
        has_operation = kind == REQUEST
        yield Header(
            kind, flags, order == "<", length, auth_length, call_id, call if has_operation else call[:2], trailer
        )
        stream = stream[length:]


_WITH_STUB = {REQUEST, RESPONSE, FAULT}
_CALL = ("dcerpc.cn_alloc_hint", "dcerpc.cn_ctx_id", "dcerpc.opnum")
_SECURITY = ("dcerpc.auth_type", "dcerpc.auth_level", "dcerpc.auth_pad_len", "dcerpc.auth_ctx_id")


def dissected_header(layer: Layer) -> Header:
    kind = layer.number("dcerpc.pkt_type")
    call = _CALL[: 3 if kind == REQUEST else 2] if kind in _WITH_STUB else ()
    auth_length = layer.number("dcerpc.cn_auth_len")
    return Header(
        kind,
        layer.number("dcerpc.cn_flags"),
        layer.number("dcerpc.drep.byteorder") == 1,
        layer.number("dcerpc.cn_frag_len"),
        auth_length,
        layer.number("dcerpc.cn_call_id"),
        tuple(layer.number(field) for field in call),
        tuple(layer.number(field) for field in _SECURITY) if auth_length else (),
    )


@dataclass(frozen=True)
class Call:
    """A call with its response or fault, each the last fragment; `frame` is that of the first fragment of the request.
    `stub` is that of the response, decrypted and reassembled, and empty if Wireshark has a dissector for it."""

    interface: str
    syntax: str
    opnum: int
    frame: int
    request: Layer
    response: Layer
    stub: bytes

    @property
    def result(self) -> int:
        """The value that the operation returns, at the end of its stub; of a fault, its status."""
        if self.response.number("dcerpc.pkt_type") == FAULT:
            return self.response.number("dcerpc.cn_status")
        assert len(self.stub) >= 4
        return int.from_bytes(self.stub[-4:], "little")

    @property
    def summary(self) -> tuple[str, int, int]:
        return self.interface, self.opnum, self.result


def calls(layers: Iterable[Layer]) -> list[Call]:
    """Return the calls of connections in the order of their responses, with the interfaces that were bound."""
    offered: dict[int, list[tuple[int, str, str]]] = {}
    bound: dict[tuple[int, int], tuple[str, str]] = {}
    requests: dict[tuple[int, int], list[Layer]] = {}
    found = []
    for layer in layers:
        if layer.name != "dcerpc":
            continue
        header, port = dissected_header(layer), layer.client_port
        if header.kind in (BIND, ALTER):
            fields = ("dcerpc.cn_ctx_id", "dcerpc.cn_bind_to_uuid", "dcerpc.cn_bind_trans_id")
            numbers, *names = (layer.texts(field) for field in fields)
            offered[port] = list(zip(map(int, numbers), *names, strict=True))
        elif header.kind in (BIND_ACK, ALTER_RESPONSE):
            results = layer.numbers("dcerpc.cn_ack_result")
            for (number, *syntaxes), result in zip(offered[port], results, strict=True):
                if result == 0:
                    bound[port, number] = (syntaxes[0], syntaxes[1])
        elif header.kind == REQUEST:
            requests.setdefault((port, header.call_id), []).append(layer)
        elif header.kind in (RESPONSE, FAULT) and header.flags & LAST:
            fragments = requests.pop((port, header.call_id))
            _, context, opnum = dissected_header(fragments[-1]).call
            stub = layer.octets("dcerpc.decrypted_stub_data") or layer.octets("dcerpc.stub_data")
            found.append(Call(*bound[port, context], opnum, fragments[0].frame, fragments[-1], layer, stub))
    assert not requests, "requests without a response"
    return found
