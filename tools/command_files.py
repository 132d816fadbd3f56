"""Write the manual pages and shell completions of the commands for a package.

`python tools/command_files.py DIRECTORY` writes below DIRECTORY/usr/share.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from openmsmq import __version__
from openmsmq.cli.commands import COMMANDS, load
from openmsmq.cli.completing import VARIABLE
from openmsmq.cli.root import cli

COMPLETIONS = {
    "bash-completion/completions/openmsmq": BashComplete,
    "zsh/vendor-completions/_openmsmq": ZshComplete,
    "fish/vendor_completions.d/openmsmq.fish": FishComplete,
}


def roff(text: str) -> str:
    """Escape text for roff: dashes, and lines that roff would interpret as commands."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.splitlines())


def paragraphs(text: str) -> Iterator[str]:
    for part in cleandoc(text).split("\n\n"):
        kept = part.startswith("\b\n") or any(line.startswith("  ") for line in part.splitlines())
        part = part.removeprefix("\b\n")
        yield f".PP\n.nf\n{roff(part)}\n.fi" if kept else f".PP\n{roff(part)}"


def options(command: click.Command, context: click.Context) -> Iterator[str]:
    for each in command.get_params(context):
        shown = each.get_help_record(context)
        if shown is not None:
            yield f".TP\n.B {roff(shown[0])}\n{roff(re.sub(chr(10), ' ', shown[1])) or '(no help)'}"


def described(command: click.Command, words: str, heading: str) -> Iterator[str]:
    """Yield the description of a command and, for a group, of its commands."""
    context = click.Context(command, info_name=words, max_content_width=100)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".{heading} {roff(words).upper() if heading == 'SH' else roff(words)}"
    yield f".PP\n.B {roff(words)}\n{roff(usage)}"
    yield from paragraphs(command.help or "")
    yield from options(command, context)
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from described(command.commands[name], f"{words} {name}", "SS")


def page(name: str) -> str:
    """Return the manual page of a command of the program."""
    command = load(name)
    body = "\n".join(described(command, f"openmsmq {name}", "SH"))
    return f"""{title(f"openmsmq-{name}")}
.SH NAME
{roff(f"openmsmq-{name}")} \\- {roff(COMMANDS[name].help.rstrip("."))}
{body}
.SH SEE ALSO
.BR openmsmq (1)
"""


def title(name: str) -> str:
    return f'.TH {name.upper()} 1 "" "openmsmq {__version__}" "openmsmq"'


def main_page() -> str:
    """Return the manual page of the program."""
    rows = "\n".join(f".TP\n.BR openmsmq\\-{roff(name)} (1)\n{roff(COMMANDS[name].help)}" for name in sorted(COMMANDS))
    about = "\n".join(paragraphs(cli.help or ""))
    return f"""{title("openmsmq")}
.SH NAME
openmsmq \\- message queue manager that speaks the MSMQ protocols, and a client
.SH SYNOPSIS
.B openmsmq
COMMAND [OPTIONS] [ARGUMENTS]
.SH DESCRIPTION
{about}
.SH COMMANDS
{rows}
.SH FILES
.TP
.I /etc/openmsmq/openmsmq.toml
Settings of the service.
.TP
.I /var/lib/openmsmq
Its data directory.
"""


def write(directory: Path) -> None:
    share = directory / "usr/share"
    pages = {"openmsmq": main_page(), **{f"openmsmq-{name}": page(name) for name in COMMANDS}}
    for name, text in pages.items():
        file = share / f"man/man1/{name}.1"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for path, kind in COMPLETIONS.items():
        file = share / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(kind(cli, {}, "openmsmq", VARIABLE).source(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
