"""Users, tokens, records, alarms, settings and backups of a daemon: in its data directory, or by its HTTP API."""
