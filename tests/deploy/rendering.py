"""Renders deploy/ by the real kustomize, and finds the parts that tests look at."""

import copy
import json
import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from tests.deploy.tools import ROOT, output

DEPLOY = ROOT / "deploy"
OVERLAYS = sorted(path.parent.name for path in DEPLOY.glob("overlays/*/kustomization.yaml"))
COMPONENTS = sorted(path.parent.name for path in DEPLOY.glob("components/*/kustomization.yaml"))
# The first Kubernetes that knows the kinds of an overlay or component.
SINCE = dict.fromkeys(("gpu-cluster", "admin-claim"), "1.34.0")

Manifest = dict[str, Any]


# Rules and dashboards are long: where PyYAML has libyaml they are read ten times as fast.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Refuses a key that is there twice, as some of those do who read manifests; others take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Manifest:
        keys = [key.value for key, _ in node.value]
        if len(keys) != len(set(keys)):
            twice = next(key for key in keys if keys.count(key) > 1)
            message = f"line {node.start_mark.line + 1}: {twice} is there twice"
            raise ValueError(message)
        found: Manifest = super().construct_mapping(node, deep)
        return found


def overlay(name: str) -> list[Manifest]:
    """Give the objects of ``deploy/overlays/NAME``."""
    return copy.deepcopy(_built(DEPLOY / "overlays" / name))


def composed(*components: str, of: str = "base") -> list[Manifest]:
    """Give the objects of the base, or of ``overlays/NAME``, with components, as an own overlay has them."""
    return copy.deepcopy(_composed(components, of))


def kustomized(own: Manifest) -> list[Manifest]:
    """Give the objects of a kustomization whose paths are those of a folder beside ``deploy/``."""
    with TemporaryDirectory() as scratch:

        def here(paths: list[str]) -> list[str]:
            return [os.path.relpath(DEPLOY / path, scratch) for path in paths]

        related = {key: here(own.get(key, [])) for key in ("resources", "components")}
        (Path(scratch) / "kustomization.yaml").write_text(json.dumps(own | related))
        return objects_in(output("kustomize", "build", scratch))


def only(objects: list[Manifest], kind: str) -> Manifest:
    """Give the one object of a kind."""
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def pod_spec(objects: list[Manifest]) -> Manifest:
    """Give the specification of the DaemonSet's pods."""
    spec: Manifest = only(objects, "DaemonSet")["spec"]["template"]["spec"]
    return spec


def container(objects: list[Manifest]) -> Manifest:
    """Give the one container of the DaemonSet's pods."""
    found: Manifest
    (found,) = pod_spec(objects)["containers"]
    return found


def objects_in(text: str) -> list[Manifest]:
    """Read the objects of a file or of what a program prints."""
    return [each for each in yaml.load_all(text, _Loader) if each]


@cache
def _built(folder: Path) -> list[Manifest]:
    return objects_in(output("kustomize", "build", folder))


@cache
def _composed(components: tuple[str, ...], of: str) -> list[Manifest]:
    chosen = [f"../deploy/components/{name}" for name in components]
    return kustomized({"resources": [f"../deploy/{of}"], "components": chosen})
