"""Documents are correct: links, commands, examples, deviations."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import click
import pytest

import fork_server
import openmsmq
import openmsmq.aio
from command_line import UNTIL_CTRL_C
from daemon import Daemon
from openmsmq.accounts.users import UsersFile
from openmsmq.cli.root import cli
from openmsmq.model import security
from openmsmq.model.constants import MachineAccessMask, QueueAccessMask
from openmsmq.model.default_descriptors import SEES, SEES_AND_SENDS, default_machine_security, default_queue_security
from openmsmq.server.config import Configuration
from openmsmq.server.machine_security import everyones_access

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "openmsmq"
_PATTERNS = ("*.md", "docs/**/*.md", "packaging/**/*.md", "src/msrpc/*.md")
DOCUMENTS = sorted(path for pattern in _PATTERNS for path in ROOT.glob(pattern))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
ALTERNATIVES = re.compile(r"[a-z]+(\|[a-z]+)+")


def blocks(document: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(document.read_text(encoding="utf-8")) if kind == language]


def table_rows(document: Path, first: str) -> list[list[str]]:
    """Return the cells of the rows whose first cell matches."""
    lines = [line for line in document.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells if re.fullmatch(first, row[0])]


# -- links ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files_and_headings(document: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        to = (document.parent / file).resolve() if file else document
        assert to.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", to.read_text(encoding="utf-8"), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}, target


def test_the_index_names_every_document() -> None:
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [path.name for path in (ROOT / "docs").rglob("*.md") if path.name != "index.md" and path.name not in text]
    assert not missing


# -- examples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_examples_are_python(document: Path) -> None:
    for example in blocks(document, "python"):
        compile(example, str(document), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_examples_of_the_client_do_the_same_in_both_styles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = blocks(ROOT / "docs" / "client.md", "python")
    assert len(examples) == 6 and all("async with" in example for example in examples[1::2])
    with Daemon(tmp_path / "data") as daemon:
        UsersFile(daemon.directory / "users.json").add("alice", "…")
        for library in (openmsmq, openmsmq.aio):
            connect: Any = library.connect
            at_daemon = lambda *server, _connect=connect, **login: _connect("127.0.0.1", daemon.port, **login)  # noqa: E731
            monkeypatch.setattr(library, "connect", at_daemon)
        said = [_said_by(example, capsys) for example in examples]
    assert said[0::2] == said[1::2]
    assert said[0].startswith("a first\n 42\n 0\n 1\n") or said[0].startswith(" 42\na first\n"), said[0][:80]
    assert said[2].splitlines() == ["worked on one", "worked on two"] and said[4] == "bad 0\n"


def _said_by(example: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the output of an example, in which `qm` is a queue manager with two orders and a poison task."""
    code = compile(
        example.replace("timeout=60", "timeout=0"), "client.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )

    def work(message: openmsmq.Message) -> None:
        print("worked on", message.decode())

    async def run() -> None:
        with openmsmq.connect() as manager:
            for name in ("orders", "tasks"):
                with suppress(openmsmq.QueueNotFound):
                    manager.delete_queue(name)
            if "create_queue" not in example:
                manager.create_queue("orders")
                manager.create_queue("tasks")
                with manager.open("orders", "send") as orders, manager.open("tasks", "send") as tasks:
                    orders.send_many(["one", "two"])
                    tasks.send("x", label="bad")
                with manager.open("tasks") as tasks:
                    tasks.move(tasks.peek(0).lookup_identifier, "poison")
            capsys.readouterr()
            if "async with" not in example:
                exec(code, {"qm": manager, "work": work})
                return
            async with openmsmq.aio.connect() as asynchronous:
                await eval(code, {"qm": asynchronous, "work": work})

    asyncio.run(run())
    return capsys.readouterr().out


def test_the_first_example_of_the_readme_prints_what_it_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = blocks(ROOT / "README.md", "python")[0]
    with Daemon(tmp_path / "data") as daemon:
        connect = openmsmq.connect
        monkeypatch.setattr(openmsmq, "connect", lambda host, port_offset: connect(host, port=daemon.port))
        exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out == "hello\n"


def commands(document: Path) -> Iterator[list[str]]:
    """Return the arguments of every `openmsmq` in the console examples; `a|b` stands for both."""
    for block in blocks(document, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|\| ", line):
                try:
                    words = shlex.split(part, comments=True)
                except ValueError as error:
                    raise AssertionError(f"{document.name}: {part}: {error}") from None
                if words[:1] != ["openmsmq"]:
                    continue
                given = [word.strip("[]") for word in words[1:]]
                choices = [word.split("|") if ALTERNATIVES.fullmatch(word) else [word] for word in given]
                yield from (list(chosen) for chosen in product(*choices))


def parse(words: list[str]) -> click.Command:
    """Return the command. Raises UsageError for an unknown command or option. Does not run it or read files."""
    command: click.Command = cli
    context = click.Context(cli, info_name="openmsmq")
    while True:
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        if not isinstance(command, click.Group) or not rest:
            return command
        found = command.get_command(context, rest[0])
        if found is None:
            raise click.UsageError(f"no command {rest[0]!r}")
        command, words = found, rest[1:]
        context = click.Context(found, parent=context, info_name=found.name)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_console_examples_name_commands_and_options_that_exist(document: Path) -> None:
    for words in commands(document):
        try:
            parse(words)
        except click.UsageError as error:
            raise AssertionError(f"{document.name}: openmsmq {shlex.join(words)}: {error.message}") from None


def options_of_the_server() -> list[str]:
    """Options of the server that the README starts, without directory and ports."""
    (line,) = [
        line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if "serve --data-dir" in line
    ]
    start = "openmsmq serve --data-dir /tmp/queues --port-offset 10000 --flight"
    assert line.startswith(start)
    return line.removeprefix(start).split()


def test_each_line_of_the_readmes_shell_block_runs_on_a_new_daemon(tmp_path: Path) -> None:
    """Run as printed, except for ports and directories, and with Ctrl-C where a comment says that it ends a command."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## From the shell")[2]
    lines = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert len(lines) > 15
    served = options_of_the_server()
    fork_server.install(tmp_path)
    with Daemon(tmp_path / "data", "--system-queue-readers", "", *served) as daemon:
        places = {
            "OPENMSMQ_PORT_OFFSET=10000": f"OPENMSMQ_PORT={daemon.port}",
            "/tmp/queues": str(tmp_path / "data"), "/tmp/backup": str(tmp_path / "backup"),
        }  # fmt: skip
        script = ["set -e", f'export PATH="{tmp_path}:$PATH"', UNTIL_CTRL_C]
        for line in lines:
            for printed, here in places.items():
                line = line.replace(printed, here)
            endless = line.partition("#")[2].endswith("until Ctrl-C")
            script.append(f"{{ until_ctrl_c {line.partition('#')[0]} || test $? = 130; }}" if endless else line)
        ended = subprocess.run(
            ["bash", "-c", "\n".join(script)], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
        )
    assert ended.returncode == 0, ended
    assert "hello" in ended.stdout and "Traceback" not in ended.stderr


def test_a_command_that_does_not_exist_is_found() -> None:
    for words in (["peak", "orders"], ["peek", "orders", "--nonsense"], ["queue", "burn"]):
        with pytest.raises(click.UsageError):
            parse(words)


# -- operations of the HTTP API ------------------------------------------------------------------------------------

#: Operations without command, because commands log in with each request.
WITHOUT_COMMAND = {"POST /session", "DELETE /session"}


def operations() -> list[str]:
    """Return operations, such as `GET /queues/{queue}`."""
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]
    return [f"{method.upper()} {path.removeprefix('/api/v1')}" for path in paths for method in paths[path]]


OPERATIONS = table_rows(ROOT / "docs" / "command-line.md", r"`(GET|POST|PUT|PATCH|DELETE) .*`")


def test_each_operation_of_the_http_api_has_a_row_with_its_commands() -> None:
    """A new operation needs a command and a row in docs/command-line.md."""
    assert sorted({row[0].strip("`") for row in OPERATIONS}) == sorted(operations())


@pytest.mark.parametrize("row", OPERATIONS, ids=[row[0].strip("`") for row in OPERATIONS])
def test_the_commands_of_an_operation_exist(row: list[str]) -> None:
    named = [shlex.split(text) for text in re.findall(r"`(openmsmq [^`]*)`", row[1])]
    assert bool(named) is (row[0].strip("`") not in WITHOUT_COMMAND)
    elsewhere = {option for way, option in (("HTTP", "url"), ("RPC", "host")) if way in row[2]}
    for words in named:
        command = parse(words[1:])
        assert not isinstance(command, click.Group), f"{shlex.join(words)} has commands of its own"
        assert elsewhere & {parameter.name for parameter in command.params}, f"{shlex.join(words)}: {row[2]}"


# -- deviations ----------------------------------------------------------------------------------------------------

DEVIATIONS_TEXT = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")
#: The identifier of each entry, and its list.
DEVIATIONS = re.findall(r"^\*\*(D-\d\d+)\*\*, .+\n\n((?:- .+\n|  .+\n)+)", DEVIATIONS_TEXT, flags=re.M)


def test_deviations_are_numbered_once_and_in_order() -> None:
    numbers = [int(row[0].removeprefix("D-")) for row in DEVIATIONS]
    assert len(numbers) > 70
    assert numbers == sorted(set(numbers))
    assert len(DEVIATIONS) == len(re.findall(r"^\*\*", DEVIATIONS_TEXT, flags=re.M)), "an entry has another form"


@pytest.mark.parametrize("row", DEVIATIONS, ids=lambda row: str(row[0]))
def test_the_code_that_a_deviation_names_cites_its_identifier(row: tuple[str, str]) -> None:
    parts = re.findall(r"^- (Text|Here|Code): ", row[1], flags=re.M)
    assert parts == ["Text", "Here", "Code"]
    files = re.findall(r"`([^`]+)`", row[1].partition("- Code: ")[2])
    assert files
    for file in files:
        home = SOURCES.parent if file.startswith("msrpc/") else SOURCES
        assert re.search(rf"{row[0]}\b", (home / file).read_text(encoding="utf-8")), file


def test_an_identifier_in_the_code_has_a_row() -> None:
    known = {row[0] for row in DEVIATIONS}
    for file in [*SOURCES.parent.rglob("*.py"), *SOURCES.parent.rglob("*.idl")]:
        if file.suffix == ".idl" or file.parent.name != "interfaces":
            assert set(re.findall(r"\bD-\d\d+\b", file.read_text(encoding="utf-8"))) <= known, file


# -- errors -------------------------------------------------------------------------------------------


def test_the_table_of_errors_names_every_exported_exception() -> None:
    text = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    exported = [getattr(openmsmq, name) for name in openmsmq.__all__]
    errors = [kind for kind in exported if isinstance(kind, type) and issubclass(kind, openmsmq.MsmqError)]
    assert [kind.__name__ for kind in errors if f"`{kind.__name__}`" not in text] == []


def test_the_page_on_compatibility_names_modules_that_say_what_is_public() -> None:
    rows = table_rows(ROOT / "docs" / "compatibility.md", r"(?!public$|-).*")
    named = {name for row in rows for name in re.findall(r"`(openmsmq[\w.]*)\.__all__`", row[1])}
    assert named == {"openmsmq", "openmsmq.aio", "openmsmq.com", "openmsmq.spark"}
    for name in named:
        assert importlib.import_module(name).__all__


def test_the_glossary_has_each_term_once() -> None:
    terms = [row[0] for row in table_rows(ROOT / "docs" / "glossary.md", r"(?!term$|-).*")]
    assert len(terms) > 30
    assert len({term.lower() for term in terms}) == len(terms)
    assert terms == sorted(terms, key=str.lower)


def _defaults() -> list[list[str]]:
    """Return the rows of both tables of defaults in security.md."""
    text = (
        (ROOT / "docs/security.md")
        .read_text(encoding="utf-8")
        .partition("**Defaults.**")[2]
        .partition("**Limits.**")[0]
    )
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows if "---" not in row[0]]


def test_the_defaults_of_settings_are_those_that_security_md_lists(tmp_path: Path) -> None:
    configuration = Configuration(data_dir=tmp_path)
    rows = [row for row in _defaults() if row[0].startswith("`")]
    assert len(rows) >= 15
    for setting, default, _ in rows:
        assert str(getattr(configuration, setting.strip("`"))) == default.strip("`"), setting


def test_the_defaults_of_new_objects_are_those_that_security_md_lists(tmp_path: Path) -> None:
    alice, bob, domain = (f"S-1-5-21-1-2-3-{number}" for number in (1001, 1002, 1003))
    masks = {"SEES": SEES, "SEES_AND_SENDS": SEES_AND_SENDS}
    listed = {(row[0], row[1]): [each.strip("` ") for each in row[2].split(",")] for row in _defaults()}
    users = UsersFile(tmp_path / "users.json")
    for what, listen, owner in (
        ("queue, loopback", "127.0.0.1", security.ANONYMOUS), ("queue beyond loopback", "0.0.0.0", security.ANONYMOUS),
        ("queue of a domain user", "0.0.0.0", domain),
    ):  # fmt: skip
        mask = everyones_access(Configuration(data_dir=tmp_path, listen=listen), users)(owner)
        (said,) = listed[what, "Everyone"]
        assert mask == masks.get(said, int(QueueAccessMask.GENERIC_ALL)), what
        descriptor = default_queue_security(alice, mask)
        assert descriptor.grants([bob, security.EVERYONE], mask)
        if mask != QueueAccessMask.GENERIC_ALL:
            assert not descriptor.grants([bob, security.EVERYONE], int(QueueAccessMask.RECEIVE_MESSAGE))
            for who in (alice, security.ADMINISTRATORS):
                assert descriptor.grants([who], int(QueueAccessMask.GENERIC_ALL))
    machine = default_machine_security()
    for who, sid in (("Everyone", security.EVERYONE), ("administrators", security.ADMINISTRATORS)):
        granted = sum(int(MachineAccessMask[name]) for name in listed["machine", who])
        (entry,) = [ace for ace in machine.dacl or () if ace.sid == sid]
        assert entry.mask == granted, who
