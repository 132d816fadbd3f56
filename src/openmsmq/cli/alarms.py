"""`openmsmq alarms`"""

from __future__ import annotations

from openmsmq.actions.alarms import list_alarms
from openmsmq.cli.derived import command_of

alarms = command_of(list_alarms)
