"""Optional requirements of tests: without them, tests are skipped; if CI is set, they fail."""

from __future__ import annotations

import importlib
import os
import shutil
from types import ModuleType
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip or fail a test that cannot run here; `reason` names what to install."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def program(name: str, remedy: str) -> str:
    """Return the path of a program; `remedy` says how to install it."""
    return shutil.which(name) or missing(f"{name} is not installed: {remedy}")


def library(name: str, remedy: str) -> ModuleType:
    """Return an optional library; `remedy` says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(f"{name} is not installed: {remedy}")
