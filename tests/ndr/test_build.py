"""Writing the modules that are generated from the IDL."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from idl_files import SOURCES, idl_files
from msrpc.idl.build import write_modules


def test_they_are_for_everybody_to_read_and_written_once(tmp_path: Path) -> None:
    package = tmp_path / "package"
    write_modules(idl_files(), package)
    made = list(package.iterdir())
    assert package / "ms_mqmp.py" in made
    assert {path.stat().st_mode & 0o777 for path in made} == {0o644}
    times = {path: path.stat().st_mtime_ns for path in made}
    write_modules(idl_files(), package)
    assert {path: path.stat().st_mtime_ns for path in package.iterdir()} == times


def test_one_that_is_of_other_idl_is_written_anew(tmp_path: Path) -> None:
    files = [path for path in idl_files() if path.name == "ms-mqmp.idl"]
    (module,) = write_modules(files, tmp_path)
    right = module.read_text()
    module.write_text(right.replace("rpc_ACPurgeQueue", "rpc_Other"))
    write_modules(files, tmp_path)
    assert module.read_text() == right


def test_those_that_are_imported_are_of_the_idl_that_is_here() -> None:
    for path in idl_files():
        source = Path(str(import_module(SOURCES.module_of(path.name)).__file__))
        assert source.read_text() == SOURCES.generate(path.name), f"{source}: `make compiled` writes it"
