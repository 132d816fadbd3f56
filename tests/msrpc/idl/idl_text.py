"""Compile IDL that a test writes down itself."""

from __future__ import annotations

from typing import Any

from msrpc.idl.parser import parse
from msrpc.idl.python_backend import generate
from msrpc.idl.semantics import Analyzer
from msrpc.idl.wiretypes import LibraryType
from msrpc.ndr import Interface

NAME = "test.idl"


def library(text: str, **imports: str) -> LibraryType:
    """What the front end makes of `text`; `imports` maps names without `.idl` to texts."""
    files = {NAME: text, **{f"{name}.idl": content for name, content in imports.items()}}
    return Analyzer(lambda name: parse(files[name], name)).analyze(NAME)


def module(text: str) -> dict[str, Any]:
    """The names of the generated module."""
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(generate(library(text), NAME), "generated", "exec"), names)
    return names


def interface(text: str) -> tuple[Interface, dict[str, Any]]:
    """The one interface of `text`, and the module."""
    names = module(text)
    return next(value for value in names.values() if isinstance(value, Interface)), names
