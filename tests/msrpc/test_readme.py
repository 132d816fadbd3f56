"""The server and the client in the README run as printed, with code generated from its IDL file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import msrpc

README = Path(msrpc.__path__[0], "README.md")
LINES = 30  # limit for each of the two programs


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the IDL file and both programs."""
    made = tmp_path_factory.mktemp("readme")
    text = README.read_text(encoding="utf-8")
    (idl,) = re.findall(r"```idl\n(.*?)```", text, re.DOTALL)
    server, client = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for name, content in (("adder.idl", idl), ("server.py", server), ("client.py", client)):
        (made / name).write_text(content, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def address(directory: Path) -> Iterator[str]:
    (command,) = re.findall(r"`python (-m msrpc\.idl .*?)`", README.read_text(encoding="utf-8"))
    subprocess.run([sys.executable, *command.split()], cwd=directory, check=True, timeout=120)
    with subprocess.Popen([sys.executable, "server.py"], cwd=directory, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.kill()


def test_the_client_of_the_readme_gets_the_sum_from_its_server(directory: Path, address: str) -> None:
    done = subprocess.run(
        [sys.executable, "client.py", address], cwd=directory, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")


@pytest.mark.parametrize("program", ["server.py", "client.py"])
def test_the_programs_of_the_readme_are_short(directory: Path, program: str) -> None:
    assert len([line for line in (directory / program).read_text().splitlines() if line]) <= LINES
