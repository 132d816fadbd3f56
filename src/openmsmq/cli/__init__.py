"""`openmsmq …`: run the daemon and work with queues and messages from a shell."""

from openmsmq.cli.root import main

__all__ = ["main"]
