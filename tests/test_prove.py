"""Results of long runs are read from reports and shown in the document."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="test_b"><properties><property name="kills" value="6"/></properties></testcase>
<testcase classname="tests.a" name="test_c"><properties><property name="kills" value="4"/></properties>
<failure message="x"/></testcase>
<testcase classname="tests.a" name="test_d"><skipped message="no browser"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture(scope="module")
def prove() -> ModuleType:
    loader = SourceFileLoader("prove", str(ROOT / "tools" / "prove"))
    specification = importlib.util.spec_from_loader("prove", loader)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["prove"] = module  # needed by dataclasses
    loader.exec_module(module)
    return module


def test_a_report_has_counts_failures_and_skipped_tests(prove: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    counts: Counter[str] = Counter()
    assert prove.read_report(tmp_path / "report.xml", counts) == ["tests.a::test_c"]
    assert counts == {"tests": 2, "skipped tests": 1, "kills": 10}


def test_a_failed_part_is_shown_as_failed(prove: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove, "RESULTS", tmp_path)
    (tmp_path / "kills.json").write_text(
        '{"part": "kills", "passed": false, "failures": ["a::b"], "counts": {"kills": 1234}, "seconds": 3725,'
        ' "commit": "abc", "date": "2026-11-27"}'
    )
    text = prove.table()
    assert "| [kills](proof/kills.json) | 1,234 kills | 1:02:05 | `abc`, 2026-11-27 | **failed**: 1 tests |" in text
    assert "- `kills`: `a::b` failed." in text and "No result yet: `networks`" in text


def _ran(prove: ModuleType, **changed: object) -> None:
    ran = {
        "part": "networks", "passed": True, "exit code": 0, "failures": [], "passed parts": ["a"], "commit": "abc",
        "counts": {"networks": 10, "tests": 2}, "sizes": {"SIMULATIONS": "10"}, "seconds": 60, "seed": "1",
    }  # fmt: skip
    prove.keep({**ran, **changed})


def test_a_run_with_another_seed_on_the_same_commit_is_added(
    prove: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prove, "RESULTS", tmp_path)

    def shown() -> tuple[object, ...]:
        kept = json.loads((tmp_path / "networks.json").read_text())
        return kept["seed"], kept["counts"]["networks"], kept["sizes"]["SIMULATIONS"], kept["seconds"], kept["passed"]

    _ran(prove)
    _ran(prove)
    assert shown() == ("1", 10, "10", 60, True), "the same run again"
    _ran(prove, seed="2")
    assert shown() == ("1, 2", 20, "20", 120, True)
    _ran(prove, seed="1")
    assert shown() == ("1", 10, "10", 60, True), "a seed that it has"
    failed = {"passed": False, "exit code": 1, "failures": ["a::b"]}
    _ran(prove, seed="2", **failed)
    _ran(prove, seed="3")
    assert shown() == ("1, 2, 3", 30, "30", 180, False), "a failure stays"
    _ran(prove, seed="4", commit="def")
    assert shown() == ("4", 10, "10", 60, True)


def test_every_long_test_is_in_a_part(prove: ModuleType) -> None:
    """The part `peers` runs all that no other part runs, so only paths can be wrong."""
    paths = [path for part in prove.PARTS.values() for path in part.tests]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert all(part.command or part.tests or name == "peers" for name, part in prove.PARTS.items())
