"""The Helm chart: rendering, validation for Kubernetes, and a daemon that runs with the rendered settings."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import tarfile
import textwrap
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import openmsmq
from console.certificate import self_signed
from daemon import eventually, free_offset
from openmsmq.protection.policy import CryptoPolicy
from openmsmq.server.config import Configuration
from openmsmq.server.loading import load
from requirements import library, missing, program
from test_documents import parse

PROJECT = Path(__file__).parents[2]
PACKAGING = PROJECT / "packaging"
CHART = PACKAGING / "helm" / "openmsmq"
KUBERNETES_VERSIONS = ("1.27", "1.30", "1.37")
PROGRAMS = Path(sys.executable).parent

SETTINGS: dict[str, Any] = {
    "machine_quota": 4194304, "max_queues": 1234567, "alarm_webhook": "http://127.0.0.1/x?a=1&b=<2>",
    "aliases": "orders, Bestellungen", "com_ping_seconds": 2.5, "audit_required": True,
    "backup_directory": "/backups", "security": {"minimum_rsa_bits": 2048, "allow_md5": True},
    "foreign_site": [
        {"identifier": "6a2c1f00-7f5e-4a53-9d6e-3f1f6a1b7c10", "name": 'the "old" one', "machines": ["SAPHOST"]},
        {"identifier": "6a2c1f00-7f5e-4a53-9d6e-3f1f6a1b7c11", "machines": ["10.0.0.9"]},
    ],
}  # fmt: skip
EVERYTHING: dict[str, Any] = {
    "computerName": "orders",
    "nameChange": "ask",
    "settings": SETTINGS,
    "users": {"existingSecret": "orders-users", "administrators": ["alice"]},
    "web": {
        "tlsSecret": "orders-tls",
        "hosts": ["mq.example.com"],
        "ingress": {
            "enabled": True, "className": "nginx", "host": "orders.example.com", "tlsSecret": "outside",
            "annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"},
        },
    },
    "externalService": {"enabled": True, "annotations": {"a": "b"}, "loadBalancerSourceRanges": ["10.0.0.0/8"]},
    "persistence": {"storageClassName": "fast", "accessMode": "ReadWriteOnce", "annotations": {"a": "b"}},
    "metrics": {
        "serviceMonitor": {
            "enabled": True, "labels": {"release": "prometheus"}, "tokenSecret": {"name": "orders-token"},
            "tlsConfig": {"serverName": "orders-web"},
        },
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "networkPolicy": {"enabled": True, "clients": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
    "imagePullSecrets": [{"name": "registry"}], "serviceAccountName": "orders", "priorityClassName": "high",
    "podAnnotations": {"a": "b"}, "podLabels": {"team": "orders"}, "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "disk", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "extraEnv": [{"name": "OPENMSMQ_LOG_LEVEL", "value": "debug"}],
    "extraVolumes": [{"name": "backups", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "backups", "mountPath": "/backups"}],
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "without the console": {"web": {"enabled": False}, "networkPolicy": {"enabled": True}},
    "standard ports": {"portOffset": 0, "externalService": {"enabled": True, "type": "NodePort"}},
    "a small offset": {"portOffset": 500},
    "a claim that exists": {"persistence": {"existingClaim": "data"}, "resources": {}},
}
OF_KUBERNETES = {"ConfigMap", "Service", "StatefulSet", "Ingress", "NetworkPolicy"}


def helm(*arguments: str | Path, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    path = PROGRAMS / "helm"
    if not path.exists():
        missing("helm is not installed: make deployments")
    command = [str(part) for part in (path, *arguments)] + (["--values", "-"] if values is not None else [])
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True)


def render(
    values: dict[str, Any], release: str = "orders", fullname: str = "orders-openmsmq"
) -> dict[str, dict[str, Any]]:
    """Render the chart. Returns the objects by kind and name suffix."""
    done = helm("template", release, CHART, "--namespace", "shop", values=values)
    assert done.returncode == 0, done.stderr
    found = [document for document in yaml.safe_load_all(done.stdout) if document]
    assert all(entry["metadata"]["name"].startswith(fullname) for entry in found)
    names = [entry["kind"] + entry["metadata"]["name"].removeprefix(fullname) for entry in found]
    assert len(set(names)) == len(names)
    return dict(zip(names, found, strict=True))


def pod(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = objects["StatefulSet"]["spec"]["template"]["spec"]
    return found


def environment(objects: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the environment of the daemon's container: that of the image and the additions of the chart."""
    (line,) = (PACKAGING / "Dockerfile").read_text().replace("\\\n", "").partition("\nENV ")[2].splitlines()[:1]
    image = dict(part.split("=", 1) for part in shlex.split(line) if part.startswith("OPENMSMQ_"))
    assert set(image) == {f"OPENMSMQ_{name}" for name in ("DATA_DIR", "LISTEN", "PORT_OFFSET", "NAME_CHANGE")}
    return image | {entry["name"]: entry["value"] for entry in pod(objects)["containers"][0]["env"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_helm_lint_accepts_the_chart(name: str) -> None:
    done = helm("lint", "--strict", CHART, values=VARIANTS[name])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_kubernetes_accepts_the_objects(name: str) -> None:
    validate = library("kubernetes_validate", "make deployments")
    for rendered in render(VARIANTS[name]).values():
        if rendered["kind"] in OF_KUBERNETES:
            for version in KUBERNETES_VERSIONS:
                validate.validate(rendered, version, strict=True)
        else:
            assert rendered["apiVersion"] == "monitoring.coreos.com/v1"


@pytest.mark.slow
def test_names_of_objects_are_host_names() -> None:
    """Names of services are labels of DNS that begin with a letter (RFC 1035, 2.3.1)."""
    assert "Service-external" in render(EVERYTHING, "shop.v2", "shop-v2-openmsmq")
    assert "Service-external" in render({**EVERYTHING, "fullnameOverride": "mq"}, "2shop", "mq")
    for release, values in (("2shop", {}), ("orders", {"fullnameOverride": "mq.v2"})):
        done = helm("template", release, CHART, values=values)
        assert done.returncode != 0 and "fullnameOverride" in done.stderr


@pytest.mark.slow
def test_each_object_exists_only_if_enabled() -> None:
    always = {"ConfigMap", "Service", "StatefulSet"}
    assert set(render({})) == always
    wanted = {"Service-web", "Service-external", "Ingress", "NetworkPolicy", "ServiceMonitor", "PrometheusRule"}
    assert set(render(EVERYTHING)) == always | wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"settings": {"max_qeues": 5}}, "additional properties 'max_qeues' not allowed"),
        ({"settings": {"max_queues": "many"}}, "at '/settings/max_queues': got string, want integer"),
        ({"settings": {"max_queues": 1.5}}, "at '/settings/max_queues': got number, want integer"),
        ({"settings": {"listen": "::"}}, "additional properties 'listen' not allowed"),
        ({"settings": {"security": {"allow_md6": True}}}, "additional properties 'allow_md6' not allowed"),
        ({"replicas": 2}, "additional properties 'replicas' not allowed"),
        ({"persistence": {"accessMode": "ReadWriteMany"}}, "must be one of 'ReadWriteOncePod', 'ReadWriteOnce'"),
        ({"persistence": {"size": "lots"}}, "at '/persistence/size': 'lots' does not match pattern"),
        ({"portOffset": -1}, "at '/portOffset': minimum: got -1, want 0"),
        ({"nameChange": "guess"}, "must be one of 'ask', 'moved', 'copied'"),
        ({"web": {"ingress": {"enabled": True, "host": "a.example.com"}}}, "set web.enabled and web.tlsSecret"),
        ({"web": {"tlsSecret": "tls", "ingress": {"enabled": True}}}, "web.ingress.host is empty"),
        ({"metrics": {"serviceMonitor": {"enabled": True}}}, "set web.enabled and web.tlsSecret"),
        (
            {"web": {"tlsSecret": "tls"}, "metrics": {"serviceMonitor": {"enabled": True}}},
            "tokenSecret.name is empty, but metrics require a login",
        ),
        ({"users": {"administrators": ["alice"]}}, "without users.existingSecret"),
    ],
)
def test_invalid_values_are_refused_with_a_reason(values: dict[str, Any], said: str) -> None:
    done = helm("template", "orders", CHART, values=values)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.slow
