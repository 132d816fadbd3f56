"""`openmsmq alarms`"""

from __future__ import annotations

from dataclasses import asdict

import click

from openmsmq.cli.accounts import Accounts, accounts_options
from openmsmq.cli.output import echo, json_option, print_json, print_table
from openmsmq.model.text import time_text
from openmsmq.operating.alarms import event_document, read_alarms


@click.command()
@click.option("--history", is_flag=True, help="Show what was raised and cleared last, and not what is on.")
@json_option
@accounts_options
def alarms(accounts: Accounts, history: bool, as_json: bool) -> None:
    """Show the alarms of a daemon that are on: disk, quotas, syncs, dead letters, old messages, outgoing queues.

    They are in its data directory. Exit code 0 whether there are any or not.
    """
    configuration = accounts.configuration
    try:
        found = read_alarms(configuration.data_dir)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    if history:
        if as_json:
            for event in found.events:
                print_json(event_document(event, configuration.machine_name))
        else:
            rows = [
                [time_text(event.at), event.state, event.alarm.name, event.alarm.sentence] for event in found.events
            ]
            print_table(["time", "", "alarm", "what"], rows)
        return
    active = sorted(found.active.values(), key=lambda alarm: alarm.since)
    if as_json:
        for alarm in active:
            print_json({**asdict(alarm), "sentence": alarm.sentence, "remedy": alarm.remedy})
    elif active:
        rows = [[time_text(alarm.since), alarm.name, alarm.sentence, alarm.remedy] for alarm in active]
        print_table(["since", "alarm", "what", "do"], rows)
    else:
        echo("no alarm is on")
