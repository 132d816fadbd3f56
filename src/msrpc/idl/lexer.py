"""Tokens of the IDL text (C706 chapter 6, with the MIDL spellings of the published appendices).

`tokenize` is a generator of `Lexeme`; comments and preprocessor lines other than `#define NAME VALUE` do not affect the
wire format and are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class IdlError(Exception):
    """Invalid or unsupported IDL; the message names file and line."""


class Lexeme(NamedTuple):
    kind: str  # "name", "number", "string", "uuid", "define", "op" or "end"
    text: str
    line: int


_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<define>\#define[ \t]+[A-Za-z_]\w*[ \t]+[^\n]+)
  | (?P<directive>\#[^\n]*)
  | (?P<uuid>[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12})
  | (?P<number>0[xX][0-9A-Fa-f]+[uUlL]*|\d+\.\d+|\d+[uUlL]*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<string>L?"(?:[^"\\\n]|\\.)*"|L?'(?:[^'\\\n]|\\.)*')
  | (?P<op><<|>>|==|!=|<=|>=|&&|\|\||\.\.|[\[\]{}()<>,;:=*&|+\-/%?~!.^])
    """,
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str, filename: str) -> Iterator[Lexeme]:
    """Yield the tokens of `text`, ending with one of kind "end". Raises IdlError for an invalid character."""
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise IdlError(f"{filename}:{line}: unexpected character {text[position]!r}")
        kind = match.lastgroup or ""
        if kind not in ("space", "directive"):
            yield Lexeme(kind, match.group(), line)
        line += match.group().count("\n")
        position = match.end()
    yield Lexeme("end", "", line)
