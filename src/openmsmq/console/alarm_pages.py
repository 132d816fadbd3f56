"""Pages of the console for alarms: active alarms, silences, thresholds and history."""

from __future__ import annotations

from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from openmsmq.actions import alarms
from openmsmq.admin.alarms import BY_NAME, OF_QUEUES
from openmsmq.console.callers import WebCaller
from openmsmq.console.derived import handler_of
from openmsmq.console.forms import inputs
from openmsmq.console.pages import Console, Page

#: Duration that the dialog offers -> its label.
_DURATIONS: Final = {
    "30m": "30 minutes", "1h": "an hour", "2h": "2 hours", "8h": "8 hours", "1d": "a day", "7d": "a week",
}  # fmt: skip
#: Condition -> label of its threshold.
_MEANS: Final = {
    "disk": "Free disk, less than", "quota": "Share of a quota", "sync": "Sync of the disk",
    "deadletters": "Dead letters in ten minutes", "oldest": "Age of the first message",
    "outgoing": "Nothing left an outgoing queue for", "indoubt": "A transaction in doubt for",
    "relay": "A move has carried nothing for", "refused": "Messages refused in a move",
    "peer": "A machine of a move has not answered for",
}  # fmt: skip
assert set(_MEANS) == set(BY_NAME)


_MOST: Final = 50  # alarms in a list


class AskedSilence(NamedTuple):
    """The condition and the object that the dialog silences."""

    alarm: str
    subject: str


class AlarmPages:
    """Pages of alarms of one console."""

    def __init__(self, console: Console) -> None:
        self._console: Final = console
        self.routes: Final = [
            Route("/alarms", console.page(self._alarms), methods=["GET"]),
            Route("/alarms/ask-silence", console.form(self._ask_silence, self._alarms), methods=["POST"]),
            Route("/alarms/thresholds", console.form(self._set_threshold, self._alarms), methods=["POST"]),
        ]
        #: Path of a form -> the page that contains it, which is shown again if the form is refused.
        self.behind: Final[dict[str, Page]] = {
            "/alarms/silences": self._ask_silence,
            **dict.fromkeys(
                ("/alarms/silences/{alarm}/end", "/alarms/thresholds/{alarm}", "/alarms/thresholds/{alarm}/reset"),
                self._alarms,
            ),
        }  # fmt: skip

    async def _alarms(self, request: Request, caller: WebCaller) -> Response:
        found = await self._console.ask(handler_of(alarms.list_alarms), request, caller)
        thresholds: list[alarms.ThresholdView] = []
        if caller.administers:
            known = await self._console.ask(handler_of(alarms.list_thresholds), request, caller)
            thresholds = known.thresholds
        on = await self._console.attention(caller, found.active)
        covered = {(alarm.silenced.alarm, alarm.silenced.subject) for alarm, _ in on if alarm.silenced is not None}
        return await self._console.render(
            request, "alarms.html", "Alarms", found=found, command=found.command,
            loud=[each for each in on if each[0].silenced is None],
            silenced=[each for each in on if each[0].silenced is not None],
            idle=[each for each in found.silences if (each.alarm, each.subject) not in covered],
            of_all=[each for each in thresholds if not each.subject],
            of_queues=[each for each in thresholds if each.subject][:_MOST], means=_MEANS, by_queue=OF_QUEUES,
            most=_MOST,
        )  # fmt: skip

    async def _ask_silence(self, request: Request, caller: WebCaller) -> Response:
        """Show the form that silences a condition."""
        form = request.state.form
        asked = AskedSilence(form.get("alarm", ""), form.get("subject", ""))
        return await self._console.render(
            request, "silence.html", "Silence an alarm", asked=asked, durations=_DURATIONS,
            command="openmsmq alarm silence CONDITION [SUBJECT] --for 1h --reason TEXT",
        )  # fmt: skip

    async def _set_threshold(self, request: Request, caller: WebCaller) -> Response:
        """Set the threshold of a queue for the condition in the form."""
        row, form = alarms.set_threshold, request.state.form
        request.path_params["alarm"] = form.get("alarm", "")
        await self._console.ask(handler_of(row), request, caller, **inputs(row, form))
        return RedirectResponse("/alarms#thresholds", 303)
