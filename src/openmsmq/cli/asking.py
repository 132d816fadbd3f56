"""Questions and passwords. Without a terminal, standard input answers; if it ends, an error names the alternative."""

from __future__ import annotations

import getpass
import warnings
from collections.abc import Callable
from typing import Any

import click

from openmsmq.model.text import printable


def confirm(question: str) -> None:
    """Ask before something is done. Raises ClickException if the answer is no, UsageError if there is none."""
    yes = _answer(lambda: click.confirm(printable(question, multiline=True), err=True), "give --yes")
    if not yes:
        raise click.ClickException("nothing was done")


def ask_password(prompt: str, instead: str, *, twice: bool = False) -> str:
    """Ask for a password. `instead`: what to do without a terminal. Raises UsageError if there is no answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", getpass.GetPassWarning)  # the input is not a terminal, so nothing is shown
        return str(_answer(lambda: click.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True), instead))


def _answer(ask: Callable[[], Any], instead: str) -> Any:
    try:
        return ask()
    except click.Abort as abort:
        if isinstance(abort.__context__, EOFError):
            raise click.UsageError(f"there is no terminal to ask, and standard input has ended: {instead}") from None
        raise
