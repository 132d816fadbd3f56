"""Modules of the distributions msrpc, openmsmq-client and openmsmq. `tools/try-wheel` builds and installs them."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import msrpc
import openmsmq

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"


def project(directory: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / directory / "pyproject.toml").read_text(encoding="utf-8"))


def target(directory: str, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = project(directory)["tool"]["hatch"]["build"]["targets"][kind]
    return found


DIRECTORIES = (".", "packaging/client", "packaging/msrpc")
CLIENT = set(target("packaging/client", "wheel")["only-include"])


def imported(path: Path) -> Iterator[str]:
    """Return the modules that a file imports anywhere; for `from a import b`, both `a` and `a.b`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_client_wheel_has_its_modules_and_the_server_wheel_has_the_others() -> None:
    assert all((ROOT / path).exists() for path in CLIENT)
    left_out = {path.removeprefix("/") for path in target(".", "wheel")["exclude"] if path.startswith("/")}
    assert left_out == CLIENT
    included = {path.removeprefix("/") for path in target("packaging/client", "sdist")["include"]}
    assert {path for path in included if path.startswith("src/")} == CLIENT


def test_source_distributions_have_no_links() -> None:
    """pip refuses a link that leads out of the archive. The license is a copy for this reason."""
    for directory in DIRECTORIES:
        files = [Path(file.path) for file in SdistBuilder(str(ROOT / directory)).recurse_included_files()]
        assert len(files) > 50
        assert [str(file) for file in files if file.is_symlink()] == []
        assert (ROOT / directory / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_each_module_is_in_one_distribution() -> None:
    """Check the contents of the wheels, without extension modules, as found by their builder."""
    packed = Counter(
        file.distribution_path
        for directory in DIRECTORIES
        for file in WheelBuilder(str(ROOT / directory)).recurse_included_files()
    )
    sources = {
        path.relative_to(SOURCES).as_posix()
        for home in ("msrpc", "openmsmq", "pyspark_msmq")
        for path in (SOURCES / home).rglob("*")
        if path.is_file() and path.suffix not in (".c", ".h", ".jar", ".so", ".pyc") and path.name != "README.md"
    }
    assert set(packed) == sources
    assert {path for path, count in packed.items() if count > 1} == set()


def test_the_client_imports_only_what_its_distribution_and_msrpc_have() -> None:
    modules = {path.removeprefix("src/").removesuffix(".py").replace("/", ".") for path in CLIENT}
    files = [
        file
        for path in CLIENT
        for file in ([SOURCES.parent / path] if path.endswith(".py") else (SOURCES.parent / path).rglob("*.py"))
    ]
    assert len(files) > 60
    wrong = {
        (file.relative_to(SOURCES).as_posix(), name)
        for file in files
        for name in imported(file)
        if name.startswith("openmsmq.")
        and not any(name == module or name.startswith(f"{module}.") for module in modules)
        and any((SOURCES / "openmsmq" / f"{name.split('.')[1]}{suffix}").exists() for suffix in ("", ".py"))
    }
    assert not wrong


def test_each_distribution_wants_the_others_in_the_version_that_is_here() -> None:
    """Extension modules of openmsmq are built from sources of the other two."""
    assert f"msrpc=={msrpc.__version__}" in project("packaging/client")["project"]["dependencies"]
    wanted = project(".")["project"]["dependencies"]
    assert {f"msrpc=={msrpc.__version__}", f"openmsmq-client=={openmsmq.__version__}"} <= set(wanted)


def test_all_distributions_are_for_the_same_versions_of_python_and_under_the_same_license() -> None:
    found = [project(directory)["project"] for directory in DIRECTORIES]
    assert len({one["requires-python"] for one in found}) == len({one["license"] for one in found}) == 1
    versions = [{line for line in one["classifiers"] if "Python :: 3." in line} for one in found]
    assert versions[0] == versions[1] == versions[2]
