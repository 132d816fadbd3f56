"""Write audit records for changes that a command makes directly in a data directory."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any

import click

from openmsmq.admin.audit import AuditEntry, AuditLog
from openmsmq.cli.output import echo

if TYPE_CHECKING:
    from openmsmq.server.config import Configuration


class LocalAudit:
    """Records the changes of this command, under the name of the user who runs it."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def __call__(
        self, action: str, kind: str, name: str, before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None, count: int | None = None,
    ) -> int | None:  # fmt: skip
        """Record a change before it is made. Raises ClickException if the change must not be made. Without a data
        directory there is no daemon, and nothing is recorded.
        """
        configuration = self._configuration
        if not configuration.audit or not configuration.data_dir.is_dir():
            return None
        log = AuditLog(configuration.data_dir, size=configuration.audit_megabytes << 20)
        entry = AuditEntry(action, kind, name, _who(), origin="cli", before=before, after=after, count=count)
        try:
            return log.append(entry)
        except OSError as error:
            if configuration.audit_required:
                raise click.ClickException(
                    f"nothing was changed: the audit log can't be written ({error}), and audit_required is set"
                ) from None
            echo(f"cannot write the audit log: {error}", err=True)
            return None


def _who() -> str:
    """Return the user of the process and, if it runs under sudo, the user who called sudo."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"uid {os.getuid()}"
    return f"{name} (sudo: {os.environ['SUDO_USER']})" if os.environ.get("SUDO_USER") else name
