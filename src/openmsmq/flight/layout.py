"""The fixed part of a message record (record/fields.py) as a numpy type, to parse thousands at once."""

from __future__ import annotations

import numpy as np

from openmsmq.record import fields

_TYPES = {"B": "u1", "H": "<u2", "I": "<u4", "16s": "V16", "20s": "V20"}

#: Variable parts after the fixed part, in this order; `lengths` has the bytes of each.
PARTS = tuple(name for name, _ in fields.PARTS)
PART = {name: index for index, name in enumerate(PARTS)}
VERSION = fields.VERSION

FIXED = np.dtype([(field.name, _TYPES[field.code]) for field in fields.FIELDS] + [("lengths", "<u4", (len(PARTS),))])
