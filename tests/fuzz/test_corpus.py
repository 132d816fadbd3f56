"""The fuzzer's corpus and reproducible mutations of it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.targets import CORPUS, TARGETS

_MUTATIONS = 60  # per file; the nightly fuzzer tries more
_FEWER = {"http": 3, "ndr20": 20}  # of slow targets

_INTERPRETED = ("invoke",)  # its connection class is not accepted by native code

FILES = sorted(file for name in TARGETS for file in (CORPUS / name).iterdir())


def mutated(data: bytes, random_: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(made) + 1)
        choice = random_.randrange(4)
        if choice == 0:
            made[at : at + 1] = bytes([random_.randrange(256)])
        elif choice == 1:
            made[at : at + 4] = random_.choice(
                [b"\xff\xff\xff\xff", bytes(4), b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80"]
            )
        elif choice == 2:
            del made[at : at + random_.randint(1, 8)]
        else:
            made[at:at] = random_.randbytes(random_.randint(1, 8))
    return bytes(made)


_PROGRAM = """
import os, random, sys, traceback
sys.path[:0] = {path!r}
if {interpreted!r}:
    import sources
    sources.prefer()
from fuzz.targets import TARGETS
from fuzz.test_corpus import FILES, mutated

def work(target):
    kept = os.open(os.path.join({directory!r}, target), os.O_WRONLY | os.O_CREAT)
    for file in (file for file in FILES if file.parent.name == target):
        data, generator = file.read_bytes(), random.Random(file.name)
        for made in (data, *(mutated(data, generator) for _ in range({fewer!r}.get(target, {mutations})))):
            os.pwrite(kept, len(made).to_bytes(4, "little") + made, 0)  # truncating the file each time would be slow
            TARGETS[target](made)

for target in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            work(target)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(target, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def _input_in(file: Path) -> bytes:
    """Return the last input of a target."""
    kept = file.read_bytes()
    return kept[4 : 4 + int.from_bytes(kept[:4], "little")][:2000]


def test_there_are_files_for_each_target() -> None:
    assert {file.parent.name for file in FILES} == TARGETS.keys()


@pytest.mark.parametrize("interpreted", [False, True])
def test_no_file_of_the_corpus_causes_a_failure(interpreted: bool, tmp_path: Path) -> None:
    """In separate processes, because a defect may crash them; they are forked, because their imports take a second."""
    targets = [name for name in TARGETS if (name in _INTERPRETED) is interpreted]
    program = _PROGRAM.format(
        path=[entry for entry in sys.path if entry], directory=str(tmp_path), interpreted=interpreted,
        mutations=_MUTATIONS, fewer=_FEWER,
    )  # fmt: skip
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", program, *targets]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment)
    codes = dict(line.split() for line in done.stdout.splitlines())
    assert codes.keys() == set(targets), done.stderr[-2000:]
    failed = {name: (code, _input_in(tmp_path / name)) for name, code in codes.items() if code != "0"}
    assert not failed, (failed, done.stderr[-2000:])
