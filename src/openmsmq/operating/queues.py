"""What has to be known of a queue before messages are taken from it or sent to it."""

from __future__ import annotations

from openmsmq.client.sync import QueueManager
from openmsmq.model.errors import QueueNotFound


def is_transactional(qm: QueueManager, path: str) -> bool:
    """Whether a queue of this queue manager takes messages in transactions only. False for one of another machine, of
    which nothing is known here, and for journals and dead-letter queues, which are read without."""
    is_connector = path.upper().startswith("CONNECTOR=")
    if (";" in path and not is_connector) or path.upper().startswith("MACHINE="):
        return False
    try:
        return bool(qm.management(path)["transactional"] == "YES")
    except QueueNotFound:  # nothing has been sent there; or it is missing, as opening it will show
        return False
