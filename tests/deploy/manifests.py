"""Renders deploy/ in two ways: by the rules that these files use, and by kubectl where it is installed."""

import copy
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPONENTS = sorted(path.name for path in (DEPLOY / "components").iterdir())

Manifest = dict[str, Any]


def sum_up(*components: str) -> list[Manifest]:
    """Give the objects of the base with each component's resources and patches applied."""
    base = DEPLOY / "base"
    objects = list(_resources(base))
    for component in components:
        folder = DEPLOY / "components" / component
        objects += _resources(folder)
        for entry in _kustomization(folder)["patches"]:
            patch = yaml.safe_load(entry["patch"])
            target = _target(objects, entry, patch)
            change = _append if isinstance(patch, list) else _merge
            objects[objects.index(target)] = change(target, patch)
    (image,) = _kustomization(base)["images"]
    (container,) = pod_spec(objects)["containers"]
    assert container["image"] == image["name"]
    container["image"] += f":{image['newTag']}"
    return objects


@cache
def kubectl(*components: str) -> list[Manifest]:
    """Give what ``kubectl kustomize`` makes of the base with components, in a folder that is outside."""
    with TemporaryDirectory() as scratch:

        def relative(path: Path) -> str:
            return os.path.relpath(path, scratch)

        overlay = {
            "resources": [relative(DEPLOY / "base")],
            "components": [relative(DEPLOY / "components" / component) for component in components],
        }
        (Path(scratch) / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        made = subprocess.run(
            ["kubectl", "kustomize", scratch], capture_output=True, text=True, check=True, timeout=60
        )
    return list(yaml.safe_load_all(made.stdout))


def renderings(*components: str) -> Iterator[list[Manifest]]:
    """Give the objects by each way that there is on this machine."""
    yield sum_up(*components)
    if shutil.which("kubectl"):
        yield copy.deepcopy(kubectl(*components))


def only(objects: list[Manifest], kind: str) -> Manifest:
    """Give the one object of a kind."""
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def pod_spec(objects: list[Manifest]) -> Manifest:
    """Give the specification of the DaemonSet's pods."""
    return only(objects, "DaemonSet")["spec"]["template"]["spec"]


def in_order(value: Any) -> Any:
    """Give a copy with all lists of objects sorted: their order carries no meaning here."""
    if isinstance(value, dict):
        return {key: in_order(child) for key, child in value.items()}
    if isinstance(value, list):
        return sorted(map(in_order, value), key=yaml.safe_dump)
    return value


@cache
def _read(path: Path) -> list[Manifest]:
    return list(yaml.safe_load_all(path.read_text()))


def _kustomization(folder: Path) -> Manifest:
    (found,) = copy.deepcopy(_read(folder / "kustomization.yaml"))
    return found


def _resources(folder: Path) -> Iterator[Manifest]:
    for name in _kustomization(folder).get("resources", ()):
        yield from copy.deepcopy(_read(folder / name))


def _target(objects: list[Manifest], entry: Manifest, patch: Any) -> Manifest:
    """Find what a patch is for: it says so beside it, or is a part of it."""
    wanted = entry.get("target")
    (found,) = [
        each
        for each in objects
        if (
            (each["kind"], each["metadata"]["name"]) == (wanted["kind"], wanted["name"])
            if wanted
            else _identity(each) == _identity(patch)
        )
    ]
    return found


def _append(old: Manifest, operations: list[Manifest]) -> Manifest:
    """Add values to the ends of lists (RFC 6902), which is all that the files ask for in this form."""
    changed = copy.deepcopy(old)
    for operation in operations:
        *path, end = operation["path"].strip("/").split("/")
        assert (operation["op"], end) == ("add", "-")
        place = changed
        for name in path:
            place = place[name]
        assert isinstance(place, list)
        place.append(operation["value"])
    return changed


def _identity(each: Manifest) -> tuple[str, str, str, str | None]:
    metadata = each["metadata"]
    return each["apiVersion"], each["kind"], metadata["name"], metadata.get("namespace")


def _merge(old: Any, new: Any) -> Any:
    """Merge as Kubernetes does: objects by key, lists of named objects by name, all else is replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: _merge(old.get(key), value) for key, value in new.items()}
    if isinstance(old, list) and all("name" in each for each in new):
        merged = {each["name"]: each for each in copy.deepcopy(old)}
        for each in new:
            merged[each["name"]] = _merge(merged.get(each["name"]), each)
        return list(merged.values())
    return new
