"""What tests want of the machine that may not be there: they skip then, but where CI is set, that is a failure."""

from __future__ import annotations

import importlib
import os
import shutil
from types import ModuleType
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """The test can't run here; `reason` says what to install."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def program(name: str, remedy: str) -> str:
    """The path of a program; `remedy` is what installs it."""
    return shutil.which(name) or missing(f"{name} is not installed: {remedy}")


def library(name: str, remedy: str) -> ModuleType:
    """An optional library; `remedy` is what installs it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(f"{name} is not installed: {remedy}")
