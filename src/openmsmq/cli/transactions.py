"""`openmsmq transaction list|show|resolve`: distributed transactions. No published protocol carries them for operators,
so this asks the HTTP API."""

from __future__ import annotations

import click

from openmsmq.actions import transactions
from openmsmq.cli.derived import add_commands


@click.group()
def transaction() -> None:
    """Show distributed transactions and why one does not end; resolve one manually.

    The command uses the HTTP API of a daemon, with a token.
    """


add_commands(transaction, transactions.ACTIONS)
