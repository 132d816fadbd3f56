"""Writing the modules that are generated from the IDL."""

from __future__ import annotations

from pathlib import Path

from openmsmq import interfaces
from openmsmq.ndr.build import generate_all, write_all


def test_they_are_for_everybody_to_read_and_written_once(tmp_path: Path) -> None:
    package = tmp_path / "package"
    write_all(package)
    made = list(package.iterdir())
    assert package / "ms_mqmp.py" in made
    assert {path.stat().st_mode & 0o777 for path in made} == {0o644}
    times = {path: path.stat().st_mtime_ns for path in made}
    write_all(package)
    assert {path: path.stat().st_mtime_ns for path in package.iterdir()} == times


def test_one_that_is_of_other_idl_is_written_anew(tmp_path: Path) -> None:
    write_all(tmp_path)
    module = tmp_path / "ms_mqmp.py"
    right = module.read_text()
    module.write_text(right.replace("rpc_ACPurgeQueue", "rpc_Other"))
    write_all(tmp_path)
    assert module.read_text() == right


def test_those_that_are_imported_are_of_the_idl_that_is_here() -> None:
    directory = Path(interfaces.__path__[0])
    old = [name for name, source in generate_all().items() if (directory / f"{name}.py").read_text() != source]
    assert not old, "`make compiled` writes them"
