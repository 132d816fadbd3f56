"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# A machine that does other things beside is slow now and then; that is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
