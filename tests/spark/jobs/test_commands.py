"""The `openmsmq pipeline` commands, run in this process because Spark starts slowly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from openmsmq.cli.root import cli, main
from openmsmq.spark.jobs import Server
from openmsmq.spark.jobs.session import cause
from spark.conftest import PROPERTIES
from spark.jobs.sending import send

Run = Callable[..., str]


@pytest.fixture
def run(spark: Any, server: Server) -> Run:
    def call(*arguments: str, code: int = 0, served: bool = True) -> str:
        ports = ["--host", "127.0.0.1", "--port", str(server.port), "--flight-port", str(server.flight_port)]
        result = CliRunner().invoke(cli, ["pipeline", *arguments, *(ports if served else [])], catch_exceptions=False)
        assert result.exit_code == code, (arguments, result.output, result.stderr)
        return result.stdout if code == 0 else result.stderr

    return call


def test_messages_are_archived_shown_selected_and_replayed(
    run: Run, qm: Any, filled: Callable[..., str], tmp_path: Path
) -> None:
    queue, target, archive = filled(20), filled(0), str(tmp_path / "archive")
    lines = [json.loads(line) for line in run("archive", queue, "--to", archive, "--group", "g", "--json").splitlines()]
    assert [line["rows"] for line in lines[:-1]] == [20] and lines[0]["lag"] >= 0
    assert (lines[-1]["archived"], lines[-1]["batches"]) == (20, 1)
    assert qm.counts(queue)["message_count"] == 0
    assert "archived 0 messages" in run("archive", queue, "--to", archive, "--group", "g")

    where = "label IN ('label 3', 'label 4')"
    shown = run("replay", archive, "--to", target, "--where", where, "--dry-run")
    assert "label 3" in shown and "label 5" not in shown and f"would be sent to {target}: 2" in shown
    assert qm.counts(target)["message_count"] == 0
    assert "sent 2 messages" in run("replay", archive, "--to", target, "--where", where)
    done = json.loads(run("replay", archive, "--to", target, "--rate", "1000", "--json"))
    assert (done["messages"], done["way"], qm.counts(target)["message_count"]) == (20, "rpc", 22)
    assert json.loads(run("compact", archive, "--json", served=False)) == {"before": 0, "after": 0}


def test_traffic_is_printed_and_written_as_a_page(
    run: Run, qm: Any, filled: Callable[..., str], tmp_path: Path
) -> None:
    queue, page = filled(20), tmp_path / "traffic.html"
    send(qm, queue, range(20, 30))
    told = json.loads(run("traffic", "--live", queue, "--json"))
    assert told["total"]["messages"] == 30 and sum(hour["messages"] for hour in told["hours"]) == 30
    text = run("traffic", "--live", queue, "--report", str(page))
    assert queue.rpartition("\\")[2] in text and "age p99" in text
    written = page.read_text()
    assert ">30<" in written and ("All in one hour" in written) != ("<svg" in written)
    run("archive", queue, "--to", str(tmp_path / "archive"))
    assert json.loads(run("traffic", str(tmp_path / "archive"), "--json"))["total"]["messages"] == 30
    assert "give one ARCHIVE, or --live" in run("traffic", code=2)


def test_dead_letters_are_listed_and_returned(run: Run, qm: Any, tmp_path: Path) -> None:
    path, page = ".\\private$\\rejected here", tmp_path / "dead.html"
    qm.create_queue(path, transactional=True)
    with qm.open(path, "send") as sender, qm.transaction() as transaction:
        sender.send("x", label="reject me", journaling_requested=1, transaction=transaction)
    with qm.open(path, protocol="remoteread") as remote, qm.open(path, protocol="qmcomm") as receiver:
        (message,) = remote
        with qm.transaction() as transaction:
            receiver.receive(0, transaction=transaction)
            remote.reject(message.lookup_identifier)
    where = ("--where", "label = 'reject me'")
    text = run("deadletters", *where, "--report", str(page))
    assert "NACK_RECEIVE_REJECTED" in text and "dead letters: 1" in text
    assert "reject me" in page.read_text()
    assert json.loads(run("deadletters", *where, "--json"))["messages"] == 1
    assert "would be returned: 1" in run("deadletters", *where, "--return", "--dry-run")
    assert "returned: 1" in run("deadletters", *where, "--return")
    assert "dead letters: 0" in run("deadletters", *where)
    assert qm.counts(path)["message_count"] == 1
    assert "--dry-run requires --return" in run("deadletters", "--dry-run", code=2)


def test_a_mistake_is_one_clear_line(run: Run) -> None:
    shown = run("deadletters", "--where", "color = 1", code=1)
    assert "where 'color = 1'" in shown and len(shown.splitlines()) == 1


def run_alone(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | environment
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=variables, timeout=600
    )  # fmt: skip


MAIN = "import sys; sys.argv = ['openmsmq', 'pipeline', 'compact', '/']; from openmsmq.cli import main; main()"


def test_without_pyspark_it_says_what_to_install() -> None:
    done = run_alone(f"import sys; sys.modules['pyspark'] = None; {MAIN}")
    assert done.returncode == 1
    assert done.stderr.strip() == "Error: openmsmq pipeline needs pyspark: pip install openmsmq[spark]"


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    done = run_alone(MAIN, PATH=str(tmp_path))
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "Spark requires Java 17 or later" in done.stderr


def test_warnings_of_java_do_not_go_to_standard_output() -> None:
    start = "from openmsmq.spark.jobs.session import session; session('local[1]').stop(); print('the answer')"
    shared = PROPERTIES.read_text("utf-8").partition(" ")[2].strip() if PROPERTIES.exists() else ""
    options = f"'{shared} -Xlog:gc*'"
    done = run_alone(start, PYSPARK_SUBMIT_ARGS=f"--driver-java-options {options} pyspark-shell")
    assert (done.returncode, done.stdout) == (0, "the answer\n"), done.stderr


@pytest.mark.slow
def test_a_continuous_archive_ends_with_ctrl_c_and_prints_only_the_result(
    server: Server, qm: Any, filled: Callable[..., str], tmp_path: Path
) -> None:
    queue, archive = filled(5), tmp_path / "archive"
    command = [sys.executable, "-m", "openmsmq.cli", "pipeline", "archive", queue, "--to", str(archive), "--json"]
    command += ["--group", "g", "--continuous", "--interval", "0.1", "--master", "local[1]", "--host", "127.0.0.1"]
    command += ["--port", str(server.port), "--flight-port", str(server.flight_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        rows = [json.loads(process.stdout.readline())["rows"]]
        send(qm, queue, range(5, 8))
        while sum(rows) < 8:
            rows.append(json.loads(process.stdout.readline())["rows"])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0 and err == ""
    assert json.loads(out.splitlines()[-1])["archived"] == 8
    assert list(tmp_path.iterdir()) == [archive]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["archive", "nope", "--to", "{}/archive"], 3, "nope"),
        (["archive", "nope", "--to", "{}/archive", "--protocol", "remoteread"], 3, "nope"),
        (["archive", "q", "--to", "{}/archive", "--port", "1", "--flight-port", "1"], 6, "127.0.0.1:1"),
        (["archive", "--to", "{}/archive"], 2, "name at least one QUEUE"),
        (["archive", "q", "--to", "{}/file/archive"], 2, "not a writable directory"),
        (["traffic", "--live", "nope"], 3, "nope"),
        (["traffic", "--live", "--report", "{}/missing/page.html"], 2, "not a writable directory"),
        (["traffic", "{}/missing"], 2, "there is no archive"),
        (["deadletters", "--report", "{}/missing/page.html"], 2, "not a writable directory"),
        (["deadletters", "--port", "1", "--flight-port", "1"], 6, "127.0.0.1:1"),
        (["replay", "{}/missing", "--to", "q"], 2, "there is no archive"),
        (["compact", "{}/missing"], 2, "there is no archive"),
    ],
)
def test_what_is_wrong_is_found_before_spark_starts(
    server: Server, arguments: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def session(master: str) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("openmsmq.spark.jobs.session", session)
    (tmp_path / "file").write_text("")
    given = [argument.format(tmp_path) for argument in arguments]
    if arguments[0] != "compact":
        ports = ["--host", "127.0.0.1", "--port", str(server.port), "--flight-port", str(server.flight_port)]
        given[1:1] = ports  # options of the test case come later and take precedence
    monkeypatch.setattr("sys.argv", ["openmsmq", "pipeline", *given])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert (ended.value.code, said in error) == (code, True), error


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ['Exception in thread "main" java.lang.ExceptionInInitializerError', "\tat org.apache.spark.Utils(1)",
             "Caused by: java.net.UnknownHostException: vm: vm: Name or service not known", "\t... 17 more"],
            "Caused by: java.net.UnknownHostException: vm: vm: Name or service not known",
        ),
        (["Error: Could not find or load main class X"], "Error: Could not find or load main class X"),
        (["/usr/bin/java: not found"], "/usr/bin/java: not found"),
    ],
)  # fmt: skip
def test_a_spark_that_does_not_start_says_the_innermost_cause(lines, said):
    assert cause(lines) == said
