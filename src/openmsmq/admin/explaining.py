"""Explain why messages for another machine wait, from the management properties of an outgoing queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openmsmq.model.text import counted, time_text

# ConnectionHistory.Status ([MS-MQMQ] 2.3.12.25): event and remedy. `{hop}` is the address.
_STATUS = {
    0x00000000: ("connecting to {hop}", "wait a moment and look again"),
    0x00000001: ("{hop} has answered, and the session is not open yet", "wait a moment and look again"),
    0x00000002: ("the last session with {hop} was opened", ""),
    0x80000000: (
        "the session with {hop} ended before messages could be sent, or without an acknowledgment",
        "the log of the queue manager says why; openmsmq connect-test HOST tries to open a session",
    ),
    0x80000001: ("{hop} did not answer a ping", "see whether UDP port 3527 is open, and the machine on"),
    0x80000003: ("the address of this machine could not be used for the connection", "see the setting listen"),
    0x80000004: (
        "no connection to {hop}: the port is closed, a firewall drops packets, or the machine is off",
        "openmsmq connect-test HOST says which of them",
    ),
    0x80000008: (
        "the destination was not found: its name does not resolve, or no address is known for its identifier",
        "look the name up on this machine (getent hosts NAME); see the settings peers and routing_file",
    ),
    0x80000009: ("the message could not be encrypted for the destination", "see openmsmq keys"),
    0x8000000A: ("there are too many sessions", "see the setting max_sessions, here and there"),
    0x8000000B: (
        "{hop} has refused the session: it is another queue manager than the one that was meant, or it has too many",
        "compare the identifier in the format name with that of the machine",
    ),
    0x8000000C: ("there is no route to the destination", "see the setting routing_file"),
    0x8000000D: ("{hop} is full", "see its disk and its quota"),
}


def explanation(queue: Mapping[str, Any], connected: Any = None) -> list[str]:
    """Explain in lines why messages do not leave. `connected` is the machine's property of that name."""
    count = int(queue.get("message_count") or 0)
    name = queue.get("format_name") or queue.get("path_name")
    lines = [f"{counted(count, 'message')} for {name}"]
    state = str(queue.get("state"))
    if state == "ONHOLD":
        lines.append(f"The queue is paused. To continue: openmsmq outgoing resume '{name}'")
    elif str(connected).upper() == "DISCONNECTED" or state == "DISCONNECTED":
        lines.append("This queue manager was taken offline. To continue: openmsmq machine connect")
    elif not count:
        lines.append("Nothing waits.")
    elif state == "CONNECTED":
        lines += _connected(queue)
    else:
        lines += _unconnected(queue)
    kept = int(queue.get("eod_no_read_count") or 0)
    if kept:
        lines.append(
            f"{counted(kept, 'message')} of transactions arrived and {'is' if kept == 1 else 'are'} kept for the "
            "journal or the dead letters, until the destination sends their final acknowledgments"
        )
    return lines


def _connected(queue: Mapping[str, Any]) -> list[str]:
    waiting = int(queue.get("eod_no_ack_count") or 0)
    lines = ["The session is open; messages leave the queue when the other side acknowledges them."]
    if waiting:
        lines.append(
            f"{counted(waiting, 'message')} of transactions wait for the acknowledgment of their order. They are sent "
            f"again by themselves, {queue.get('eod_resend_count') or 0} times up to now"
        )
    return lines


def _unconnected(queue: Mapping[str, Any]) -> list[str]:
    history = queue.get("connection_history") or []
    if not history:
        return ["No connection was tried yet."]
    lines = []
    latest = history[-1]
    hop = " ".join(latest.get("addresses") or []) or "the destination"
    what, todo = _STATUS.get(
        latest["status"] & 0xFFFFFFFF, ("the connection failed", "see the log of the queue manager")
    )
    lines.append(f"{time_text(latest['time'])}: {what.format(hop=hop)}.")
    if todo:
        lines.append(f"What to do: {todo}.")
    failures = sum(1 for event in history if event["status"] & 0x80000000)
    lines.append(
        f"{counted(failures, 'attempt')} of the latest {len(history)} failed; the next one follows automatically."
    )
    return lines
