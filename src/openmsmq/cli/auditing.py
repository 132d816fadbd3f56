"""`openmsmq audit`"""

from __future__ import annotations

from openmsmq.actions.audit import list_records
from openmsmq.cli.derived import command_of

audit = command_of(list_records)
