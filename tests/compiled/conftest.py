from __future__ import annotations

from openmsmq import compiled

collect_ignore = [] if compiled.in_use else ["test_arguments.py"]
