"""`openmsmq …`: the daemon, queues and messages from a shell."""

from openmsmq.cli.root import main

__all__ = ["main"]
