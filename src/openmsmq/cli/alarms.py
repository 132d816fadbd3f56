"""`openmsmq alarms`"""

from __future__ import annotations

from typing import Any

import click

from openmsmq.admin.administration.interface import AdminOperations, AlarmEventInfo
from openmsmq.cli.output import echo, json_option, print_json, print_table
from openmsmq.cli.places import AdminTarget, place_options
from openmsmq.model.text import time_text


@click.command()
@click.option("--history", is_flag=True, help="Show what was raised and cleared last, and not what is on.")
@json_option
@place_options
def alarms(place: AdminTarget, history: bool, as_json: bool) -> None:
    """Show the alarms of a daemon that are on: disk, quotas, syncs, dead letters, old messages, outgoing queues.

    They are in its data directory; with --url, its HTTP API is asked. Exit code 0 whether there are any or not.
    """
    with place.open() as daemon:
        show = _show_events if history else _show_active
        show(daemon, as_json)


def _show_active(daemon: AdminOperations, as_json: bool) -> None:
    active = daemon.alarms()
    if as_json:
        for alarm in active:
            print_json(alarm._asdict())
    elif active:
        rows = [[time_text(alarm.since), alarm.name, alarm.sentence, alarm.remedy] for alarm in active]
        print_table(["since", "alarm", "what", "do"], rows)
    else:
        echo("no alarm is on")


def _show_events(daemon: AdminOperations, as_json: bool) -> None:
    events = daemon.alarm_events()
    if as_json:
        machine = daemon.machine_name()
        for event in events:
            print_json(_document(event, machine))
    else:
        rows = [[time_text(event.at), event.state, event.alarm.name, event.alarm.sentence] for event in events]
        print_table(["time", "", "alarm", "what"], rows)


def _document(event: AlarmEventInfo, machine: str) -> dict[str, Any]:
    """As webhooks and messages have it."""
    alarm = event.alarm._asdict()
    name = alarm.pop("name")
    return {"seq": event.seq, "state": event.state, "at": event.at, "machine": machine, "alarm": name, **alarm}
