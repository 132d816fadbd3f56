"""The fuzzer's corpus and reproducible mutations of it."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.targets import CORPUS, TARGETS

_MUTATIONS = 60  # per file; the nightly fuzzer tries more

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
import random, sys
from pathlib import Path
sys.path[:0] = {path!r}
if {interpreted!r}:
    import sources
    sources.prefer()
from fuzz.targets import TARGETS
from fuzz.test_corpus import mutated
for name in sys.argv[2:]:
    data, rounds = Path(name).read_bytes(), int(sys.argv[1])
    generator = random.Random(Path(name).name)
    for made in (data, *(mutated(data, generator) for _ in range(rounds))):
        Path({last!r}).write_bytes(made)
        TARGETS[Path(name).parent.name](made)
"""


@pytest.mark.parametrize("target", TARGETS)
def test_no_file_of_the_corpus_causes_a_failure(target: str, tmp_path: Path) -> None:
    """In a separate process, because a defect may crash it."""
    files = [str(file) for file in FILES if file.parent.name == target]
    assert files
    last = tmp_path / "last"
    program = _PROGRAM.format(
        path=[entry for entry in sys.path if entry], last=str(last), interpreted=target in _INTERPRETED
    )
    done = subprocess.run([sys.executable, "-c", program, str(_MUTATIONS), *files], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, last.read_bytes()[:2000], done.stderr[-2000:])
