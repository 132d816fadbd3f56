#!/usr/bin/env python3
"""Build the connector for Spark, `src/openmsmq/spark/connector.jar`, from connector/.

    .venv/bin/python tools/connector.py                if a source is newer: `make connector`
    python tools/connector.py --into DIRECTORY         in its package in DIRECTORY: the build hook (hatch_build.py)

Needs javac of JDK 17 or later, and PySpark, whose jars contain the interfaces.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "connector"
JAR = Path("openmsmq", "spark", "connector.jar")  # path below src, and in a wheel
RELEASE = 17
NO_SPARK = "no PySpark"
_MOMENT = (1980, 1, 1, 0, 0, 0)  # fixed time of the files in the jar, for reproducible builds


def lacking() -> str | None:
    """Return what is missing for the build; None if nothing is."""
    if not SOURCES.exists():
        return "no connector/"
    javac = shutil.which("javac")
    if javac is None:
        return "no javac"
    done = subprocess.run([javac, "-version"], capture_output=True, text=True)
    found = re.search(r"javac (\d+)", done.stdout + done.stderr)
    if found is None or int(found[1]) < RELEASE:
        return f"no javac {RELEASE} or later"
    return None if importlib.util.find_spec("pyspark") else NO_SPARK


def build(target: Path) -> None:
    """Write the jar. Raises CalledProcessError."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    jars = Path(spec.origin).parent / "jars"
    files = sorted(SOURCES.rglob("*.java"))
    with tempfile.TemporaryDirectory() as directory:
        command = ["javac", "-Xlint:all,-classfile,-path,-processing,-serial", "-Werror", "-proc:none"]
        command += ["--release", str(RELEASE), "-cp", f"{jars}/*", "-d", directory]
        subprocess.run([*command, *map(str, files)], check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")  # a jar that an interrupted build left would look complete
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as jar:
            for root, pattern in ((SOURCES / "META-INF", "*"), (Path(directory), "*.class")):
                for path in sorted(path for path in root.rglob(pattern) if path.is_file()):
                    name = path.relative_to(root.parent if root.name == "META-INF" else root)
                    jar.writestr(zipfile.ZipInfo(str(name), _MOMENT), path.read_bytes())
        part.replace(target)


def main() -> int:
    """Build next to the sources, unless the jar is current. Returns an exit code."""
    target = ROOT / "src" / JAR
    inputs = [Path(__file__), *(path for path in SOURCES.rglob("*") if path.is_file())]
    if target.exists() and target.stat().st_mtime > max(path.stat().st_mtime for path in inputs):
        return 0
    target.unlink(missing_ok=True)
    missing = lacking()
    if missing:
        print(f"connector: {missing}: Spark reads and writes by the Python source")
        return 0
    build(target)
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            sys.exit(main())
        case ["--into", directory]:
            build(Path(directory, JAR))
        case _:
            sys.exit(__doc__)
