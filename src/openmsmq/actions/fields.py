"""Types of fields that several actions have."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from openmsmq.model.roles import Role

_YEAR_10000: Final = 253_402_300_800  # in seconds since 1970

#: A time that can be shown.
EpochSeconds = Annotated[int, Meta(ge=0, lt=_YEAR_10000)]
RoleWord = Literal["monitor", "operator", "administrator"]
Text = Annotated[str, Meta(max_length=1024)]
Count = Annotated[int, Meta(ge=0, description="How many messages are believed to be there: else nothing is done.")]
EpochOrNone = EpochSeconds | None
#: A queue: by HTTP its identifier, in commands its name.
QueueText = Annotated[str, Meta(description="Identifier of the queue.", examples=["7"])]
#: The command that does the same.
CommandText = Annotated[str, Meta(description="The command that does the same.")]

ROLE_WORDS: Final[dict[Role, RoleWord]] = {
    Role.MONITOR: "monitor", Role.OPERATOR: "operator", Role.ADMINISTRATOR: "administrator",
}  # fmt: skip
