#!/usr/bin/env python3
"""The blocking client (`openmsmq.client.sync`), generated from the asyncio client: `.venv/bin/python
tools/sync_client.py`.

`--check` only compares, for `make lint`. `Pool` has the same interface as `Runner`, so most changes are word
replacements.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[1] / "src" / "openmsmq" / "client"
SOURCE, TARGET = CLIENT / "asynchronous", CLIENT / "sync"
RUFF = Path(sys.executable).with_name("ruff")
DOCSTRING = (
    "The blocking client. Objects may be shared by threads: calls run on a pool of connections of one association."
)
GENERATED = "\n\nGenerated from {} by tools/sync_client.py; never edited.\n"

# Passages that need more than word replacements; each occurs exactly once in the source.
PASSAGES = (
    ("    async def machine_id(self)", "    @property\n    def machine_id(self)"),
    ("    async def version(self)", "    @property\n    def version(self)"),
    ("    async def format_name(self)", "    @property\n    def format_name(self)"),
    ("`async for` peeks", "Iterating peeks"),
    ("other tasks that wait", "other threads that wait"),
    (
        "\n\n        After `break` the message is put back when the loop gets to close the iterator, at once with\n"
        "        `contextlib.aclosing`.",
        "",
    ),
)
WORDS = (
    (r"(?m)^ *@opening_context\n", ""),
    (r"(?m)^from openmsmq\.client\.opening import .*\n", ""),
    (r"\basync (?=def|with|for)", ""),
    (r"\bawait ", ""),
    (r"\bAsyncGenerator\[Message, None\]", "Generator[Message, None, None]"),
    (r"\bAsync(?=Generator|Iterator)", ""),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b__a(?=enter|exit|iter)", "__"),
    (r"\basyncio\b", "threading"),
    (r"(?<![a-z])runner\b", "pool"),
    (r"\bRunner\b", "Pool"),
    (r"\bopenmsmq\.client\.asynchronous\b", "openmsmq.client.sync"),
)


def sources() -> dict[str, str]:
    """Return the modules of the asyncio client by name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCE.glob("*.py"))}


def synchronous(modules: dict[str, str]) -> dict[str, str]:
    """Return the modules of the blocking client. Raises ValueError unless each passage occurs exactly once."""
    everything = "".join(modules.values())
    for passage, _ in PASSAGES:
        if everything.count(passage) != 1:
            raise ValueError(f"{SOURCE.name} has {passage!r} {everything.count(passage)} times: change PASSAGES")
    return {name: _converted(name, text) for name, text in modules.items()}


def _converted(name: str, text: str) -> str:
    _, docstring, code = text.split('"""', 2)
    for passage, instead in PASSAGES:
        code = code.replace(passage, instead)
    for word, instead in WORDS:
        code = re.sub(word, instead, code)
    text = (DOCSTRING if name == "__init__.py" else docstring) + GENERATED.format(f"{SOURCE.name}/{name}")
    code = f'"""{text}"""{code}'
    for command in (["check", "--quiet", "--select", "I", "--fix"], ["format", "--quiet"]):
        ruff = [RUFF, *command, "--stdin-filename", TARGET / name, "-"]
        code = subprocess.run(ruff, input=code, text=True, check=True, stdout=subprocess.PIPE).stdout
    return code


def main() -> int:
    TARGET.mkdir(exist_ok=True)  # also for ruff, which sorts imports by the files that exist
    made = synchronous(sources())
    found = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.py")}
    if made == found:
        return 0
    if "--check" in sys.argv:
        print(f"{TARGET} is not what {SOURCE.name} makes of it: run tools/sync_client.py", file=sys.stderr)
        return 1
    for name in found.keys() - made.keys():
        (TARGET / name).unlink()
    for name, text in made.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