def test_the_daemon_has_the_settings_that_the_values_say(tmp_path: Path) -> None:
    objects = render(EVERYTHING)
    file = tmp_path / "openmsmq.toml"
    file.write_text(objects["ConfigMap"]["data"]["openmsmq.toml"])
    configuration = load(file, environment(objects))
    read = tomllib.loads(file.read_text())
    assert {name: type(value) for name, value in read.items()} == {n: type(value) for n, value in SETTINGS.items()}
    assert read == SETTINGS
    assert configuration.security == CryptoPolicy(**SETTINGS["security"])
    assert [site.machines for site in configuration.foreign_site] == [("SAPHOST",), ("10.0.0.9",)]
    assert (configuration.computer_name, configuration.name_change) == ("orders", "ask")
    assert configuration.source_of["max_queues"] == "file" and configuration.max_queues == 1234567
    hosts = (
        "orders-openmsmq-web", "orders-openmsmq-web.shop", "orders-openmsmq-web.shop.svc",
        "orders.example.com", "mq.example.com",
    )  # fmt: skip
    assert configuration.web_host_names == hosts
    assert configuration.web_listen == "0.0.0.0" and configuration.log_level == "debug"


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_the_pod_fits_its_daemon(name: str) -> None:
    objects = render(VARIANTS[name])
    spec, of_daemon = pod(objects), load(None, environment(objects) | {"OPENMSMQ_DATA_DIR": "/nowhere"})
    ports = {entry["name"]: entry["containerPort"] for entry in spec["containers"][0]["ports"]}
    of_wire = {"endpoint-mapper": "endpoint_mapper_port", "messages": "message_port", "qmcomm": "rpc_port"}
    assert {port: ports[port] for port in of_wire} == {
        port: of_daemon.port(setting, of_daemon.port_offset) for port, setting in of_wire.items()
    }  # fmt: skip
    assert ports.get("web") in (None, of_daemon.port("web_port", of_daemon.port_offset))
    assert ("web" in ports) == (of_daemon.web and not of_daemon.web_on_loopback)
    assert {entry["name"]: entry["port"] for entry in objects["Service"]["spec"]["ports"]} == {
        port: ports[port] for port in of_wire
    }  # fmt: skip
    assert spec["terminationGracePeriodSeconds"] > 2 * of_daemon.shutdown_grace_seconds
    assert ("sysctls" in spec["securityContext"]) == (min(ports.values()) < 1024)
    # The daemon refuses unknown OPENMSMQ_ variables, and service links would add some.
    assert spec["enableServiceLinks"] is False
    mounted = {mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    claims = {claim["metadata"]["name"] for claim in objects["StatefulSet"]["spec"].get("volumeClaimTemplates", [])}
    assert mounted <= {volume["name"] for volume in spec["volumes"]} | claims
    assert objects["StatefulSet"]["spec"]["replicas"] == 1
    for one in (*spec["containers"], *spec.get("initContainers", [])):
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
    assert spec["securityContext"]["runAsNonRoot"] is True


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "mq"])
def test_prometheus_finds_the_figures_and_the_rules(tmp_path: Path, name: str) -> None:
    objects = render({**EVERYTHING, "nameOverride": name}, fullname=f"orders-{name or 'openmsmq'}")
    monitor, service, rules = (objects[kind] for kind in ("ServiceMonitor", "Service-web", "PrometheusRule"))
    labels = service["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    others = (objects[kind]["metadata"]["labels"] for kind in ("Service", "Service-external"))
    assert not any(monitor["spec"]["selector"]["matchLabels"].items() <= other.items() for other in others)
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert rules["spec"] == yaml.safe_load((PACKAGING / "prometheus" / "alerts.yaml").read_text())
    (relabeling,) = monitor["spec"]["endpoints"][0]["relabelings"]
    assert relabeling["targetLabel"] == "job" and f'job="{relabeling["replacement"]}"' in str(rules["spec"])
    promtool = program("promtool", "make prometheus")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules["spec"]))
    subprocess.run([promtool, "check", "rules", str(tmp_path / "rules.yaml")], check=True, capture_output=True)


