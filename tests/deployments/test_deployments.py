"""The examples for container engines agree with openmsmq. No container is run."""

from __future__ import annotations

import ast
import re
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from openmsmq.server.allowed_values import STANDARD_PORTS
from openmsmq.server.config import Configuration
from openmsmq.server.loading import load
from openmsmq.server.supervision import FENCED
from requirements import program

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
COMPOSE, KUBERNETES = PACKAGING / "compose.yaml", PACKAGING / "kubernetes" / "openmsmq.yaml"
OFFSET = 1000  # port offset in the image


def service() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]["openmsmq"]
    return found


def resources() -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in yaml.safe_load_all(KUBERNETES.read_text())}


def container() -> dict[str, Any]:
    found: dict[str, Any] = resources()["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.slow
def test_compose_takes_its_file() -> None:
    compose = program("docker-compose", "make deployments")
    done = subprocess.run([compose, "-f", str(COMPOSE), "config"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "openmsmq" in yaml.safe_load(done.stdout)["services"]


def settings_of(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Configuration:
    """Return the configuration of a daemon in the image. The image's own environment is in the Dockerfile."""
    dockerfile = {"OPENMSMQ_LISTEN": "0.0.0.0", "OPENMSMQ_PORT_OFFSET": str(OFFSET), "OPENMSMQ_NAME_CHANGE": "moved"}
    for name, value in {**dockerfile, "OPENMSMQ_DATA_DIR": str(tmp_path), **environment}.items():
        monkeypatch.setenv(name, value)
        assert name.removeprefix("OPENMSMQ_").lower() in {field.name for field in fields(Configuration)}
    for name, value in dockerfile.items():
        assert f"{name}={value}" in (PACKAGING / "Dockerfile").read_text()
    return load(None)


@pytest.mark.parametrize("which", ["compose", "kubernetes"])
def test_the_settings_are_known_and_the_ports_those_of_the_image(
    which: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if which == "compose":
        environment, ports = service()["environment"], {int(port.partition(":")[2]) for port in service()["ports"]}
        stops = int(service()["stop_grace_period"].removesuffix("s"))
    else:
        environment = {entry["name"]: entry["value"] for entry in container()["env"]}
        ports = {entry["containerPort"] for entry in container()["ports"]}
        assert ports == {entry["port"] for entry in resources()["Service"]["spec"]["ports"]}
        stops = resources()["StatefulSet"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    configuration = settings_of(environment, monkeypatch, tmp_path)
    offset = configuration.port_offset
    assert ports == {
        configuration.port(name, offset) for name in ("endpoint_mapper_port", "message_port", "rpc_port")
    }  # fmt: skip
    assert configuration.web and configuration.shutdown_grace_seconds < stops
    if which == "compose":
        assert service()["healthcheck"]["test"] == ["CMD", "openmsmq", "health"]
        outside = [int(port.partition(":")[0]) for port in service()["ports"]]
        assert outside == [STANDARD_PORTS[f"{name}_port"] for name in ("endpoint_mapper", "message", "rpc")]
        assert configuration.port("peer_message_port", offset) == STANDARD_PORTS["message_port"]
    else:
        assert f":{STANDARD_PORTS['web_port'] + OFFSET}/readyz" in str(container()["readinessProbe"])


def test_there_is_only_one_replica() -> None:
    stateful = resources()["StatefulSet"]["spec"]
    assert stateful["replicas"] == 1
    assert stateful["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_the_image_is_built_with_all_modules_of_the_build_hook() -> None:
    """`.dockerignore` leaves out everything that it does not name."""
    tools, needed, left = ROOT / "tools", set(), ["hatch_build"]
    while left:
        name = left.pop()
        if name in needed or not (tools / f"{name}.py").exists():
            continue
        needed.add(name)
        for node in ast.walk(ast.parse((tools / f"{name}.py").read_text("utf-8"))):
            if isinstance(node, ast.Import):
                left += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                left.append(node.module)
    kept = set((ROOT / ".dockerignore").read_text("utf-8").splitlines())
    assert len(needed) > 1
    assert not {f"!tools/{name}.py" for name in needed} - kept


def test_the_service_unit_does_not_repeat_a_start_that_cannot_succeed() -> None:
    unit = (PACKAGING / "openmsmq.service").read_text()
    agent = dict(re.findall(r"^(USAGE|FENCED)=(\d+)", (PACKAGING / "ocf" / "openmsmq").read_text(), re.MULTILINE))
    (prevented,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    codes = [click.UsageError.exit_code, FENCED]
    assert [int(code) for code in prevented.split()] == codes == [int(agent["USAGE"]), int(agent["FENCED"])]


def test_the_log_of_the_resource_agent_is_rotated() -> None:
    (logfile,) = re.findall(r"^LOGFILE_DEFAULT=(.*)$", (PACKAGING / "ocf" / "openmsmq").read_text(), re.MULTILINE)
    assert f"\n{logfile} {{\n" in (PACKAGING / "ocf" / "openmsmq.logrotate").read_text()
