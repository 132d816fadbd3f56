"""Processes beside the daemon: how one is started, watched and ended, and how the two speak with each other."""
