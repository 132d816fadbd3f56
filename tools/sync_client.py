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
SOURCE, TARGET = CLIENT / "asynchronous.py", CLIENT / "sync.py"
RUFF = Path(sys.executable).with_name("ruff")
DOCSTRING = '''\
"""The blocking client. Objects may be shared by threads: calls run on a pool of connections of one association.

Generated from asynchronous.py by tools/sync_client.py; never edited.
"""'''

# Passages that need more than word replacements; each occurs exactly once in the source.
PASSAGES = (
    ("            await self.machine_id()\n", "            self.machine_id  # noqa: B018 - asks\n"),
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
)


def synchronous(source: str) -> str:
    """Return the text of the blocking client. Raises ValueError unless each passage occurs exactly once."""
    _, _, code = source.partition('"""\n\nfrom __future__')
    text = f"{DOCSTRING}\n\nfrom __future__{code}"
    for passage, instead in PASSAGES:
        if text.count(passage) != 1:
            raise ValueError(f"{SOURCE.name} has {passage!r} {text.count(passage)} times: change PASSAGES")
        text = text.replace(passage, instead)
    for word, instead in WORDS:
        text = re.sub(word, instead, text)
    for command in (["check", "--quiet", "--select", "I", "--fix"], ["format", "--quiet"]):
        ruff = [RUFF, *command, "--stdin-filename", TARGET, "-"]
        text = subprocess.run(ruff, input=text, text=True, check=True, stdout=subprocess.PIPE).stdout
    return text


def main() -> int:
    made = synchronous(SOURCE.read_text(encoding="utf-8"))
    if made == TARGET.read_text(encoding="utf-8"):
        return 0
    if "--check" in sys.argv:
        print(f"{TARGET} is not what {SOURCE.name} makes of it: run tools/sync_client.py", file=sys.stderr)
        return 1
    TARGET.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
