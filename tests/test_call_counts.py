"""The number of functions called for a single message does not grow."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BENCHMARK = ROOT / "benchmarks" / "call_counts.py"
_LINE = re.compile(r"^(.+): (\d+) calls in ", re.MULTILINE)


def test_a_message_calls_at_most_the_allowed_number_of_functions() -> None:
    printed = subprocess.run([sys.executable, BENCHMARK], capture_output=True, text=True, check=True).stdout
    found = {what: int(calls) for what, calls in _LINE.findall(printed)}
    most = {what: int(calls) for what, calls in re.findall(r'"([\w ]+send[\w ]*)": (\d+)', BENCHMARK.read_text())}
    assert found.keys() == most.keys() and len(most) == 3
    for what, calls in found.items():
        assert most[what] * 0.8 < calls <= most[what], printed


def test_the_document_states_the_bound() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    most = re.findall(r'"([\w ]+send[\w ]*)": (\d+)', BENCHMARK.read_text())
    for what, calls in most:
        assert f"{what}: {calls}" in text
