"""The logged-in user."""

from __future__ import annotations

from typing import Annotated, Final

from openmsmq.actions.fields import ROLE_WORDS, RoleWord, doc
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Empty, LineView, Output, action
from openmsmq.model.roles import Role


class CurrentUser(Output, frozen=True):
    """The caller and its role."""

    user: Annotated[str, doc("Name of the user.", "alice")]
    sid: Annotated[str, doc("SID of the user.")]
    administrator: Annotated[bool, doc("Whether the user is an administrator of the queue manager.")]
    role: Annotated[RoleWord, doc("Highest role of the user.")]
    csrf: Annotated[
        str | None,
        doc("Value of the header X-CSRF-Token for changes in a cookie session; null without one."),
    ]


def _said(found: CurrentUser) -> str:
    rights = "an administrator of the queue manager" if found.administrator else "no administrator"
    return f"{found.user}, {rights}, in the role {found.role}"


@action(
    "session.show", http="GET /session", role=Role.MONITOR, place="daemon",
    commands=(
        ActionCommand(
            "token check",
            show=LineView(
                _said,
                lambda found: {"user": found.user, "sid": found.sid, "administrator": found.administrator,
                               "role": found.role},
            ),
            help="Ask the HTTP API whose token --token-file or OPENMSMQ_TOKEN has, and in what role. Exit code 5 if it "
            "is no longer valid.",
        ),
    ),
)  # fmt: skip
def get_session(site: ActionSite, given: Empty) -> CurrentUser:
    """Show the caller and its role."""
    caller = site.caller
    return CurrentUser(caller.name, caller.sid, caller.administrator, ROLE_WORDS[caller.role], caller.csrf)


ACTIONS: Final = (get_session,)
