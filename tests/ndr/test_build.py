"""Writing the modules generated from the IDL."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from idl_files import SOURCES, idl_files
from msrpc.idl.build import write_modules


def test_generated_modules_are_world_readable_and_written_once(tmp_path: Path) -> None:
    package = tmp_path / "package"
    write_modules(idl_files(), package)
    made = list(package.iterdir())
    assert package / "ms_mqmp.py" in made
    assert {path.stat().st_mode & 0o777 for path in made} == {0o644}
    times = {path: path.stat().st_mtime_ns for path in made}
    write_modules(idl_files(), package)
    assert {path: path.stat().st_mtime_ns for path in package.iterdir()} == times


def test_a_module_of_other_idl_is_rewritten(tmp_path: Path) -> None:
    files = [path for path in idl_files() if path.name == "ms-mqmp.idl"]
    modules = write_modules(files, tmp_path)
    assert [path.name for path in modules] == ["ms_mqmp.py", "ms_mqmp_ndr64.py"]
    right = [path.read_text() for path in modules]
    for path, text in zip(modules, right, strict=True):
        path.write_text(text.replace("rpc_ACPurgeQueue", "rpc_Other"))
    write_modules(files, tmp_path)
    assert [path.read_text() for path in modules] == right


def test_imported_modules_match_the_current_idl() -> None:
    for path in idl_files():
        package = Path(str(import_module(SOURCES.module_of(path.name)).__file__)).parent
        for name, text in SOURCES.generate(path.name).items():
            assert (package / f"{name}.py").read_text() == text, f"{package}/{name}.py: `make compiled` writes it"
