"""Renders deploy/ by the real kustomize and the real helm, and finds the parts that tests look at."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.tools import ROOT, output

DEPLOY = ROOT / "deploy"
OVERLAYS = sorted(path.parent.name for path in DEPLOY.glob("overlays/*/kustomization.yaml"))
CHART = DEPLOY / "charts/gpuslice-exporter"

Manifest = dict[str, Any]


@cache
def _built(folder: Path) -> str:
    return output("kustomize", "build", folder)


def overlay(name: str) -> list[Manifest]:
    """Give the objects of ``deploy/overlays/NAME``."""
    return _objects(_built(DEPLOY / "overlays" / name))


@cache
def _templated(values: tuple[Path, ...], settings: tuple[str, ...]) -> str:
    files = [option for path in values for option in ("--values", path)]
    chosen = [option for setting in settings for option in ("--set", setting)]
    return output("helm", "template", "gpuslice", CHART, "--namespace", "gpuslice", *files, *chosen)


def chart(*values: Path, settings: tuple[str, ...] = ()) -> list[Manifest]:
    """Give the objects of the chart, a release in namespace ``gpuslice``, with values files and --set."""
    return _objects(_templated(values, settings))


def only(objects: list[Manifest], kind: str) -> Manifest:
    """Give the one object of a kind."""
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def _objects(text: str) -> list[Manifest]:
    return [each for each in yaml.safe_load_all(text) if each]
