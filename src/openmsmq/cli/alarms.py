"""`openmsmq alarms`, `openmsmq alarm …`"""

from __future__ import annotations

import click

from openmsmq.actions.alarms import ACTIONS, list_alarms
from openmsmq.cli.derived import add_commands, command_of

alarms = command_of(list_alarms)


@click.group()
def alarm() -> None:
    """Silence alarms for a time, and change their thresholds while the daemon runs."""


add_commands(alarm, ACTIONS)
