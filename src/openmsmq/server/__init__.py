"""The daemon: configuration, listeners, start-up order, shutdown."""
