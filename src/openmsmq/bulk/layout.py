"""The fixed part of a message record (queueing/records.py) as a numpy type, to take thousands apart at once."""

from __future__ import annotations

import numpy as np

#: What follows the fixed part, in this order; `lengths` has the bytes of each.
PARTS = (
    "body", "extension", "sender", "certificate", "symmetric_key", "signature",
    "label", "destination", "administration", "response", "transaction_status", "provider",
)  # fmt: skip
PART = {name: index for index, name in enumerate(PARTS)}
VERSION = 1

FIXED = np.dtype(
    [
        ("version", "u1"), ("priority", "u1"), ("delivery", "u1"), ("acknowledgements", "u1"), ("journaling", "u1"),
        ("tracing", "u1"), ("authentication", "u1"), ("flags", "u1"),
        ("class", "<u2"), ("abort_count", "<u2"), ("move_count", "<u2"), ("reserved", "<u2"),
        ("application_tag", "<u4"), ("body_type", "<u4"), ("time_to_reach_queue", "<u4"),
        ("time_to_be_received", "<u4"), ("sent_time", "<u4"), ("arrival_time", "<u4"), ("privacy_level", "<u4"),
        ("hash_algorithm", "<u4"), ("encryption_algorithm", "<u4"), ("sender_type", "<u4"), ("provider_type", "<u4"),
        ("last_move_time", "<u4"), ("reserved_2", "<u4"),
        ("identifier", "V20"), ("correlation", "V20"), ("source_machine", "V16"), ("connector", "V16"),
        ("transaction", "V20"), ("lengths", "<u4", (len(PARTS),)),
    ]
)  # fmt: skip
