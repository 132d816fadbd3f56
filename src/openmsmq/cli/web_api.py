"""Options of commands that ask the HTTP API of a daemon, and the client that they describe."""

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
_DATA_DIR = Path("/var/lib/openmsmq")  # the default of openmsmq.server.config, which loads much
_PREFIX = "omq_"  # of openmsmq.admin.tokens
_LONGEST_TOKEN = 200
_NO_TOKEN = (
    f"no token of the HTTP API: `openmsmq token create NAME --user USER` makes one, --token-file or {_TOKEN} says it"
)
_NO_URL = "no HTTP server of a daemon is known: --url says where it is; `openmsmq serve --web` starts one"

_API = (
    click.option(
        "--url", envvar="OPENMSMQ_URL", help="URL of the HTTP API (that of the daemon which uses --data-dir)."
    ),
    click.option(
        "--token-file", type=click.Path(path_type=Path), envvar="OPENMSMQ_TOKEN_FILE",
        help=f"File with a token of the HTTP API; or the token is in {_TOKEN}.",
    ),
    click.option(
        "--tls-root", envvar="OPENMSMQ_TLS_ROOT", help="PEM file of certificates to trust; default: the system's."
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
        """Raises UsageError where the options are not enough."""
        found = self.client_or_missing()
        if isinstance(found, Missing):
            raise click.UsageError(found.sentence)
        return found

    def client_or_missing(self, *, here: bool = True) -> HttpRequests | Missing:
        """`here`: a daemon of this machine is meant where no URL is given. Raises UsageError for options that are
        wrong, and for a URL without a token."""
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
        """Without a token. Raises UsageError for options that are wrong, or where no server is known."""
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
            raise click.UsageError(f"{source} has no token: one begins with {_PREFIX}, and is all that is there")
        return text

    def _trust(self, address: WebAddress | None) -> ssl.SSLContext | None:
        file = self.tls_root or (address.certificate if address is not None else "")
        if not file:
            return None
        try:
            return trusting(file) if self.tls_root else trusting_only(file)
        except (OSError, ssl.SSLError) as error:
            raise click.UsageError(f"the certificates in {file} can't be read: {error}") from None


def api_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `api`, from --url, --token-file, --tls-root and --data-dir."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        options = ApiOptions(**{name: kwargs.pop(name) for name in ApiOptions._fields})
        return command(*args, api=options, **kwargs)

    for option in reversed(_API):
        wrapper = option(wrapper)
    return wrapper
