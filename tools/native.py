#!/usr/bin/env python3
"""Build the extension modules listed in `openmsmq.compiled`.

    .venv/bin/python tools/native.py           next to their sources, if a source is newer: `make compiled`
    python tools/native.py --into DIRECTORY    a package tree in DIRECTORY: the build hook (hatch_build.py)

Needs a C compiler, the Python headers, mypy and setuptools. Without a compiler or headers, extension modules next to
the sources are removed, and the code runs interpreted.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src"
PACKAGES = (SOURCES / "msrpc", SOURCES / "openmsmq")
LISTS = SOURCES / "openmsmq" / "compiled.py"
KEPT = ROOT / "build" / "native"  # generated C code and objects, for the next build next to the sources
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
STABLE_SUFFIX = ".abi3.so"  # modules in C for the stable ABI also work with later interpreters
GROUP = "openmsmq.native"  # mypyc puts all code into `openmsmq/native__mypyc`, and a shim next to each module
# Further directories, whose constants and declarations are compiled into the modules that import them.
INPUTS = ("msrpc", "msrpc/idl", "msrpc/interfaces", "openmsmq/idl", "openmsmq/model")
# Directories of IDL files, and the packages generated from them.
GENERATED = (("msrpc/interfaces", "msrpc.interfaces"), ("openmsmq/idl", "openmsmq.interfaces"))
# Hidden symbols and no procedure linkage table: functions call each other, and the interpreter, directly.
DIRECT_CALLS = ["-fvisibility=hidden", "-fno-plt"]
COLD = ROOT / "tools" / "cold.h"  # included before each file that mypyc generates
LARGEST_LOG = 4000  # maximum characters of compiler output


def lists() -> ModuleType:
    """Return `openmsmq.compiled`, loaded without its package, which may not be importable yet."""
    spec = importlib.util.spec_from_file_location("compiled", LISTS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def source_in_c(module: str) -> Path:
    return SOURCES / f"{module.replace('.', '/')}.c"


def is_stable(module: str) -> bool:
    """Whether the C source of a module uses the stable ABI."""
    return "#define Py_LIMITED_API" in source_in_c(module).read_text()


def product(module: str) -> Path:
    """Return the path of the extension module of a module."""
    suffix = STABLE_SUFFIX if source_in_c(module).exists() and is_stable(module) else SUFFIX
    return SOURCES / f"{module.replace('.', '/')}{suffix}"


def products() -> list[Path]:
    """Return the paths of all extension modules next to the sources."""
    found = lists()
    return [product(module) for module in (*found.MODULES, *found.WRITTEN_IN_C, f"{GROUP}__mypyc")]


def inputs() -> Iterator[Path]:
    """Yield the input files of the extension modules: the sources in their directories; for modules in C, only those
    in C."""
    yield from (Path(__file__).resolve(), COLD, LISTS)
    found = lists()
    suffixes = {source_in_c(module).parent: (".c", ".h") for module in found.WRITTEN_IN_C}
    homes = {source_in_c(module).parent for module in found.MODULES} | {SOURCES / name for name in INPUTS}
    suffixes |= dict.fromkeys(homes, (".py", ".c", ".h", ".idl"))
    for home, wanted in suffixes.items():
        yield from (file for file in home.iterdir() if file.suffix in wanted)


def present() -> list[Path]:
    """Return the existing extension modules next to the sources that this interpreter would import."""
    return [path for home in PACKAGES for suffix in (SUFFIX, STABLE_SUFFIX) for path in home.rglob(f"*{suffix}")]


def is_current() -> bool:
    """Whether all extension modules exist and none is older than any source."""
    expected = products()
    if set(expected) != set(present()):
        return False
    return min(path.stat().st_mtime for path in expected) >= max(path.stat().st_mtime for path in inputs())


def remove() -> None:
    for path in present():
        path.unlink()


def lacking() -> str | None:
    """Return what prevents the build; None if nothing does."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "a Python without the global interpreter lock"  # it has no stable ABI
    if not shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]):
        return "no C compiler"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "no headers of Python (python3-dev)"
    return None


def generate() -> None:
    """Update the generated interfaces; see `msrpc.idl.build`. The source distribution of the client contains them, but
    not the IDL compiler. Raises CalledProcessError."""
    if not (SOURCES / "msrpc").exists():
        return
    subprocess.run([sys.executable, __file__, "--generate"], check=True, stdout=subprocess.DEVNULL)


def run_idl_compiler() -> None:
    """Run the IDL compiler from the sources, ignoring extension modules; `generate` calls this in a separate
    process."""

    def find_sources(path: str) -> FileFinder:
        if SOURCES not in (Path(path), *Path(path).parents):
            raise ImportError(path)
        return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, find_sources)
    sys.path.insert(0, str(SOURCES))
    build = import_module("msrpc.idl.build")
    for directory, package in GENERATED:
        files = sorted((SOURCES / directory).glob("*.idl"))
        if not files:  # the source distribution of msrpc
            continue
        target = SOURCES / package.replace(".", "/")
        made = {*build.write_modules(files, target, package), target / "__init__.py"}
        for stale in (path for path in target.glob("*.py") if path not in made):
            stale.unlink()


def build(target: Path) -> None:
    """Build all extension modules into the package tree below `target`. Raises CalledProcessError."""
    generate()
    with tempfile.TemporaryDirectory() as scratch:
        build_with(Path(scratch), target)


