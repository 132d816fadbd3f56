"""Types of fields that several actions use."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from openmsmq.model.roles import Role

_YEAR_10000: Final = 253_402_300_800  # in seconds since 1970


def doc(text: str, *examples: Any) -> Meta:
    """Describe a field, with example values."""
    return Meta(description=text, examples=list(examples) or None)


#: A time that can be displayed.
EpochSeconds = Annotated[int, Meta(ge=0, lt=_YEAR_10000)]
RoleWord = Literal["monitor", "operator", "administrator"]
Text = Annotated[str, Meta(max_length=1024)]
# A queue: its identifier in HTTP, its name in commands.
QueueText = Annotated[str, doc("Identifier of the queue.", "7")]
#: The audit record of a change.
RecordNumber = Annotated[str | None, doc("Number of the record in the audit log; null if none is kept.", "17")]
#: The equivalent command.
CommandText = Annotated[str, doc("The equivalent command.")]

ROLE_WORDS: Final[dict[Role, RoleWord]] = {
    Role.MONITOR: "monitor", Role.OPERATOR: "operator", Role.ADMINISTRATOR: "administrator",
}  # fmt: skip
