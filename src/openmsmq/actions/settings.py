"""The effective settings of a daemon, for administrators."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import CommandText, doc
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Input, Output, Rows, action
from openmsmq.admin.settings import settings_in_force
from openmsmq.model.text import printable_json

_DEFAULT: Final = "default"  # origin of a setting that has its default value


class SettingQuery(Input, frozen=True):
    """Selects settings."""

    name: Annotated[
        str,
        Meta(max_length=200, description="Name of one setting, or a pattern with * and ?.", examples=["web_*"]),
    ] = "*"
    changed: Annotated[bool, doc("Only settings that differ from the default.")] = False


class SettingView(Output, frozen=True):
    """A setting in force."""

    name: Annotated[str, doc("Name of the setting.", "web_port")]
    value: Annotated[Any, doc("Its value.", 18021)]
    source: Annotated[str, doc("The origin: default, file, environment or option.")]


class SettingList(Output, frozen=True):
    """Settings in force."""

    settings: Annotated[list[SettingView], doc("The settings, by name.")]
    command: CommandText


def _document(each: SettingView, found: SettingList) -> dict[str, Any]:
    return {**msgspec.structs.asdict(each), "default": each.source == _DEFAULT}


def _text(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else printable_json(value)


@action(
    "setting.list", http="GET /settings", administrators=True, refuses={OSError: 503},
    commands=(
        ActionCommand(
            "settings", {"name": "[NAME|PATTERN]", "changed": "--changed"},
            Rows(
                lambda found: found.settings, ("setting", "value", "from"),
                lambda each: [each.name, _text(each.value), each.source], _document,
                empty="all settings have their default values",
            ),
            more="NAME is one setting; PATTERN may contain * and ?. The command reads the settings of the last start "
            "of the daemon from its data directory. With --url, it queries the HTTP API of a daemon, which only "
            "administrators of the queue manager may do. The exit code is 1 if no setting matches.",
        ),
    ),
)  # fmt: skip
def list_settings(site: ActionSite, given: SettingQuery) -> SettingList:
    """Show the settings of a daemon, and the source of each: default, file, environment or option."""
    known = settings_in_force(site.data_dir)
    if not known:
        raise ActionRefused(503, f"{site.directory} has no settings, because no daemon has been started with it")
    wanted = given.name.lower().replace("-", "_")
    found = {name: entry for name, entry in sorted(known.items()) if fnmatchcase(name, wanted)}
    if not found:
        raise ActionRefused(422, f"there is no setting {given.name}; `openmsmq settings` shows all", "name")
    shown = [
        SettingView(name, entry["value"], entry["source"])
        for name, entry in found.items()
        if not given.changed or entry["source"] != _DEFAULT
    ]
    return SettingList(shown, site.command)


ACTIONS: Final = (list_settings,)
