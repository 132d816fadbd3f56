"""What holds for all tests.

Tests in this process are of the sources, with TESTS=compiled in the environment of the compiled modules, which take no
test doubles. The daemons that tests start are what a user starts: compiled, where that has been done.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

if os.environ.get("TESTS") == "compiled":
    from openmsmq import compiled

    assert compiled.in_use, "nothing is compiled: run tools/compile"
elif "OPENMSMQ_PURE" not in os.environ:
    os.environ["OPENMSMQ_PURE"] = "1"
    import openmsmq  # noqa: F401

    del os.environ["OPENMSMQ_PURE"]

# A machine that does other things beside is slow now and then; that is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that one worker does it while the other does the rest."""

    def is_long(item: pytest.Item) -> bool:
        group = item.get_closest_marker("xdist_group")
        return group is not None and group.args == ("kills",)

    items.sort(key=lambda item: not is_long(item))
