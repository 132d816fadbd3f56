"""A queue manager with one queue, `q`."""

from __future__ import annotations

import pytest

from queueing.world import World


@pytest.fixture
def world() -> World:
    world = World()
    world.create()
    return world
