"""Message bodies: detect the format; convert to text for a terminal and to a JSON value."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple
from xml.dom import minidom
from xml.parsers.expat import ExpatError

from openmsmq.model.bodies import BodyError
from openmsmq.model.constants import VarType
from openmsmq.model.message import Message
from openmsmq.model.nrbf import NrbfError, decode_nrbf, looks_like_nrbf
from openmsmq.model.text import printable

HEX_LINES = 32  # lines of 16 bytes; --body-only and --json output all bytes
_BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_LATIN = 0x250  # end of the Latin scripts


class Shown(NamedTuple):
    """A converted body. `kind` is the detected format: empty, text, json, xml, nrbf, binary, or a VARTYPE such as
    vt_i4. `value` is for JSON; None for binary, whose bytes are in the body property of the message."""

    kind: str
    text: str
    value: Any


def show(message: Message) -> Shown:
    """Convert the body of a message according to its body type, or else its content. Any body can be shown."""
    try:
        value = message.decode()
    except BodyError:
        return _binary(message.body)
    if not isinstance(value, bytes):
        kind = VarType(message.body_type).name.lower()
        return Shown(kind, printable(str(value), multiline=True), jsonable(value))
    if not value:
        return Shown("empty", "", "")
    if looks_like_nrbf(value):
        try:
            decoded = jsonable(decode_nrbf(value))
            return Shown("nrbf", printable(_pretty(decoded), multiline=True), decoded)
        except (NrbfError, RecursionError) as error:
            return _binary(value, f"damaged .NET binary, {error}\n")
    text = text_of(value)
    return _binary(value) if text is None else _shown_text(text)


def show_as(message: Message, form: Literal["json", "xml", "text"]) -> str:
    """Return the body in one form, regardless of its type. Raises ValueError for a body that does not have it."""
    try:
        value = message.decode()
    except BodyError:
        value = message.body
    if isinstance(value, bytes):
        value = text_of(value) or value.decode("utf-8", "replace")
    text = str(value)
    if form == "json":
        try:
            text = _pretty(json.loads(text))
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
    elif form == "xml":
        pretty = _pretty_xml(text)
        if pretty is None:
            raise ValueError("it is not well formed, or it declares entities")
        text = pretty
    return printable(text, multiline=True)


def _shown_text(text: str) -> Shown:
    stripped = text.lstrip()
    if stripped[:1] in ("{", "["):
        try:
            document = json.loads(text)
            return Shown("json", printable(_pretty(document), multiline=True), jsonable(document))
        except (ValueError, RecursionError):
            pass
    if stripped.startswith("<"):
        pretty = _pretty_xml(text)
        if pretty is not None:
            return Shown("xml", printable(pretty, multiline=True), text)
    return Shown("text", printable(text, multiline=True), text)


def text_of(body: bytes) -> str | None:
    """Decode bytes as UTF-8 or UTF-16 text, or return None. Without a byte order mark, at least 25% of UTF-16
    characters must be Latin: half of all random bytes are valid UTF-16 of some script."""
    for mark, codec in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return _decoded(body[len(mark) :], codec)
    text = _decoded(body, "utf-8")
    if text is None:
        text = _decoded(body, "utf-16-le")
        if text is not None and 4 * sum(ord(c) < _LATIN for c in text) < len(text):
            return None
    return text


def _decoded(body: bytes, codec: str) -> str | None:
    try:
        text = body.decode(codec)
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c in "\r\n\t" for c in text) else None


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _pretty_xml(text: str) -> str | None:
    """Indent XML. Returns None for text that is not XML or that declares entities, which may be an expansion attack."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return None
    try:
        document = minidom.parseString(_without_declaration(text).encode("utf-8"))
        _drop_indentation(document)
        return "\n".join(node.toprettyxml(indent="  ").rstrip() for node in document.childNodes)
    except (ExpatError, ValueError, RecursionError):
        return None


def _without_declaration(text: str) -> str:
    """Remove an XML declaration: the text is already decoded, so the encoding in it is meaningless."""
    text = text.lstrip()
    return text.partition("?>")[2] if text.startswith("<?xml") else text


def _drop_indentation(node: Any) -> None:
    """Remove white space between elements, to which toprettyxml would add."""
    children = list(node.childNodes)
    between = [child for child in children if child.nodeType == minidom.Node.TEXT_NODE]
    if len(children) > len(between) and all(not child.data.strip() for child in between):
        for child in between:
            node.removeChild(child)
    for child in children:
        _drop_indentation(child)


def _binary(body: bytes, note: str = "") -> Shown:
    return Shown("binary", note + "\n".join(hex_lines(body)), None)


def hex_lines(body: bytes, most: int = 16 * HEX_LINES) -> Iterable[str]:
    """Dump at most `most` bytes: offset, 16 bytes, and their ASCII characters."""
    for start in range(0, min(len(body), most), 16):
        row = body[start : start + 16]
        ascii_ = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{start:08x}  {row[:8].hex(' '):23}  {row[8:].hex(' '):23}  {ascii_}"
    if len(body) > most:
        yield f"... {len(body)} bytes in all"


def jsonable(value: Any) -> Any:
    """Convert a value for JSON: bytes become hexadecimal, types that JSON lacks become text, integers stay exact."""
    if isinstance(value, dict):
        return {str(name): jsonable(part) for name, part in value.items()}
    if isinstance(value, list):
        return [jsonable(element) for element in value]
    if isinstance(value, bytes):
        return value.hex()
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
