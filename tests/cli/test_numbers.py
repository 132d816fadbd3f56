"""Numbers and questions of all commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import click
import pytest
from click.testing import CliRunner

from command_line import at, invoke
from daemon import Daemon
from openmsmq.cli.exit_codes import exit_code
from openmsmq.cli.numbers import AGE, LIFETIME, SIZE, Amount, FiniteRange
from openmsmq.cli.root import cli
from openmsmq.console.derived import ACTIONS


def commands(group: click.Group, words: str = "openmsmq") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{words} {name}")
        elif name != "serve":  # whose options are settings, which the configuration checks
            yield f"{words} {name}", command


def test_each_number_has_a_range() -> None:
    for words, command in commands(cli):
        for parameter in command.params:
            kind = parameter.type
            if isinstance(kind, click.types.IntParamType):
                ranged = isinstance(kind, click.IntRange)
            else:
                ranged = not isinstance(kind, click.types.FloatParamType) or isinstance(kind, FiniteRange)
            assert ranged, f"{words} {parameter.name}"


def test_times_and_sizes_have_units_in_all_commands() -> None:
    names = {"--older", "--newer", "--larger", "--smaller", "--ttl", "--reach-ttl"}
    options = [(words, option) for words, command in commands(cli) for option in command.params]
    found = [(words, option) for words, option in options if names & {*option.opts}]
    assert names == {name for _, option in found for name in option.opts}
    for words, option in found:
        assert isinstance(option.type, Amount), f"{words} {option.name}"
    assert [AGE.convert("2h", None, None), SIZE.convert("64k", None, None)] == [7200, 65536]
    with pytest.raises(click.BadParameter, match="'soon' is not a time such as 90, 10m, 2h or 3d"):
        AGE.convert("soon", None, None)
    with pytest.raises(click.BadParameter, match="0 is not in the range from 1 to 4294967294"):
        LIFETIME.convert("0", None, None)


def test_each_required_option_is_demanded() -> None:
    """`default=None` is a value for click."""
    ended = CliRunner().invoke(cli, ["alarm", "silence", "disk", "--for", "1h"])
    assert ended.exit_code == 2 and "Missing option '--reason'" in ended.stderr


def test_each_error_of_an_action_is_one_line() -> None:
    for action in ACTIONS:
        for kind in action.refuses:
            assert exit_code(kind("x")) is not None, (action.name, kind)


@pytest.mark.parametrize(
    "words",
    [
        "receive orders --timeout nan", "receive orders --timeout inf", "receive orders --timeout -1",
        "peek orders -n -1", "pipeline replay archive --to orders --rate 0", "queue create orders --quota -1",
        "alarm silence disk --reason ''",
    ],
)  # fmt: skip
def test_a_number_or_text_out_of_range_is_wrong_usage(words: str) -> None:
    ended = CliRunner().invoke(cli, [word.strip("'") for word in words.split()])
    assert ended.exit_code == 2, ended.output
    assert "Invalid value" in ended.stderr


def test_an_unanswered_question_names_the_alternative() -> None:
    for words, said in (
        (["directory", "lists", "delete", "staff"], "give --yes"),
        (["queue", "list", "--user", "alice"], "set OPENMSMQ_PASSWORD"),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "openmsmq.cli", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, start_new_session=True, timeout=60,
        )  # fmt: skip
        assert ended.returncode == 2, ended
        assert said in ended.stderr and "GetPassWarning" not in ended.stderr, ended.stderr


def test_a_reader_that_closes_the_pipe_is_no_failure() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "openmsmq.cli", "protocols"], stdout=writing, stderr=subprocess.PIPE, check=False,
            timeout=60,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_replay_checks_its_target_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "part.parquet").touch()
    started = mock.Mock(side_effect=AssertionError("Spark was started"))
    monkeypatch.setattr("openmsmq.spark.jobs.session", started)
    with Daemon(tmp_path / "data") as daemon:
        with daemon.connect() as qm:
            qm.create_queue("there")
        for target, code, said in (("missing", 3, "MQ_ERROR_QUEUE_NOT_FOUND"), ("there", None, "")):
            arguments = ("pipeline", "replay", str(tmp_path / "archive"), "--to", target)
            if code is None:
                with pytest.raises(AssertionError, match="Spark was started"):
                    invoke(*arguments, **at(daemon))
            else:
                ended = invoke(*arguments, **at(daemon))
                assert (ended.code, said in ended.stderr) == (code, True), ended
