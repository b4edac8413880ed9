"""Renders the chart by the real helm: examples, other values, and what it says where it refuses."""

import copy
import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.rendering import DEPLOY, Manifest, objects_in
from tests.deploy.schemas import NEWEST
from tests.deploy.tools import tool

CHART = DEPLOY / "charts/gpuslice-exporter"
EXAMPLES = {path.stem: path for path in sorted(CHART.glob("examples/*.yaml"))}
# Those that are for any platform say so, and the others are a platform's.
BESIDE = sorted(
    name for name, path in EXAMPLES.items() if path.read_text().startswith("# Use with the file of")
)
RELEASE = NAMESPACE = "gpuslice"
# A helm that was built from source takes itself for one of an old Kubernetes.
_KUBERNETES = ("--kube-version", NEWEST)

# Every feature at once, but for those that exclude each other.
EVERYTHING = {
    "image": {"digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "registry"}],
    "commonLabels": {"team": "gpu"},
    "config": {"listen": ":9900", "poll-interval": 10},
    "extraArgs": ["--log-level=debug"],
    "extraEnv": [{"name": "A", "value": "b"}],
    "extraVolumes": [{"name": "jobs", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "jobs", "mountPath": "/jobs"}],
    "webConfig": {
        "content": {"tls_server_config": {"cert_file": "/etc/gpuslice/tls/tls.crt"}},
        "tlsSecret": "tls",
        "clientCaSecret": "ca",
    },
    "kubernetesApi": {"enabled": True},
    "migMonitor": {"enabled": True},
    "podMonitor": {"enabled": True, "namespace": "monitoring", "attachMetadata": {"node": True}},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 443}]}]},
    "openshift": {"enabled": True},
    "resourceQuota": {"enabled": True},
    "hub": {
        "enabled": True,
        "prometheusUrl": "http://prometheus:9090",
        "webConfig": {"existingSecret": "hub", "scheme": "https"},
    },
}


def chart(
    *examples: str, values: Any = None, release: str = RELEASE, namespace: str = NAMESPACE
) -> list[Manifest]:
    """Give the objects of a release with values files of these names, and values over them."""
    given = "" if values is None else json.dumps(values)
    return copy.deepcopy(_objects(examples, given, release, namespace))


def everything() -> list[Manifest]:
    """Give the objects of a release that uses every feature of the chart."""
    return chart(values=EVERYTHING, namespace="elsewhere")


def refusal(values: Any, *options: str) -> str:
    """Give what helm says of values that the chart refuses; rendering them fails the test."""
    done = template(CHART, (), json.dumps(values), *options)
    if done.returncode == 0:
        pytest.fail(f"rendered: {values}")
    return done.stderr


def template(
    folder: Path, examples: tuple[str, ...], values: str, *options: str, release: str = RELEASE
) -> subprocess.CompletedProcess[str]:
    """Run ``helm template`` on a chart with examples and with values as JSON text."""
    files = [option for name in examples for option in ("--values", EXAMPLES[name])]
    own = ("--values", "-") if values else ()
    return helm("template", release, folder, *_KUBERNETES, *files, *own, *options, given=values)


def lint(*examples: str) -> subprocess.CompletedProcess[str]:
    """Run ``helm lint --strict`` on the chart with examples."""
    files = [option for name in examples for option in ("--values", EXAMPLES[name])]
    return helm("lint", "--strict", CHART, *_KUBERNETES, *files)


def helm(*arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run helm, with a text to read."""
    command = [tool("helm"), *map(str, arguments)]
    # It ends before collecting garbage pays, which is a fifth of its time.
    environ = os.environ | {"GOGC": "off"}
    return subprocess.run(
        command, input=given, env=environ, capture_output=True, text=True, check=False, timeout=100
    )


def named(objects: list[Manifest], kind: str, name: str) -> Manifest:
    """Give the object of a kind whose name ends so."""
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(name)]
    return found


def mount_paths(spec: Manifest) -> dict[str, str]:
    """Give where each volume of a pod's only container is mounted."""
    (only_one,) = spec["containers"]
    return {each["name"]: each["mountPath"] for each in only_one["volumeMounts"]}


def environment(container: Manifest) -> dict[str, str]:
    """Give the variables of a container that have a value."""
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def selectors(objects: list[Manifest]) -> list[Any]:
    """Give what chooses pods, which must never change from one version of a release to the next."""
    return [each["spec"].get("selector") for each in objects if "selector" in each.get("spec", {})]


@cache
def _objects(examples: tuple[str, ...], values: str, release: str, namespace: str) -> list[Manifest]:
    done = template(CHART, examples, values, "--namespace", namespace, release=release)
    if done.returncode:
        pytest.fail(f"helm template {examples} {values}: {done.stderr}")
    return objects_in(done.stdout)
