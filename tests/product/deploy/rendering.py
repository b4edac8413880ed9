"""Reads what ``make rendered`` wrote, and finds the parts that tests look at.

The text of a dashboard and the spec of a rules object are the path of the file with that content.
"""

import copy
from functools import cache

from exporter import __version__
from tests.product.deploy.render import (
    COMPONENTS,
    DEPLOY,
    OVERLAYS,
    RENDERED,
    VERSION_MARK,
    Manifest,
    composition_name,
    objects_in,
)

__all__ = ["COMPONENTS", "DEPLOY", "OVERLAYS", "Manifest", "objects_in"]

# The first Kubernetes that has the kinds of an overlay or component.
SINCE = dict.fromkeys(("gpu-cluster", "admin-claim"), "1.34.0")


def overlay(name: str) -> list[Manifest]:
    """Return the objects of ``deploy/overlays/NAME``."""
    return rendered(f"overlays/{name}")


def composed(*components: str, of: str = "base") -> list[Manifest]:
    """Return the objects of the base, or of ``overlays/NAME``, with components.

    tests/product/deploy/render.py lists the combinations.
    """
    return rendered(f"components/{composition_name(components, of)}")


def example(name: str = "default") -> list[Manifest]:
    """Return the objects of the chart with an example, or without values."""
    return rendered(f"chart/{name}")


def rendered(name: str) -> list[Manifest]:
    """Return the objects of a file of ``make rendered``."""
    return copy.deepcopy(_read(name))


def only(objects: list[Manifest], kind: str) -> Manifest:
    """Return the one object of a kind."""
    (wanted,) = [each for each in objects if each["kind"] == kind]
    return wanted


def named(objects: list[Manifest], kind: str, suffix: str) -> Manifest:
    """Return the object of a kind whose name ends with a suffix."""
    (wanted,) = [
        each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(suffix)
    ]
    return wanted


def kinds(objects: list[Manifest]) -> set[str]:
    """Return the kinds of objects."""
    return {each["kind"] for each in objects}


def template(objects: list[Manifest]) -> Manifest:
    """Return the template of the DaemonSet's pods."""
    pods: Manifest = only(objects, "DaemonSet")["spec"]["template"]
    return pods


def pod_spec(objects: list[Manifest]) -> Manifest:
    """Return the spec of the DaemonSet's pods."""
    spec: Manifest = template(objects)["spec"]
    return spec


def container(objects: list[Manifest]) -> Manifest:
    """Return the one container of the DaemonSet's pods."""
    exporter: Manifest
    (exporter,) = pod_spec(objects)["containers"]
    return exporter


def node_selector_terms(objects: list[Manifest]) -> list[Manifest]:
    """Return the terms of which a node must fulfil one to get a pod."""
    affinity = pod_spec(objects)["affinity"]["nodeAffinity"]
    terms: list[Manifest] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return terms


def scrape_annotations(objects: list[Manifest]) -> set[str]:
    """Return the annotations by which a Prometheus without an operator finds the pods."""
    annotations = template(objects)["metadata"].get("annotations", {})
    return {name for name in annotations if name.startswith("prometheus.io/")}


def environment(container: Manifest) -> dict[str, str]:
    """Return the variables of a container that have a value."""
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def mount_paths(spec: Manifest) -> dict[str, str]:
    """Return where each volume of a pod's only container is mounted."""
    (only_container,) = spec["containers"]
    return {each["name"]: each["mountPath"] for each in only_container["volumeMounts"]}


@cache
def _read(name: str) -> list[Manifest]:
    path = RENDERED / f"{name}.yaml"
    if not path.exists():
        message = (
            f"{path} is missing: add it to tests/product/deploy/render.py if it is new, and run make rendered"
        )
        raise FileNotFoundError(message)
    return objects_in(path.read_text().replace(VERSION_MARK, __version__))
