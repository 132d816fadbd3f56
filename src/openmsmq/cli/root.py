"""The command tree and how failures become exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys

import click

from openmsmq import __version__
from openmsmq.cli.commands import LazyGroup
from openmsmq.cli.output import echo

_PREFIX = "OPENMSMQ_"
# A copy, so that the start does not import the schema of the daemon's configuration, which takes longer than the rest.
_USUAL_VARIABLES = frozenset(
    _PREFIX + name
    for name in ("HOST", "PORT", "PORT_OFFSET", "USER", "PASSWORD", "URL", "TOKEN", "TOKEN_FILE", "TLS_ROOT")
)
_VERSION_HELP = "Show the version, and whether modules are compiled, and exit."


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from openmsmq.compiled import how_it_runs

        echo(f"openmsmq {__version__}, {how_it_runs()}")
        context.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, callback=_show_version, expose_value=False, is_eager=True, help=_VERSION_HELP)
def cli() -> None:
    """MSMQ queue manager for Linux, and a client for any MSMQ server.

    \b Exit codes: 0 done, 1 failed, 2 wrong usage, 3 queue not found, 4 timeout without a message, 5 access denied, 6
    server unreachable, 7 queue exists.
    """
    if click.get_current_context().invoked_subcommand != "serve":  # which refuses them
        _warn_of_variables()


def _warn_of_variables() -> None:
    if not any(name.startswith(_PREFIX) and name not in _USUAL_VARIABLES for name in os.environ):
        return
    from openmsmq.server.loading import unknown_variables

    for line in unknown_variables(os.environ):
        echo(f"openmsmq: {line}", err=True)


def main() -> None:
    """Run the command; errors go to standard error in one line."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        echo(shown.getvalue().rstrip("\n"), err=True, multiline=True)
        sys.exit(error.exit_code)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except (click.Abort, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one during the exit would show a traceback
        click.echo("interrupted", err=True)
        sys.exit(130)
    except SystemExit:
        # click replaces the output after a broken pipe and ends with 1; the class has no public name.
        if type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            sys.exit(0)
        raise
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        from openmsmq.cli.exit_codes import exit_code

        code = exit_code(error)
        if code is None:
            raise
        echo(f"openmsmq: {_text_of(error)}", err=True)
        sys.exit(code)


def _text_of(error: Exception) -> str:
    """Return the text of an error; without its number if it is of a file."""
    if isinstance(error, OSError) and error.filename and error.strerror and not error.filename2:
        return f"{error.filename}: {error.strerror}"
    return str(error)
