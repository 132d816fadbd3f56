"""One module for each RPC interface: every operation is a small handler that calls the queue manager."""
