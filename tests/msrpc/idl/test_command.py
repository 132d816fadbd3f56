"""`python -m msrpc.idl`: the compiler as a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COMMON = "typedef struct { long left; long right; } PAIR;"
PAIRS = """
import "common.idl";
import "ms-dtyp.idl";
[uuid(6ea5a4a4-1bd2-4a5c-9b27-5b5e3a0c5f11), version(1.0), pointer_default(unique)]
interface Pairs { long Swap([in, out] PAIR* pair, [in] FILETIME* when); }
"""


def compile_idl(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "msrpc.idl", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)


def run(directory: Path, program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=True).stdout


def test_modules_of_one_directory_import_each_other_and_those_of_msrpc(tmp_path: Path) -> None:
    (tmp_path / "common.idl").write_text(COMMON)
    (tmp_path / "my-pairs.idl").write_text(PAIRS)
    done = compile_idl(tmp_path, "common.idl", "my-pairs.idl")
    assert (done.returncode, done.stdout, done.stderr) == (
        0, "common.py\ncommon_ndr64.py\nmy_pairs.py\nmy_pairs_ndr64.py\n", "",
    )  # fmt: skip
    text = (tmp_path / "my_pairs.py").read_text()
    assert "from common import PAIR" in text and "from msrpc.interfaces.ms_dtyp import FILETIME" in text
    program = (
        "import my_pairs, common; from msrpc.interfaces.ms_dtyp import FILETIME\n"
        "swap = my_pairs.Pairs.operation('Swap')\n"
        "stub = swap.encode_request(my_pairs.Swap_Request(common.PAIR(1, 2), FILETIME(3, 4)))\n"
        "print(swap.decode_request(stub))\n"
        "print(swap.ndr64.decode_request(swap.ndr64.encode_request(swap.decode_request(stub))))"
    )
    assert run(tmp_path, program).count("PAIR(left=1, right=2)") == 2


def test_modules_of_a_package_and_of_an_included_directory_are_imported_by_their_full_names(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    for directory in (shared, own):
        directory.mkdir()
        (directory / "__init__.py").touch()
    (shared / "common.idl").write_text(COMMON)
    (tmp_path / "pairs.idl").write_text(PAIRS)
    assert compile_idl(tmp_path, "shared/common.idl", "--package", "shared").returncode == 0
    arguments = ("pairs.idl", "--output", "own", "--package", "own", "--include", "shared=shared")
    assert compile_idl(tmp_path, *arguments).stdout == "own/pairs.py\nown/pairs_ndr64.py\n"
    assert run(tmp_path, "from own import pairs; print(pairs.Pairs.operations[0].ndr64.name)") == "Swap\n"


def test_an_import_that_is_not_found_is_named_with_the_directories(tmp_path: Path) -> None:
    (tmp_path / "pairs.idl").write_text(PAIRS)
    done = compile_idl(tmp_path, "pairs.idl")
    assert done.returncode == 1
    assert done.stderr.startswith("msrpc.idl: common.idl is in none of ")
    assert not (tmp_path / "pairs.py").exists()


def test_a_mistake_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "wrong.idl").write_text("interface Wrong\n{\n    long Op([in] long ;\n}\n")
    done = compile_idl(tmp_path, "wrong.idl")
    assert done.returncode == 1 and "wrong.idl:3:" in done.stderr and "Traceback" not in done.stderr


def test_help_says_which_options_there_are(tmp_path: Path) -> None:
    done = compile_idl(tmp_path, "--help")
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("FILE.idl", "--output", "--package", "--include", "ms-dtyp.idl"))
