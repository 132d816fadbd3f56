"""The option --accounts: a map from accounts of another machine to accounts of this one."""

from __future__ import annotations

import json
from pathlib import Path

import click

from openmsmq.admin.account_names import Accounts, read_accounts

accounts_option = click.option(
    "--accounts", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON file: a map from names or SIDs on the other machine to accounts of this one.",
)  # fmt: skip


def accounts_in(file: Path | None) -> Accounts:
    """Raises UsageError."""
    if file is None:
        return {}
    try:
        return read_accounts(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--accounts {file}: {error}") from None
