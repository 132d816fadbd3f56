"""What holds for all tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compiled", action="store_true", help="test the compiled modules, which take no test doubles")


def pytest_configure(config: pytest.Config) -> None:
    """Tests in this process are of the sources; the daemons that they start are what a user starts: compiled."""
    if config.getoption("--compiled"):
        from openmsmq import compiled

        if not compiled.in_use:
            raise pytest.UsageError("nothing is compiled: run tools/compile")
        return
    before = os.environ.get("OPENMSMQ_PURE")
    os.environ["OPENMSMQ_PURE"] = "1"
    import openmsmq  # noqa: F401

    if before is None:
        del os.environ["OPENMSMQ_PURE"]

# A machine that does other things beside is slow now and then; that is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
