"""What an operator does, without a command line and without printing: rights, dead letters, selections of messages,
definitions, backups, the audit log. The command line and whatever else serves operators stand above it."""
