"""Renders the chart with values that no example has, and shows the message if it refuses them: needs helm."""

import copy
import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.product.deploy.render import CHART, EXAMPLES, objects_in
from tests.product.deploy.rendering import Manifest
from tests.product.deploy.schemas import NEWEST
from tests.product.deploy.tools import tool

RELEASE = NAMESPACE = "gpuslice"
# A helm that was built from source assumes an old Kubernetes.
_KUBERNETES = ("--kube-version", NEWEST)

# Every feature at once, except those that exclude each other.
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
        "prometheusHeaderSecret": "headers",
        "waiting": {"enabled": True},
        "monitor": {"enabled": True, "kind": "ServiceMonitor"},
        "config": {"route-prefix": "/gpus"},
        "webConfig": {"existingSecret": "hub", "scheme": "https"},
        "ingress": {
            "enabled": True,
            "hosts": ["gpus.example.com"],
            "path": "/gpus",
            "annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"},
            "tls": [{"secretName": "gpus", "hosts": ["gpus.example.com"]}],
        },
        "httpRoute": {
            "enabled": True,
            "parentRefs": [{"name": "gateway"}],
            "path": "/gpus",
            "backendTLS": {"hostname": "hub.example.com", "caConfigMap": "authority"},
        },
    },
}


def chart(
    *examples: str, values: Any = None, release: str = RELEASE, namespace: str = NAMESPACE
) -> list[Manifest]:
    """Return the objects of a release with examples and with values that override them."""
    given = "" if values is None else json.dumps(values)
    return copy.deepcopy(_objects(examples, given, release, namespace))


def everything() -> list[Manifest]:
    """Return the objects of a release that uses every feature of the chart."""
    return chart(values=EVERYTHING, namespace="elsewhere")


def refusal(values: Any) -> str:
    """Return helm's message about values that the chart refuses; if they are rendered, the test fails."""
    done = template(CHART, (), json.dumps(values))
    if done.returncode == 0:
        pytest.fail(f"rendered: {values}")
    return done.stderr


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Return the message of schema or template about wrong values; other errors of helm fail the test."""
    begins = r"^Error: execution error at \(gpuslice-exporter/templates/[^)]*\): "
    own = re.search(rf"{begins}(.+: .+\.)$", done.stderr, re.MULTILINE)
    by_schema = re.findall(r"^ *- (at '.*)$", done.stderr, re.MULTILINE)
    if not own and not by_schema:
        pytest.fail(f"not in the chart's words: {done.stderr}")
    return own[1] if own else "\n".join(by_schema)


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
    """Run helm with a text as its standard input."""
    command = [tool("helm"), *map(str, arguments)]
    # It ends before collecting garbage pays, which takes a fifth of its time.
    environ = os.environ | {"GOGC": "off"}
    return subprocess.run(command, input=given, env=environ, capture_output=True, text=True, check=False)


@cache
def _objects(examples: tuple[str, ...], values: str, release: str, namespace: str) -> list[Manifest]:
    done = template(CHART, examples, values, "--namespace", namespace, release=release)
    if done.returncode:
        pytest.fail(f"helm template {examples} {values}: {done.stderr}")
    return objects_in(done.stdout)
