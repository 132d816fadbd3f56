"""`openmsmq job start|list|show|pause|resume|cancel`: background jobs of a daemon, through its HTTP API."""

from __future__ import annotations

import click

from openmsmq.actions import jobs
from openmsmq.cli.derived import add_commands


@click.group()
def job() -> None:
    """Run jobs on any number of messages in the background: start, show, pause, resume and cancel them.

    The daemon runs the jobs; the command uses its HTTP API, with a token.
    """


add_commands(job, jobs.ACTIONS)
