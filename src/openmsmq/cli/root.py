"""The command tree and how failures become exit codes."""

from __future__ import annotations

import sys

import click

from openmsmq import __version__
from openmsmq.cli.administering import machine, outgoing
from openmsmq.cli.handling import msg
from openmsmq.cli.messages import copy, export, import_, peek, receive, send
from openmsmq.cli.pipeline import pipeline
from openmsmq.cli.queues import queue
from openmsmq.cli.service import fsck, protocols, serve, user
from openmsmq.cli.watching import dlq, tail
from openmsmq.compiled import in_use
from openmsmq.model.errors import AccessDenied, MsmqError, QueueExists, QueueNotFound, ReceiveTimeout
from openmsmq.rpc.errors import AuthenticationError
from openmsmq.store import StoreError

# Exit codes, besides 0, and 2 for wrong usage.
FAILED, NOT_FOUND, TIMED_OUT, DENIED, UNREACHABLE, EXISTS = 1, 3, 4, 5, 6, 7

_EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (QueueNotFound, NOT_FOUND),
    (QueueExists, EXISTS),
    (ReceiveTimeout, TIMED_OUT),
    (AccessDenied, DENIED),
    (AuthenticationError, DENIED),
    (ConnectionError, UNREACHABLE),
    (MsmqError, FAILED),
    (StoreError, FAILED),
    (OSError, FAILED),
    (ValueError, FAILED),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message=f"%(prog)s %(version)s, {'compiled' if in_use else 'interpreted'}")
def cli() -> None:
    """MSMQ queue manager for Linux, and a client for any MSMQ server.

    \b
    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 queue not found, 4 nothing came in time, 5 refused,
    6 server not reached, 7 queue exists.
    """


for command in (
    serve, user, fsck, protocols, machine, queue, outgoing, send, peek, receive, copy, export, import_, msg, tail, dlq,
    pipeline,
):  # fmt: skip
    cli.add_command(command)


def main() -> None:
    """Run the command; errors go to standard error in one line."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        for kind, code in _EXIT_CODES:
            if isinstance(error, kind):
                click.echo(f"openmsmq: {error}", err=True)
                sys.exit(code)
        raise
