"""Shell completion of commands and queue names, and manual pages that agree with the help texts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fork_server
from command_line import add_user, at
from daemon import Daemon
from openmsmq.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("completing") / "data") as running, running.connect() as manager:
        for name in ("orders", "orphans", "bills"):
            manager.create_queue(name)
        yield running


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("files")
    subprocess.run([sys.executable, ROOT / "tools" / "command_files.py", directory], check=True)
    return directory / "usr/share"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The command, without the start-up time of Python."""
    fork_server.install(tmp_path)
    return tmp_path / "openmsmq"


def completed(program: Path, words: str, number: int, **environment: str) -> list[str]:
    """Return the completions for bash of word `number`."""
    asked = {"_OPENMSMQ_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    said = subprocess.run([program], env={**os.environ, **asked, **environment}, capture_output=True, text=True)
    assert said.returncode == 0 and not said.stderr, said
    return [line.partition(",")[2] for line in said.stdout.split()]


def test_names_of_queues_come_from_the_running_queue_manager(service: Daemon, program: Path) -> None:
    for words, number in (("openmsmq queue show or", 3), ("openmsmq peek or", 2), ("openmsmq queue grant or", 3)):
        assert completed(program, words, number, **at(service)) == ["orders", "orphans"], words
    assert completed(program, "openmsmq copy orders b", 3, **at(service)) == ["bills"]
    assert "deadletter" in completed(program, "openmsmq peek d", 2, **at(service))
    given = f"openmsmq peek --host 127.0.0.1 --port {service.port} orp"
    assert completed(program, given, 6) == ["orphans"]


def test_a_user_with_a_password_gets_names_and_one_without_is_not_asked(service: Daemon, program: Path) -> None:
    add_user(service.directory, "alice", "Secret#1")
    for environment, found in (({"OPENMSMQ_PASSWORD": "Secret#1"}, ["orphans"]), ({}, [])):
        assert completed(program, "openmsmq peek orp", 2, OPENMSMQ_USER="alice", **environment, **at(service)) == found


def test_without_a_queue_manager_completion_is_silent(program: Path) -> None:
    assert completed(program, "openmsmq peek or", 2, OPENMSMQ_PORT="1") == []
    assert completed(program, "openmsmq que", 1) == ["queue"]


def test_the_completion_of_bash_works(service: Daemon, share: Path, program: Path) -> None:
    script = f"""
source {share / "bash-completion/completions/openmsmq"}
COMP_WORDS=(openmsmq queue show orp); COMP_CWORD=3
_openmsmq_completion openmsmq
printf "%s\\n" "${{COMPREPLY[@]}}"
"""
    environment = {**os.environ, **at(service), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    said = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert said.stdout.split() == ["orphans"], said


def test_there_is_a_manual_page_for_each_command_and_no_warning(share: Path) -> None:
    pages = {path.stem: path for path in (share / "man/man1").iterdir()}
    assert pages.keys() == {"openmsmq", *(f"openmsmq-{name}" for name in COMMANDS)}
    listed = set(re.findall(r"^\.BR (\S+) \(1\)$", pages["openmsmq"].read_text().replace("\\-", "-"), re.M))
    assert listed == pages.keys() - {"openmsmq"}
    assert "openmsmq queue grant" in pages["openmsmq-queue"].read_text().replace("\\-", "-")
    groff = shutil.which("groff")
    for page in pages.values() if groff else ():
        done = subprocess.run([str(groff), "-man", "-ww", "-z", page], capture_output=True, text=True)
        assert done.stderr == "", (page.name, done.stderr[:500])
