"""The documentation site has every document and shows the source lines that documents refer to."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_of_documents", ROOT / "tools" / "site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_document_is_in_the_navigation() -> None:
    listed = set(re.findall(r"([\w/-]+\.md)\b", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2]))
    documents = {
        str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions"
    }
    generated = {"docs/http-api.md", "docs/python-api.md"}
    assert documents | generated <= listed
    assert all((ROOT / name).exists() for name in listed - generated)


def test_a_link_to_a_source_file_leads_to_the_line_of_the_name(
    site: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "SITE", tmp_path)
    text = site.page(ROOT / "docs" / "tour.md")
    source = ROOT / "src" / "openmsmq" / "queueing" / "change_set.py"
    line = next(n for n, each in enumerate(source.read_text().splitlines(), 1) if each == "    def commit(")
    assert f"(../src/openmsmq/queueing/change_set.py.md#__codelineno-0-{line})" in text
    shown = (tmp_path / "src" / "openmsmq" / "queueing" / "change_set.py.md").read_text(encoding="utf-8")
    assert source.read_text(encoding="utf-8") in shown


def test_the_page_of_the_http_api_has_each_operation(site: ModuleType) -> None:
    page = site.http_api()
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]
    assert len(paths) > 20
    for path, operations in paths.items():
        for method in operations:
            assert f"`{method.upper()} {path}`" in page


def test_a_broken_link_is_detected(site: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h1 id="top">A</h1><a href="b.html#here">b</a><a href="#top">top</a>')
    (tmp_path / "b.html").write_text('<a href="c.html">c</a><a href="a.html#top">a</a>')
    assert list(site.broken_links(tmp_path)) == [
        "a.html: b.html#here leads to no anchor",
        "b.html: c.html leads to no file",
    ]
