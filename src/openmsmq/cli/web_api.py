"""Options of commands that use the HTTP API of a daemon, and the client that they describe."""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from openmsmq.admin.http_requests import HttpCredentials, HttpRequests, by_token, trusting, trusting_only
from openmsmq.admin.web_address import WebAddress, read_address

_TOKEN = "OPENMSMQ_TOKEN"
_DATA_DIR = Path("/var/lib/openmsmq")  # default of openmsmq.server.config, which is slow to import
_PREFIX = "omq_"  # prefix in openmsmq.admin.tokens
_LONGEST_TOKEN = 200
_NO_TOKEN = (
    "no token of the HTTP API: create one with `openmsmq token create NAME --user USER`, and give it with "
    f"--token-file or {_TOKEN}"
)
_NO_URL = "no HTTP server of a daemon is known: give --url, or start one with `openmsmq serve --web`"

_API = (
    click.option(
        "--url", envvar="OPENMSMQ_URL", help="URL of the HTTP API (default: that of the daemon that uses --data-dir)."
    ),
    click.option(
        "--token-file", type=click.Path(path_type=Path), envvar="OPENMSMQ_TOKEN_FILE",
        help=f"File with a token of the HTTP API; default: the token in {_TOKEN}.",
    ),
    click.option(
        "--tls-root", envvar="OPENMSMQ_TLS_ROOT", help="PEM file of certificates to trust (default: the system's)."
    ),
    click.option(
        "--data-dir", type=click.Path(path_type=Path), envvar="OPENMSMQ_DATA_DIR", default=_DATA_DIR, show_default=True,
        help="Data directory of a daemon on this machine.",
    ),
)  # fmt: skip


class Missing(NamedTuple):
    """Why there is no client, and how to get one."""

    sentence: str


class ApiOptions(NamedTuple):
    """Values of the HTTP options."""

    url: str | None
    token_file: Path | None
    tls_root: str | None
    data_dir: Path

    def client(self) -> HttpRequests:
        """Return the client. Raises UsageError if options are missing."""
        found = self.client_or_missing()
        if isinstance(found, Missing):
            raise click.UsageError(found.sentence)
        return found

    def client_or_missing(self, *, here: bool = True) -> HttpRequests | Missing:
        """Return the client or why there is none. `here`: without a URL, use a daemon of this machine. Raises
        UsageError for invalid options, and for a URL without a token.
        """
        token = self._token()
        if token is None:
            if self.url is not None:
                raise click.UsageError(_NO_TOKEN)
            return Missing(_NO_TOKEN)
        try:
            address = None if self.url is not None or not here else read_address(self.data_dir)
            url = self.url if address is None else address.url
            return Missing(_NO_URL) if url is None else HttpRequests(url, by_token(token), self._trust(address))
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    def server(self, *, here: bool) -> tuple[str | None, ssl.SSLContext | None]:
        """Return the URL of the HTTP server, None if none is known, and the trusted certificates. Raises UsageError for
        invalid options."""
        try:
            address = None if self.url is not None or not here else read_address(self.data_dir)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        url = self.url if address is None else address.url
        return url.rstrip("/") if url else None, self._trust(address)

    def client_as(self, who: HttpCredentials) -> HttpRequests:
        """Return a client without a token. Raises UsageError for invalid options, or if no server is known."""
        url, trust = self.server(here=True)
        if url is None:
            raise click.UsageError(_NO_URL)
        try:
            return HttpRequests(url, who, trust)
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    def _token(self) -> str | None:
        source = str(self.token_file or _TOKEN)
        if self.token_file is not None:
            try:
                with self.token_file.open("rb") as file:
                    text = file.read(_LONGEST_TOKEN + 1).decode("ascii", "replace").strip()
            except OSError as error:
                raise click.UsageError(f"--token-file {source}: {error.strerror}") from None
        else:
            text = os.environ.get(_TOKEN, "").strip()
            if not text:
                return None
        rest = text.removeprefix(_PREFIX).replace("-", "").replace("_", "")
        if not text.startswith(_PREFIX) or not rest.isascii() or not rest.isalnum() or len(text) > _LONGEST_TOKEN:
            raise click.UsageError(
                f"{source} contains no token: a token begins with {_PREFIX}, and the file must contain nothing else"
            )
        return text

    def _trust(self, address: WebAddress | None) -> ssl.SSLContext | None:
        file = self.tls_root or (address.certificate if address is not None else "")
        if not file:
            return None
        try:
            return trusting(file) if self.tls_root else trusting_only(file)
        except (OSError, ssl.SSLError) as error:
            raise click.UsageError(f"cannot read the certificates in {file}: {error}") from None


def api_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `api`, from --url, --token-file, --tls-root and --data-dir."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        options = ApiOptions(**{name: kwargs.pop(name) for name in ApiOptions._fields})
        return command(*args, api=options, **kwargs)

    for option in reversed(_API):
        wrapper = option(wrapper)
    return wrapper
