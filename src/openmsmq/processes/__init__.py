"""Child processes of the daemon: supervision, IPC, logging."""
