"""`openmsmq settings`"""

from __future__ import annotations

from fnmatch import fnmatchcase

import click

from openmsmq.cli.output import echo, json_option, print_json, print_table
from openmsmq.cli.places import AdminTarget, place_options
from openmsmq.model.text import printable_json

_DEFAULT = "default"  # where a setting comes from that nobody has set


@click.command()
@click.argument("pattern", metavar="[NAME|PATTERN]", default="*")
@click.option("--changed", is_flag=True, help="Only settings that somebody has set.")
@json_option
@place_options
def settings(place: AdminTarget, pattern: str, changed: bool, as_json: bool) -> None:
    """Show the settings that a daemon runs with, and where each comes from: default, file, environment or option.

    NAME is one setting, PATTERN has * and ?. They are those of its last start, which its data directory has; with
    --url, the HTTP API of a daemon is asked, for administrators of the queue manager. Exit code 1 if there is none of
    that name.
    """
    with place.open() as daemon:
        known = daemon.settings()
    if not known and place.is_here:
        raise click.ClickException(f"{place.configuration().data_dir} has no settings: no daemon has started with it")
    wanted = pattern.lower().replace("-", "_")
    found = [each for each in known if fnmatchcase(each.name, wanted)]
    if not found:
        raise click.ClickException(f"there is no setting {pattern}; `openmsmq settings` shows all")
    shown = [each for each in found if not changed or each.source != _DEFAULT]
    if as_json:
        for each in shown:
            print_json({**each._asdict(), "default": each.source == _DEFAULT})
    elif shown:
        print_table(
            ["setting", "value", "from"], [[each.name, _text(each.value), each.source] for each in shown]
        )  # fmt: skip
    else:
        echo("all of them are the default")


def _text(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else printable_json(value)
