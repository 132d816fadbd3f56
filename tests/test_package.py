"""Output of `dir`, `help` and `python -m` for the package."""

from __future__ import annotations

import pydoc
import subprocess
import sys
import tomllib
from pathlib import Path

import openmsmq


def test_dir_lists_every_exported_name_and_loads_none_of_them() -> None:
    program = "import sys, openmsmq; print(*dir(openmsmq)); print('openmsmq.client.sync' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    names, loaded = shown.stdout.splitlines()
    assert set(openmsmq.__all__) <= set(names.split())
    assert loaded == "False"


def test_a_program_that_uses_the_client_loads_nothing_of_the_command_line() -> None:
    program = (
        "import sys, openmsmq, openmsmq.aio; openmsmq.connect, openmsmq.Message\n"
        "print(*{name.partition('.')[0] for name in sys.modules} & {'click', 'rich', 'pygments', 'numpy', 'pyarrow'})"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout == "\n"


def test_help_describes_what_is_exported() -> None:
    shown = pydoc.render_doc(openmsmq, renderer=pydoc.plaintext)
    missing = [name for name in openmsmq.__all__ if f"class {name}" not in shown and f"{name}(" not in shown]
    assert not missing


def test_the_package_runs_as_the_command_line() -> None:
    run = subprocess.run([sys.executable, "-m", "openmsmq", "--version"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and openmsmq.__version__ in run.stdout


def test_every_exported_exception_is_an_msmq_error() -> None:
    exported = [getattr(openmsmq, name) for name in openmsmq.__all__]
    errors = [kind for kind in exported if isinstance(kind, type) and issubclass(kind, BaseException)]
    assert len(errors) > 20
    assert all(issubclass(kind, openmsmq.MsmqError) for kind in errors)


def test_the_version_of_the_project_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == openmsmq.__version__
    changelog = (Path(__file__).parents[1] / "debian" / "changelog").read_text(encoding="utf-8")
    assert changelog.startswith(f"openmsmq ({openmsmq.__version__}) ")
