"""The pages on installing with kustomize name what exists, and the examples of docs/deploy.md build."""

import re
from pathlib import Path

import pytest

from alerts.reference_pages import settings_page
from tests.product.deploy import render
from tests.product.deploy.render import EXAMPLES
from tests.product.deploy.rendering import COMPONENTS, OVERLAYS, Manifest, container, objects_in, only
from tests.product.deploy.schemas import NEWEST, OLDEST, validate
from tests.product.deploy.tools import ROOT, tool

PAGE = (ROOT / "docs/deploy.md").read_text()
COMPONENTS_PAGE = (ROOT / "docs/components.md").read_text()
ALL_PAGES = "".join(
    path.read_text()
    for path in (
        ROOT / "docs/deploy.md",
        ROOT / "docs/components.md",
        *sorted((ROOT / "docs/platforms").glob("*.md")),
    )
)


def _examples() -> list[Manifest]:
    blocks = [objects_in(block)[0] for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    return [block for block in blocks if {"resources", "components", "patches"} & block.keys()]


def test_every_overlay_and_component_is_on_the_page() -> None:
    """Platforms in the table of docs/deploy.md, all others in those of docs/components.md."""
    tables = PAGE + COMPONENTS_PAGE
    assert [name for name in OVERLAYS if f"`overlays/{name}`" not in tables] == []
    assert [name for name in COMPONENTS if f"`components/{name}`" not in COMPONENTS_PAGE] == []


def test_the_pages_name_nothing_that_does_not_exist() -> None:
    """No overlay, component, variable, file of values or file."""
    assert set(re.findall(r"\boverlays/([\w-]+)", ALL_PAGES)) <= set(OVERLAYS)
    assert set(re.findall(r"\bcomponents/([\w-]+)", ALL_PAGES)) <= set(COMPONENTS)
    assert set(re.findall(r"`([\w-]+)\.yaml`", ALL_PAGES)) <= set(EXAMPLES)
    variables = set(re.findall(r"GPUSLICE_[A-Z_]+", settings_page()))
    assert set(re.findall(r"GPUSLICE_[A-Z_]+", ALL_PAGES)) <= variables
    assert [
        path
        for path in re.findall(r"`((?:deploy|docs|exporter)/[\w./-]+)`", ALL_PAGES)
        if not (ROOT / path).exists()
    ] == []


def test_the_page_says_what_was_never_tried() -> None:
    """No overlay was run on its platform, and the versions of Kubernetes are those that tests check."""
    oldest, newest = (re.match(r"\d+\.\d+", version).group() for version in (OLDEST, NEWEST))

    assert "**None of these overlays was run on its platform.**" in PAGE
    assert f"of Kubernetes {oldest} to {newest}" in PAGE


def test_examples_name_places_that_exist() -> None:
    """The quick part of the next test."""
    paths = [
        path for each in _examples() for key in ("resources", "components") for path in each.get(key, ())
    ]

    assert paths
    assert [path for path in paths if not (ROOT / "deploy" / path).exists()] == []


@pytest.mark.tools
@pytest.mark.parametrize("example", _examples(), ids="+".join)
def test_an_example_builds_and_is_valid(example: Manifest) -> None:
    """In a folder of the clone it gives valid objects; a part of a kustomization does on the base."""
    tool("kustomize")
    objects = render.kustomize({"resources": ["../deploy/base"], **example})

    validate(objects)
    for image in example.get("images", ()):
        assert container(objects)["image"] == f"{image['newName']}:{image['newTag']}"


@pytest.mark.tools
def test_the_example_of_a_users_overlay_reaches_every_object() -> None:
    """Prometheus's label is on all, dashboards go to Grafana's namespace, and the scrape is encrypted."""
    tool("kustomize")
    (example,) = (each for each in _examples() if "labels" in each)
    objects = render.kustomize(example)
    namespaces = {
        kind: {each["metadata"].get("namespace") for each in objects if each["kind"] == kind}
        for kind in ("ConfigMap", "DaemonSet")
    }

    assert {each["metadata"]["labels"]["release"] for each in objects} == {"kube-prometheus-stack"}
    assert namespaces == {"ConfigMap": {"monitoring"}, "DaemonSet": {"gpuslice"}}
    assert only(objects, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["scheme"] == "https"


def test_every_folder_has_a_kustomization() -> None:
    for parent, names in {"overlays": OVERLAYS, "components": COMPONENTS}.items():
        assert sorted(path.name for path in Path(ROOT / "deploy" / parent).iterdir()) == names
