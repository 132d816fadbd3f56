"""Administration by the HTTP API of a daemon, as the user of a token, or of a password."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from openmsmq.admin.administration.interface import BackupInfo
from openmsmq.admin.http_requests import ApiError, HttpRequests

_LOOK: Final = 1.0  # seconds between looks whether a backup is made


class KnownBackup(NamedTuple):
    """A backup that was made by HTTP, or is being made: `state` is running, done, failed (with `error`) or
    unfinished; `time` is when it began."""

    name: str
    state: str
    time: str | None
    messages: int | None
    error: str | None


class PlannedStepInfo(NamedTuple):
    """`can`: an import does it; otherwise `said` says why not."""

    said: str
    can: bool


class DifferencesInfo(NamedTuple):
    """What an import would do, in this order. `token` is what it needs."""

    steps: list[PlannedStepInfo]
    token: str


class DoneStepInfo(NamedTuple):
    """`result` is done, left, or what was wrong."""

    said: str
    result: str


class _Backups(NamedTuple):
    directory: str
    backups: list[KnownBackup]
    outside: list[str]


class HttpAdministration:
    """Raises ApiError."""

    def __init__(self, requests: HttpRequests, wait: Callable[[float], object] = time.sleep) -> None:
        self._http: Final = requests
        self._wait: Final = wait

    # -- definitions -----------------------------------------------------------------------------------------------

    def definitions(self, *, local: bool) -> dict[str, Any]:
        """The document of `operating.definitions`; with users, groups, rights on the machine and settings if `local`,
        but without hashes of passwords."""
        return self._http.ask("GET", "/definitions", {"local": "true"} if local else {})

    def differences(self, document: Mapping[str, Any], *, local: bool) -> DifferencesInfo:
        """What an import of a document would do."""
        body = {"document": document, "local": local}
        return cast(
            "DifferencesInfo",
            self._http.value(self._http.ask("POST", "/definitions/dry-runs", body=body), DifferencesInfo),
        )

    def import_definitions(self, document: Mapping[str, Any], token: str, *, local: bool) -> list[DoneStepInfo]:
        """Do just what `differences`, which gave the token, has said. The results also where steps failed."""
        body = {"document": document, "local": local, "token": token}
        try:
            answer: Mapping[str, Any] = self._http.ask("POST", "/definitions", body=body)
        except ApiError as error:
            if "steps" not in error.problem:
                raise
            answer = error.problem
        done = self._http.member(answer, "steps", list[DoneStepInfo])
        return cast("list[DoneStepInfo]", done)

    # -- backup ----------------------------------------------------------------------------------------------------

    def back_up(self, target: str) -> BackupInfo:
        """`target` is the name of a new directory in `backup_directory` of the server; the time if it is empty."""
        started = self._http.ask("POST", "/backups", body={"name": target} if target else {})
        name = self._http.member(started, "name", str)
        while True:
            known = self._backups()
            where = f"{known.directory}/{name}"
            made = next((each for each in known.backups if each.name == name), None)
            if made is None or made.state not in ("running", "done"):
                said = "it is not there any more" if made is None else made.error or f"it is {made.state}"
                raise ApiError(f"{self._http.url}: the backup {where} failed: {said}")
            if made.state == "done":
                return BackupInfo(where, made.messages, None, None, None, None, known.outside)
            self._wait(_LOOK)

    def backups(self) -> list[KnownBackup]:
        """The newest first."""
        return self._backups().backups

    def _backups(self) -> _Backups:
        return cast("_Backups", self._http.value(self._http.ask("GET", "/backups"), _Backups))