def build_with(scratch: Path, target: Path) -> None:
    """Like `build`, with current interfaces; `scratch` may have the files of an earlier build."""
    log = scratch / "log"
    command = [sys.executable, __file__, "--build", str(target), str(scratch)]
    with log.open("wb") as output:
        done = subprocess.run(command, cwd=SOURCES, stdout=output, stderr=output)
    if done.returncode:
        print(log.read_text(errors="replace")[-LARGEST_LOG:], file=sys.stderr)
        done.check_returncode()


def scratch_directory() -> Path:
    """Return a directory with the files of the last build next to the sources, if it had the same tools."""
    tools = [
        Path(__file__).read_text(),
        COLD.read_text(),
        SUFFIX,
        sysconfig.get_path("include"),
        *(f"{name} {version(name)}" for name in ("mypy", "setuptools")),
    ]
    made_with = KEPT / "made-with"
    if not made_with.exists() or made_with.read_text() != "\n".join(tools):
        shutil.rmtree(KEPT, ignore_errors=True)
        KEPT.mkdir(parents=True)
        made_with.write_text("\n".join(tools))
    return KEPT


def compile_all(target: Path, scratch: Path) -> None:
    """Compile all modules; `build` calls this in a separate process, because mypyc and setuptools change global
    state."""
    from mypyc.build import mypycify
    from setuptools import Extension, setup
    from setuptools.command.build_ext import build_ext

    class ParallelBuild(build_ext):  # type: ignore[misc]
        """Compiles the files of an extension in parallel, except those that have not changed since the last build;
        setuptools does both only for whole extensions."""

        def build_extensions(self) -> None:
            compile_some = self.compiler.compile

            def compile_one(source: str, **options: Any) -> list[str]:
                made: list[str] = self.compiler.object_filenames([source], output_dir=options["output_dir"])
                home = scratch if Path(source).is_absolute() else SOURCES
                newest = max(path.stat().st_mtime for path in (Path(source), *headers[home]))
                if Path(made[0]).exists() and Path(made[0]).stat().st_mtime > newest:
                    return made
                began = time.time()
                compile_some([source], **options)
                os.utime(made[0], (began, began))  # so that a source edited meanwhile is newer
                return made

            def compile_each(sources: list[str], **options: Any) -> list[str]:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    objects = pool.map(lambda source: compile_one(source, **options), sources)
                    return [made for some in objects for made in some]

            self.compiler.compile = compile_each
            super().build_extensions()

    found = lists()
    # These modules become one extension for the group, plus a shim for each module.
    paths = [f"{module.replace('.', '/')}.py" for module in found.MODULES]
    extensions = mypycify(
        # Not as strict as `make lint`: imported packages are not installed when a wheel is built.
        ["--config-file", os.devnull, "--ignore-missing-imports", "--cache-dir", str(scratch / "cache"), *paths],
        group_name=GROUP, opt_level="2", debug_level="0", multi_file=True, target_dir=str(scratch / "c"),
    )  # fmt: skip
    for extension in extensions:
        # mypyc 2.4 puts headers of a group next to its code, but looks for them one directory above.
        extension.include_dirs.append(str(scratch / "c" / GROUP.partition(".")[0]))
        # Other compilers may warn where those of the mypyc authors do not.
        options = [option for option in extension.extra_compile_args if option != "-Werror"]
        extension.extra_compile_args = [*options, *DIRECT_CALLS, "-include", str(COLD)]
    extensions += [
        Extension(
            module,
            [str(source_in_c(module).relative_to(SOURCES))],
            extra_compile_args=["-O2", "-Wall", *DIRECT_CALLS],
            py_limited_api=is_stable(module),
        )
        for module in found.WRITTEN_IN_C
    ]
    headers = {home: list(home.rglob("*.h")) for home in (scratch, SOURCES)}
    directories = ["--build-lib", str(target), "--build-temp", str(scratch / "o")]
    setup(
        name="openmsmq-native",
        packages=[],
        ext_modules=extensions,
        cmdclass={"build_ext": ParallelBuild},
        script_args=["-q", "build_ext", *directories],
    )


def main() -> int:
    """Build next to the sources, unless everything is current. Returns an exit code."""
    if is_current():
        return 0
    remove()
    missing = lacking()
    if missing:
        print(f"native: {missing}: the queue manager stays interpreted")
        return 0
    print(f"native: building {len(products())} extension modules, about a minute")
    with tempfile.TemporaryDirectory() as directory:
        try:
            generate()  # before `began`: what it writes is not edited meanwhile
            began = time.time()
            build_with(scratch_directory(), Path(directory))
        except subprocess.CalledProcessError:
            shutil.rmtree(KEPT, ignore_errors=True)  # a killed compiler may have left part of an object
            print("native: failed; the queue manager stays interpreted", file=sys.stderr)
            return 1
        for path in products():
            shutil.move(Path(directory, path.relative_to(SOURCES)), path)
            os.utime(path, (began, began))  # so that sources edited meanwhile are newer
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            sys.exit(main())
        case ["--generate"]:
            run_idl_compiler()
        case ["--into", directory]:
            build(Path(directory))
        case ["--build", directory, scratch]:
            compile_all(Path(directory), Path(scratch))
        case _:
            sys.exit(__doc__)
