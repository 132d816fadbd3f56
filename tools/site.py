#!/usr/bin/env python3
"""Collect the pages of the site in build/docs, for `make docs` (mkdocs.yml). With --check, check all links of the site.

The directory structure is kept, so links between documents stay valid. Generated in addition: a page for each source
file that a document links to, with links to the line of the named symbol; the HTTP operations of docs/openapi.json; and
the Python API.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "docs"
PAGES = (
    "*.md", "docs/**/*.md", "benchmarks/**/*.md", "src/msrpc/README.md", "packaging/helm/openmsmq/README.md",
)  # fmt: skip
FILES = ("docs/images/**/*", "docs/openapi.json", "benchmarks/*.svg", "benchmarks/profiles/*")
LINK = re.compile(r"\[([^\]\n]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".toml": "toml", ".yaml": "yaml", ".json": "json", ".sh": "sh"}
API = {
    "Client": [
        *(
            f"openmsmq.client.{kind}.{name}"
            for kind in ("sync", "asynchronous")
            for name in ("manager", "queue", "transaction")
        ),
        "openmsmq.model.message",
        "openmsmq.model.errors",
    ],
    "Automation objects": ["openmsmq.com.client", "openmsmq.com.proxies"],
    "Arrow Flight": ["openmsmq.bulk.client"],
    "Spark": ["openmsmq.spark", "openmsmq.spark.options"],
    "Tracing": ["openmsmq.tracing"],
}


def line_of(source: Path, name: str) -> int | None:
    """Return the line where a Python file defines `name`, `Class.name` or a table; None for any other text."""
    if source.suffix != ".py":
        return None
    body: list[ast.stmt] = ast.parse(source.read_text(encoding="utf-8")).body
    line = None
    for part in name.split("."):
        for node in body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if getattr(node, "name", None) == part or any(getattr(each, "id", None) == part for each in targets):
                line, body = node.lineno, getattr(node, "body", [])
                break
        else:
            return None
    return line


def page(path: Path) -> str:
    """Return a document in which links to source files refer to their pages."""

    def linked(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        file = (path.parent / target).resolve()
        if "://" in target or not file.is_relative_to(ROOT) or not file.exists():
            return match[0]
        if file.is_dir():
            readme = file / "README.md"
            return f"[{text}]({target.rstrip('/')}/README.md)" if readme.exists() else text
        if file.suffix in (".md", ".svg", ".png") or file.name == "openapi.json":
            return match[0]
        show_source(file)
        line = line_of(file, text.strip("`"))
        return f"[{text}]({target}.md{f'#__codelineno-0-{line}' if line else anchor})"

    text = path.read_text(encoding="utf-8")
    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    return "".join(part if part.startswith("```") else LINK.sub(linked, part) for part in parts)


def show_source(file: Path) -> None:
    """Write a page with the text of a file and an anchor per line."""
    name = file.relative_to(ROOT)
    language = LANGUAGES.get(file.suffix, "text")
    text = file.read_text(encoding="utf-8")
    write(PurePosixPath(f"{name}.md"), f"# {name}\n\n````` {{ .{language} linenums=1 }}\n{text}`````\n")


def http_api() -> str:
    """Return a page with the HTTP operations by tag."""
    document = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
    lines = [
        "# HTTP API", "",
        "Generated from [openapi.json](openapi.json), which has the schemas of requests and answers. Logins, roles and",
        "errors: [web.md](web.md).",
    ]  # fmt: skip
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault((operation.get("tags") or ["other"])[0], []).append((method.upper(), path, operation))
    for tag, operations in sorted(by_tag.items()):
        lines += ["", f"## {tag}", "", "| operation | what it does |", "|---|---|"]
        lines += [
            f"| `{method} {path}` | {operation.get('summary', '').replace('|', chr(92) + '|')} |"
            for method, path, operation in operations
        ]
    return "\n".join(lines) + "\n"


def python_api() -> str:
    """Return a page with directives for mkdocstrings."""
    lines = ["# Python API", "", "Generated from docstrings. Introduction and examples: [client.md](client.md)."]
    for title, modules in API.items():
        lines += ["", f"## {title}"]
        for module in modules:
            lines += ["", f"::: {module}", "    options: {heading_level: 3}"]
    return "\n".join(lines) + "\n"


def write(name: PurePosixPath, text: str) -> None:
    file = SITE / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


class Anchors(HTMLParser):
    """Collects the identifiers of a page and its links within the site."""

    def __init__(self) -> None:
        super().__init__()
        self.identifiers: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and (name == "id" or (tag == "a" and name == "name")):
                self.identifiers.add(value)
            elif value and name in ("href", "src") and not urlsplit(value).scheme and not value.startswith("//"):
                self.links.add(value)


def broken_links(site: Path) -> Iterator[str]:
    """Yield links of a built site to files or anchors that do not exist."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = Anchors()
        pages[path].feed(path.read_text(encoding="utf-8"))
    for path, found in pages.items():
        if path.name == "404.html":
            continue  # its links are absolute, because it is shown for any path
        for link in sorted(found.links):
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{path.relative_to(site)}: {link} leads to no file"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].identifiers:
                yield f"{path.relative_to(site)}: {link} leads to no anchor"


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        broken = list(broken_links(ROOT / "site"))
        print("\n".join(broken), file=sys.stderr, end="\n" if broken else "")
        return 1 if broken else 0
    shutil.rmtree(SITE, ignore_errors=True)
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            write(PurePosixPath(path.relative_to(ROOT)), page(path))
    for pattern in FILES:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file():
                (SITE / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, SITE / path.relative_to(ROOT))
    write(PurePosixPath("docs/http-api.md"), http_api())
    write(PurePosixPath("docs/python-api.md"), python_api())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
