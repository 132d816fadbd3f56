"""`openmsmq settings`"""

from __future__ import annotations

from openmsmq.actions.settings import list_settings
from openmsmq.cli.derived import command_of

settings = command_of(list_settings)
