"""The channel from a child process to its daemon."""

from __future__ import annotations

import subprocess
import sys

ASK = """
import socket
from openmsmq.processes.link import DaemonLink
ours, theirs = socket.socketpair()
theirs.shutdown(socket.SHUT_RD)  # so the first that notices is who sends
DaemonLink(ours).ask("anything", b"bytes")
print("goes on")
"""


def test_a_process_whose_daemon_is_gone_ends_before_it_answers_anybody() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
