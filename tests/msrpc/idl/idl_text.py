"""Compile IDL text of tests."""

from __future__ import annotations

import itertools
import sys
from types import ModuleType
from typing import Any

from msrpc.idl.parser import parse
from msrpc.idl.python_backend import generate, generate_ndr64
from msrpc.idl.python_emitter import NDR64_SUFFIX
from msrpc.idl.semantics import Analyzer
from msrpc.idl.wiretypes import LibraryType
from msrpc.ndr import Interface

NAME = "test.idl"
_numbers = itertools.count()


def library(text: str, **imports: str) -> LibraryType:
    """Compile `text` with the front end; `imports` maps names without `.idl` to texts."""
    files = {NAME: text, **{f"{name}.idl": content for name, content in imports.items()}}
    return Analyzer(lambda name: parse(files[name], name)).analyze(NAME)


def module(text: str) -> dict[str, Any]:
    """Return the names of the generated module."""
    name, found = f"compiled_idl_{next(_numbers)}", library(text)
    for made, source in (
        (name, generate(found, NAME, lambda _: name)),
        (name + NDR64_SUFFIX, generate_ndr64(found, NAME, lambda _: name)),
    ):
        sys.modules[made] = ModuleType(made)
        exec(compile(source, "generated", "exec"), sys.modules[made].__dict__)
    return sys.modules[name].__dict__


def interface(text: str) -> tuple[Interface, dict[str, Any]]:
    """Return the only interface of `text`, and the names of the module."""
    names = module(text)
    return next(value for value in names.values() if isinstance(value, Interface)), names
