"""The engine is a compiled module: its tests run only with TESTS=compiled."""

from openmsmq import compiled

collect_ignore = [] if compiled.is_native() else ["test_engine.py"]