@pytest.mark.slow
def test_a_packed_chart_is_complete(tmp_path: Path) -> None:
    done = helm("package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as packed:
        alerts = packed.extractfile("openmsmq/alerts.yaml")
        assert alerts is not None and alerts.read() == (PACKAGING / "prometheus" / "alerts.yaml").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_the_notes_name_existing_commands(name: str) -> None:
    done = helm("install", "orders", CHART, "--dry-run=client", "--namespace", "shop", values=VARIANTS[name])
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert "shop.svc" in notes
    commands = re.findall(r"^  (?:kubectl .* -- )?openmsmq (.*)", notes, re.MULTILINE)
    assert commands
    for command in commands:
        parse(command.split())


def test_its_version_is_that_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == openmsmq.__version__


def test_schema_and_readme_are_those_of_the_settings_and_values() -> None:
    subprocess.run([sys.executable, PROJECT / "tools" / "chart", "--check"], check=True)


@pytest.mark.slow
def test_the_example_without_helm_is_the_chart_with_its_defaults() -> None:
    assert helm("version").returncode == 0  # without helm, nothing is compared
    subprocess.run([sys.executable, PROJECT / "tools" / "chart", "--check"], check=True)


# -- a daemon with the settings of the pod, with local paths and on loopback -------------------------------------------


class Pod:
    """Runs the containers of a rendered pod as local processes."""

    def __init__(self, objects: dict[str, dict[str, Any]], directory: Path) -> None:
        self.spec = pod(objects)
        self.places = {
            "/var/lib/openmsmq": directory / "data", "/etc/openmsmq": directory / "settings",
            "/run/secrets/openmsmq": directory / "secrets",
        }  # fmt: skip
        for place in self.places.values():
            place.mkdir()
        (directory / "settings" / "openmsmq.toml").write_text(objects["ConfigMap"]["data"]["openmsmq.toml"])
        of_daemon = environment(objects) | {"OPENMSMQ_LISTEN": "127.0.0.1"}
        self.environment = {name: self.here(value) for name, value in of_daemon.items()}
        self.log = directory / "log"

    def here(self, text: str) -> str:
        for there, place in self.places.items():
            text = text.replace(there, str(place))
        return text

    def run(self, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command with the environment of the container."""
        known = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", **self.environment, **environment}
        return subprocess.run(list(map(self.here, command)), env=known, capture_output=True, text=True, timeout=60)

    def initialize(self) -> None:
        (users,) = self.spec["initContainers"]
        done = self.run(users["command"], **{entry["name"]: entry["value"] for entry in users["env"]})
        assert done.returncode == 0, done.stderr

    @contextmanager
    def running(self) -> Iterator[None]:
        command = [self.here(part) for part in self.spec["containers"][0]["command"]]
        known = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", **self.environment}
        with self.log.open("wb") as log, subprocess.Popen(command, env=known, stdout=log, stderr=log) as process:
            try:
                yield
                process.send_signal(signal.SIGTERM)
                assert process.wait(self.spec["terminationGracePeriodSeconds"]) == 0
            finally:
                process.kill()

    def probe(self, name: str) -> bool:
        probe = self.spec["containers"][0][name]
        if "exec" in probe:
            return self.run(probe["exec"]["command"]).returncode == 0
        get = probe["httpGet"]
        (port,) = (port for port in self.spec["containers"][0]["ports"] if port["name"] == get["port"])
        anybody = ssl.create_default_context()
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE  # probes do not verify certificates
        url = f"{get['scheme'].lower()}://127.0.0.1:{port['containerPort']}{get['path']}"
        try:
            with urllib.request.urlopen(url, context=anybody, timeout=probe["timeoutSeconds"]) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def test_users_are_added_before_the_first_start_and_kept_at_the_next(tmp_path: Path) -> None:
    """The script of the init container, without helm: only a tag of a template around it depends on values."""
    template = (CHART / "templates" / "statefulset.yaml").read_text()
    script = textwrap.dedent(template.partition("            - |\n")[2].partition("          securityContext:")[0])
    users, data = tmp_path / "users", tmp_path / "data"
    for place in (users, data):
        place.mkdir()
    script = script.replace("/run/secrets/openmsmq/users", str(users)).replace("/var/lib/openmsmq", str(data))
    (users / "alice").write_text("s3cret\n")
    environment = {
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "ADMINISTRATORS": "alice", "OPENMSMQ_DATA_DIR": str(data)
    }  # fmt: skip
    for more in ("bob", "carol"):
        (users / more).write_text("other")
        subprocess.run(["sh", "-euc", script], env=environment, check=True)
    listed = json.loads((data / "users.json").read_text())["users"]
    administrators = {user["name"]: user.get("administrator", False) for user in listed}
    assert administrators == {"alice": True, "bob": False, "carol": False}
    (users / "alice").rename(users / "Alice")  # the same user: names are not case-sensitive
    subprocess.run(["sh", "-euc", script], env=environment, check=True)
    for entry in users.iterdir():
        entry.unlink()
    subprocess.run(["sh", "-euc", script], env=environment, check=True)


@pytest.mark.slow
def test_a_daemon_runs_as_the_default_values_say(tmp_path: Path) -> None:
    pod = Pod(render({"portOffset": free_offset(), "shutdownGraceSeconds": 1}), tmp_path)
    assert not pod.probe("readinessProbe")
    with pod.running():
        eventually(lambda: pod.probe("startupProbe"))
        assert pod.probe("readinessProbe") and pod.probe("livenessProbe")
        done = pod.run(["openmsmq", "user", "add", "alice", "--admin", "--password-stdin"])
        assert done.returncode == 1 and "empty" in done.stderr
    settings = json.loads((pod.places["/var/lib/openmsmq"] / "settings.json").read_text())
    assert settings["computer_name"] == {"source": "environment", "value": "orders-openmsmq-0"}


@pytest.mark.slow
def test_a_daemon_runs_with_users_certificate_and_settings_of_the_chart(tmp_path: Path) -> None:
    offset = free_offset()
    values = {
        "portOffset": offset, "shutdownGraceSeconds": 1, "settings": {"max_queues": 7, "allow_anonymous": False},
        "users": {"existingSecret": "users", "administrators": ["alice"]}, "web": {"tlsSecret": "tls"},
    }  # fmt: skip
    pod = Pod(render(values), tmp_path)
    secrets = pod.places["/run/secrets/openmsmq"]
    (secrets / "users").mkdir()
    (secrets / "users" / "alice").write_text("s3cret\n")
    (secrets / "users" / "bob").write_text("other")
    (secrets / "tls").mkdir()
    for made, name in zip(self_signed(tmp_path), ("tls.crt", "tls.key"), strict=True):
        shutil.move(made, secrets / "tls" / name)
    pod.initialize()
    (secrets / "users" / "bob").write_text("changed")
    pod.initialize()  # as at the next start
    listed = [json.loads(line) for line in pod.run(["openmsmq", "user", "list", "--json"]).stdout.splitlines()]
    assert [(user["name"], user["administrator"]) for user in listed] == [("alice", True), ("bob", False)]
    with pod.running():
        eventually(lambda: pod.probe("startupProbe"))
        assert pod.probe("livenessProbe")
        for user, password, code in (("alice", "s3cret", 0), ("bob", "other", 0), ("bob", "changed", 1)):
            command = ["openmsmq", "queue", "list", "--host", "127.0.0.1", "--user", user]
            done = pod.run(command, OPENMSMQ_PASSWORD=password)
            assert (done.returncode == 0) == (code == 0), done.stderr
    settings = json.loads((pod.places["/var/lib/openmsmq"] / "settings.json").read_text())
    assert settings["max_queues"] == {"source": "file", "value": 7}
    assert Configuration().max_queues != 7
