"""Each line of the shell blocks of docs/operating.md runs on a new daemon as printed.

A block whose first line is `# needs …` is for another machine than this one, and is listed here. `PREPARED` is what the
text around a block says is there: queues, messages, users. Places are those of the test, and what stands for an
identifier of the reader's own system (`{…}\\17`) is one of this daemon's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import fork_server
from command_line import UNTIL_CTRL_C
from daemon import Daemon

DOCUMENT = Path(__file__).parents[1] / "docs" / "operating.md"
PASSWORD = "Secret#1"
FOREIGN_SITE = """
[[foreign_site]]
identifier = "6a2c1f00-7f5e-4a53-9d6e-3f1f6a1b7c10"
name = "mainframe"
machines = ["SAPHOST"]
"""


class Block(NamedTuple):
    heading: str
    needs: str
    lines: list[str]


def blocks() -> list[Block]:
    found, heading, lines = [], "", None
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if lines is not None and line == "```":
            needs = re.match(r"# needs (.*)", lines[0])
            found.append(Block(heading, needs[1] if needs else "", lines))
            lines = None
        elif lines is not None:
            lines.append(line)
        elif line.startswith("#"):
            heading = line.lstrip("# ")
        elif line == "```sh":
            lines = []
    return found


#: Preparation of a block, by the heading above it.
PREPARED = {
    "Messages for other machines": "",
    "Who may do what": "openmsmq queue create orders\nopenmsmq user add bob\n",
    "Dead letters and journals": """
        openmsmq queue create orders --journal
        openmsmq queue create tests
        openmsmq queue create repaired
        openmsmq send orders 'number 4711' --label 'invoice 1'
        openmsmq send orders 'a test' --label 'test 1'
        """,
    "Live figures and open queues": """
        openmsmq queue create orders
        openmsmq user add alice --admin
        openmsmq receive orders --timeout 200 &
        """,
    "On another machine": """
        openmsmq queue create orders
        openmsmq user add alice --admin
        openmsmq user group add clerks alice
        """,
    "Definitions": """
        openmsmq queue create orders
        openmsmq user add alice --admin
        openmsmq token create desk --user alice --role administrator > token
        export OPENMSMQ_TOKEN_FILE=token
        """,
    "Backup": "openmsmq queue create orders\n",
    "Audit log": "openmsmq queue create orders\n",
    "Is it healthy?": "",
    "Alarms": "",
    "Foreign systems": """
        openmsmq send 'DIRECT=OS:SAPHOST\\private$\\orders' hello
        openmsmq send 'DIRECT=OS:SAPHOST\\private$\\orders' one --transaction
        openmsmq send 'DIRECT=OS:SAPHOST\\private$\\orders' two --transaction
        """,
}
#: Other allowed exit codes of a line: no match, or an unreachable machine.
MAY_END_WITH = {"openmsmq connect-test server": (1, 3, 4)}
NOT_RUN = {"root, and a machine with this address", "root and Debian", "Docker", "a cluster"}


def test_the_blocks_that_need_another_machine_are_listed() -> None:
    found = blocks()
    assert {block.needs for block in found if block.needs} == NOT_RUN
    assert {block.heading for block in found if not block.needs} == set(PREPARED)


#: Placeholders for the reader's own system; the shell finds the values here.
IDENTIFIERS = r"""
id() { openmsmq "$@" --json | python -c "import json, sys; print(json.loads(sys.stdin.readline())['id'])"; }
dead() {
    openmsmq send orders late --ttl 1 --deadletter >&2
    until openmsmq peek deadletter --json | grep -q .; do sleep 0.1; done
    id peek deadletter
}
journaled() { openmsmq receive orders --json > kept; id peek 'orders;journal'; }
sent() { openmsmq send orders again >&2; id peek orders; }
waits() {
    until openmsmq handle list orders --waiting --json | grep -q .; do sleep 0.1; done
    id handle list orders
}
"""
HERE = {
    r"'{…}\17'": '"$(dead)"', r"'{…}\18'": '"$(journaled)"', r"'{…}\19'": '"$(sent)"',
    "handle close 6a1f09c2d4e8b735": 'handle close "$(waits)"', " --tls-root ca.pem": "",
    " OPENMSMQ_TLS_ROOT=ca.pem": "",
}  # fmt: skip
CTRL_C = "openmsmq top"  # runs until then


@pytest.mark.parametrize("block", [each for each in blocks() if not each.needs], ids=lambda block: block.heading)
def test_each_line_runs_on_a_new_daemon(tmp_path: Path, block: Block) -> None:
    fork_server.install(tmp_path)
    (tmp_path / "answers").write_text(f"{PASSWORD}\n{PASSWORD}\n")
    (tmp_path / "daemon.toml").write_text(FOREIGN_SITE)
    (tmp_path / "backups").mkdir()
    options = ["--config", str(tmp_path / "daemon.toml"), "--web", "--web-port", "0"]
    with Daemon(tmp_path / "data", *options, "--backup-directory", str(tmp_path / "backups")) as daemon:
        places = HERE | {
            "/var/lib/": f"{tmp_path}/", "/backup/": f"{tmp_path}/backup-",
            "https://mq.example.org:18021": f"http://127.0.0.1:{daemon.ready['endpoints']['web']['port']}",
        }  # fmt: skip
        script = [f'export PATH="{tmp_path}:{Path(sys.executable).parent}:$PATH"', IDENTIFIERS, UNTIL_CTRL_C]
        for printed in [*PREPARED[block.heading].splitlines(), *block.lines]:
            line = re.sub(r"\s+#.*", "", printed).strip()
            for text, here in places.items():
                line = line.replace(text, here)
            line = line.replace(f"{tmp_path}/openmsmq", str(tmp_path / "data"))
            if not line:
                continue
            line = f"until_ctrl_c {line}" if line.startswith(CTRL_C) else line
            ends = {0, *MAY_END_WITH.get(re.sub(r"\s+#.*", "", printed).strip(), ())}
            ends |= {130} if CTRL_C in line else set()
            answered = line if line.startswith("export") or "&" in line else f"{line} < answers"
            script += [answered, f"case $? in {'|'.join(map(str, ends))});; *) exit 9;; esac"]
        environment = os.environ | {
            "OPENMSMQ_PORT": str(daemon.port), "OPENMSMQ_DATA_DIR": str(tmp_path / "data"),
            "OPENMSMQ_PASSWORD": PASSWORD, "EDITOR": "sed -i s/late/later/;s/again/changed/",
        }  # fmt: skip
        ended = subprocess.run(
            ["bash", "-x", "-c", "\n".join(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300,
            check=False, env=environment, start_new_session=True,
        )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "Traceback" not in ended.stderr
