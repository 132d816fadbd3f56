"""Another IDL compiler, where one is installed, reads the same IDL and finds the same procedures."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from openmsmq.ndr.build import IDL_DIRECTORY, compile_idl, idl_files

WIDL = shutil.which("x86_64-w64-mingw32-widl") or shutil.which("widl")
needs_widl = pytest.mark.skipif(WIDL is None, reason="widl (Debian: mingw-w64-tools) is not installed")


def _header(path: Path, target: Path) -> str:
    assert WIDL is not None
    header = target / "out.h"
    command = [WIDL, "-h", "-H", str(header), "-I", str(IDL_DIRECTORY), str(path)]
    done = subprocess.run(command, cwd=target, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return header.read_text(encoding="utf-8")


@needs_widl
@pytest.mark.parametrize("path", idl_files(), ids=lambda path: path.name)
def test_a_second_compiler_finds_the_same_procedures_in_the_same_order(path: Path, tmp_path: Path) -> None:
    header = _header(path, tmp_path)
    for interface in compile_idl(path.name).interfaces:
        guard = rf"#define __{interface.name}_INTERFACE_DEFINED__(.*?)#endif +/\* __{interface.name}_INTERFACE"
        body = re.search(guard, header, re.DOTALL)
        assert body is not None, interface.name
        found = re.findall(r"^\S.*? __cdecl (\w+)\(", body[1], re.MULTILINE)
        assert found == [operation.name for operation in interface.operations]


def test_every_interface_has_its_published_number_of_procedures() -> None:
    counts = {i.name: len(i.operations) for path in idl_files() for i in compile_idl(path.name).interfaces}
    published = {"qmcomm": 35, "qmcomm2": 4, "qmmgmt": 2, "qm2qm": 11, "RemoteRead": 16, "ept": 7, "mgmt": 5}
    own = {"TransactionManager": 6}
    assert counts == published | own
