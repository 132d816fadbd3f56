"""The IDL compiler as a command: `python -m msrpc.idl`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from msrpc.idl.build import write_modules
from msrpc.idl.lexer import IdlError

_DESCRIPTION = """\
Compile IDL files to Python modules, which need msrpc.ndr to run.

ms-example.idl becomes ms_example.py: a class for each structure, and an Interface for each interface, with which
clients encode requests and servers decode them; and ms_example_ndr64.py, which does the same in NDR64. Files that an
IDL file imports are searched next to it, then in the directories of --include, then among those of msrpc:
ms-dtyp.idl, ms-dcom.idl, ms-oaut.idl, com.idl, ms-pac.idl, ms-rpce-epm.idl and ms-rpce-mgmt.idl.
"""


def _included(text: str) -> tuple[Path, str]:
    directory, _, package = text.partition("=")
    if not Path(directory).is_dir():
        raise argparse.ArgumentTypeError(f"{directory} is not a directory")
    return Path(directory), package


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m msrpc.idl", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", metavar="FILE.idl", nargs="+", type=Path, help="IDL file to compile")
    parser.add_argument(
        "--output", metavar="DIRECTORY", type=Path, help="directory for the modules (default: that of each IDL file)"
    )
    parser.add_argument(
        "--package",
        metavar="NAME",
        default="",
        help="package that the modules belong to, by which they import each other (default: none)",
    )
    parser.add_argument(
        "--include",
        metavar="DIRECTORY[=PACKAGE]",
        type=_included,
        action="append",
        default=[],
        help="further directory of imported IDL files, and the package of their modules (repeatable)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile IDL files and print the paths of the modules. Returns an exit code."""
    options = _parser().parse_args(arguments)
    try:
        for file in options.files:
            target = options.output or file.parent
            for path in write_modules([file], target, options.package, dict(options.include)):
                print(path)
    except (IdlError, OSError) as error:
        print(f"msrpc.idl: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
