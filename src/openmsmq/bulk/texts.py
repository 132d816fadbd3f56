"""Decode bodies to text: the column `text`, which the option `decode` of the data source adds."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from openmsmq.model.bodies import BodyError, decode_body
from openmsmq.model.constants import VarType
from openmsmq.model.nrbf import NrbfError, decode_nrbf, looks_like_nrbf
from openmsmq.model.text import as_unicode

TEXT: Final = pa.field("text", pa.string())
"""Name of the column."""

_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_UTF16_XML = {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}  # the start of XML without a byte-order mark

# Prefixes of untyped bodies that are not plain UTF-8; the last is that of .NET's BinaryFormatter.
_NOT_UTF8 = (*(mark for mark, _ in _MARKS), *_UTF16_XML, b"\0")


def with_text(batch: pa.RecordBatch, decode: str) -> tuple[pa.RecordBatch, int]:
    """Return the batch with the decoded bodies as its last column; null if a body is not text, or not JSON. Also return
    the number of such bodies and of those with characters replaced by U+FFFD."""
    bodies, kinds = batch.column("body"), batch.column("body_type").fill_null(0)
    texts, is_odd = _decoded(bodies, kinds)
    if decode == "json":
        is_json = np.array([text is None or _is_json(text) for text in texts.to_pylist()], np.bool_)
        is_odd |= ~is_json
        texts = pc.if_else(pa.array(is_json), texts, None)
    return batch.append_column(TEXT, texts), int(is_odd.sum())


def _decoded(bodies: pa.BinaryArray, kinds: pa.Int32Array) -> tuple[pa.StringArray, npt.NDArray[np.bool_]]:
    """Return the texts of bodies: UTF-8, or UTF-16 of ASCII characters, for all rows at once; others one by one. Also
    return a mask of the rows that are not text or have characters replaced."""
    done = pc.fill_null(_is_utf8(bodies, kinds), True)  # null stays null
    try:
        texts = (bodies if not done.false_count else pc.if_else(done, bodies, None)).cast(pa.string())
    except pa.ArrowInvalid:  # a body is not UTF-8
        done = pc.is_null(bodies)
        texts = pa.nulls(len(bodies), pa.string())
    wide = pc.and_not(pc.equal(kinds, VarType.VT_BSTR), done)
    if wide.true_count and (narrow := _narrowed(bodies.filter(wide))) is not None:
        texts, done = pc.replace_with_mask(texts, wide, narrow), pc.or_(done, wide)
    is_odd = np.zeros(len(bodies), np.bool_)
    rest = pc.invert(done)
    if rest.true_count:
        rows = zip(bodies.filter(rest).to_pylist(), kinds.filter(rest).to_pylist(), strict=True)
        given = [_as_text(body, kind) for body, kind in rows]
        slow = [None if text is None else as_unicode(text) for text in given]
        texts = pc.replace_with_mask(texts, rest, pa.array(slow, pa.string()))
        is_odd[rest.to_numpy(zero_copy_only=False)] = [
            text is None or text != before for text, before in zip(slow, given, strict=True)
        ]
    return texts, is_odd


def _is_utf8(bodies: pa.BinaryArray, kinds: pa.Int32Array) -> pa.BooleanArray:
    """Return a mask of the bodies without a type that begin like UTF-8 text without a byte-order mark."""
    found = pc.equal(kinds, VarType.VT_EMPTY)
    for start in _NOT_UTF8:
        found = pc.and_not(found, pc.starts_with(bodies, pattern=start))
    return found


def _narrowed(bodies: pa.BinaryArray) -> pa.StringArray | None:
    """Return the texts of UTF-16 bodies, if all characters are ASCII."""
    offsets = np.frombuffer(bodies.buffers()[1], np.int32)[bodies.offset : bodies.offset + len(bodies) + 1]
    if (np.diff(offsets) % 2).any():
        return None
    data = np.frombuffer(bodies.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]].view("<u2")
    if (data > 0x7F).any():
        return None
    buffers = [None, pa.py_buffer((offsets - offsets[0]) // 2), pa.py_buffer(data.astype(np.uint8))]
    return pa.Array.from_buffers(pa.string(), len(bodies), buffers)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):  # the latter if nested too deeply
        return False
    return True


def _as_text(body: bytes, kind: int) -> str | None:
    """Decode by the body type; an untyped body is .NET's binary format, UTF-8, or UTF-16 with a byte-order mark."""
    value: Any
    try:
        value = decode_body(body, kind)
    except BodyError:
        return None
    if isinstance(value, bytes):
        return _untyped(value)
    return None if value is None else str(value)


def _untyped(body: bytes) -> str | None:
    if looks_like_nrbf(body):
        try:
            root = decode_nrbf(body)
            return root if isinstance(root, str) else json.dumps(root, ensure_ascii=False, default=str)
        except (NrbfError, RecursionError, ValueError, TypeError):
            return None
    mark, codec = next(((mark, codec) for mark, codec in _MARKS if body.startswith(mark)), (b"", "utf-8"))
    if codec == "utf-8" and body[:2] in _UTF16_XML:
        codec = _UTF16_XML[body[:2]]
    try:
        return body[len(mark) :].decode(codec)
    except UnicodeDecodeError:
        return None
