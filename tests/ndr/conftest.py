"""The engine is only there among compiled modules: its tests belong to the second run, with TESTS=compiled."""

from openmsmq import compiled

collect_ignore = [] if compiled.is_native() else ["test_engine.py"]
