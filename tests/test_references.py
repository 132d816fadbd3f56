"""The reference pages list exactly the errors and warnings of the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = [path for path in sorted((ROOT / "src").rglob("*.py")) if "interfaces" not in path.parts]
LEVELS = {"warning", "error", "exception", "critical"}
ERROR = re.compile(r"\b(?:HResult|ComResult|ResolverError)\.((?:MQ|E|DISP|RPC|OR|CO|TYPE|XACT)_[A-Z0-9_]+)")


def rows(document: str) -> list[list[str]]:
    lines = (ROOT / "docs" / document).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]


def logged() -> Iterator[str]:
    """Return the texts of warnings and errors, with `…` for values. Computed texts are not included."""
    texts = (path.read_text(encoding="utf-8") for path in SOURCES)
    for text in (text for text in texts if any(f".{level}(" in text for level in LEVELS)):
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS
                and isinstance(node.func.value, ast.Name) and node.func.value.id in ("logger", "_logger", "log")
                and isinstance(node.args[0], ast.Constant)
            ):  # fmt: skip
                yield re.sub(r"%[-#.\d]*[a-z]", "…", node.args[0].value).replace("`", "’")


def test_each_warning_and_error_of_the_log_has_an_entry() -> None:
    written = {row[0].strip("`"): row for row in rows("log-messages.md")}
    texts = set(logged())
    assert len(texts) > 150
    assert texts == set(written), sorted(texts ^ set(written))
    assert all(len(row) == 4 and row[2] and row[3] for row in written.values())


#: Quoted messages of other programs.
ELSEWHERE = {
    "Server not found in Kerberos database", "No Kerberos credentials available", "not found in Kerberos database",
    "can't open cache", "Can't contact LDAP server", "Cannot contact any KDC", "Clock skew too great",
    "Request is a replay", "not found in keytab (ticket kvno n)", "Cannot decrypt ticket", "data source msmq",
}  # fmt: skip


def quoted() -> Iterator[tuple[str, str]]:
    """Return the messages that other tables of remedies quote, with their documents: parts of three or more words
    between values, which are `…`."""
    for path in sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "log-messages.md"}):
        quotes = False
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("| `"):  # the heading of a table, or no part of a table
                quotes = (quotes or "message" in line.partition("|")[2].partition("|")[0]) and line.startswith("|")
            elif quotes:
                for message in re.findall("`([^`]+)`", line.split("|")[1]):
                    parts = (part.strip(" ,:.;") for part in message.split("…"))
                    yield from ((path.name, part) for part in parts if len(part.split()) >= 3)


def texts_of_sources() -> str:
    """Return all strings of the sources, with one space for white space."""
    strings = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                strings.append("".join(str(v.value) if isinstance(v, ast.Constant) else "VALUE" for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.append(node.value)
    return "\n".join(" ".join(each.split()) for each in strings)


def test_messages_that_tables_of_remedies_quote_exist() -> None:
    """Words with capitals, digits or signs may be values."""
    found, texts = set(quoted()), texts_of_sources().replace("`", "")
    assert len(found) > 60
    value = r"|\S*(VALUE|%\w)\S*"
    word = re.compile("[A-Z]?[a-z]+('[a-z]+)?[,;:]?")
    for document, message in found:
        words = [re.escape(each) + ("" if word.fullmatch(each) else value) for each in message.split()]
        assert message in ELSEWHERE or re.search(" ".join(f"({each})" for each in words), texts), (
            f"{document}: no source has: {message}"
        )


def test_each_error_name_has_an_entry() -> None:
    used = set().union(*(ERROR.findall(path.read_text(encoding="utf-8")) for path in SOURCES))
    written = {row[0].strip("`"): row for row in rows("errors.md")}
    assert len(used) > 80
    assert used == set(written), sorted(used ^ set(written))
    assert all(len(row) == 4 and row[2] and row[3] for row in written.values())
