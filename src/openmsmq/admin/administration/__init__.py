"""Definitions and backups of a daemon: in its data directory, or by its HTTP API."""
