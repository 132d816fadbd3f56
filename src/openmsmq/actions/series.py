"""Figures over time."""

from __future__ import annotations

from typing import Annotated, Final

from openmsmq.actions.fields import doc
from openmsmq.actions.queues import daemon_of
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Input, Output, action
from openmsmq.admin.series import Range, Rates
from openmsmq.model.roles import Role


class SeriesQuery(Input, frozen=True):
    """Selects figures."""

    range: Annotated[Range, doc("10 minutes with a point per second, or a day with a point per minute.")] = "10m"


class Series(Output, frozen=True):
    """Figures over time."""

    points: Annotated[list[Rates], doc("Points, oldest first. Empty until the server has run for two seconds.")]


@action(
    "series", http="GET /series", role=Role.MONITOR, place="daemon",
    commands=(ActionCommand("series", {"range": "[10m|24h]"}, by_hand="it draws lines"),),
)  # fmt: skip
def series(site: ActionSite, given: SeriesQuery) -> Series:
    """Show messages, rates, latency and disk over time."""
    return Series(daemon_of(site).rates(given.range))


ACTIONS: Final = (series,)
