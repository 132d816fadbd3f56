"""What the Python source and the connector have to do alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from daemon import Daemon
from spark import lake
from spark.lake import table


@pytest.mark.parametrize("spaced", ["{} ", " {}"], ids=["after", "before"])
def test_spaces_belong_to_the_name_of_a_queue(either: Any, service: Daemon, queue: str, spaced: str) -> None:
    name = spaced.format(queue)
    lake.create(service, name)
    lake.put(service, queue, "a")
    lake.put(service, name, "b")
    assert [row.label for row in table(either, service, queue=name).collect()] == ["b"]
    assert [row.label for row in table(either, service, queue=queue).collect()] == ["a"]
